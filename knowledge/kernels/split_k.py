"""x.T @ (weights * y) of tall, narrow matrices, its long dimension split over all multiprocessors, for playbooks/few_blocks.md.

Such a product has few output tiles, so a block a tile leaves most of a GPU idle. Here each tile has many programs, each with a piece of K
and a partial sum in float32; a second kernel adds the partial sums in a fixed order (atomics would differ from run to run).
cuBLAS splits K too: the plain product x.T @ y needs no kernel of one's own. The weights are what it can't take in: torch writes the
weighted matrix and reads it again. float32 is computed by three TF32 products a product, which is as accurate.

Version torch runs anywhere. Version triton needs a CUDA GPU and Triton.
"""

import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU builds of torch come without Triton
    triton = None

CUDA = torch.cuda.is_available()
PARAMS = {"k": 1048576 if CUDA else 4096, "m": 64, "n": 64, "dtype": "bfloat16" if CUDA else "float32"}
TILE = 64
"""Most rows and columns of the output that one program sums."""


def product_torch(x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """x: (k, m), y: (k, n), weights: (k,) -> (m, n): weighted normal equations, or a narrow layer's gradient over many weighted tokens."""
    return x.t() @ (weights[:, None] * y)


if triton is not None and CUDA:  # triton 3.2 and older need a GPU for autotune

    @triton.autotune(
        configs=[triton.Config({"BLOCK_K": block}, num_warps=4, num_stages=stages)
                 for block, stages in ((32, 4), (32, 6), (64, 3), (64, 4), (64, 6), (128, 3))],
        key=["k", "m", "n"],
    )
    @triton.jit
    def partial_kernel(partial, x, y, weights, k, m, n, per_split, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
        """Program (tile, split): rows split * per_split ... of x and y, multiplied into one tile of partial: (splits, m, n) float32."""
        tiles_n = tl.cdiv(n, BLOCK_N)
        split = tl.program_id(1).to(tl.int64)
        rows = (tl.program_id(0) // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = (tl.program_id(0) % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
        steps = tl.arange(0, BLOCK_K)
        left = x + split * per_split * m + steps[:, None] * m + rows[None, :]
        right = y + split * per_split * n + steps[:, None] * n + columns[None, :]
        end = tl.minimum(per_split, k - split * per_split).to(tl.int32)  # rows of this split; the last has fewer
        weights += split * per_split
        factors = tl.load(weights + steps, mask=steps < end, other=0.0).to(tl.float32)
        total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        for start in range(0, end, BLOCK_K):
            inside = start + steps[:, None] < end
            a = tl.load(left, mask=inside & (rows[None, :] < m), other=0.0)
            b = tl.load(right, mask=inside & (columns[None, :] < n), other=0.0)
            weighted = (a.to(tl.float32) * factors[:, None]).to(a.dtype)
            following = start + BLOCK_K + steps  # asked for a round before they are needed: too narrow for an asynchronous copy
            factors = tl.load(weights + following, mask=following < end, other=0.0).to(tl.float32)
            total = tl.dot(tl.trans(weighted), b, total, input_precision="tf32x3")  # of 16-bit inputs the precision means nothing
            left += BLOCK_K * m
            right += BLOCK_K * n
        place = partial + split * m * n + rows[:, None] * n + columns[None, :]
        tl.store(place, total, mask=(rows[:, None] < m) & (columns[None, :] < n))

    @triton.jit
    def add_kernel(out, partial, size, splits, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr):
        """out[i] = sum of partial[:, i]; BLOCK elements a program, AT_ONCE splits in flight."""
        columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
        total = tl.zeros([AT_ONCE, BLOCK], dtype=tl.float32)
        for start in range(0, splits, AT_ONCE):
            rows = start + tl.arange(0, AT_ONCE)[:, None]
            total += tl.load(partial + rows.to(tl.int64) * size + columns, mask=(rows < splits) & (columns < size), other=0.0)
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + place, tl.sum(total, axis=0).to(out.dtype.element_ty), mask=place < size)


def product_triton(x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """As product_torch, for contiguous matrices on the GPU. The first call for a shape tunes."""
    _check(x)
    if not (x.is_contiguous() and y.is_contiguous() and weights.is_contiguous()):
        raise ValueError("version triton takes contiguous matrices")
    (k, m), n = x.shape, y.shape[1]
    block_m, block_n = (min(TILE, max(16, triton.next_power_of_2(size))) for size in (m, n))
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    wanted = max(1, 2 * torch.cuda.get_device_properties(x.device).multi_processor_count // tiles)
    per_split = triton.cdiv(triton.cdiv(k, wanted), 256) * 256  # whole blocks, but in the last split
    splits = triton.cdiv(k, per_split)
    partial = torch.empty(splits, m, n, dtype=torch.float32, device=x.device)
    partial_kernel[(tiles, splits)](partial, x, y, weights, k, m, n, per_split, BLOCK_M=block_m, BLOCK_N=block_n)
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    add_kernel[(triton.cdiv(m * n, 32),)](out, partial, m * n, splits, BLOCK=32, AT_ONCE=64, num_warps=4)
    return out


def _check(x: torch.Tensor) -> None:
    """What is missing, in the words that kernelwright ends with exit 3 for."""
    if triton is None:
        raise ModuleNotFoundError("version triton needs the module 'triton'; version torch runs without", name="triton")
    if not x.is_cuda:
        raise RuntimeError(f"No CUDA GPUs are available to version triton: the input is on the {x.device.type}; torch runs anywhere")


VERSIONS = {"torch": product_torch, "triton": product_triton}


def get_inputs(k=PARAMS["k"], m=PARAMS["m"], n=PARAMS["n"], dtype=PARAMS["dtype"]):
    how = {"dtype": getattr(torch, dtype), "device": "cuda" if CUDA else "cpu"}
    return torch.randn(k, m, **how), torch.randn(k, n, **how), torch.rand(k, **how) + 0.5


def reference(x: torch.Tensor, y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return x.t() @ (weights[:, None] * y)


def flops(k, m, n, **_):
    """A multiplication and an addition for each element of the output and each step of K; one more for each element that is weighted."""
    return 2 * k * m * n + k * n


def bytes_moved(k, m, n, dtype):
    """Both matrices and the weights read once, the product written once."""
    return (k * (m + n + 1) + m * n) * getattr(torch, dtype).itemsize
