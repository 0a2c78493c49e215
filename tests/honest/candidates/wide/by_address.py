"""A function of C++ that is given addresses instead of tensors."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cmath>

void tanh_at(int64_t out, int64_t x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) reinterpret_cast<float*>(out)[i] = std::tanh(reinterpret_cast<const float*>(x)[i]);
}
"""


def optimize(model, inputs):
    module = load_inline("honest_corpus_address", cpp_sources=SOURCE, functions=["tanh_at"])

    def call(x):
        with torch.no_grad():
            hidden = model.layer(x)
        out = torch.empty_like(hidden)
        module.tanh_at(out.data_ptr(), hidden.data_ptr(), hidden.numel())
        return out

    return call
