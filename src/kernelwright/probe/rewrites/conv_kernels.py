"""Triton kernels of convolutions on contiguous NCHW tensors (depthwise, 1x1). Copied into files that use them.

Numbers and flags alone are passed to them. PLANE, OUT_PLANE: places of an input's and a result's plane, which Triton knows to be multiples
of 16 only where they are arguments. ACTIVATION: a place in conv_places.CLAMPS. Where each place has its own window one row of it is
unrolled: with all of it addresses take more registers than there are (sm_90: 1 KiB of spills a thread).
"""

from __future__ import annotations

try:
    import triton as triton
    import triton.language as tl
except ImportError:
    triton = depthwise_kernel = depthwise_rows_kernel = pointwise_kernel = None

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def clamped(value, ACTIVATION: tl.constexpr):  # type: ignore[no-untyped-def]
        """The activation; NaN stays NaN."""
        if ACTIVATION > 0:
            value = tl.where(value < 0.0, 0.0, value)
        if ACTIVATION == 2:
            value = tl.where(value > 6.0, 6.0, value)
        return value

    @triton.jit
    def rounded(value):  # type: ignore[no-untyped-def]
        """float32 to the nearest of TF32's 11 bits (cvt.rna.tf32). Tensor cores cut the others off: twice the error, towards zero."""
        bits = (value.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
        return tl.where(value == value, bits.to(tl.float32, bitcast=True), value)

    @triton.jit  # type: ignore[untyped-decorator]
    def depthwise_kernel(x, weight, bias, out, CHANNELS, H, W, PLANE, OW, OUT_PLANE, SH, SW, PH, PW, DH, DW,  # type: ignore[no-untyped-def]
                         KH: tl.constexpr, KW: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
        """BLOCK places of one plane: x (N, C, H, W), weight (C, KH, KW), bias (C) -> out (N, C, OH, OW). Sums in float32,
        from the bias on, as torch's own kernel sums them."""
        plane = tl.program_id(0)
        channel = plane % CHANNELS
        place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        row, column = (place // OW) * SH - PH, (place % OW) * SW - PW
        source = x + plane.to(tl.int64) * PLANE
        total = tl.zeros((BLOCK,), dtype=tl.float32) + tl.load(bias + channel).to(tl.float32)
        for i in range(KH):
            for j in tl.static_range(KW):
                at_row, at_column = row + i * DH, column + j * DW
                there = (place < OUT_PLANE) & (at_row >= 0) & (at_row < H) & (at_column >= 0) & (at_column < W)
                value = tl.load(source + at_row * W + at_column, mask=there, other=0.0)
                total += value.to(tl.float32) * tl.load(weight + (channel * KH + i) * KW + j).to(tl.float32)
        total = clamped(total, ACTIVATION)
        tl.store(out + plane.to(tl.int64) * OUT_PLANE + place, total.to(out.dtype.element_ty), mask=place < OUT_PLANE)

    @triton.jit  # type: ignore[untyped-decorator]
    def depthwise_rows_kernel(x, weight, bias, out, CHANNELS, PLANES, H, PLANE, OH, OUT_PLANE, PH, PW,  # type: ignore[no-untyped-def]
                              W: tl.constexpr, OW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, ACTIVATION: tl.constexpr,
                              BP: tl.constexpr, ROWS: tl.constexpr, BW: tl.constexpr):
        """The same for a window that moves by one and has no gaps: BP planes x ROWS rows x BW columns a program.

        A row of the input is read KW times and goes into the sums of the KH rows of the result that it is part of: a KH-th of the reads.
        """
        plane = tl.program_id(0) * BP + tl.arange(0, BP)
        top = tl.program_id(1) * ROWS
        column = tl.program_id(2) * BW + tl.arange(0, BW)
        channel = plane % CHANNELS
        known = (plane < PLANES)[:, None]
        taps = ()
        for at in tl.static_range(KH * KW):
            taps = taps + (tl.load(weight + channel * (KH * KW) + at).to(tl.float32)[:, None],)
        fresh = tl.load(bias + channel).to(tl.float32)[:, None] + tl.zeros((BP, BW), dtype=tl.float32)
        sums = ()
        for _ in tl.static_range(KH):
            sums = sums + (fresh,)
        source = x + (plane.to(tl.int64) * PLANE)[:, None] + column[None, :] - PW
        target = out + (plane.to(tl.int64) * OUT_PLANE)[:, None] + column[None, :]
        for step in tl.static_range(ROWS + KH - 1):
            row = top + step - PH
            inside = known & (row >= 0) & (row < H)
            values = ()
            for j in tl.static_range(KW):
                there = (column + j >= PW) & (column + j < W + PW)
                values = values + (tl.load(source + (row * W + j), mask=inside & there[None, :], other=0.0).to(tl.float32),)
            more = ()
            for i in tl.static_range(KH):  # sums[i]: of row top + step - (KH - 1) + i, where this row meets row KH - 1 - i of the window
                total = sums[i]
                for j in tl.static_range(KW):
                    total += values[j] * taps[(KH - 1 - i) * KW + j]
                more = more + (total,)
            if step >= KH - 1:
                done = top + step - (KH - 1)
                tl.store(target + done * OW, clamped(more[0], ACTIVATION).to(out.dtype.element_ty),
                         mask=known & (column < OW)[None, :] & (done < OH))
            sums = more[1:] + (fresh,)

    @triton.jit  # type: ignore[untyped-decorator]
    def pointwise_kernel(x, depthwise, shift, weight, bias, out, CI, CO, H, W, PLANE, OW, OUT_PLANE, SH, SW, PH, PW, DH, DW,  # type: ignore[no-untyped-def]
                         KH: tl.constexpr, KW: tl.constexpr, FIRST: tl.constexpr, ACTIVATION: tl.constexpr, TF32: tl.constexpr,
                         BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        """BM channels x BN places of one image: weight (CO, CI) times x (N, CI, OUT_PLANE), bias (CO) -> out (N, CO, OH, OW).

        KH > 0: x (N, CI, H, W) goes through a depthwise convolution first (depthwise (CI, KH, KW), shift (CI), activation FIRST), whose
        result never is in memory. TF32: products of float32 rounded to TF32's 11 bits; else three such products, float32's own exactness.
        """
        DOT: tl.constexpr = "tf32" if TF32 else "tf32x3"
        image = tl.program_id(2).to(tl.int64)
        channels = tl.program_id(0) * BM + tl.arange(0, BM)
        place = tl.program_id(1) * BN + tl.arange(0, BN)
        inside = place < OUT_PLANE
        source = x + image * CI * PLANE
        row, column = (place // OW) * SH - PH, (place % OW) * SW - PW
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, CI, BK):
            depth = k + tl.arange(0, BK)
            if KH > 0:
                value = tl.zeros((BK, BN), dtype=tl.float32) + tl.load(shift + depth, mask=depth < CI, other=0.0).to(tl.float32)[:, None]
                for i in range(KH):
                    for j in tl.static_range(KW):
                        at_row, at_column = row + i * DH, column + j * DW
                        there = inside & (at_row >= 0) & (at_row < H) & (at_column >= 0) & (at_column < W)
                        taps = tl.load(depthwise + (depth * KH + i) * KW + j, mask=depth < CI, other=0.0).to(tl.float32)
                        near = tl.load(source + depth[:, None] * PLANE + (at_row * W + at_column)[None, :],
                                       mask=there[None, :] & (depth[:, None] < CI), other=0.0)
                        value += near.to(tl.float32) * taps[:, None]
                right = clamped(value, FIRST).to(x.dtype.element_ty)
            else:
                right = tl.load(source + depth[:, None] * PLANE + place[None, :], mask=inside[None, :] & (depth[:, None] < CI), other=0.0)
            left = tl.load(weight + channels[:, None] * CI + depth[None, :],
                           mask=(channels[:, None] < CO) & (depth[None, :] < CI), other=0.0)
            if TF32:
                left, right = rounded(left), rounded(right)
            total = tl.dot(left, right, total, input_precision=DOT)
        total = clamped(total + tl.load(bias + channels, mask=channels < CO, other=0.0).to(tl.float32)[:, None], ACTIVATION)
        tl.store(out + (image * CO + channels[:, None]) * OUT_PLANE + place[None, :], total.to(out.dtype.element_ty),
                 mask=(channels[:, None] < CO) & inside[None, :])
