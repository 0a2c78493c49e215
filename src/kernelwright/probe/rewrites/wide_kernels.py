"""The Triton kernel of a product that writes a wider type than it reads. Copied into files that use it."""

from __future__ import annotations

try:
    import triton as triton
    import triton.language as tl
except ImportError:
    triton = wide_kernel = None

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def wide_kernel(a, w, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,  # type: ignore[no-untyped-def]
                    MASKED: tl.constexpr):
        """One BM x BN tile of a (M, K) times w (N, K) transposed -> out (M, N), float32. Rows of out may start anywhere.

        MASKED: K is no multiple of BK.
        """
        tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
        # Tiles of GROUP rows of tiles run together, so that they share what they read in the L2 cache.
        tile = tl.program_id(0)
        group = tile // (GROUP * tiles_n)
        height = tl.minimum(tiles_m - group * GROUP, GROUP)
        rows = (group * GROUP + (tile % (GROUP * tiles_n)) % height) * BM + tl.arange(0, BM)
        columns = ((tile % (GROUP * tiles_n)) // height) * BN + tl.arange(0, BN)
        depth = tl.arange(0, BK)
        a_rows = a + (rows % M).to(tl.int64)[:, None] * K + depth[None, :]
        w_rows = w + (columns % N).to(tl.int64)[None, :] * K + depth[:, None]
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            if MASKED:
                left = tl.load(a_rows + k, mask=depth[None, :] < K - k, other=0.0)
                right = tl.load(w_rows + k, mask=depth[:, None] < K - k, other=0.0)
            else:
                left = tl.load(a_rows + k)
                right = tl.load(w_rows + k)
            total = tl.dot(left, right, total)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(out + rows.to(tl.int64)[:, None] * N + columns[None, :], total, mask=inside)
