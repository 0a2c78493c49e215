"""The batch norm folded into the convolution's weights."""

import torch
from torch.nn.utils.fusion import fuse_conv_bn_eval


def optimize(model, inputs):
    conv = fuse_conv_bn_eval(model.conv, model.norm)
    return lambda x: torch.relu(conv(x))
