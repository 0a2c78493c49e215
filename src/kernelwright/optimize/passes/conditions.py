"""Conditions and predictions that several passes share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import replace

from ...diagnose.activity import idle_share_pct
from ...model.profile import Operator
from ...model.workload import TensorSpec
from ...report.figures import in_unit
from ...roofline.knowledge import bottlenecks
from .base import Context, Move, Prediction
from .bounds import in_use

CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose")
PRODUCTS = ("aten::linear", "aten::addmm", "aten::mm", "aten::matmul", "aten::bmm", "aten::baddbmm")
OTHER_TUNED = ("_mm", "flex_attention")
"""Scaled, grouped and integer products; attention as a template."""
COPIES = ("aten::copy_", "aten::_to_copy", "aten::clone", "aten::contiguous", "aten::to")
LAUNCHED = 0.95
"""A recording that lost a few of its launch calls still shows more of its kernels launched one by one."""
RECURRENT = ("_rnn", "aten::lstm", "aten::gru", "aten::rnn_")
MOST_IDLE_LEFT, REPLAY_IDLE_NS, LEAST_IDLE_NS = 0.5, 50_000.0, 1_000.0
"""Of the idle time of a call at most this share is left by what takes launches away, or what a replay of a CUDA graph leaves in any case:
35 to 50 us in profiles of undisturbed hosts (H200 and H100; more on busy ones). Less idle time than LEAST_IDLE_NS counts as that."""
TF32_TIMES, HALF_TIMES = 7.4, 14.8
"""Multiplications of tensor cores in TF32 and in 16 bits over those of plain float32 (H200 datasheet: 494, 989 and 67 TFLOP/s)."""
NORMS = (r"^aten::((native_|cudnn_|miopen_)?(layer|batch|group|instance)_norm|(_fused_)?rms_norm|native_batch_norm_legit_no_training"
         r"|_native_batch_norm_legit(_no_training)?|_(log_)?softmax(_backward_data)?)(_backward)?$")
"""Whole names of norms and softmax; the elementwise operators are those of the rule elementwise_fusion."""


def needs_gpu(context: Context) -> str | None:
    """Only CUDA devices."""
    return None if context.on_gpu else "needs a CUDA device"


def needs_module(context: Context) -> str | None:
    """Only workloads that hand over a model, not a bare function."""
    return "the workload is a function, not a module" if context.facts.form == "versions" else None


def needs_convolution(context: Context) -> str | None:
    """Only where the profile shows a convolution."""
    return needs_module(context) or (None if context.runs(*CONVOLUTIONS) else "the profile shows no convolution")


def needs_float32(context: Context) -> str | None:
    """Only where float32 carries the work."""
    dtype = context.facts.dtype
    return None if dtype == "float32" else f"the workload computes in {dtype or 'no floating dtype'}, not float32"


def plain_float32(context: Context) -> str | None:
    """Only where matrix products are strict float32."""
    return "TF32 is on for matrix products, so float32 exactness is not asked for" if context.environment.matmul_tf32 else None


def not_yet_compiled(context: Context) -> str | None:
    """Only where the workload brings no torch.compile, or one that unwrap_compiled takes off."""
    return "the workload is already compiled, from inside" if context.facts.compiled_inside else None


def replays_graphs(context: Context) -> bool:
    """Whether a call replays CUDA graphs, the compiler's or its own: one launch for many kernels."""
    timeline = context.profile.timeline
    return timeline is not None and context.on_gpu and timeline.launches < LAUNCHED * timeline.kernels_total


def own_graph(context: Context) -> str | None:
    """Only where the workload replays no CUDA graph that it captured itself (those of torch.compile and of make_graphed_callables are
    taken off)."""
    facts = context.facts
    return "the workload replays CUDA graphs already" if context.replayed and not (facts.already_compiled or facts.hidden) else None


def first(*reasons: str | None) -> str | None:
    """The first reason given."""
    return next((reason for reason in reasons if reason), None)


FEWER_KERNELS = Move("kernels", 0.0, 0.99)
LESS_TRAFFIC = Move("DRAM bytes", 0.0, 0.99)
NOTABLE, SHORTER = 1.11, 0.95
"""A predicted gain of this size shows in the kernels' time: two profiles of one program differ by 5%."""
NOTABLE_PCT, LEAST_ROWS = 10.0, 16
"""A cast is predicted to busy the tensor cores where products of so many rows and columns hold so much of the time."""
BUSY_CORES = Move("tensor-core share", 2.0, 100.0, "mm|linear|product")
"""Of products that float32's pipes did: the share, in percent, below which 1 counts, at least doubles."""


