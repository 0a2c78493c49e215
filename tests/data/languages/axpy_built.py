"""CUDA C++ in an extension that the project builds (build.py)."""

import axpy_extension
import torch


def axpy(x, y):
    out = torch.empty_like(x)
    stream = torch.cuda.current_stream(x.device).cuda_stream
    axpy_extension.axpy(out.data_ptr(), x.data_ptr(), y.data_ptr(), x.numel(), stream)
    return out


def optimize(model, inputs):
    return axpy
