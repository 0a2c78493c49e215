"""ledger.jsonl: one line an experiment, appended and synced, so that a crash loses the running one only."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import ValidationError

from ..model.errors import BadInput
from ..model.files import write_bytes_atomic
from ..model.verdict import Experiment

CAUSE, ORIGINAL = "cause", "original"
"""Tag of a row that failed because the original did, which says nothing of the candidate."""

NOT_JUDGED = "not judged: "
"""Begins the reason of a candidate that was screened, and whose judgement did not end."""
NOT_BEGUN = "not begun"
"""Name and role of the row that lists the candidates for which there was no time."""


class Ledger:
    """The rows of one optimisation in the order they were written. The last row of a name counts."""

    def __init__(self, path: Path) -> None:
        """Read what is there; a last line cut short by a crash is dropped from the file. Raises BadInput for other damage."""
        self.path = path
        self.rows: list[Experiment] = _load(path)

    def append(self, row: Experiment) -> None:
        """Write one row and sync it to disk. A Ctrl-C while it syncs loses nothing: what is in the file is in `rows`. Raises OSError."""
        line = row.model_dump_json().encode("utf-8") + b"\n"
        written = False
        try:
            with self.path.open("ab") as file:
                file.write(line)
                file.flush()
                written = True
                os.fsync(file.fileno())
        finally:
            if written:
                self.rows.append(row)

    def latest(self) -> list[Experiment]:
        """The last row of each name, in first-seen order."""
        return list({row.name: row for row in self.rows}.values())

    def finished(self) -> dict[str, Experiment]:
        """Rows that need not run again: all but those that the budget or a failure of the original stopped."""
        return {row.name: row for row in self.latest() if row.status != "out_of_budget" and row.tags.get(CAUSE) != ORIGINAL}

    def next_index(self) -> int:
        """Number of the next experiment, from 1."""
        return 1 + max((row.index for row in self.rows), default=0)


def _load(path: Path) -> list[Experiment]:
    if not path.is_file():
        return []
    data = path.read_bytes()
    lines = data.split(b"\n")
    rest = lines.pop()  # b"" when the file ends with a line end
    rows: list[Experiment] = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(Experiment.model_validate_json(line))
        except ValidationError as error:
            if number == len(lines) and not rest:
                return _repair(path, lines[:-1], rows)
            raise BadInput("broken_ledger", "is not a row of this version's ledger", where=f"{path}:{number}",
                           fix="start anew without --resume") from error
    return _repair(path, lines, rows) if rest else rows


def _repair(path: Path, lines: list[bytes], rows: list[Experiment]) -> list[Experiment]:
    write_bytes_atomic(path, b"".join(line + b"\n" for line in lines))
    return rows
