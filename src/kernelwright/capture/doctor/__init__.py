"""What this machine can do, what it lacks, and the fix of each lack."""

from .examine import PACKAGES, examine
from .gpu import counters_closed
from .report import Check, Examination, ModeAbility
from .torch import OWN_TORCH

__all__ = ["OWN_TORCH", "PACKAGES", "Check", "Examination", "ModeAbility", "counters_closed", "examine"]
