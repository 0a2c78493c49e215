"""The Triton kernel of float32 attention on tensor cores. Copied into files whose attention is made of products of parts.

Numbers and flags alone are passed to it, as to the kernels of products.
"""

from __future__ import annotations

try:
    import triton as triton
    import triton.language as tl
except ImportError:
    triton = attention_kernel = None

ATTENTION_MODES = ("fp16x1", "fp16x3", "tf32x3", "bf16x6", "bf16x9")
"""The place in this list stands for the mode in the kernel."""

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def narrow_parts(x, MODE: tl.constexpr):  # type: ignore[no-untyped-def]
        """float32 as hi + lo (float16) or hi + lo + lowest (bfloat16), each rounded to the nearest."""
        hi, lo, lowest = x, x, x
        if MODE < 2:
            hi = x.to(tl.float16)
            lo = (x - hi.to(tl.float32)).to(tl.float16)
            lowest = lo
        elif MODE > 2:
            hi = x.to(tl.bfloat16)
            rest = x - hi.to(tl.float32)
            lo = rest.to(tl.bfloat16)
            lowest = (rest - lo.to(tl.float32)).to(tl.bfloat16)
        return hi, lo, lowest

    @triton.jit  # type: ignore[untyped-decorator]
    def sum_of_products(a_hi, a_lo, a_lowest, b_hi, b_lo, b_lowest, MODE: tl.constexpr):  # type: ignore[no-untyped-def]
        """The products of parts that are not below float32's own rounding, the small ones first, in a sum that starts at zero."""
        if MODE == 0:
            total = tl.dot(a_hi, b_hi)
        elif MODE == 2:
            total = tl.dot(a_hi, b_hi, input_precision="tf32x3")
        elif MODE == 1:
            total = tl.dot(a_lo, b_hi)
            total = tl.dot(a_hi, b_lo, total)
            total = tl.dot(a_hi, b_hi, total)
        else:
            total = tl.dot(a_lowest, b_hi)
            if MODE == 4:
                total = tl.dot(a_lowest, b_lowest)
                total = tl.dot(a_lowest, b_lo, total)
                total = tl.dot(a_lo, b_lowest, total)
                total = tl.dot(a_lowest, b_hi, total)
            total = tl.dot(a_hi, b_lowest, total)
            total = tl.dot(a_lo, b_lo, total)
            total = tl.dot(a_lo, b_hi, total)
            total = tl.dot(a_hi, b_lo, total)
            total = tl.dot(a_hi, b_hi, total)
        return total

    @triton.jit  # type: ignore[untyped-decorator]
    def power_for(x, AXIS: tl.constexpr):  # type: ignore[no-untyped-def]
        """(2^n, 2^-n) that bring the largest magnitude along an axis to 2^14 up to 2^15: exact, and no part leaves float16's range."""
        top = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=AXIS) >> 23
        field = tl.minimum(tl.maximum(268 - top, 1), 253)
        return (field << 23).to(tl.float32, bitcast=True), ((254 - field) << 23).to(tl.float32, bitcast=True)

    @triton.jit  # type: ignore[untyped-decorator]
    def attended(acc, total, top, q_hi, q_lo, q_lowest, q_factor, k_rows, v_rows, mask_rows,  # type: ignore[no-untyped-def]
                 first, last, k_row, v_row, mask_column, rows, T, S, D,
                 MODE: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, EDGE: tl.constexpr, NARROW: tl.constexpr,
                 BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
        """The keys from first to last taken into (sum of weighted values, sum of weights, largest score). EDGE: some keys are not seen."""
        depth = tl.arange(0, BD)
        for start in range(first, last, BN):
            columns = start + tl.arange(0, BN)
            at = tl.cast(start, tl.int64)
            if EDGE or NARROW:
                inside = (columns[:, None] < S) & (depth[None, :] < D)
                key = tl.load(k_rows + at * k_row, mask=inside, other=0.0)
            else:
                key = tl.load(k_rows + at * k_row)
            if MODE < 2:
                power, inverse = power_for(key, 1)
                k_hi, k_lo, k_lowest = narrow_parts(key * power[:, None], MODE)
                scores = sum_of_products(q_hi, q_lo, q_lowest, tl.trans(k_hi), tl.trans(k_lo), tl.trans(k_lowest), MODE)
                # The two factors first: one of a large query and one of a small key may each leave the range.
                scores = scores * (q_factor[:, None] * inverse[None, :])
            else:
                k_hi, k_lo, k_lowest = narrow_parts(key, MODE)
                scores = sum_of_products(q_hi, q_lo, q_lowest, tl.trans(k_hi), tl.trans(k_lo), tl.trans(k_lowest), MODE)
                scores = scores * q_factor[:, None]
            if MASK > 0:
                look = mask_rows + at * mask_column
                there = (rows[:, None] < T) & (columns[None, :] < S)
                if MASK == 1:
                    scores = tl.where(tl.load(look, mask=there, other=0) != 0, scores, -float("inf"))
                else:
                    added = tl.load(look, mask=there, other=0.0)
                    binary = added * 1.4426950408889634
                    # The least float32 is no infinity: a row of them is a mean, not empty.
                    binary = tl.where((binary == -float("inf")) & (added != -float("inf")), -3.4028234663852886e38, binary)
                    scores += binary
            if EDGE:
                seen = columns[None, :] < S
                if CAUSAL:
                    seen = seen & (columns[None, :] <= rows[:, None])
                scores = tl.where(seen, scores, -float("inf"))
            new_top = tl.maximum(top, tl.max(scores, axis=1))
            shift = tl.where(new_top == -float("inf"), 0.0, new_top)
            weights = tl.exp2(scores - shift[:, None])
            if MODE < 2:
                weights = weights * 32768.0  # even the lower part of what is 2^-18 of the largest is whole; the quotient takes it back
            kept = tl.exp2(top - shift)
            top = new_top
            total = total * kept + tl.sum(weights, axis=1)
            value = tl.load(v_rows + at * v_row, mask=inside, other=0.0) if EDGE or NARROW else tl.load(v_rows + at * v_row)
            p_hi, p_lo, p_lowest = narrow_parts(weights, MODE)
            if MODE < 2:
                power, inverse = power_for(value, 0)
                v_hi, v_lo, v_lowest = narrow_parts(value * power[None, :], MODE)
                part = sum_of_products(p_hi, p_lo, p_lowest, v_hi, v_lo, v_lowest, MODE)
                acc = acc * kept[:, None] + part * inverse[None, :]
            else:
                v_hi, v_lo, v_lowest = narrow_parts(value, MODE)
                acc = acc * kept[:, None] + sum_of_products(p_hi, p_lo, p_lowest, v_hi, v_lo, v_lowest, MODE)
        return acc, total, top

    @triton.jit  # type: ignore[untyped-decorator]
    def attention_kernel(q, k, v, mask, out, factor, H, GROUP, T, S, D, q_batch, q_head, q_row,  # type: ignore[no-untyped-def]
                         k_batch, k_head, k_row, v_batch, v_head, v_row, mask_batch, mask_head, mask_row, mask_column,
                         out_batch, out_head, out_row,
                         MODE: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr, UNEVEN: tl.constexpr, NARROW: tl.constexpr,
                         BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):
        """BM queries (T, D) of one head over its keys and values (S, D), BN at a time (Dao, FlashAttention-2, arXiv 2307.08691).

        factor: scale x log2(e). GROUP query heads share a key head. UNEVEN: S is no multiple of BN; NARROW: D is less than BD.
        """
        tile, place = tl.program_id(0), tl.program_id(1)
        if CAUSAL:
            tile = tl.num_programs(0) - 1 - tile  # those with most keys first
        batch, head = (place // H).to(tl.int64), (place % H).to(tl.int64)
        rows, depth, columns = tile * BM + tl.arange(0, BM), tl.arange(0, BD), tl.arange(0, BN)
        held = (rows[:, None] < T) & (depth[None, :] < D)
        query = tl.load(q + batch * q_batch + head * q_head + rows.to(tl.int64)[:, None] * q_row + depth[None, :], mask=held, other=0.0)
        k_rows = k + batch * k_batch + (head // GROUP) * k_head + columns.to(tl.int64)[:, None] * k_row + depth[None, :]
        v_rows = v + batch * v_batch + (head // GROUP) * v_head + columns.to(tl.int64)[:, None] * v_row + depth[None, :]
        mask_rows = mask
        if MASK > 0:
            mask_rows = (mask + batch * mask_batch + head * mask_head + rows.to(tl.int64)[:, None] * mask_row
                         + columns.to(tl.int64)[None, :] * mask_column)
        q_factor = tl.zeros((BM,), dtype=tl.float32) + factor
        if MODE < 2:
            power, inverse = power_for(query, 1)
            query = query * power[:, None]
            q_factor = inverse * factor
        q_hi, q_lo, q_lowest = narrow_parts(query, MODE)
        acc, total = tl.zeros((BM, BD), dtype=tl.float32), tl.zeros((BM,), dtype=tl.float32)
        top = tl.zeros((BM,), dtype=tl.float32) - float("inf")
        last = S
        if CAUSAL:
            last = tl.minimum(S, tile * BM + BM)
        whole = (last // BN) * BN
        if CAUSAL:
            whole = tl.minimum(whole, ((tile * BM) // BN) * BN)
        acc, total, top = attended(acc, total, top, q_hi, q_lo, q_lowest, q_factor, k_rows, v_rows, mask_rows, 0, whole,
                                   k_row, v_row, mask_column, rows, T, S, D, MODE, CAUSAL, MASK, False, NARROW, BM, BN, BD)
        if CAUSAL or UNEVEN:
            acc, total, top = attended(acc, total, top, q_hi, q_lo, q_lowest, q_factor, k_rows, v_rows, mask_rows, whole, last,
                                       k_row, v_row, mask_column, rows, T, S, D, MODE, CAUSAL, MASK, True, NARROW, BM, BN, BD)
        # A query that sees no key gives zeros, as in torch.
        quotient = tl.math.div_rn(tl.zeros((BM,), dtype=tl.float32) + 1.0, tl.where(total == 0.0, 1.0, total))
        places = out + batch * out_batch + head * out_head + rows.to(tl.int64)[:, None] * out_row + depth[None, :]
        tl.store(places, acc * quotient[:, None], mask=held)
