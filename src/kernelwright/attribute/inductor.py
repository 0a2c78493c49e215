"""Names that Inductor gives its generated kernels, and what they say about the operators fused into them.

torch/_inductor/codegen/triton.py builds them as triton_<kind>_fused_<operators, sorted, joined by _>_<number>, the C++ back
end as cpp_fused_<operators>_<number>. Operator names may hold underscores themselves, so a vocabulary splits them.
"""

from __future__ import annotations

import re

_KERNEL = re.compile(r"^(?:triton_[a-z]{2,4}|(?:graph_\d+_)?cpp)_fused_(?P<operators>.+?)_\d+(?:_.*)?$")
_REGION = re.compile(r"^(?:Torch-Compiled Region|CompiledFunction)")

_VOCABULARY = """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _convolution _embedding_bag _log_softmax _log_softmax_backward_data
    _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training _softmax
    _softmax_backward_data _scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention
    _scaled_dot_product_cudnn_attention _scaled_mm _to_copy _unsafe_index _unsafe_index_put _unsafe_view
    _fused_rms_norm _low_memory_max_pool_with_offsets _low_memory_max_pool_offsets_to_indices _foreach_copy _foreach_add
    _foreach_mul _foreach_addcdiv _foreach_addcmul _foreach_sqrt _foreach_lerp
    adaptive_avg_pool2d as_strided as_strided_scatter avg_pool2d avg_pool2d_backward bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor broadcast_in_dim clamp_max clamp_min constant_pad_nd convert_element_type
    convolution_backward elu_backward embedding_dense_backward empty_like floor_divide full_like gelu_backward
    grid_sampler_2d hardsigmoid_backward hardswish_backward hardtanh_backward index_add index_copy index_fill index_put
    index_select inductor_force_stride_order inductor_lookup_seed inductor_randint inductor_random inductor_seeds leaky_relu
    leaky_relu_backward lift_fresh_copy logical_and logical_not logical_or logical_xor masked_fill masked_scatter
    max_pool2d_with_indices max_pool2d_with_indices_backward mse_loss mse_loss_backward native_batch_norm
    native_batch_norm_backward native_dropout native_dropout_backward native_group_norm native_group_norm_backward
    native_layer_norm native_layer_norm_backward new_empty new_full new_ones new_zeros nll_loss_backward nll_loss_forward
    nll_loss2d_backward nll_loss2d_forward ones_like pixel_shuffle prepare_softmax_online rand_like randn_like reflection_pad2d
    repeat_interleave replication_pad2d rms_norm scalar_tensor scatter_add scatter_reduce select_backward select_scatter
    sigmoid_backward silu_backward slice_backward slice_scatter split_with_sizes tanh_backward threshold_backward true_divide
    upsample_bilinear2d upsample_nearest2d upsample_nearest2d_backward var_mean view_as_complex view_as_real zeros_like
    zero_
"""
OPERATORS_WITH_UNDERSCORES = frozenset(_VOCABULARY.split())
"""Names of more than one word that Inductor's kernels are named after (ATen names as of torch 2.4 to 2.13)."""
_LONGEST = max(name.count("_") + 1 for name in OPERATORS_WITH_UNDERSCORES)


def is_generated(name: str) -> bool:
    """True for kernels that Inductor generated, by their name."""
    return _KERNEL.match(name) is not None


def is_compiled_region(name: str) -> bool:
    """True for the ranges in which compiled code runs; on the CPU generated code shows as their self time."""
    return _REGION.match(name) is not None


def fused_operators(kernel_name: str) -> tuple[str, ...]:
    """"triton_poi_fused_addmm_relu_0" -> ("addmm", "relu"); () when the name does not say.

    Words that the vocabulary doesn't join stand for themselves.
    """
    match = _KERNEL.match(kernel_name)
    return _split(match["operators"].split("_")) if match else ()


def _split(words: list[str]) -> tuple[str, ...]:
    names: list[str] = []
    position = 0
    while position < len(words):
        for length in range(min(_LONGEST, len(words) - position), 0, -1):
            name = "_".join(words[position:position + length])
            if length == 1 or name in OPERATORS_WITH_UNDERSCORES:
                break
        if name:
            names.append(name)
        position += length
    return tuple(names)
