"""CuPy: a raw kernel; it takes torch's tensors and returns an array of its own."""

import cupy

KERNEL = cupy.RawKernel(r"""
extern "C" __global__ void axpy_cupy(float* out, const float* x, const float* y, long long count) {
  long long index = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) out[index] = 2.0f * x[index] + y[index];
}
""", "axpy_cupy")


def axpy(x, y):
    x, y = cupy.from_dlpack(x.detach()), cupy.from_dlpack(y.detach())
    out = cupy.empty_like(x)
    KERNEL(((x.size + 255) // 256,), (256,), (out, x, y, x.size))
    return out


def optimize(model, inputs):
    return axpy
