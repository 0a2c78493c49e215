"""Two Triton kernels: one for contiguous products, one for others, which do not come here."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(values, size, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(values + at, tl.maximum(tl.load(values + at, mask=at < size), 0.0), mask=at < size)


@triton.jit
def strided_relu_kernel(values, rows, columns, stride, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    place = values + row * stride + at
    tl.store(place, tl.maximum(tl.load(place, mask=at < columns), 0.0), mask=at < columns)


def relu_(values):
    if values.is_contiguous():
        relu_kernel[(triton.cdiv(values.numel(), 1024),)](values, values.numel(), block=1024)
    else:
        rows, columns = values.shape
        strided_relu_kernel[(rows,)](values, rows, columns, values.stride(0), block=triton.next_power_of_2(columns))
    return values


def optimize(model, inputs):
    functional = torch.nn.functional

    def call(x):
        with torch.no_grad():
            hidden = functional.silu(model.fc3(functional.gelu(model.fc2(relu_(model.fc1(x))))))
            return torch.tanh(model.fc4(hidden))

    return call
