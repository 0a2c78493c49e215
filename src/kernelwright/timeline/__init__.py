"""Pure interval mathematics on int64 nanoseconds, and the summary of the profiled steps."""

from .summary import summarize, unprofiled

__all__ = ["summarize", "unprofiled"]
