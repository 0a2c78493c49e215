"""Two operators, one after the other."""

import torch

library = torch.library.Library("honest_corpus_library", "DEF")
library.define("product(Tensor x, Tensor weight, Tensor bias) -> Tensor")
library.define("activate_(Tensor(a!) x) -> ()")
library.impl("product", lambda x, weight, bias: torch.nn.functional.linear(x, weight, bias), "CPU")
library.impl("activate_", lambda x: _activate(x), "CPU")


def _activate(x):
    x.tanh_()


def optimize(model, inputs):
    weight, bias = model.layer.weight.detach(), model.layer.bias.detach()

    def call(x):
        out = torch.ops.honest_corpus_library.product(x, weight, bias)
        torch.ops.honest_corpus_library.activate_(out)
        return out

    return call
