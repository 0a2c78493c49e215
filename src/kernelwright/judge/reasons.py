"""A worker's failure in the words of a verdict."""

from __future__ import annotations

from ..model.verdict import VerdictName
from .channel import WorkerFailed

_CAUSES = (
    (("InvalidCxxCompiler", "No working C++ compiler", "no_cxx_compiler"),
     "needs a C++ compiler (torch.compile generates C++ for the CPU), and none is found"),
    (("Failed to find C compiler",), "needs a C compiler (Triton builds its launcher with it), and none is found"),
    (("Cannot find a working triton installation", "No module named 'triton'", "TritonMissing"),
     "needs Triton, which this environment does not have"),
    (("out of memory", "out_of_memory", "can't allocate memory"), "ran out of memory"),
)
"""Words in an error or its traceback -> the reason that a verdict gives."""


def verdict_of(error: WorkerFailed) -> tuple[VerdictName, str]:
    """FAILED with the reason, or CHEAT for a forged reply."""
    if error.code == "forged":
        return "CHEAT", f"forged result: it {error.message}"
    if error.code in ("died", "timeout", "noisy", "malformed"):
        return "FAILED", f"it {error.message}"
    text = f"{error.code}\n{error.message}\n{error.trace}"
    for words, reason in _CAUSES:
        if any(word in text for word in words):
            return "FAILED", reason
    place = f" ({error.where})" if error.where else ""
    return "FAILED", f"{' '.join(error.message.split())}{place}"
