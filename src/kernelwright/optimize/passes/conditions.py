"""Conditions and predictions that several passes share."""

from __future__ import annotations

from .base import Context

CONVOLUTIONS = ("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose")
ELEMENTWISE = ("add", "mul", "sub", "div", "relu", "gelu", "silu", "tanh", "sigmoid", "exp", "norm", "softmax", "pow", "copy_", "cat")


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
    return share_words(context.share_pct(*ELEMENTWISE), "elementwise operators and norms, which can be fused,")
