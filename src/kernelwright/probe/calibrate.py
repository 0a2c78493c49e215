"""This device's own ceilings, measured: copy bandwidth of memory and L2, matrix product rates. The fastest of several samples counts.

Every ceiling is tried in rounds that are spread over the calibration, since other work on the machine hides a ceiling for a while, not
for good (seen: 0.0027 instead of 0.30 TFLOP/s). About 1 s on a quiet machine. Leaves the TF32 flag and the memory as they were.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from .environment import l2_bytes
from .rewrites.float32_flags import float32_flags, products_as, under_flags
from .timers import synchronize

SAMPLES = 5
MIN_SAMPLES = 3
"""Made though they take longer than the budget, up to three times: one sample that another process interrupted would also end the
search for a larger size."""
MATMUL_BUDGET_S = {"cuda": 0.05, "cpu": 0.05}
"""Time for the samples of one matrix product in one round."""
CALLS_A_SAMPLE = 3
SHORT_CALL_S = 0.003
"""GPU calls up to this long are timed CALLS_A_SAMPLE in a row, so that the time to start one does not count; longer ones, where it does
not, one by one: an 8192^3 product of float32 or float64 (some 20 ms) is then as well known in a third of the time."""
LARGEST_PRODUCT_S = 0.10
"""A size whose single sample would take longer is not tried."""
COPY_BUDGET_S = {"cuda": 0.08, "cpu": 0.20}
MIN_ROUNDS, MAX_ROUNDS = 2, 5
MORE_ROUNDS_S = 2.5
"""A ceiling whose rounds took this long together is not tried again."""
AGREEMENT = 1.25
"""A ceiling is tried again until its two best rounds agree within this factor."""
WILD = 2.0
"""A ceiling whose two best rounds still disagree by more than this is left out."""
LARGEST_BUFFER_BYTES = 1 << 30
L2_COPIES = 16
"""Copies of one L2-resident pair of buffers in one launch, so that the time to start a kernel (some us) does not count."""
SIZES = {"cuda": (2048, 4096, 8192), "cpu": (256, 512, 1024, 2048)}
DTYPES = {"cuda": ("float32", "tf32", "bfloat16", "float16", "float64"), "cpu": ("float32", "float64", "bfloat16")}


def peaks(device: str) -> tuple[list[dict[str, Any]], list[str]]:
    """(ProbePeak dicts, warnings). "bandwidth" and on a GPU "bandwidth:l2" in GB/s (1e9 B), "matmul:<dtype>" in TFLOP/s. Dtypes the
    device lacks are left out, and with a warning ceilings on which no two rounds agreed."""
    dtypes = [dtype for dtype in DTYPES[device] if _supported(dtype, device)]
    measures = [functools.partial(_bandwidth, device), functools.partial(_l2_bandwidth, device),
                *(functools.partial(_matmul, dtype, device) for dtype in dtypes)]
    with torch.no_grad():
        tries = rounds(measures)
    if device == "cuda":
        torch.cuda.empty_cache()
    told = [found for found in tries if found]
    doubted = [found for found in told if not agreed(found, WILD)]
    warnings = [f"the calibration's repeats disagree, so this peak is not known: {found[0]['name']} "
                f"({min(one['value'] for one in found):.3g} to {max(one['value'] for one in found):.3g} {found[0]['unit']}); "
                "profile again when the machine is quiet" for found in doubted]
    return [max(found, key=lambda one: one["value"]) for found in told if agreed(found, WILD)], warnings


def rounds(measures: Sequence[Callable[[], dict[str, Any] | None]]) -> list[list[dict[str, Any]]]:
    """What each measure gave in its rounds: at least MIN_ROUNDS, one after the other, and more for those that do not agree."""
    tries: list[list[dict[str, Any]]] = [[] for _ in measures]
    spent = [0.0] * len(measures)
    for number in range(MAX_ROUNDS):
        for place, (measure, found) in enumerate(zip(measures, tries, strict=True)):
            more = number < MIN_ROUNDS or (not agreed(found) and spent[place] < MORE_ROUNDS_S)
            if number and not (found and more):
                continue
            start = time.perf_counter()
            if (one := measure()) is not None:
                found.append(one)
            spent[place] += time.perf_counter() - start
    return tries


def agreed(found: list[dict[str, Any]], factor: float = AGREEMENT) -> bool:
    """Whether the two best rounds agree within the factor."""
    best = sorted(one["value"] for one in found)[-2:]
    return len(best) == 2 and best[1] <= factor * best[0]


def _bandwidth(device: str) -> dict[str, Any] | None:
    """A copy and a scaled copy between buffers of at least twice the last cache; bytes read + bytes written over the fastest time.

    None when there is no memory for buffers that exceed the cache. A virtual machine may show its host's whole last-level cache
    (seen: 260 MiB for two cores), so the buffers may need 1 GiB.
    """
    cache = l2_bytes(device) or 32 * 1024**2
    size = max(4 * cache, 512 * 1024**2) if device == "cuda" else max(2 * cache, 128 * 1024**2)
    size = min(size, LARGEST_BUFFER_BYTES, _free_bytes(device) // 8) // 4096 * 4096
    if size < 2 * cache:
        return None
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    best = {"copy": _fastest(lambda: target.copy_(source), device, COPY_BUDGET_S[device]),
            "scaled copy": _fastest(lambda: torch.mul(source, 2.0, out=target), device, COPY_BUDGET_S[device])}
    name = min(best, key=lambda key: best[key])
    return {"name": "bandwidth", "value": 2 * size / best[name] / 1e9, "unit": "GB/s",
            "method": f"{name} of {size // 1024**2} MiB, read + written"}


def _l2_bandwidth(device: str) -> dict[str, Any] | None:
    """Copies between two buffers that fill a quarter of L2 together, so that they stay there; bytes read + bytes written.

    A quarter: L2 of recent GPUs is two halves, and what one half's SMs read may be kept in both. Loads never hit L1: a launch
    starts with an empty one, and copies of the same part of the buffers run on different SMs. A lower bound of what L2 can give.
    None on a CPU, and where the size of L2 is not known.
    """
    cache = l2_bytes(device) if device == "cuda" else None
    size = (cache or 0) // 8 // 4096 * 4096
    if size <= 0 or size > _free_bytes(device) // 8:
        return None
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    many = ([target] * L2_COPIES, [source] * L2_COPIES)
    best = {"copy": _fastest(lambda: target.copy_(source), device, COPY_BUDGET_S[device]),
            f"{L2_COPIES} copies in one launch": _fastest(lambda: torch._foreach_copy_(*many), device, COPY_BUDGET_S[device]) / L2_COPIES}
    name = min(best, key=lambda key: best[key])
    return {"name": "bandwidth:l2", "value": 2 * size / best[name] / 1e9, "unit": "GB/s",
            "method": f"{name} of {size / 1024**2:.1f} MiB that stay in L2 ({(cache or 0) // 1024**2} MiB), read + written"}


def _matmul(dtype: str, device: str) -> dict[str, Any] | None:
    """The fastest square product over SIZES; None without memory, or for bfloat16 on a CPU that only emulates it."""
    best: tuple[float, int] | None = None
    n = 0
    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    for n in SIZES[device]:
        if 3 * n * n * kind.itemsize > _free_bytes(device) // 4:
            break
        with under_flags(products_as(float32_flags(), dtype == "tf32")) if device == "cuda" else nullcontext():
            seconds = _fastest(product(n, kind, device), device, MATMUL_BUDGET_S[device])
        rate = 2 * n**3 / seconds / 1e12
        best = max(best, (rate, n)) if best else (rate, n)
        # The next size takes 8 times as long.
        if 8 * seconds > LARGEST_PRODUCT_S:
            break
    if best is None or (dtype == "bfloat16" and device == "cpu" and n == SIZES[device][0]):
        return None
    return {"name": f"matmul:{dtype}", "value": best[0], "unit": "TFLOP/s", "method": f"matmul {best[1]}^3 {dtype}, random normal data"}


def product(n: int, dtype: torch.dtype, device: str) -> Callable[[], Any]:
    """One n x n matrix product of random normal data, into a buffer of its own."""
    one, other = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    return functools.partial(torch.mm, one, other, out=torch.empty_like(one))


def _fastest(run: Callable[[], Any], device: str, budget_s: float) -> float:
    """Seconds of the fastest of up to SAMPLES samples that fit the budget (MIN_SAMPLES at least), after one warm-up call."""
    run()
    synchronize(device)
    best, begin = float("inf"), time.perf_counter()
    for number in range(1, SAMPLES + 1):
        best = min(best, _once(run, device, CALLS_A_SAMPLE if best <= SHORT_CALL_S else 1))
        if time.perf_counter() - begin > budget_s * (1 if number >= MIN_SAMPLES else 3):
            break
    return best


def _once(run: Callable[[], Any], device: str, calls: int) -> float:
    """Seconds of one call; on a GPU the mean of `calls` in a row."""
    if device == "cpu":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(calls):
        run()
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / calls


def _supported(dtype: str, device: str) -> bool:
    if device == "cpu" or dtype in ("float32", "float64", "float16"):
        return True
    return bool(torch.cuda.get_device_capability(0) >= (8, 0))


def _free_bytes(device: str) -> int:
    """Free memory of the device; on the CPU what Linux calls available (4 GiB where that is unknown)."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            rows = dict(line.split(":", 1) for line in file)
        return int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 4 * 1024**3
