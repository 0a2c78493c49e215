"""A Triton kernel for bias and ReLU, in place on the product that it made itself."""

import torch
import triton
import triton.language as tl


@triton.jit
def bias_relu_kernel(values, bias, size, columns, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < size
    out = tl.load(values + at, mask=inside) + tl.load(bias + at % columns, mask=inside)
    tl.store(values + at, tl.maximum(out, 0.0), mask=inside)


def optimize(model, inputs):
    weight = model.fc1.weight.detach().t()
    bias = model.fc1.bias.detach()
    functional = torch.nn.functional

    def call(x):
        with torch.no_grad():
            hidden = x @ weight
            size = hidden.numel()
            bias_relu_kernel[(triton.cdiv(size, 1024),)](hidden, bias, size, hidden.shape[1], block=1024)
            hidden = functional.silu(model.fc3(functional.gelu(model.fc2(hidden))))
            return torch.tanh(model.fc4(hidden))

    return call
