"""Conditions and predictions that several passes share."""

from __future__ import annotations

from ...roofline.knowledge import bottlenecks
from .base import Context, Move, Prediction

CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose")
PRODUCTS = ("aten::linear", "aten::addmm", "aten::mm", "aten::matmul", "aten::bmm", "aten::baddbmm")
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


def not_yet_compiled(context: Context) -> str | None:
    """Only where the workload brings no torch.compile, or one around it, which unwrap_compiled takes off."""
    return "the workload is already compiled, from inside" if context.facts.compiled_inside else None


def first(*reasons: str | None) -> str | None:
    """The first reason given."""
    return next((reason for reason in reasons if reason), None)


FEWER_LAUNCHES = Move("launches", 0.0, 0.99)
LESS_TRAFFIC = Move("DRAM bytes", 0.0, 0.99)


def share_words(share_pct: float | None, what: str, *moves: Move, removed: bool = False) -> Prediction:
    """Prediction from a share of time. removed: the rewrite takes the operators away, so at most that share can go (Amdahl)."""
    if share_pct is None:
        return Prediction(f"{what}: share not measured", moves=moves)
    gain = (1.0, 100.0 / (100.0 - share_pct)) if removed and share_pct < 100.0 else None
    return Prediction(f"{what} hold {share_pct:.0f}% of the measured time", gain, moves)


def launch_words(context: Context) -> Prediction:
    """Prediction for passes that remove launches."""
    timeline = context.profile.timeline
    if timeline is None or timeline.idle_share_pct is None:
        return Prediction("removes launches; idle share not measured")
    idle = timeline.idle_share_pct
    gain = (1.0, 100.0 / (100.0 - idle)) if idle < 100.0 else None
    return Prediction(f"removes launches; the device idles {idle:.0f}% of the span", gain, (Move("idle share", 0.0, 0.5),))


def fusion_words(context: Context) -> Prediction:
    """Prediction for compile modes."""
    pattern = f"{bottlenecks().rules['elementwise_fusion'].patterns['operators']}|{NORMS}"
    return share_words(context.share_matching_pct(pattern), "elementwise operators and norms, which can be fused,", removed=True)
