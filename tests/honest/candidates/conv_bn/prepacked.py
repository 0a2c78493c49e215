"""The weight packed for oneDNN when it is built, where this torch can."""

import torch


def optimize(model, inputs):
    pack = getattr(torch._C._nn, "mkldnn_reorder_conv2d_weight", None)
    if pack is None or not torch.backends.mkldnn.is_available():
        return model
    conv = model.conv
    weight = pack(conv.weight.detach().to_mkldnn(), conv.padding, conv.stride, conv.dilation, conv.groups, inputs.shape)

    def call(x):
        out = torch.mkldnn_convolution(x.to_mkldnn(), weight, conv.bias.detach().to_mkldnn(), conv.padding, conv.stride, conv.dilation,
                                       conv.groups).to_dense()
        return torch.relu(model.norm(out))

    return call
