"""The Triton kernels of products on tensor cores. Copied into files whose linear layers are products of parts.

Numbers and flags alone are passed to them: what compiles a kernel into its own code (torch.compile) writes those down safely.
"""

from __future__ import annotations

try:
    import triton as triton
    import triton.language as tl
    from triton.language.extra import libdevice
except ImportError:
    triton = product_kernel = three_products_kernel = finish_kernel = split_kernel = None

ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu", "tanh")
"""What a product can end with, in plain torch or in its kernel, where the place in this list stands for the name."""

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def activated(value, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
        """torch's own formulas, in float32. ACTIVATION: a place in ACTIVATIONS."""
        if ACTIVATION == 1:  # relu
            value = tl.where(value < 0.0, 0.0, value)
        elif ACTIVATION == 2:  # gelu
            value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
        elif ACTIVATION == 3:  # gelu_tanh
            value = 0.5 * value * (1.0 + libdevice.tanh(0.7978845608028654 * (value + 0.044715 * value * value * value)))
        elif ACTIVATION == 4:  # silu
            value = value / (1.0 + tl.exp(-value))
        elif ACTIVATION == 5:  # tanh
            value = libdevice.tanh(value)
        return value

    @triton.jit  # type: ignore[untyped-decorator]
    def finished(value, rows, columns, row_scale, column_scale, bias, M, N,  # type: ignore[no-untyped-def]
                 SCALED: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr):
        """Scales taken back, bias added, activation applied; rows and columns broadcast to the value's shape."""
        if SCALED:
            # The weights' scale first: a row of large inputs would overflow before it.
            value = value * tl.abs(tl.load(column_scale + columns, mask=columns < N, other=0.0))
            value = value * tl.abs(tl.load(row_scale + rows, mask=rows < M, other=0.0))
        if BIASED:
            value = value + tl.load(bias + columns, mask=columns < N, other=0.0)
        return activated(value, ACTIVATION)

    @triton.jit  # type: ignore[untyped-decorator]
    def product_kernel(a, w, out, row_scale, column_scale, bias, M, N, K, a_stride, w_stride, splits,  # type: ignore[no-untyped-def]
                       A_CODE: tl.constexpr, W_CODE: tl.constexpr, TERMS: tl.constexpr, MASKED: tl.constexpr, TF32X3: tl.constexpr,
                       PROMOTED: tl.constexpr, PARTIAL: tl.constexpr, SCALED: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr,
                       BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
        """One BM x BN tile of the sum over terms of a_part (M, K) times w_part (N, K) transposed; PARTIAL: a share of its steps alone."""
        tile, share = tl.program_id(0), tl.program_id(1)
        tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
        # Tiles of GROUP rows of tiles run together, so that they share what they read in the L2 cache.
        group = tile // (GROUP * tiles_n)
        height = tl.minimum(tiles_m - group * GROUP, GROUP)
        tile_m = group * GROUP + (tile % (GROUP * tiles_n)) % height
        tile_n = (tile % (GROUP * tiles_n)) // height
        rows, columns = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
        depth = tl.arange(0, BK)
        DOT: tl.constexpr = "tf32x3" if TF32X3 else "tf32"
        a_rows = a + (rows % M).to(tl.int64)[:, None] * a_stride + depth[None, :]
        w_rows = w + (columns % N).to(tl.int64)[None, :] * w_stride + depth[:, None]
        steps = tl.cdiv(K, BK)
        first, last = 0, TERMS * steps
        if PARTIAL:
            length = tl.cdiv(TERMS * steps, splits)
            first = share * length
            last = tl.minimum(first + length, TERMS * steps)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(first, last):
            term = step // steps
            k = (step - term * steps) * BK
            a_at = ((A_CODE >> (2 * term)) & 3) * K + k
            w_at = ((W_CODE >> (2 * term)) & 3) * K + k
            if MASKED:
                left = tl.load(a_rows + a_at, mask=depth[None, :] < K - k, other=0.0)
                right = tl.load(w_rows + w_at, mask=depth[:, None] < K - k, other=0.0)
            else:
                left = tl.load(a_rows + a_at)
                right = tl.load(w_rows + w_at)
            if PROMOTED:
                total += tl.dot(left, right, input_precision=DOT)
            else:
                total = tl.dot(left, right, total, input_precision=DOT)
        if PARTIAL:
            out += share.to(tl.int64) * M * N
        else:
            total = finished(total, rows[:, None], columns[None, :], row_scale, column_scale, bias, M, N, SCALED, BIASED, ACTIVATION)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(out + rows.to(tl.int64)[:, None] * N + columns[None, :], total, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def three_products_kernel(a, w, out, row_scale, column_scale, bias, M, N, K, a_stride, w_stride, splits,  # type: ignore[no-untyped-def]
                              PARTIAL: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr,
                              BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
        """fp16x3 with the three products of one step together: four tiles are read for them, not six. a, w: (rows, HI and LO, each K).

        A row of either with an infinity or NaN (its scale is negative) takes a second way, through HI HI alone.
        """
        tile, share = tl.program_id(0), tl.program_id(1)
        tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
        group = tile // (GROUP * tiles_n)
        height = tl.minimum(tiles_m - group * GROUP, GROUP)
        tile_m = group * GROUP + (tile % (GROUP * tiles_n)) % height
        tile_n = (tile % (GROUP * tiles_n)) // height
        rows, columns = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
        depth = tl.arange(0, BK)
        a_rows = a + (rows % M).to(tl.int64)[:, None] * a_stride + depth[None, :]
        w_rows = w + (columns % N).to(tl.int64)[None, :] * w_stride + depth[:, None]
        steps = tl.cdiv(K, BK)
        first, last = 0, steps
        if PARTIAL:
            length = tl.cdiv(steps, splits)
            first = share * length
            last = tl.minimum(first + length, steps)
            out += share.to(tl.int64) * M * N
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(first, last):
            k = step * BK
            a_hi, a_lo = tl.load(a_rows + k), tl.load(a_rows + K + k)
            w_hi, w_lo = tl.load(w_rows + k), tl.load(w_rows + K + k)
            part = tl.dot(a_lo, w_hi)
            part = tl.dot(a_hi, w_lo, part)
            total += tl.dot(a_hi, w_hi, part)
        strange_a = tl.load(row_scale + rows, mask=rows < M, other=0.0) < 0.0
        strange_w = tl.load(column_scale + columns, mask=columns < N, other=0.0) < 0.0
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        places = out + rows.to(tl.int64)[:, None] * N + columns[None, :]
        if not PARTIAL:
            total = finished(total, rows[:, None], columns[None, :], row_scale, column_scale, bias, M, N, True, BIASED, ACTIVATION)
        tl.store(places, total, mask=inside)
        if tl.max(strange_a.to(tl.int32), axis=0) + tl.max(strange_w.to(tl.int32), axis=0) > 0:
            again = tl.zeros((BM, BN), dtype=tl.float32)
            for step in tl.range(first, last, num_stages=1):
                again = tl.dot(tl.load(a_rows + step * BK), tl.load(w_rows + step * BK), again)
            if not PARTIAL:
                again = finished(again, rows[:, None], columns[None, :], row_scale, column_scale, bias, M, N, True, BIASED, ACTIVATION)
            tl.store(places, again, mask=inside & (strange_a[:, None] | strange_w[None, :]))

    @triton.jit  # type: ignore[untyped-decorator]
    def finish_kernel(partial, out, row_scale, column_scale, bias, M, N, size, splits,  # type: ignore[no-untyped-def]
                      SCALED: tl.constexpr, BIASED: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
        """Sums the shares of a product in their order and finishes it. partial (splits, M, N) -> out (M, N)."""
        place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = place < size
        value = tl.zeros((BLOCK,), dtype=tl.float32)
        for share in range(splits):
            value += tl.load(partial + share * size + place, mask=inside, other=0.0)
        value = finished(value, place // N, place % N, row_scale, column_scale, bias, M, N, SCALED, BIASED, ACTIVATION)
        tl.store(out + place, value, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def split_kernel(x, parts, scale, K, WIDTH, CODE: tl.constexpr, BLOCKS: tl.constexpr, HALF: tl.constexpr,  # type: ignore[no-untyped-def]
                     BLOCK: tl.constexpr):
        """split_rows for one row a program: x (M, K) float32 -> parts (M, BLOCKS x WIDTH), scale (M)."""
        ROUND: tl.constexpr = 0x1000 if HALF else 0x8000
        KEEP: tl.constexpr = -0x2000 if HALF else -0x10000
        row = tl.program_id(0).to(tl.int64)
        top = tl.zeros((BLOCK,), dtype=tl.int32)
        for start in range(0, K, BLOCK):
            at = start + tl.arange(0, BLOCK)
            value = tl.load(x + row * K + at, mask=at < K, other=0.0)
            top = tl.maximum(top, value.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
        exponent = tl.max(top, axis=0) >> 23
        finite = exponent < 255
        factor = 1.0
        if HALF:
            field = tl.minimum(tl.maximum(268 - exponent, 1), 253)
            factor = (field << 23).to(tl.float32, bitcast=True)
            inverse = ((254 - field) << 23).to(tl.float32, bitcast=True)
            tl.store(scale + row, tl.where(finite, inverse, -inverse))
        for start in range(0, WIDTH, BLOCK):
            at = start + tl.arange(0, BLOCK)
            value = tl.load(x + row * K + at, mask=at < K, other=0.0) * factor
            rounded = ((value.to(tl.int32, bitcast=True) + ROUND) & KEEP).to(tl.float32, bitcast=True)
            hi = tl.where(finite, rounded, value)
            hi_finite = tl.where(finite, rounded, 0.0)
            rest = tl.where(finite, value - rounded, 0.0)
            lo = ((rest.to(tl.int32, bitcast=True) + ROUND) & KEEP).to(tl.float32, bitcast=True)
            lowest = rest - lo
            for block in tl.static_range(BLOCKS):
                part = hi
                if ((CODE >> (2 * block)) & 3) == 1:
                    part = lo
                elif ((CODE >> (2 * block)) & 3) == 2:
                    part = lowest
                elif ((CODE >> (2 * block)) & 3) == 3:
                    part = hi_finite
                tl.store(parts + row * WIDTH * BLOCKS + block * WIDTH + at, part.to(parts.dtype.element_ty), mask=at < WIDTH)
