"""Conditions and predictions that several passes share."""

from __future__ import annotations

from ...roofline.knowledge import bottlenecks
from .base import Context

CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose")
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
    """Only where the workload does not bring torch.compile itself."""
    return "the workload is already compiled" if context.facts.already_compiled else None


def first(*reasons: str | None) -> str | None:
    """The first reason given."""
    return next((reason for reason in reasons if reason), None)


def share_words(share_pct: float | None, what: str) -> str:
    """Prediction from a share of time: at most that share can go."""
    return f"{what}: share not measured" if share_pct is None else f"{what} hold {share_pct:.0f}% of the measured time"


def launch_words(context: Context) -> str:
    """Prediction for passes that remove launches."""
    timeline = context.profile.timeline
    if timeline is None or timeline.idle_share_pct is None:
        return "removes launches; idle share not measured"
    return f"removes launches; the device idles {timeline.idle_share_pct:.0f}% of the span"


def fusion_words(context: Context) -> str:
    """Prediction for compile modes."""
    pattern = f"{bottlenecks().rules['elementwise_fusion'].patterns['operators']}|{NORMS}"
    return share_words(context.share_matching_pct(pattern), "elementwise operators and norms, which can be fused,")
