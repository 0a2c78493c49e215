"""A run that crashes right after autotuning is made once more, with what was timed so far."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..model.capture import ProbeRequest, ProbeResult
from ..model.errors import WorkloadFailed
from ..model.saying import Say

JOURNAL = "autotuned.jsonl"
"""As probe/autotuned.py writes it."""
_DEVICE_FAULTS = ("CUDA error", "Triton Error [CUDA]", "illegal memory access", "misaligned address", "device-side assert")


def ignore() -> None:
    """Nothing: the second run has no work of its own beside it."""


def run_again_after_autotuning(request: ProbeRequest, run: Callable[[ProbeRequest], ProbeResult], say: Say) -> ProbeResult:
    """`run(request)`; where the process died, ran out of memory or lost its device after an autotuner had timed something, once more
    with `again`: kernels come from the compilers' caches and timings from the journal. Raises what `run` raises the second time."""
    journal = Path(request.out_dir) / JOURNAL
    journal.unlink(missing_ok=True)
    try:
        return run(request)
    except WorkloadFailed as error:
        if not _crashed(error) or not _timed(journal):
            raise
        first = error
    say(f"the workload crashed after autotuning ({first.message}); once more, from the caches")
    result = run(request.model_copy(update={"again": True}))
    words = f"the workload crashed after autotuning ({first.message}); these figures are of a second run, which found its choices cached"
    return result.model_copy(update={"warnings": (*result.warnings, words)})


def _crashed(error: WorkloadFailed) -> bool:
    return error.code in ("workload_died", "out_of_memory") or any(words in error.message for words in _DEVICE_FAULTS)


def _timed(journal: Path) -> bool:
    try:
        return journal.stat().st_size > 0
    except OSError:
        return False
