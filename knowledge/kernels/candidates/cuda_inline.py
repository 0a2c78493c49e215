"""A module with a CUDA C++ kernel that torch compiles when the candidate is built (load_inline): RMS norms of float32, one block a row.

Trigger: kernel_share=38% in aten::rms_norm. Has to fall; Kernels too. Needs a GPU, nvcc of torch's own CUDA (CUDA_HOME), g++ and ninja;
the FAILED verdict's reason says what is missing. Building takes about a minute, outside of what is timed. The judge keeps what was built
for this very file; a run of your own keeps it in TORCH_EXTENSIONS_DIR (else ~/.cache/torch_extensions), until the source changes.
Where nvcc is missing: torch.cuda._compile_kernel(source, name) of torch 2.9 takes the kernel alone, with extern "C" and without headers.
"""

import functools

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

DECLARED = "torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, double eps);"
SOURCE = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

constexpr int THREADS = 256;

__global__ void rms_norm_kernel(float* out, const float* x, const float* weight, int cols, float eps) {
    __shared__ float sums[THREADS / 32];
    x += (int64_t)blockIdx.x * cols;
    out += (int64_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int col = threadIdx.x; col < cols; col += THREADS) sum += x[col] * x[col];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) sum += sums[warp];
    const float scale = rsqrtf(sum / cols + eps);
    for (int col = threadIdx.x; col < cols; col += THREADS) out[col] = x[col] * scale * weight[col];
}

torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, double eps) {
    TORCH_CHECK(x.is_cuda() && x.is_contiguous() && x.scalar_type() == torch::kFloat && weight.scalar_type() == torch::kFloat,
                "contiguous float32 tensors on the GPU");
    const c10::cuda::CUDAGuard guard(x.device());
    auto out = torch::empty_like(x);
    const int cols = x.size(-1);
    if (x.numel() == 0) return out;
    rms_norm_kernel<<<x.numel() / cols, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        out.data_ptr<float>(), x.data_ptr<float>(), weight.data_ptr<float>(), cols, eps);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return out;
}
"""


@functools.cache
def extension():
    return load_inline("cuda_inline_rms_norm", cpp_sources=DECLARED, cuda_sources=SOURCE, functions=["rms_norm"])


@torch.library.custom_op("cuda_inline::rms_norm", mutates_args=(), device_types="cuda")
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return extension().rms_norm(x.contiguous(), weight, eps)


@rms_norm.register_fake
def _(x, weight, eps):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class RMSNorm(nn.Module):
    def __init__(self, old):
        super().__init__()
        self.weight, self.eps = old.weight, torch.finfo(torch.float32).eps if old.eps is None else old.eps

    def forward(self, x):
        return rms_norm(x, self.weight, self.eps)


def optimize(model, inputs):
    norms = [(name, old) for name, old in model.named_modules() if isinstance(old, nn.RMSNorm) and old.weight is not None]
    for name, old in norms:
        if not old.weight.is_cuda:
            raise RuntimeError(f"No CUDA GPUs are available to a CUDA kernel: the model is on the {old.weight.device.type}")
        if old.weight.dtype == torch.float32 and len(old.normalized_shape) == 1:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, RMSNorm(old))
    extension()  # now: the first call is timed
    return model
