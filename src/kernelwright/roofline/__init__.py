"""Ceilings of a device, and where a workload and its stages stand against them."""

from .peaks import roof
from .points import with_roofline
from .shapes import with_product_work
from .stages import stages
from .work import work_summary

__all__ = ["roof", "stages", "with_product_work", "with_roofline", "work_summary"]
