"""Which of Python's operators write to what they are given. Copied into files that look for writes."""

from __future__ import annotations

ASSIGNS = frozenset({"setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul", "imod", "imul", "ior", "ipow",
                     "irshift", "isub", "itruediv", "ixor"})
"""Names in the module `operator`: x |= y is ior."""
