"""Softmax of many short rows (attention scores) in three versions: v1 plain torch, v2 one Triton program a row,
v3 several rows a program, autotuned.

v1 runs anywhere. v2 and v3 need a CUDA GPU and Triton, and say so when called without.
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without Triton
    triton = None

CUDA = torch.cuda.is_available()
PARAMS = {"rows": 262144 if CUDA else 4096, "cols": 256, "dtype": "float32"}


def softmax_v1(x: torch.Tensor) -> torch.Tensor:
    """Five kernels, each a pass over memory. x: (rows, cols)."""
    x = x - x.max(dim=1, keepdim=True).values
    numerator = x.exp()
    return numerator / numerator.sum(dim=1, keepdim=True)


if triton is not None:

    @triton.jit
    def row_kernel(out, x, cols, BLOCK: tl.constexpr):
        """One program a row: the row is read once, kept on chip, and written once."""
        row = tl.program_id(0).to(tl.int64)
        columns = tl.arange(0, BLOCK)
        inside = columns < cols
        values = tl.load(x + row * cols + columns, mask=inside, other=-float("inf")).to(tl.float32)
        numerator = tl.exp(values - tl.max(values, axis=0))
        tl.store(out + row * cols + columns, numerator / tl.sum(numerator, axis=0), mask=inside)

    @triton.autotune(
        configs=[triton.Config({"ROWS": rows}, num_warps=warps) for rows in (1, 4, 16) for warps in (4, 8)],
        key=["rows", "cols"],
    )
    @triton.jit
    def tile_kernel(out, x, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
        """ROWS rows a program: a short row alone gives its threads too little to load."""
        row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
        columns = tl.arange(0, BLOCK)[None, :]
        inside = (row < rows) & (columns < cols)
        values = tl.load(x + row * cols + columns, mask=inside, other=-float("inf")).to(tl.float32)
        # A row past the end is all -inf; 0 keeps its arithmetic finite, and nothing of it is stored.
        peak = tl.where(row < rows, tl.max(values, axis=1)[:, None], 0.0)
        numerator = tl.exp(values - peak)
        total = tl.where(row < rows, tl.sum(numerator, axis=1)[:, None], 1.0)
        tl.store(out + row * cols + columns, numerator / total, mask=inside)


def _check(version: str, x: torch.Tensor) -> None:
    if triton is None or not x.is_cuda:
        lacking = "Triton, which is not installed" if triton is None else f"a CUDA tensor, and this one is on the {x.device.type}"
        raise RuntimeError(f"softmax {version} needs {lacking}; v1 runs anywhere")


def softmax_v2(x: torch.Tensor) -> torch.Tensor:
    """x: (rows, cols) contiguous, on the GPU."""
    _check("v2", x)
    out = torch.empty_like(x)
    rows, cols = x.shape
    row_kernel[(rows,)](out, x, cols, BLOCK=triton.next_power_of_2(cols))
    return out


def softmax_v3(x: torch.Tensor) -> torch.Tensor:
    """x: (rows, cols) contiguous, on the GPU. The first call for a shape tunes."""
    _check("v3", x)
    out = torch.empty_like(x)
    rows, cols = x.shape
    tile_kernel[lambda meta: (triton.cdiv(rows, meta["ROWS"]),)](out, x, rows, cols, BLOCK=triton.next_power_of_2(cols))
    return out


VERSIONS = {"v1": softmax_v1, "v2": softmax_v2, "v3": softmax_v3}


def get_inputs(rows=PARAMS["rows"], cols=PARAMS["cols"], dtype=PARAMS["dtype"]):
    return (torch.randn(rows, cols, dtype=getattr(torch, dtype), device="cuda" if CUDA else "cpu"),)


def reference(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=1)


def flops(rows, cols, **_):
    """Maximum, subtraction, exponential, sum and division: five operations an element."""
    return 5 * rows * cols


def bytes_moved(rows, cols, dtype):
    """Each element read once and written once."""
    return 2 * rows * cols * getattr(torch, dtype).itemsize
