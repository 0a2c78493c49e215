"""The inputs of a judgement's rounds: made in the reference's process, read in the candidate's, those of the next round meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .channel import ENDED, WorkerFailed
from .exchange import Exchange, Seeds
from .options import Deadline, OutOfTime
from .replies import Done, InputsMade, SurveyedKind
from .untrusted import remove

AHEAD_BYTES = 2 << 30
"""Larger inputs are not made ahead: the device, and the disk, hold one round's more then."""
FREE_TIMES = 4.0
"""Nor are those where the disk has not room for so many such files."""
DROP_S = 2.0
"""What nobody needs any more is waited for so long; then the reference's process is ended, and another started for the next candidate."""


@dataclass
class Sharing:
    """One judgement's. While inputs are made ahead the reference can be asked for nothing else: `settle` comes first.

    They are made in the reference's own folder, which a candidate cannot look into, and handed over when their round begins.
    """

    reference: Exchange
    candidate: Exchange
    seeds: Seeds
    folder: Path
    """Both processes read it."""
    _asked: tuple[int, Path] | None = field(default=None, init=False)
    """What is being made."""
    _made: tuple[int, Path, InputsMade | WorkerFailed] | None = field(default=None, init=False)

    def seed(self, number: int) -> int:
        """Of a round's inputs."""
        return self.seeds.of(f"inputs {number}")

    def share(self, number: int, kind: SurveyedKind | None = None, upcoming: tuple[int, SurveyedKind | None] | None = None) -> InputsMade:
        """One round's inputs, in both processes; those of the `upcoming` round are made while the candidate takes these and computes.

        Raises WorkerFailed, OutOfTime.
        """
        self.settle()
        if self._made is not None and self._made[0] != number:
            self.drop()
        if self._made is None:
            self._begin(number, kind)
            self.settle()
        assert self._made is not None
        (_, made_at, made), self._made = self._made, None
        file = self.folder / made_at.name  # a name that a candidate cannot have occupied
        try:
            if isinstance(made, WorkerFailed):
                raise made
            if upcoming is not None and self._has_room(made_at):
                self._begin(*upcoming)
            os.replace(made_at, file)
            self.candidate.ask("take_inputs", Done, round=number, file=str(file), plain=made.plain)
        except Exception:
            self.drop()
            raise
        except BaseException:
            self.drop(within_s=0.0)
            raise
        finally:
            remove(made_at)
            remove(file)
        return made

    def settle(self) -> None:
        """Wait for what is made ahead. Its failure is told by `share`, but one that has cost the process: WorkerFailed, OutOfTime."""
        self._receive(self.reference)

    def _receive(self, side: Exchange) -> None:
        if self._asked is None:
            return
        (number, file), self._asked = self._asked, None
        try:
            self._made = number, file, side.receive("make_inputs", InputsMade)
        except WorkerFailed as error:
            if error.code in ENDED:
                remove(file)
                raise
            self._made = number, file, error
        except BaseException:
            remove(file)
            raise

    def forget(self, number: int) -> None:
        """A round that is over and not to be timed: neither process holds its inputs any more."""
        self.settle()
        for side in (self.reference, self.candidate):
            side.ask("forget", Done, round=number)

    def drop(self, within_s: float = DROP_S) -> None:
        """What was made ahead is not needed: the reference can be asked for other things again, or its process is ended after `within_s`,
        or at the deadline. Raises nothing of that: there may be something to tell already."""
        left_s = max(0.0, min(within_s, self.reference.deadline.left_s()))
        with contextlib.suppress(WorkerFailed):
            self._receive(replace(self.reference, timeout_s=left_s, deadline=Deadline(None)))
        if self._made is not None:
            (number, file, _), self._made = self._made, None
            remove(file)
            with contextlib.suppress(WorkerFailed, OutOfTime):
                self.reference.ask("forget", Done, round=number)

    def _begin(self, number: int, kind: SurveyedKind | None) -> None:
        file = self.reference.folder / f"{secrets.token_hex(8)}.tensors"
        other: dict[str, Any] = {} if kind is None else {"kind": kind.kind, "free": kind.free}
        self.reference.worker.send("make_inputs", round=number, seed=self.seed(number), file=str(file), **other)
        self._asked = number, file

    def _has_room(self, file: Path) -> bool:
        """Whether inputs as large as these may be made ahead."""
        size = file.stat().st_size
        return size <= AHEAD_BYTES and shutil.disk_usage(self.folder).free >= FREE_TIMES * size
