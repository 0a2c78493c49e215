"""Seeds and files of one judgement: drawn, read and removed by the parent alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .channel import Worker, WorkerFailed
from .options import Deadline
from .tensors import Leaf, Malformed, read_leaves

SAMPLE_ABOVE_ELEMENTS = 16 * 2**20
"""Leaves above this (64 MiB of float32) are compared on a secret random sample."""


@dataclass(frozen=True)
class Seeds:
    """All seeds of a judgement follow from one secret; knowing one does not give the others."""

    master: int
    candidate_sha256: str = ""
    earlier: int = 0
    """How often this session has judged the same file: another judgement gets other inputs."""

    def of(self, label: str) -> int:
        """48 bits: more than torch, random and numpy need, and exact in JSON everywhere."""
        digest = hashlib.sha256(f"kernelwright:{self.master}:{self.candidate_sha256}:{self.earlier}:{label}".encode()).digest()
        return int.from_bytes(digest[:6], "big")


@dataclass(frozen=True)
class Exchange:
    """How the parent talks to one worker during a judgement."""

    worker: Worker
    folder: Path
    """Only this worker is told of it (but the inputs' files, which both read)."""
    timeout_s: float
    deadline: Deadline

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """One command and its reply. Raises WorkerFailed, OutOfTime."""
        return self.worker.ask(op, timeout_s=self.timeout_s, deadline=self.deadline, **fields)

    def export(self, what: str, sample_seed: int, **fields: Any) -> list[Leaf]:
        """What the worker holds ("outputs", "inputs", "pristine", "timed"), read by us; the file is gone afterwards."""
        return self._leaves("export", sample_seed, what=what, **fields)[1]

    def run(self, op: str, sample_seed: int, **fields: Any) -> tuple[dict[str, Any], list[Leaf] | None]:
        """An oracle or yardstick run: the reply, and the leaves where it was applicable."""
        reply, leaves = self._leaves(op, sample_seed, **fields)
        return reply, leaves if reply.get("applicable") else None

    def _leaves(self, op: str, sample_seed: int, **fields: Any) -> tuple[dict[str, Any], list[Leaf]]:
        file = self.folder / f"{op}.tensors"
        try:
            reply = self.ask(op, file=str(file), sample_seed=sample_seed, limit_elements=SAMPLE_ABOVE_ELEMENTS, **fields)
            if reply.get("applicable") is False:
                return reply, []
            return reply, read_leaves(file)
        except Malformed as error:
            raise WorkerFailed("malformed", f"gave an output file that cannot be read ({error})", role=self.worker.role) from error
        finally:
            file.unlink(missing_ok=True)
