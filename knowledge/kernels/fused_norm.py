"""Residual addition and RMS or layer norm in one kernel: each element read once and written once, for playbooks/normalisation.md.

Version torch runs anywhere. Version triton needs a CUDA GPU and Triton. `--norm=layer` takes the layer norm.
"""

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without Triton
    triton = None

CUDA = torch.cuda.is_available()
PARAMS = {"rows": 16384 if CUDA else 64, "cols": 4096 if CUDA else 256, "norm": "rms", "dtype": "bfloat16" if CUDA else "float32"}
EPS = 1e-6
WIDEST = 65536
"""Elements of a row that one program keeps on chip."""


def norm_torch(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x, residual: (rows, cols); weight: (cols,). Returns the normed sum and the sum, as between two blocks of a transformer."""
    total = x + residual
    if PARAMS["norm"] == "layer":
        return F.layer_norm(total, weight.shape, weight, None, EPS), total
    wide = total.float()  # written out, as in most models: six more passes over memory
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(x.dtype) * weight, total


if triton is not None and CUDA:

    @triton.jit
    def norm_kernel(out, total, x, residual, weight, cols, eps, LAYER: tl.constexpr, BLOCK: tl.constexpr):
        """One program a row: everything between reading and writing happens in registers, in float32."""
        start = tl.program_id(0).to(tl.int64) * cols
        columns = tl.arange(0, BLOCK)
        inside = columns < cols
        left = tl.load(x + start + columns, mask=inside, other=0.0).to(tl.float32)
        right = tl.load(residual + start + columns, mask=inside, other=0.0).to(tl.float32)
        rounded = (left + right).to(total.dtype.element_ty)  # what the next block is given is what is normed here
        tl.store(total + start + columns, rounded, mask=inside)
        values = rounded.to(tl.float32)
        if LAYER:
            values = tl.where(inside, values - tl.sum(values, axis=0) / cols, 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(values * values, axis=0) / cols + eps)
        weights = tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + start + columns, (values * scale * weights).to(out.dtype.element_ty), mask=inside)


def norm_triton(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As norm_torch, for contiguous tensors on the GPU with rows of at most WIDEST elements."""
    _check(x)
    rows, cols = x.shape
    if cols > WIDEST or not (x.is_contiguous() and residual.is_contiguous() and weight.is_contiguous()):
        raise ValueError(f"version triton takes contiguous rows of at most {WIDEST} elements")
    out, total = torch.empty_like(x), torch.empty_like(x)
    block = triton.next_power_of_2(cols)
    # About 16 elements a thread: enough loads in flight, and no spills.
    norm_kernel[(rows,)](out, total, x, residual, weight, cols, EPS, LAYER=PARAMS["norm"] == "layer", BLOCK=block,
                         num_warps=min(16, max(1, block // 512)))
    return out, total


def _check(x: torch.Tensor) -> None:
    """What is missing, in the words that kernelwright ends with exit 3 for."""
    if triton is None:
        raise ModuleNotFoundError("version triton needs the module 'triton'; version torch runs without", name="triton")
    if not x.is_cuda:
        raise RuntimeError(f"No CUDA GPUs are available to version triton: the input is on the {x.device.type}; torch runs anywhere")


VERSIONS = {"torch": norm_torch, "triton": norm_triton}


def get_inputs(rows=PARAMS["rows"], cols=PARAMS["cols"], dtype=PARAMS["dtype"]):
    how = {"dtype": getattr(torch, dtype), "device": "cuda" if CUDA else "cpu"}
    return torch.randn(rows, cols, **how), torch.randn(rows, cols, **how), torch.rand(cols, **how) + 0.5


def reference(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    centred = total - total.mean(-1, keepdim=True) if PARAMS["norm"] == "layer" else total
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + EPS) * weight, total


def flops(rows, cols, norm, **_):
    """Addition, square, sum, scale and weight; the layer norm's mean and subtraction beside them."""
    return (7 if norm == "layer" else 5) * rows * cols


def bytes_moved(rows, cols, dtype, **_):
    """Two matrices in, two out; the weights once."""
    return (4 * rows * cols + cols) * getattr(torch, dtype).itemsize
