"""C++ that is compiled when it is built."""

from torch.utils.cpp_extension import load_inline

SOURCE = """
torch::Tensor layer(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    return torch::addmm(bias, x, weight).tanh_();
}
"""


def optimize(model, inputs):
    module = load_inline("honest_corpus_layer", cpp_sources=SOURCE, functions=["layer"])
    weight, bias = model.layer.weight.detach().t().contiguous(), model.layer.bias.detach()
    return lambda x: module.layer(x, weight, bias)
