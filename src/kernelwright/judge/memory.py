"""Where outputs lie in memory: what a user of the reference would notice, and what is only worth a note."""

from __future__ import annotations

from collections.abc import Sequence

from .replies import OutputLayout


def layout_problem(candidate: Sequence[OutputLayout], reference: Sequence[OutputLayout]) -> str | None:
    """An output with several elements at one address, or in the memory of an input, where the reference's is not.

    Writing to such an output fails or changes the input (or the input's next values change the output); and an expanded output leaves
    the writing, which the reference does, to whoever reads it.
    """
    theirs = {layout.path: layout for layout in reference}
    for mine in candidate:
        other = theirs.get(mine.path)
        if other is None:
            continue
        name = f"output {mine.path!r}" if mine.path else "the output"
        if mine.overlaps_itself and not other.overlaps_itself:
            return f"{name} is an expanded view (strides {mine.stride}): several of its elements are one number in memory"
        shared = [path for path in mine.inputs if path not in other.inputs]
        if shared:
            return f"{name} lies in the memory of input {shared[0]!r}: the reference gives memory of its own"
    return None


def layout_notes(candidate: Sequence[OutputLayout], reference: Sequence[OutputLayout]) -> list[str]:
    """Another memory format, and outputs that share memory with each other."""
    theirs = {layout.path: layout for layout in reference}
    notes = []
    for mine in candidate:
        other = theirs.get(mine.path)
        if other is None or mine.overlaps_itself:
            continue
        name = f"output {mine.path!r}" if mine.path else "the output"
        if mine.stride != other.stride:
            notes.append(f"{name} has strides {mine.stride}, the reference's {other.stride}: the same to torch code, not to raw pointers")
        shared = [path for path in mine.outputs if path not in other.outputs]
        if shared:
            notes.append(f"{name} shares memory with output {shared[0]!r}: writing to one changes the other")
    return notes[:4]
