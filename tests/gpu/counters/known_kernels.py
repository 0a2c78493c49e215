"""Kernels whose bytes and FLOPs are known by hand, run once each under the CUDA profiler API; one NVTX range a case.

    ncu --clock-control none --nvtx --profile-from-start off --metrics ... -o known python3 known_kernels.py [CASE ...]

Needs torch, Triton and nvcc. tests/unit/test_counters_known.py has the hand-computed values; rows.py makes its recording.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

HERE = Path(__file__).resolve().parent
N = 1 << 26
"""Elements of the large arrays: 256 MiB of float32, several times any L2."""


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(x_ptr + row * columns + at, mask=inside, other=-float("inf"))
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    tl.store(y_ptr + row * columns + at, e / tl.sum(e, axis=0), mask=inside)


def library() -> ctypes.CDLL:
    """known_kernels.cu, built with line information."""
    out = Path(tempfile.mkdtemp()) / "known.so"
    subprocess.run(["nvcc", "-arch=native", "-O3", "-lineinfo", "-shared", "-Xcompiler", "-fPIC", "-o", str(out),
                    str(HERE / "known_kernels.cu")], check=True)
    return ctypes.CDLL(str(out))


def cases() -> dict[str, Callable[[], Any]]:
    """Name -> one launch (a GEMM may launch a split-K reduction too)."""
    lib, void, long = library(), ctypes.c_void_p, ctypes.c_long
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    one = torch.zeros(1, device="cuda")
    chase = torch.randperm(1 << 20, device="cuda").to(torch.int32)

    def ptr(tensor: torch.Tensor) -> ctypes.c_void_p:
        return void(tensor.data_ptr())

    def gemm(m: int, n: int, k: int, dtype: torch.dtype, tf32: bool = False) -> Callable[[], Any]:
        a, b = torch.randn(m, k, device="cuda", dtype=dtype), torch.randn(k, n, device="cuda", dtype=dtype)
        out = torch.empty(m, n, device="cuda", dtype=dtype)

        def call() -> None:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            torch.mm(a, b, out=out)
        return call

    rows = x.view(8192, 8192)
    f32, bf16, f16, f64 = torch.float32, torch.bfloat16, torch.float16, torch.float64
    return {
        "copy_float4": lambda: lib.run_copy_float4(ptr(x), ptr(y), long(N)),
        "copy_strided": lambda: lib.run_copy_strided(ptr(x), ptr(y), long(8192), long(8192)),
        "sum_blocks": lambda: lib.run_sum_blocks(ptr(x), ptr(one), long(N)),
        "bank_conflicts": lambda: lib.run_bank_conflicts(ptr(y), 64),
        "spills": lambda: lib.run_spills(ptr(x), ptr(y), 8),
        "fma_chain": lambda: lib.run_fma_chain(ptr(y), 2048),
        "one_block_chase": lambda: lib.run_one_block_chase(ptr(chase), ptr(y), 256),
        "promoted": lambda: lib.run_promoted(ptr(x), ptr(y), 1 << 20, 64),
        "softmax_triton": lambda: softmax_rows[(8192,)](x, y, 8192, BLOCK=8192, num_warps=8),
        "softmax_torch": lambda: torch.softmax(rows, dim=1, out=y.view(8192, 8192)),
        "sum_torch": lambda: torch.sum(x),
        "copy_torch": lambda: y.copy_(x),
        "gemm_f32_k768": gemm(512, 3072, 768, f32),
        "gemm_f32_k3072": gemm(512, 768, 3072, f32),
        "gemm_f32_4096": gemm(4096, 4096, 4096, f32),
        "gemm_tf32_4096": gemm(4096, 4096, 4096, f32, tf32=True),
        "gemm_bf16_k1024": gemm(4096, 4096, 1024, bf16),
        "gemm_bf16_4096": gemm(4096, 4096, 4096, bf16),
        "gemm_f16_4096": gemm(4096, 4096, 4096, f16),
        "gemm_f64_1024": gemm(1024, 1024, 1024, f64),
    }


def main() -> None:
    every = cases()
    names = sys.argv[1:] or list(every)
    for name in names:  # compile, choose algorithms
        every[name]()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    for name in names:
        torch.cuda.nvtx.range_push("case:" + name)
        every[name]()
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
    torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main()
