"""From a Profile to what people and agents read: the contract, report.md, comparisons, the published schemas."""

from .baseline import baseline_refusal
from .contract import render_contract
from .document import render_report
from .top import render_top
from .write import write_profile

__all__ = ["baseline_refusal", "render_contract", "render_report", "render_top", "write_profile"]
