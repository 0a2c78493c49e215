"""Softmax and cross entropy in one kernel: the logits are read once and never written, for playbooks/normalisation.md.

Version torch runs anywhere. Version triton needs a CUDA GPU and Triton; it is the forward pass alone, a loss a row.
"""

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without Triton
    triton = None

CUDA = torch.cuda.is_available()
PARAMS = {"rows": 8192 if CUDA else 64, "classes": 32000 if CUDA else 1000, "dtype": "bfloat16" if CUDA else "float32"}
IGNORED = -100
"""The target of rows that have no loss, as in torch."""


def loss_torch(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """logits: (rows, classes), targets: (rows,) int64 -> losses (rows,). log_softmax writes a matrix as large as the logits."""
    return F.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORED)


if triton is not None and CUDA:  # triton 3.2 and older need a GPU for autotune

    @triton.autotune(
        configs=[triton.Config({"BLOCK": block}, num_warps=warps)
                 for block, warps in ((2048, 4), (4096, 4), (4096, 8), (8192, 8), (8192, 16), (16384, 16))],
        key=["classes"],
    )
    @triton.jit
    def loss_kernel(losses, logits, targets, classes, IGNORE: tl.constexpr, BLOCK: tl.constexpr):
        """One program a row, in one pass: the sum of exponentials is rescaled whenever a block brings a larger maximum."""
        row = tl.program_id(0).to(tl.int64)
        columns = tl.arange(0, BLOCK)
        peak = -3.4e38  # finite, so that a block of -inf alone leaves no NaN behind
        total = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, classes, BLOCK):
            inside = start + columns < classes
            values = tl.load(logits + row * classes + start + columns, mask=inside, other=-float("inf")).to(tl.float32)
            higher = tl.maximum(peak, tl.max(values, axis=0))
            total = total * tl.exp(peak - higher) + tl.exp(values - higher)
            peak = higher
        target = tl.load(targets + row)
        kept = target != IGNORE
        chosen = tl.load(logits + row * classes + target, mask=kept, other=0.0).to(tl.float32)
        # Differences first: peak and the chosen logit are large, their difference and the logarithm are not.
        loss = (peak - chosen) + tl.log(tl.sum(total, axis=0))
        tl.store(losses + row, tl.where(kept, loss, 0.0).to(losses.dtype.element_ty))


def loss_triton(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As loss_torch, for contiguous logits on the GPU. The first call for a number of classes tunes."""
    _check(logits)
    if not logits.is_contiguous():
        raise ValueError("version triton takes contiguous logits")
    rows, classes = logits.shape
    losses = torch.empty(rows, dtype=logits.dtype, device=logits.device)
    loss_kernel[(rows,)](losses, logits, targets, classes, IGNORE=IGNORED)
    return losses


def _check(x: torch.Tensor) -> None:
    """What is missing, in the words that kernelwright ends with exit 3 for."""
    if triton is None:
        raise ModuleNotFoundError("version triton needs the module 'triton'; version torch runs without", name="triton")
    if not x.is_cuda:
        raise RuntimeError(f"No CUDA GPUs are available to version triton: the input is on the {x.device.type}; torch runs anywhere")


VERSIONS = {"torch": loss_torch, "triton": loss_triton}


def get_inputs(rows=PARAMS["rows"], classes=PARAMS["classes"], dtype=PARAMS["dtype"]):
    device = "cuda" if CUDA else "cpu"
    return torch.randn(rows, classes, dtype=getattr(torch, dtype), device=device), torch.randint(0, classes, (rows,), device=device)


def reference(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, targets, reduction="none", ignore_index=IGNORED)


def flops(rows, classes, **_):
    """Maximum, subtraction, exponential and sum of each logit."""
    return 4 * rows * classes


def bytes_moved(rows, classes, dtype):
    """Each logit and each target read once, each loss written once."""
    itemsize = getattr(torch, dtype).itemsize
    return rows * (classes * itemsize + 8 + itemsize)
