"""Attention in a sliding window, flash style: scores stay on chip and keys outside the window are never read, for playbooks/attention.md.

Plain and causal attention need no kernel of one's own: scaled_dot_product_attention has them. A window it only takes as a mask: then it
computes the scores of all keys and hides most of them. Here a block of queries visits the blocks of keys that its window touches.

Versions torch (written out) and library (scaled_dot_product_attention with the mask) run anywhere. Version triton needs a CUDA GPU and
Triton.
"""

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without Triton
    triton = None

CUDA = torch.cuda.is_available()
PARAMS = {"b": 2, "h": 16 if CUDA else 2, "t": 4096 if CUDA else 128, "d": 64 if CUDA else 16, "window": 512 if CUDA else 32,
          "dtype": "bfloat16" if CUDA else "float32"}


def visible(length: int, device: torch.device) -> torch.Tensor:
    """(t, t): query i sees the keys i - window + 1 ... i. The window is PARAMS'."""
    ago = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)[None, :]
    return (ago >= 0) & (ago < PARAMS["window"])


def attention_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q, k, v: (b, h, t, d) -> (b, h, t, d). The scores, (b, h, t, t), go through memory several times."""
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    return scores.masked_fill(~visible(q.shape[2], q.device), -float("inf")).softmax(-1) @ v


def attention_library(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same by torch's fused kernels, as far as they take a mask."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible(q.shape[2], q.device))


if triton is not None and CUDA:  # triton 3.2 and older need a GPU for autotune

    @triton.autotune(
        configs=[triton.Config({"BLOCK_Q": queries, "BLOCK_K": keys}, num_warps=warps, num_stages=stages)
                 for queries, keys, warps, stages in (
                     (128, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 2), (128, 128, 8, 3), (64, 64, 4, 3), (64, 32, 4, 3), (64, 32, 4, 2))],
        key=["length", "window", "D"],
    )
    @triton.jit
    def attention_kernel(out, q, k, v, length, window, scale, D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr):
        """Program (block of queries, head): softmax is rescaled whenever a block of keys brings a larger score."""
        first = tl.program_id(0) * BLOCK_Q
        head = tl.program_id(1).to(tl.int64) * length * D
        queries = first + tl.arange(0, BLOCK_Q)
        keys = tl.arange(0, BLOCK_K)
        places = queries[:, None] * D + tl.arange(0, D)[None, :]
        there = queries[:, None] < length
        query = tl.load(q + head + places, mask=there, other=0.0)
        peak = tl.full([BLOCK_Q], -1.0e38, dtype=tl.float32)  # finite, so that a row hidden from a whole block leaves no NaN behind
        total = tl.zeros([BLOCK_Q], dtype=tl.float32)
        result = tl.zeros([BLOCK_Q, D], dtype=tl.float32)
        begin = tl.maximum(first - window + 1, 0) // BLOCK_K * BLOCK_K
        end = tl.minimum(first + BLOCK_Q, length)
        for start in range(begin, end, BLOCK_K):
            seen = start + keys
            key = tl.load(k + head + seen[None, :] * D + tl.arange(0, D)[:, None], mask=seen[None, :] < length, other=0.0)
            scores = tl.dot(query, key, input_precision="tf32x3") * scale  # in powers of two
            ago = queries[:, None] - seen[None, :]
            scores = tl.where((ago >= 0) & (ago < window), scores, -float("inf"))
            higher = tl.maximum(peak, tl.max(scores, axis=1))
            shares = tl.exp2(scores - higher[:, None])
            less = tl.exp2(peak - higher)
            total = total * less + tl.sum(shares, axis=1)
            value = tl.load(v + head + seen[:, None] * D + tl.arange(0, D)[None, :], mask=seen[:, None] < length, other=0.0)
            result = tl.dot(shares.to(value.dtype), value, result * less[:, None], input_precision="tf32x3")
            peak = higher
        tl.store(out + head + places, (result / total[:, None]).to(out.dtype.element_ty), mask=there)


def attention_triton(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """As attention_torch, for contiguous tensors on the GPU; d is a power of two from 16 to 128. The first call for a shape tunes."""
    _check(q)
    b, h, t, d = q.shape
    if d not in (16, 32, 64, 128) or not (q.is_contiguous() and k.is_contiguous() and v.is_contiguous()):
        raise ValueError("version triton takes contiguous tensors with d = 16, 32, 64 or 128")
    out = torch.empty_like(q)
    scale = d**-0.5 * 1.4426950408889634  # log2(e): exp2 is the GPU's own instruction
    attention_kernel[lambda meta: (triton.cdiv(t, meta["BLOCK_Q"]), b * h)](out, q, k, v, t, PARAMS["window"], scale, D=d)
    return out


def _check(x: torch.Tensor) -> None:
    """What is missing, in the words that kernelwright ends with exit 3 for."""
    if triton is None:
        raise ModuleNotFoundError("version triton needs the module 'triton'; version torch runs without", name="triton")
    if not x.is_cuda:
        raise RuntimeError(f"No CUDA GPUs are available to version triton: the input is on the {x.device.type}; torch runs anywhere")


VERSIONS = {"torch": attention_torch, "library": attention_library, "triton": attention_triton}


def get_inputs(b=PARAMS["b"], h=PARAMS["h"], t=PARAMS["t"], d=PARAMS["d"], dtype=PARAMS["dtype"]):
    return tuple(torch.randn(b, h, t, d, dtype=getattr(torch, dtype), device="cuda" if CUDA else "cpu") for _ in range(3))


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attention_torch(q, k, v)


def flops(b, h, t, d, window, **_):
    """Two products over the keys that each query sees: i + 1 of them for the first ones, then the window."""
    window = min(window, t)
    return 4 * b * h * d * (t * window - window * (window - 1) // 2)


def bytes_moved(b, h, t, d, dtype, **_):
    """Queries, keys and values read once, the result written once."""
    return 4 * b * h * t * d * getattr(torch, dtype).itemsize
