"""What this machine can do, what it lacks, and the fix of each lack."""

from .examine import PACKAGES, examine
from .report import Check, Examination, ModeAbility
from .torch import OWN_TORCH

__all__ = ["OWN_TORCH", "PACKAGES", "Check", "Examination", "ModeAbility", "examine"]