def share_words(context: Context, share_pct: float | None, what: str, *moves: Move, removed: bool = False) -> Prediction:
    """Prediction from a share of time: at most that share of the kernels' time can go (Amdahl). removed: the rewrite takes the operators
    away, which gives a range: the call gets no shorter than what it must read, write and compute. How much of it the workload's own
    torch.compile has taken away already is not known."""
    if share_pct is None:
        return Prediction(f"{what}: share not measured", moves=moves)
    most = 100.0 / (100.0 - share_pct) if share_pct < 100.0 else math.inf
    roof = most_possible(context) if removed else None
    most = min(most, roof) if roof is not None else most
    possible = None if context.facts.already_compiled or (removed and most == math.inf) else (1.0, most)
    return Prediction(f"{what} hold {share_pct:.0f}% {context.whole}", possible if removed else None, (*moves, *shorter(context, possible)))


def shorter(context: Context, gain: tuple[float, float] | None) -> tuple[Move, ...]:
    """What a gain that comes from the device's work does to its kernels' time. Nothing where it is no more than two profiles of one program
    differ by, and on a CPU, where the profiler's own time is in it."""
    return (Move("kernel time", 1.0 / gain[1], SHORTER),) if gain is not None and gain[1] >= NOTABLE and context.on_gpu else ()


def most_possible(context: Context) -> float | None:
    """Time of a call over the least that is known of its arithmetic and its bytes, at least 1; None where neither is known."""
    least_ns = max((bound.least_ns for bound in in_use(context.profile) if bound is not None), default=None)
    whole_ns = call_ns(context)
    return max(1.0, whole_ns / least_ns) if whole_ns and least_ns else None


def has_products(context: Context) -> bool:
    """Whether the workload has what a compile mode measures kernels for: products, convolutions. True where the profile does not show."""
    seen = context.seen.operators and (context.uncompiled is not None or not (context.facts.already_compiled or context.facts.hidden))
    return not seen or context.runs(*CONVOLUTIONS, *PRODUCTS, *OTHER_TUNED)


def launch_words(context: Context) -> Prediction:
    """Prediction for passes that remove launches."""
    timeline = context.profile.timeline
    if timeline is None or timeline.idle_share_pct is None:
        return Prediction("removes launches; idle share not measured")
    idle = timeline.idle_share_pct
    most = 1.0 - idle / 100.0 + loading_share(context)
    gain = (1.0, 1.0 / most) if most > 0 else None
    return Prediction(f"removes launches; {_idles(context, idle / 100.0)}", gain, (_less_idle(context, idle / 100.0),))


def call_ns(context: Context) -> float | None:
    """Time of one call: the unprofiled timing's median, else a profiled step."""
    timing, timeline = context.profile.timing, context.profile.timeline
    if timing is not None and timing.median_ns > 0:
        return timing.median_ns
    return timeline.span_ns / timeline.steps if timeline is not None and timeline.steps and timeline.span_ns else None


def copies_share(context: Context) -> float:
    """What a CUDA graph of the whole call adds, as a share of the call: inputs copied in and outputs cloned, each read and written once at
    the bandwidth of DRAM. 0 where that is not known."""
    roof, whole_ns = context.profile.roofline, call_ns(context)
    peak = in_unit(roof.peak_bandwidth or roof.datasheet_bandwidth, "GB/s") if roof is not None else None
    if not peak or not whole_ns:
        return 0.0
    return 2.0 * sizes_bytes((*context.facts.inputs, *context.facts.outputs)) / peak / whole_ns


def sizes_bytes(specs: Iterable[TensorSpec]) -> int:
    """Of these tensors together."""
    return sum(math.prod(spec.shape) * _bytes_of(spec.dtype) for spec in specs)


