"""The loop: propose from the catalogue, try, have it judged, keep the best, log and report."""

from .run import Outcome, optimize
from .stages import OptimizeOptions

__all__ = ["OptimizeOptions", "Outcome", "optimize"]
