"""The Triton kernel of an LSTM whose programs stay on the GPU for all steps. Copied into files that use it.

Numbers and flags alone are passed to it.
"""

from __future__ import annotations

try:
    import triton as triton
    import triton.language as tl
except ImportError:
    triton = lstm_kernel = None

if triton is not None:

    @triton.jit
    def wait_for(place, count):  # type: ignore[no-untyped-def]
        """Until so many programs have written; what they wrote before can be read then."""
        seen = 0
        while seen < count:
            seen = tl.inline_asm_elementwise("ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [place], dtype=tl.int32, is_pure=False, pack=1)
        tl.debug_barrier()

    @triton.jit  # type: ignore[untyped-decorator]
    def lstm_kernel(projected, own, below, bias, states, out, last_h, last_c, arrived, B, T, first, last,  # type: ignore[no-untyped-def]
                    projected_t, projected_b, out_t, out_b, LAYERS: tl.constexpr, H: tl.constexpr, K: tl.constexpr, UNITS: tl.constexpr,
                    BB: tl.constexpr, WAITS: tl.constexpr):
        """Steps first to last of UNITS units of one layer a program, its weights on the chip all the time.

        projected: x times the first layer's weights, (T, B, 4 H) by its strides, gates one after the other. own, below (LAYERS, columns, K)
        half precision: weights of the layer's own and of the lower layer's states, the four gates of a unit side by side (below: nothing
        for the first layer); bias (LAYERS, columns). states (LAYERS, T, B, H) half precision: what programs tell each other. out (T, B, H)
        by its strides; last_h, last_c (LAYERS, B, H). arrived (LAYERS, T): programs that have written a step, zeros at first.
        A layer's step waits for its own last one and for the lower layer's same one, so that layers work side by side. All programs must
        run at once: a cooperative launch. WAITS off: one step a launch.
        """
        PROGRAMS: tl.constexpr = (H + UNITS - 1) // UNITS
        layer = tl.program_id(0) // PROGRAMS
        start = (tl.program_id(0) % PROGRAMS) * UNITS
        row, depth, gate = tl.arange(0, BB), tl.arange(0, K), tl.arange(0, 4 * UNITS)
        unit = start + tl.arange(0, UNITS)
        weight = (layer * PROGRAMS * 4 * UNITS + start * 4 + gate[None, :]) * K + depth[:, None]
        w_own = tl.load(own + weight)
        w_below = tl.load(below + weight) if LAYERS > 1 else w_own
        shift = tl.load(bias + layer * PROGRAMS * 4 * UNITS + start * 4 + gate).to(tl.float32)[None, :]
        shift += tl.zeros((BB, 4 * UNITS), dtype=tl.float32)
        given_at = projected + row[:, None] * projected_b + ((gate % 4) * H + start + gate // 4)[None, :]
        given_known = (row < B)[:, None] & (start + gate // 4 < H)[None, :]
        read = row[:, None] * H + depth[None, :]
        known = (row < B)[:, None] & (depth < H)[None, :]
        written = row[:, None] * H + unit[None, :]
        mine = (row < B)[:, None] & (unit < H)[None, :]
        step = B * H
        states += layer * T * step
        arrived += layer * T
        c = tl.load(last_c + layer * step + written, mask=mine & (first > 0), other=0.0)
        h = tl.zeros((BB, UNITS), dtype=tl.float32)
        for t in range(first, last):
            total = shift
            if layer == 0:
                total += tl.load(given_at + t * projected_t, mask=given_known, other=0.0).to(tl.float32)
            else:
                if WAITS:
                    wait_for(arrived - T + t, PROGRAMS)
                lower = tl.load(states - T * step + t * step + read, mask=known, other=0.0, cache_modifier=".cg")
                total += tl.dot(lower, w_below)
            if t > 0:
                if WAITS:
                    wait_for(arrived + t - 1, PROGRAMS)
                before = tl.load(states + (t - 1) * step + read, mask=known, other=0.0, cache_modifier=".cg")
                total += tl.dot(before, w_own)
            even, odd = tl.split(tl.reshape(total, (BB, UNITS, 2, 2)))  # of a unit's i, f, g, o: i and g, f and o
            i, g = tl.split(even)
            f, o = tl.split(odd)
            c = tl.sigmoid(f) * c + tl.sigmoid(i) * (2.0 * tl.sigmoid(2.0 * g) - 1.0)
            h = tl.sigmoid(o) * (2.0 * tl.sigmoid(2.0 * c) - 1.0)
            tl.store(states + t * step + written, h.to(states.dtype.element_ty), mask=mine)
            if layer == LAYERS - 1:
                tl.store(out + t * out_t + row[:, None] * out_b + unit[None, :], h.to(out.dtype.element_ty), mask=mine)
            if WAITS:
                tl.debug_barrier()
                tl.atomic_add(arrived + t, 1, sem="release", scope="gpu")
        tl.store(last_h + layer * step + written, h, mask=mine)
        tl.store(last_c + layer * step + written, c, mask=mine)