def _bytes_of(dtype: str) -> int:
    """Of one element, by torch's short name."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits is not None else 1


def idle_share(context: Context) -> float | None:
    """Share of a call in which the device does nothing, 0..1: the profile's, else what its busy time leaves of the call's own; None where
    neither was measured."""
    timeline, whole_ns = context.profile.timeline, call_ns(context)
    if timeline is not None and timeline.idle_share_pct is not None:
        return timeline.idle_share_pct / 100.0
    return max(0.0, 1.0 - timeline.busy_ns / timeline.steps / whole_ns) if timeline is not None and timeline.steps and whole_ns else None


def loading_share(context: Context) -> float:
    """Share of a call in which the device does nothing since a DataLoader is waited for, 0..1: fewer launches don't shorten that. 0 on a
    CPU, and where it was not recorded."""
    timeline = context.profile.timeline
    activity = timeline.activity if timeline is not None and context.on_gpu else None
    idle = idle_share(context)
    if timeline is None or activity is None or idle is None:
        return 0.0
    return min(idle, idle_share_pct(timeline, activity.data_loader_idle_ns) / 100.0)


def _idles(context: Context, idle: float) -> str:
    """idle: share of a call, 0..1."""
    loading = loading_share(context)
    return f"the device idles {100 * idle:.0f}% of the span" + (f", {100 * loading:.0f}% for a DataLoader" if loading >= 0.01 else "")


def graph_words(context: Context) -> Prediction:
    """Prediction for the whole call as one graph: the idle time can go, and the copies of inputs and outputs come."""
    idle, copies = idle_share(context), copies_share(context)
    if idle is None or idle >= 1.0:
        return launch_words(context)
    words = f"one launch; {_idles(context, idle)}"
    words += f", copies of inputs and outputs take {100 * copies:.0f}% of it" if copies >= 0.01 else ""
    most = 1.0 / (1.0 - idle + loading_share(context) + copies)
    return Prediction(words, (1.0 / (1.0 + copies), most), (_less_idle(context, idle),))


def whole_graph_words(context: Context) -> Prediction:
    """graph_words of a graph of one's own, whose launches are known: its own, and those that copy each input in and each output out."""
    said, timeline = graph_words(context), context.profile.timeline
    before = timeline.launches / timeline.steps if timeline is not None and timeline.steps else 0.0
    after = 1 + len(context.facts.inputs) + len(context.facts.outputs)
    return replace(said, moves=(*said.moves, Move("launches", 0.0, after / before))) if before > after else said


def _less_idle(context: Context, idle: float) -> Move:
    """Half of the idle time at most is left, but what a replay leaves in any case; all of that in which a DataLoader is waited for. idle:
    share of a call, 0..1."""
    whole_ns, loading = call_ns(context), loading_share(context) / idle if idle else 0.0
    replay = REPLAY_IDLE_NS / max(idle * whole_ns, LEAST_IDLE_NS) if whole_ns else 0.0
    return Move("idle time", 0.0, max(MOST_IDLE_LEFT + (1.0 - MOST_IDLE_LEFT) * loading, replay))


def recurrent(context: Context) -> bool:
    """Whether the time goes into torch's own recurrent layers, which torch.compile leaves as they are and outside its CUDA graphs."""
    return context.runs(*RECURRENT)


def narrow_words(context: Context, words: str, times: float, rest: float = 1.0) -> Prediction:
    """Prediction for narrower arithmetic: products, convolutions and recurrent layers at most `times` as fast as plain float32 (those that
    have TF32 already by as much less), all else at most `rest`."""
    whole = context.share_pct(*PRODUCTS, *CONVOLUTIONS, *RECURRENT)
    if whole is None or not context.on_gpu:
        return Prediction(words)
    flags, products = context.environment, context.share_pct(*PRODUCTS) or 0.0
    layers, products = max(0.0, min(whole, 100.0) - products), min(products, 100.0)
    least = (products / max(1.0, times / (TF32_TIMES if flags.matmul_tf32 else 1.0))
             + layers / max(1.0, times / (TF32_TIMES if flags.cudnn_tf32 else 1.0)) + (100.0 - products - layers) / rest)
    gain = (1.0, max(1.0, 100.0 / least))
    tall = (context.share_where_pct(_is_tall) or 0.0) >= NOTABLE_PCT and not flags.matmul_tf32
    return Prediction(words, gain, (*((BUSY_CORES,) if tall else ()), *shorter(context, gain)))


def _is_tall(operator: Operator) -> bool:
    """Whether it is a product that tensor cores are used for: of vectors they are not."""
    matrices = [shape for shape in operator.input_shapes if len(shape) > 1]
    return operator.operator_name in PRODUCTS and len(matrices) > 1 and min(size for shape in matrices for size in shape[-2:]) >= LEAST_ROWS


def captured_words(context: Context) -> Prediction:
    """Prediction for compile modes with CUDA graphs: what fusion gives, and what a graph does."""
    fusion, graph = fusion_words(context), graph_words(context)
    if recurrent(context):
        return Prediction(f"{fusion.words}; recurrent layers stay outside its graphs", fusion.gain, fusion.moves)
    gain = graph.gain if fusion.gain is None or graph.gain is None else (graph.gain[0], fusion.gain[1] * graph.gain[1])
    return Prediction(f"{fusion.words}; {graph.words}", gain, graph.moves)


def compiled_launch_words(context: Context) -> Prediction:
    """Prediction for fewer launches between kernels that torch.compile made."""
    return Prediction("recurrent layers are not compiled") if recurrent(context) else launch_words(context)


def fusion_words(context: Context) -> Prediction:
    """Prediction for compile modes."""
    if context.facts.already_compiled:
        return Prediction("the workload's own torch.compile fuses elementwise operators and norms already")
    pattern = f"{bottlenecks().rules['elementwise_fusion'].patterns['operators']}|{NORMS}"
    return share_words(context, context.share_matching_pct(pattern), "elementwise operators and norms, which can be fused,", removed=True)
