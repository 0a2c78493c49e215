"""Triton kernels that normalise rows of contiguous memory. Copied into files that use them.

Statistics are float32. A mean is kept as high + low: what is left of a value is exact to its own size, however large the mean.
ACTIVATION: a place in NORM_ACTIVATIONS. A weight covers S numbers of a row, and belongs to one of G rows in turn (groups of channels).
"""

from __future__ import annotations

NORM_ACTIVATIONS = ("none", "relu", "silu", "gelu", "gelu_tanh")
"""What a normalisation can end with."""

try:
    import triton as triton
    import triton.language as tl
except ImportError:
    triton = norm_rows_kernel = norm_parts_kernel = norm_from_parts_kernel = None

if triton is not None:

    @triton.jit
    def centred(values, inside, count):  # type: ignore[no-untyped-def]
        """(R, B), zero where not inside -> the mean's high and low (R), what is left of each value (R, B), its sum of squares (R)."""
        high = tl.sum(values, axis=1) / count
        left = tl.where(inside, values - high[:, None], 0.0)
        low = tl.sum(left, axis=1) / count
        left = tl.where(inside, left - low[:, None], 0.0)
        return high, low, left, tl.sum(left * left, axis=1)

    @triton.jit  # type: ignore[untyped-decorator]
    def scaled_and_activated(value, weight, bias, row, column, inside, N, G, S: tl.constexpr,  # type: ignore[no-untyped-def]
                             WEIGHT: tl.constexpr, BIAS: tl.constexpr, ACTIVATION: tl.constexpr):
        """value (R, B) of rows (R) and columns (B), times weight plus bias, activated; NaN stays NaN."""
        place = ((row % G) * (N // S))[:, None] + (column // S)[None, :]
        if WEIGHT:
            value = value * tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
        if BIAS:
            value = value + tl.load(bias + place, mask=inside, other=0.0).to(tl.float32)
        if ACTIVATION == 1:
            value = tl.where(value < 0.0, 0.0, value)
        elif ACTIVATION == 2:
            value = value / (1.0 + tl.exp(-value))
        elif ACTIVATION == 3:
            value = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
        elif ACTIVATION == 4:
            value = value / (1.0 + tl.exp(-1.5957691216057308 * (value + 0.044715 * value * value * value)))
        return value

    @triton.jit  # type: ignore[untyped-decorator]
    def norm_rows_kernel(x, residual, total, weight, bias, out, ROWS, N, G, eps, S: tl.constexpr,  # type: ignore[no-untyped-def]
                         ADD: tl.constexpr, KEEP: tl.constexpr, WEIGHT: tl.constexpr, BIAS: tl.constexpr, RMS: tl.constexpr,
                         ACTIVATION: tl.constexpr, BR: tl.constexpr, BLOCK: tl.constexpr):
        """BR whole rows a program: x, residual (ROWS, N) -> total, if KEEP, and out (ROWS, N). N <= BLOCK."""
        row, column = tl.program_id(0) * BR + tl.arange(0, BR), tl.arange(0, BLOCK)
        inside = (row < ROWS)[:, None] & (column < N)[None, :]
        at = row.to(tl.int64)[:, None] * N + column[None, :]
        values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        if ADD:
            values += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
            rounded_sum = values.to(x.dtype.element_ty)  # what others are given is what is normalised
            if KEEP:
                tl.store(total + at, rounded_sum, mask=inside)
            values = rounded_sum.to(tl.float32)
        if RMS:
            square = tl.sum(values * values, axis=1)
        else:
            _high, _low, values, square = centred(values, inside, N)
        values = values * tl.rsqrt(square / N + eps)[:, None]
        values = scaled_and_activated(values, weight, bias, row, column, inside, N, G, S, WEIGHT, BIAS, ACTIVATION)
        tl.store(out + at, values.to(out.dtype.element_ty), mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def norm_parts_kernel(x, residual, total, parts, ROWS, N, PARTS, CHUNKS, ADD: tl.constexpr,  # type: ignore[no-untyped-def]
                          RMS: tl.constexpr, BLOCK: tl.constexpr):
        """Statistics of CHUNKS x BLOCK numbers of a row a program: -> parts (3, ROWS, PARTS), the mean's high and low and the sum of
        squares of what is left of each number (RMS: of each number, and no mean). ADD: total = x + residual, of which they are."""
        row, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
        start = part * CHUNKS * BLOCK
        high, low = tl.zeros((1,), dtype=tl.float32), tl.zeros((1,), dtype=tl.float32)
        square = tl.zeros((1,), dtype=tl.float32)
        for chunk in range(CHUNKS):
            column = start + chunk * BLOCK + tl.arange(0, BLOCK)[None, :]
            inside = column < N
            at = row.to(tl.int64) * N + column
            values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            if ADD:
                values += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
                rounded_sum = values.to(x.dtype.element_ty)
                tl.store(total + at, rounded_sum, mask=inside)
                values = rounded_sum.to(tl.float32)
            if RMS:
                square += tl.sum(values * values, axis=1)
            else:
                more = tl.minimum(tl.maximum(N - start - chunk * BLOCK, 0), BLOCK).to(tl.float32)
                before = tl.cast(chunk * BLOCK, tl.float32)
                new_high, new_low, _left, new_square = centred(values, inside, tl.maximum(more, 1.0))
                apart = tl.where(before > 0.0, (new_high - high) + (new_low - low), 0.0)
                share = more / tl.maximum(before + more, 1.0)
                square += new_square + apart * apart * (before * share)
                low = tl.where(before > 0.0, low + apart * share, new_low)
                high = tl.where(before > 0.0, high, new_high)
        place = parts + tl.program_id(0) + tl.arange(0, 1)
        tl.store(place, high)
        tl.store(place + ROWS * PARTS, low)
        tl.store(place + 2 * ROWS * PARTS, square)

    @triton.jit  # type: ignore[untyped-decorator]
    def norm_from_parts_kernel(x, parts, weight, bias, out, ROWS, N, G, PARTS, CHUNKS, eps, S: tl.constexpr,  # type: ignore[no-untyped-def]
                               WEIGHT: tl.constexpr, BIAS: tl.constexpr, RMS: tl.constexpr, ACTIVATION: tl.constexpr,
                               BP: tl.constexpr, BLOCK: tl.constexpr):
        """x (ROWS, N) -> out (ROWS, N), CHUNKS x BLOCK numbers a program, from the statistics of all parts of its row. PARTS <= BP."""
        program = ROWS * PARTS - 1 - tl.program_id(0)  # what was read last is in the L2 cache
        row, part = program // PARTS, program % PARTS
        which = tl.arange(0, BP)
        known = which < PARTS
        place = parts + row * PARTS + which
        square = tl.sum(tl.load(place + 2 * ROWS * PARTS, mask=known, other=0.0), axis=0)
        if not RMS:
            counts = tl.where(known, tl.minimum(N - which * (CHUNKS * BLOCK), CHUNKS * BLOCK), 0).to(tl.float32)
            highs = tl.load(place, mask=known, other=0.0)
            high = tl.sum(highs * (counts / N), axis=0)
            apart = tl.where(known, (highs - high) + tl.load(place + ROWS * PARTS, mask=known, other=0.0), 0.0)
            low = tl.sum(apart * (counts / N), axis=0)
            square += tl.sum(counts * (apart - low) * (apart - low), axis=0)
        scale = tl.rsqrt(square / N + eps)
        for chunk in range(CHUNKS):
            column = (part * CHUNKS + chunk) * BLOCK + tl.arange(0, BLOCK)
            inside = (column < N)[None, :]
            at = row.to(tl.int64) * N + column[None, :]
            values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            if not RMS:
                values = (values - high) - low
            values = scaled_and_activated(values * scale, weight, bias, row + tl.arange(0, 1), column, inside, N, G, S, WEIGHT, BIAS,
                                          ACTIVATION)
            tl.store(out + at, values.to(out.dtype.element_ty), mask=inside)
