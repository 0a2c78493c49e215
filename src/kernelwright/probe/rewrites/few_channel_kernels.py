"""Triton kernel of convolutions of few input channels on contiguous NCHW tensors. Copied into files that use it.

Numbers and flags alone are passed to it. PLANE, OUT_PLANE: places of an input's and a result's plane, which Triton knows to be multiples of
16 only where they are arguments. ACTIVATION: a place in conv_places.CLAMPS.
"""

from __future__ import annotations

try:
    import triton as triton
    import triton.language as tl
except ImportError:
    triton = few_channel_kernel = None

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def few_channel_kernel(x, taps, bias, out, IMAGES, CO, STRIDE, H, W, PLANE, OW, OUT_PLANE, PARTS, SH, SW, PH, PW, DH, DW,  # type: ignore[no-untyped-def]
                           CI: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, PADDED: tl.constexpr, ACTIVATION: tl.constexpr,
                           POOL: tl.constexpr, BM: tl.constexpr, BI: tl.constexpr, BP: tl.constexpr):
        """BM channels of BP places of BI images: x (N, CI, H, W), taps (CI, KH, KW, STRIDE >= CO), bias (CO) -> out (N, CO, OH, OW).

        A number of x that a thread reads goes into BM sums, by float32's own products. POOL: window and stride of a max pooling after it,
        whose result alone is written; OH, OW and OUT_PLANE are its sizes. PARTS: programs an image.
        """
        lane = tl.arange(0, BI * BP)
        image = (tl.program_id(0) // PARTS) * BI + lane // BP
        place = (tl.program_id(0) % PARTS) * BP + lane % BP
        channels = tl.program_id(1) * BM + tl.arange(0, BM)
        inside = (place < OUT_PLANE) & (image < IMAGES)
        source = x + image.to(tl.int64) * (CI * PLANE)
        largest = tl.full((BM, BI * BP), float("-inf"), dtype=tl.float32)
        for member in tl.static_range(POOL * POOL):
            row = ((place // OW) * POOL + member // POOL) * SH - PH
            column = ((place % OW) * POOL + member % POOL) * SW - PW
            total = tl.zeros((BM, BI * BP), dtype=tl.float32)
            for c in range(CI):
                for i in range(KH):
                    at_row = row + i * DH
                    line = source + (c * PLANE + at_row * W + column)
                    there = inside & (at_row >= 0) & (at_row < H) if PADDED else inside
                    for j in tl.static_range(KW):
                        near = there & (column + j * DW >= 0) & (column + j * DW < W) if PADDED else there
                        value = tl.load(line + j * DW, mask=near, other=0.0).to(tl.float32)
                        weights = tl.load(taps + ((c * KH + i) * KW + j) * STRIDE + channels).to(tl.float32)
                        total += weights[:, None] * value[None, :]
            largest = tl.maximum(largest, total, propagate_nan=tl.PropagateNan.ALL)
        shift = tl.load(bias + channels, mask=channels < CO, other=0.0).to(tl.float32)
        largest += shift[:, None]
        if ACTIVATION > 0:  # NaN stays NaN
            largest = tl.where(largest < 0.0, 0.0, largest)
        if ACTIVATION == 2:
            largest = tl.where(largest > 6.0, 6.0, largest)
        target = out + (image.to(tl.int64) * (CO * OUT_PLANE) + place)[None, :] + channels[:, None] * OUT_PLANE
        tl.store(target, largest.to(out.dtype.element_ty), mask=(channels[:, None] < CO) & inside[None, :])
