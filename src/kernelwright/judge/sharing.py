"""The inputs of a judgement's rounds: made in the reference's process, read in the candidate's, those of the next round meanwhile."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .channel import WorkerFailed
from .exchange import Exchange, Seeds
from .replies import Done, InputsMade, SurveyedKind
from .untrusted import remove

AHEAD_BYTES = 2 << 30
"""Larger inputs are not made ahead: the device, and the folder, hold one round's more then."""
ENDED = ("died", "timeout", "noisy", "forged", "malformed")
"""Codes of a failure after which the process is gone."""


@dataclass
class Sharing:
    """One judgement's. While inputs are made ahead the reference can be asked for nothing else: `settle` comes first."""

    reference: Exchange
    candidate: Exchange
    seeds: Seeds
    folder: Path
    """Both processes read it."""
    _asked: tuple[int, Path] | None = field(default=None, init=False)
    _made: dict[int, tuple[Path, InputsMade | WorkerFailed]] = field(default_factory=dict, init=False)

    def seed(self, number: int) -> int:
        """Of a round's inputs."""
        return self.seeds.of(f"inputs {number}")

    def share(self, number: int, kind: SurveyedKind | None = None, upcoming: tuple[int, SurveyedKind | None] | None = None) -> InputsMade:
        """One round's inputs, in both processes; those of the `upcoming` round are made while the candidate's takes them and computes.

        Raises WorkerFailed, OutOfTime.
        """
        self.settle()
        if number not in self._made:
            self._begin(number, kind)
            self.settle()
        file, made = self._made.pop(number)
        try:
            if isinstance(made, WorkerFailed):
                raise made
            if upcoming is not None and file.stat().st_size <= AHEAD_BYTES:
                self._begin(*upcoming)
            self.candidate.ask("take_inputs", Done, round=number, file=str(file), plain=made.plain)
        except Exception:
            self.drop()
            raise
        finally:
            remove(file)
        return made

    def settle(self) -> None:
        """Wait for what is made ahead. Its failure is told by `share`, but one that has cost the process: WorkerFailed, OutOfTime."""
        if self._asked is None:
            return
        (number, file), self._asked = self._asked, None
        made: InputsMade | WorkerFailed
        try:
            made = self.reference.receive("make_inputs", InputsMade)
        except WorkerFailed as error:
            if error.code in ENDED:
                remove(file)
                raise
            made = error
        except BaseException:
            remove(file)
            raise
        self._made[number] = file, made

    def forget(self, number: int) -> None:
        """A round that is over and not to be timed: neither process holds its inputs any more."""
        self.settle()
        for side in (self.reference, self.candidate):
            side.ask("forget", Done, round=number)

    def drop(self) -> None:
        """What was made ahead is not needed. Never fails for a process that has ended."""
        with contextlib.suppress(WorkerFailed):  # it is being told why already
            self.settle()
        while self._made:
            number, (file, _) = self._made.popitem()
            remove(file)
            with contextlib.suppress(WorkerFailed):
                self.reference.ask("forget", Done, round=number)

    def _begin(self, number: int, kind: SurveyedKind | None) -> None:
        file = self.folder / f"{secrets.token_hex(8)}.tensors"  # a name that a candidate cannot have occupied
        other: dict[str, Any] = {} if kind is None else {"kind": kind.kind, "free": kind.free}
        self.reference.worker.send("make_inputs", round=number, seed=self.seed(number), file=str(file), **other)
        self._asked = number, file
