"""Recorded counters of tests/gpu/counters/known_kernels.py, and what each must be by hand.

Sizes as in that file: N floats a large array (256 MiB), rows of 8192, blocks and rounds as its launches have them.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from kernelwright.model.profile import Attribution, Kernel, Metrics

DATA = Path(__file__).parent / "data" / "counters"
N = 1 << 26
ARRAY = 4 * N
"""Bytes of one large array."""
L2_BYTES = 62914560
"""Of the H200 that recorded."""
TOLERANCE = 0.05

Row = tuple[str, str, float, str]
"""(case, role, value by hand, how)."""
BY_HAND: tuple[Row, ...] = (
    ("copy_float4", "dram_read_bytes", ARRAY, "each byte read once"),
    ("copy_float4", "l1_bytes", 2 * ARRAY, "read once, written once"),
    ("copy_float4", "l2_bytes", 2 * ARRAY, "read once, written once"),
    ("copy_strided", "dram_read_bytes", ARRAY, "a sector's eight users find it in L2"),
    ("copy_strided", "l1_bytes", 32 * N + ARRAY, "a 32 B sector for each float read; written coalesced"),
    ("copy_strided", "load_bytes_per_sector", 4, "one float of a sector a request"),
    ("copy_strided", "store_bytes_per_sector", 32, "written coalesced"),
    ("copy_strided", "sectors_per_load", 32, "each thread of a warp has a sector of its own"),
    ("copy_float4", "sectors_per_load", 16, "32 threads x 16 B / 32 B"),
    ("sum_blocks", "dram_read_bytes", ARRAY, "each byte read once"),
    ("sum_blocks", "l1_bytes", ARRAY, "each byte read once"),
    ("sum_blocks", "l2_bytes", ARRAY, "each byte read once"),
    ("sum_blocks", "flops_fadd", N + 1056 * 255, "an addition an element, 255 a block to join its threads"),
    ("sum_torch", "dram_read_bytes", ARRAY, "each byte read once"),
    ("sum_torch", "flops_fadd", N, "an addition an element, and a few to join"),
    ("softmax_triton", "dram_read_bytes", ARRAY, "a row stays in registers"),
    ("softmax_triton", "l1_bytes", 2 * ARRAY, "read once, written once"),
    ("softmax_triton", "l2_bytes", 2 * ARRAY, "read once, written once"),
    ("softmax_torch", "dram_read_bytes", ARRAY, "a row stays in registers"),
    ("softmax_torch", "l1_bytes", 2 * ARRAY, "read once, written once"),
    ("bank_conflicts", "shared_wavefronts", 64 * 1056 * 32 * 32 + 1056 * 32, "rounds x blocks x warps x 32 passes; one store a warp"),
    ("bank_conflicts", "shared_conflicts", 64 * 1056 * 32 * 31, "31 of the 32 passes"),
    ("one_block_chase", "sectors_per_load", 32, "random places"),
    ("fma_chain", "flops_ffma", 1056 * 1024 * 2048 * 4 * 2, "blocks x threads x rounds x 4 FMA x 2"),
    ("gemm_f32_k768", "flops_ffma", 2 * 512 * 3072 * 768, "2 M N K"),
    ("gemm_f32_k3072", "flops_ffma", 2 * 512 * 768 * 3072, "2 M N K"),
    ("gemm_f32_4096", "flops_ffma", 2 * 4096**3, "2 M N K"),
    ("gemm_tf32_4096", "tensor_flops_tf32", 2 * 4096**3, "2 M N K"),
    ("gemm_bf16_k1024", "tensor_flops_bf16", 2 * 4096 * 4096 * 1024, "2 M N K"),
    ("gemm_bf16_4096", "tensor_flops_bf16", 2 * 4096**3, "2 M N K"),
    ("gemm_f16_4096", "tensor_flops_fp16", 2 * 4096**3, "2 M N K"),
    ("gemm_f64_1024", "tensor_flops_fp64", 2 * 1024**3, "2 M N K"),
    ("gemm_f64_1024", "flops_dmul", 1024 * 1024, "an output times alpha"),
)
"""Only what the counter counts too. DRAM writes are not here: what still lies in L2 at the kernel's end is not written yet."""


@cache
def recording(name: str) -> list[dict[str, Any]]:
    """Rows of tests/data/counters/NAME.json.xz."""
    rows: list[dict[str, Any]] = json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))
    return rows


def launches(case: str, name: str = "known_default") -> list[dict[str, float]]:
    """Metrics of the launches of a case."""
    return [row["metrics"] for row in recording(name) if row["case"] == case]


def raw(case: str, name: str = "known_default") -> dict[str, float]:
    """Metrics of the first launch of a case."""
    return launches(case, name)[0]


def counted_kernel(name: str, duration_ns: int, metrics: dict[str, float] | None = None, category: str = "kernel") -> Kernel:
    """A launch with these counters; without any: none were collected for it."""
    return Kernel.model_validate({
        "kernel_id": name, "kernel_name": name, "stream_id": 7, "device_id": 0, "start_ns": 0, "end_ns": duration_ns,
        "duration_ns": duration_ns, "category": category,
        "metrics": Metrics(raw=metrics or {}, origin="measured" if metrics else None),
        "attribution": Attribution(method="correlation", confidence="high")})
