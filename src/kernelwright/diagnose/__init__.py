"""Rules that turn a profile's figures into a bottleneck and ranked findings."""

from .engine import diagnose

__all__ = ["diagnose"]
