"""Pure interval mathematics on int64 nanoseconds, and the summary of the profiled steps."""

from .call_clock import on_call_clock
from .summary import summarize, unprofiled

__all__ = ["on_call_clock", "summarize", "unprofiled"]
