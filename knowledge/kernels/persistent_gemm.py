"""A linear layer with GELU as one persistent kernel, float32 by three TF32 products a product, for playbooks/gemm.md and tensor_cores.md.

As many programs as the GPU holds at once walk over all tiles of the output, in an order in which neighbours share rows of x and weight in
L2. Bias and GELU are applied while the tile is in registers, so that the product goes through memory once. float32 uses tensor cores as
`tf32x3` (high and low parts: hi*hi + hi*lo + lo*hi), which errs no more than float32 pipes do; the judge checks that.

Version torch runs anywhere. Version triton needs a CUDA GPU and Triton.
"""

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without Triton
    triton = None

CUDA = torch.cuda.is_available()
PARAMS = {"m": 8192 if CUDA else 64, "n": 4096 if CUDA else 128, "k": 1024 if CUDA else 128, "dtype": "float32"}
GROUP = 8
"""Rows of tiles that are walked together."""


def layer_torch(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x: (m, k), weight: (n, k), bias: (n,) -> gelu(x @ weight.T + bias): (m, n)."""
    return F.gelu(F.linear(x, weight, bias))


if triton is not None and CUDA:  # triton 3.2 and older need a GPU for autotune

    def _fits(configs, arguments, **_):
        """The tiles for this dtype: those of 16-bit elements are twice as deep."""
        return [config for config in configs if (config.kwargs["BLOCK_K"] == 64) == (arguments["x"].element_size() == 2)]

    @triton.autotune(
        configs=[triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "PER_SM": per_sm}, num_warps=warps, num_stages=stages)
                 for m, n, k, per_sm, warps, stages in (
                     (128, 128, 32, 1, 8, 3), (128, 128, 32, 1, 4, 3), (128, 64, 32, 2, 4, 3), (64, 128, 32, 2, 4, 3),
                     (128, 64, 32, 2, 4, 2), (128, 256, 32, 1, 8, 2),
                     (128, 256, 64, 1, 8, 3), (128, 256, 64, 1, 8, 4), (128, 128, 64, 2, 4, 3), (128, 128, 64, 1, 8, 4),
                     (256, 128, 64, 1, 8, 3))],
        key=["m", "n", "k"],
        prune_configs_by={"early_config_prune": _fits},
    )
    @triton.jit
    def layer_kernel(out, x, weight, bias, m, n, k, GROUP_M: tl.constexpr, EVEN_K: tl.constexpr, BLOCK_M: tl.constexpr,
                     BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PER_SM: tl.constexpr):
        """Program p computes the tiles p, p + programs, ... of out: (m, n)."""
        tiles_m = tl.cdiv(m, BLOCK_M)
        tiles_n = tl.cdiv(n, BLOCK_N)
        steps = tl.arange(0, BLOCK_K)
        for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
            group = tile // (GROUP_M * tiles_n)
            height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
            row = (group * GROUP_M + (tile % (GROUP_M * tiles_n)) % height) * BLOCK_M
            column = ((tile % (GROUP_M * tiles_n)) // height) * BLOCK_N
            rows = row + tl.arange(0, BLOCK_M)
            columns = column + tl.arange(0, BLOCK_N)
            # Rows past the end read the first ones again: no mask in the inner loop, and nothing of them is stored.
            left = x + (rows % m)[:, None] * k + steps[None, :]
            right = weight + (columns % n)[None, :] * k + steps[:, None]
            total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
            for start in range(0, k, BLOCK_K):
                if EVEN_K:
                    a = tl.load(left)
                    b = tl.load(right)
                else:
                    a = tl.load(left, mask=start + steps[None, :] < k, other=0.0)
                    b = tl.load(right, mask=start + steps[:, None] < k, other=0.0)
                total = tl.dot(a, b, total, input_precision="tf32x3")  # of 16-bit inputs the precision means nothing
                left += BLOCK_K
                right += BLOCK_K
            total += tl.load(bias + columns % n)[None, :].to(tl.float32)
            total = 0.5 * total * (1.0 + tl.erf(total * 0.7071067811865476))
            place = out + rows[:, None] * n + columns[None, :]
            tl.store(place, total.to(out.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


def layer_triton(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """As layer_torch, for contiguous tensors on the GPU of less than 2^31 elements. The first call for a shape tunes."""
    _check(x)
    (m, k), n = x.shape, weight.shape[0]
    if not (x.is_contiguous() and weight.is_contiguous()) or max(m * k, n * k, m * n) >= 2**31:
        raise ValueError("version triton takes contiguous tensors of less than 2^31 elements")
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count

    def programs(meta):
        return (min(processors * meta["PER_SM"], triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"])),)

    layer_kernel[programs](out, x, weight, bias, m, n, k, GROUP_M=GROUP, EVEN_K=k % 64 == 0)
    return out


def _check(x: torch.Tensor) -> None:
    """What is missing, in the words that kernelwright ends with exit 3 for."""
    if triton is None:
        raise ModuleNotFoundError("version triton needs the module 'triton'; version torch runs without", name="triton")
    if not x.is_cuda:
        raise RuntimeError(f"No CUDA GPUs are available to version triton: the input is on the {x.device.type}; torch runs anywhere")


VERSIONS = {"torch": layer_torch, "triton": layer_triton}


def get_inputs(m=PARAMS["m"], n=PARAMS["n"], k=PARAMS["k"], dtype=PARAMS["dtype"]):
    how = {"dtype": getattr(torch, dtype), "device": "cuda" if CUDA else "cpu"}
    return torch.randn(m, k, **how), torch.randn(n, k, **how) / k**0.5, torch.randn(n, **how)


def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, weight, bias))


def flops(m, n, k, **_):
    """The product alone: a multiplication and an addition for each element of the output and each step of K."""
    return 2 * m * n * k


def bytes_moved(m, n, k, dtype):
    """x, weight and bias read once, the output written once."""
    return (m * k + n * k + n + m * n) * getattr(torch, dtype).itemsize
