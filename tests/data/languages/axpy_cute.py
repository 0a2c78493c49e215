"""The CUTLASS DSL (CuTe): one element a thread, compiled once a shape."""

import functools

import cuda.bindings.driver as cuda
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

THREADS = 256


@cute.kernel
def axpy_cute(out: cute.Tensor, x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    index = block * THREADS + thread
    if index < cute.size(x):
        out[index] = x[index] * 2.0 + y[index]


@cute.jit
def launch(out: cute.Tensor, x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream):
    blocks = (cute.size(x) + THREADS - 1) // THREADS
    axpy_cute(out, x, y).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1], stream=stream)


def flat(tensor):
    return from_dlpack(tensor.detach().view(-1))


@functools.cache
def compiled(shape, device):
    stand_in = torch.empty(shape, device=device)
    return cute.compile(launch, *(flat(stand_in) for _ in range(3)), cuda.CUstream(0))


def axpy(x, y):
    out = torch.empty_like(x)
    compiled(x.shape, x.device)(flat(out), flat(x), flat(y), cuda.CUstream(torch.cuda.current_stream(x.device).cuda_stream))
    return out


def optimize(model, inputs):
    return axpy
