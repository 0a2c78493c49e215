"""Rows beside the ladder for comparison alone: TF32 where only equal precision is allowed, and strict float32, with TF32 off everywhere.

They are screened and shown. No rule of the search sees them: they are never judged, kept, combined or learned from. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..model.verdict import Experiment
from ..model.workload import Precision
from .confirm import ROLE
from .passes import CATALOGUE, Context
from .passes.base import Pass
from .passes.strict_float32 import PASS as STRICT_FLOAT32

SHOWN = "shown only"
"""Role of their rows."""
TF32 = CATALOGUE["tf32"]
LABELS = {"tf32": "tf32", "strict_float32": "strict float32"}
"""What stands in the report's column of precisions."""


def wanted(context: Context, precision: Precision) -> list[Pass]:
    """The rows that a report at this precision has: none without a GPU, or where float32 does not carry the work."""
    if not context.on_gpu or context.facts.dtype != "float32":
        return []
    return [*([TF32] if precision == "equal" else []), STRICT_FLOAT32]  # where TF32 is allowed, the search has its row


def with_condition(item: Pass, context: Context) -> list[Pass]:
    """The row's passes: as all candidates whose calls need none, it runs without gradients."""
    return [item, *([] if context.facts.needs_gradients else [CATALOGUE["no_grad"]])]


def rows_of(rows: Iterable[Experiment]) -> dict[str, Experiment]:
    """Pass -> its last row."""
    return {row.passes[0]: row for row in rows if row.tags.get(ROLE) == SHOWN}


def measured(row: Experiment | None) -> bool:
    """Whether nothing is left to do of a row: it was screened, or does not apply."""
    return row is not None and row.status != "out_of_budget"
