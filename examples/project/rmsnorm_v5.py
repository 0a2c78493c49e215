"""v5: a few programs a multiprocessor go through all rows, so that the weight is loaded once a program and not once a row."""

import torch
import triton
import triton.language as tl

EPSILON = 1e-6


@triton.autotune(
    configs=[triton.Config({"PROGRAMS": programs}, num_warps=warps) for programs in (2, 4, 8) for warps in (4, 8, 16)], key=["cols"])
@triton.jit
def persistent_kernel(out, x, residual, weight, rows, cols, epsilon, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    """PROGRAMS programs a multiprocessor; each takes every num_programs-th row."""
    columns = tl.arange(0, BLOCK)
    inside = columns < cols
    scale = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    for row_number in range(tl.program_id(0), rows, tl.num_programs(0)):
        row = row_number.to(tl.int64)
        total = tl.load(x + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(residual + row * cols + columns, mask=inside, other=0.0).to(tl.float32)
        factor = 1.0 / tl.sqrt(tl.sum(total * total, axis=0) / cols + epsilon)
        tl.store(out + row * cols + columns, (total * factor * scale).to(out.dtype.element_ty), mask=inside)


def rmsnorm(x, residual, weight):
    """x, residual: (rows, cols), contiguous, on the GPU; weight: (cols,)."""
    rows, cols = x.shape
    out = torch.empty_like(x)
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count
    persistent_kernel[lambda meta: (min(rows, multiprocessors * meta["PROGRAMS"]),)](
        out, x, residual, weight, rows, cols, EPSILON, BLOCK=triton.next_power_of_2(cols))
    return out
