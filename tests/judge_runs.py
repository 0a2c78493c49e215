"""The recorded runs of the two corpora, `docs/judge-runs/CORPUS-DEVICE.json`.

`bench/judge_corpus.py --record` writes them; the corpora's pages show them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelwright.model.files import write_json_atomic
from kernelwright.model.verdict import Verdict

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "judge-runs"
NONE = "none"
NOT_RUN = "not run yet"


@dataclass(frozen=True)
class Row:
    """What one candidate got."""

    verdict: str
    tier: str
    """The tier of separation that held in its judgement."""
    wrong: str
    """What was wrong with the verdict; "" when it was as it must be."""
    elapsed_s: float
    earlier: str = ""
    """Day and sources of the earlier run that judged it, where this one has not."""


@dataclass
class Run:
    """One run of a corpus on one device."""

    corpus: str
    device: str
    """cpu or cuda."""
    date: str = ""
    commit: str = ""
    device_name: str = ""
    torch_version: str = ""
    rows: dict[str, Row] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Of its file."""
        return FOLDER / f"{self.corpus}-{self.device}.json"

    def add(self, name: str, verdict: Verdict, wrong: str) -> None:
        """One more judgement."""
        tier = verdict.separation.tier if verdict.separation is not None else "n/a"
        self.device_name, self.torch_version = verdict.device_name or self.device_name, verdict.torch_version or self.torch_version
        self.rows[name] = Row(verdict.verdict, tier, wrong, round(verdict.elapsed_s, 1))

    def take_over(self, earlier: Run, names: Collection[str]) -> None:
        """Keep an earlier run's rows of these candidates until this run has its own; none that were wrong: this code is not known to be."""
        self.rows = {name: replace(row, earlier=row.earlier or f"{earlier.date}, {earlier.commit}")
                     for name, row in earlier.rows.items() if name in names and row.verdict != NONE and not row.wrong}

    @property
    def own(self) -> list[Row]:
        """Those that this run judged itself."""
        return [row for row in self.rows.values() if not row.earlier]

    def has_judged(self, name: str) -> bool:
        """Whether it need not be judged when the run goes on."""
        row = self.rows.get(name)
        return row is not None and not row.earlier and row.verdict != NONE

    @property
    def wrong(self) -> int:
        """How many of its own verdicts were not as they must be."""
        return sum(bool(row.wrong) for row in self.own)

    def failed(self, name: str, why: str) -> None:
        """There was no verdict: the reference failed. It is judged again when the run goes on."""
        self.rows[name] = Row(NONE, "n/a", why, 0.0)

    def write(self, copy: Path | None = None) -> None:
        """Replace its file, and its namesake in the folder `copy`."""
        for path in (self.path, *([copy / self.path.name] if copy else [])):
            write_json_atomic(path, asdict(self))

    def cells(self, name: str) -> str:
        """Two cells of a table: the verdict that the candidate got, the tier that held."""
        row = self.rows.get(name)
        if row is None:
            return f"{NOT_RUN} | n/a"
        return f"{row.verdict}{f' ({row.earlier})' if row.earlier else ''} | {row.tier}"

    def summary(self, names: Iterable[str]) -> str:
        """A sentence on the run as a whole."""
        known = [self.rows[name] for name in names if name in self.rows]
        found = [row for row in known if not row.earlier]
        if not found:
            return "Not run yet."
        wrong = sum(bool(row.wrong) for row in found)
        left = len(known) - len(found)
        others = f" Of the other {left} the verdict is an earlier run's, with its day and sources." if left else ""
        return (f"Run on {self.date} at {self.commit} with torch {self.torch_version}, {self.device_name}: {len(found)} judged in "
                f"{sum(row.elapsed_s for row in found):.0f} s, {wrong} not as they must be.{others}")


def read(corpus: str, device: str) -> Run:
    """The recorded run; an empty one where there is none."""
    run = Run(corpus, device)
    if not run.path.exists():
        return run
    stored: dict[str, Any] = json.loads(run.path.read_text(encoding="utf-8"))
    rows = {name: Row(**row) for name, row in stored.pop("rows").items()}
    return Run(**stored, rows=rows)
