"""The verbs: argv -> package -> output. The only place, beside scripts/, that prints."""

from .main import main

__all__ = ["main"]
