"""Ceilings of a device, and where a workload and its stages stand against them."""

from .peaks import roof
from .stages import stages
from .work import work_summary

__all__ = ["roof", "stages", "work_summary"]
