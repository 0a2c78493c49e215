"""Kinds of kernels by their names, and names without what a compiler only numbers.

A family is read off the name alone: libraries and compilers put what a kernel does into it. What no rule knows is "other".
"""

from __future__ import annotations

import re

from .names import is_collective, is_copy_work, is_memset

OTHER = "other"
_RULES: tuple[tuple[str, re.Pattern[str]], ...] = tuple((family, re.compile(pattern, re.IGNORECASE)) for family, pattern in (
    ("communication", r"^c10d::|^gloo:|^rccl"),
    ("attention", r"fmha|flash_|attention|sdpa|triton_tem_.*flex"),
    ("recurrent", r"lstm|gru_|_gru|rnn"),
    ("convolution", r"convol|conv[123]d|conv_depthwise|_conv_|[fdw]grad|fprop|winograd|implicit_gemm"),
    ("matrix product", r"gemm|gemv|cutlass|cublas|nvjet|split_?k|xmma|^cijk_|matmul|triton_tem_|"
                       r"aten::(?:_?addmm|_?mm|bmm|baddbmm|addbmm|addmv|mv|dot|linear|_scaled_mm)\b"),
    ("optimizer", r"multi_tensor|_foreach_|fused_(?:adam|sgd)|adam"),
    ("normalization", r"(?:layer|batch|group|instance|rms)_?norm|_bn_|\bbn_|rowwisemoments|welford|gammabeta"),
    ("softmax and loss", r"softmax|nll_loss|cross_entropy|mse_loss|bce"),
    ("embedding and indexing", r"embedding|index|gather|scatter|krn_partial|compute_grad_weight"),
    ("random numbers", r"dropout|philox|distribution|random|bernoulli"),
    ("sorting", r"sort|topk|radix|unique"),
    ("reduction", r"reduce|triton_(?:red|per)_|aten::(?:sum|mean|amax|amin|max|min|norm|all|any|argmax|prod|var)\b|cumsum|scan"),
    ("pooling and resampling", r"pool|upsample|interpolate"),
    ("elementwise", r"elementwise|vectorized|unrolled|triton_poi_|cpp_fused|catarray|copy_|fill|"
                    r"aten::(?:add|sub|mul|div|relu|gelu|silu|sigmoid|tanh|threshold|clamp|where|cat|copy|neg|exp|log|sqrt|rsqrt|pow|native_dropout|zero)")))
_CUTLASS_DSL = "kernel_cutlass_"
"""What the CUTLASS DSL puts before the name of each kernel that somebody writes in it (cutlass/base_dsl/dsl.py), whatever it does."""
_NUMBER = re.compile(r"(?<=_)\d+$")
_DIGITS = re.compile(r"\d+")
_SPACES = re.compile(r"\s+")
_NUMBERED = re.compile(r"^(?:triton_|cpp_fused|graph_\d+_cpp)")
MOST_CHARACTERS = 2000
"""Of a name that is looked at; C++ names of templates grow to tens of thousands."""


def kernel_family(name: str) -> str:
    """The family of a kernel, a copy or (on the CPU) an operator."""
    name = name[:MOST_CHARACTERS].removeprefix(_CUTLASS_DSL)
    if is_collective(name):
        return "communication"
    if is_copy_work(name):
        return "copy"
    if is_memset(name):
        return "memset"
    return next((family for family, pattern in _RULES if pattern.search(name)), OTHER)


def without_number(name: str) -> str:
    """A generated kernel's name without the number that Inductor counts its kernels with, which changes with any kernel before it;
    other names as they are."""
    return _NUMBER.sub("N", name) if _NUMBERED.match(name) else name


def skeleton(name: str) -> str:
    """A name with each number as "#": what stays when tile sizes, versions or counters change."""
    return _SPACES.sub(" ", _DIGITS.sub("#", name[:MOST_CHARACTERS]))
