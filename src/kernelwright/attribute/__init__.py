"""Kernel -> operator -> module -> source line, each with a confidence; nothing is dropped silently."""

from .attribute import Attributed, attribute

__all__ = ["Attributed", "attribute"]
