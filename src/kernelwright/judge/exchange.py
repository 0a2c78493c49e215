"""Seeds and files of one judgement: drawn, read and removed by the parent alone."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..model.errors import BadInput
from ..model.trace import Trace
from ..readers.kineto import read_kineto
from .channel import Worker, WorkerFailed
from .options import Deadline
from .replies import Done, OtherRun, R, Window
from .tensors import Leaf, Malformed, read_leaves
from .untrusted import open_regular, remove


@dataclass(frozen=True)
class Sampling:
    """Leaves of more than `above` elements are compared on a secret random sample of `elements`, or of a 64th where that is more."""

    above: int
    elements: int


OWN_ROUNDS = Sampling(above=8 * 2**20, elements=4 * 2**20)
"""32 MiB of float32. A norm over 4 M elements differs from the norm over all by about 1/sqrt(2 * 4 M) = 0.03%."""
ROUGHLY = Sampling(above=4 * 2**20, elements=2**20)
"""Of a round on other inputs, of which five runs are compared, and of inputs that must stay as they were: 0.07%."""
TIMED = Sampling(above=OWN_ROUNDS.above, elements=ROUGHLY.elements)
"""Of outputs of timed calls: whole where the round's were, so that what the reference gave there serves again."""
MARK = Sampling(above=OWN_ROUNDS.above, elements=2**16)
"""Of outputs that are held against another round's: at the same places in each."""


MAX_WINDOW_BYTES = 512 * 2**20
"""Largest recording of a window that is read (decompressed)."""


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

    def ask(self, op: str, shape: type[R], **fields: Any) -> R:
        """One command and its reply, checked. Raises WorkerFailed, OutOfTime."""
        self.worker.send(op, **fields)
        return self.receive(op, shape)

    def receive(self, op: str, shape: type[R]) -> R:
        """The checked reply to a command that was sent before. Raises WorkerFailed, OutOfTime."""
        reply = self.worker.receive(timeout_s=self.timeout_s, deadline=self.deadline)
        try:
            return shape.model_validate(reply)
        except (ValidationError, RecursionError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "nested too deeply"}
            where = ".".join(str(part) for part in first["loc"])[:100]
            raise WorkerFailed("malformed", f"gave a reply to {op} that cannot be one ({where}: {first['msg']})",
                               role=self.worker.role) from error

    def export(self, what: str, sample_seed: int, sampling: Sampling = OWN_ROUNDS, **fields: Any) -> list[Leaf]:
        """What the worker holds ("outputs", "inputs", "pristine", "timed"), read by us; the file is gone afterwards."""
        return self._leaves("export", Done, sample_seed, sampling, what=what, **fields)[1]

    def run(self, op: str, sample_seed: int, sampling: Sampling = OWN_ROUNDS, **fields: Any) -> tuple[OtherRun, list[Leaf] | None]:
        """Another run of the reference (OtherRun): the reply, and the leaves where it was applicable."""
        reply, leaves = self._leaves(op, OtherRun, sample_seed, sampling, **fields)
        return reply, leaves if reply.applicable else None

    def record_window(self, samples: int) -> tuple[Window, Trace]:
        """A recording of this many samples by torch.profiler, made in the worker's process: its steps are the samples (Window.ring
        calls each). A candidate can forge it. Raises WorkerFailed (malformed where it cannot be read), OutOfTime."""
        file = self.folder / f"{secrets.token_hex(8)}.json"
        try:
            window = self.ask("record_window", Window, file=str(file), samples=samples)
            with tempfile.TemporaryDirectory(prefix="kernelwright-window-") as private:  # read where the worker cannot replace it
                copy = Path(private) / "window.json"
                with open_regular(file) as source, copy.open("wb") as target:
                    shutil.copyfileobj(source, target)
                return window, read_kineto(copy, max_bytes=MAX_WINDOW_BYTES)
        except (OSError, BadInput) as error:
            raise WorkerFailed("malformed", f"gave a recording that cannot be read ({str(error)[:200]})", role=self.worker.role) from error
        finally:
            remove(file)

    def _leaves(self, op: str, shape: type[R], sample_seed: int, sampling: Sampling, **fields: Any) -> tuple[R, list[Leaf]]:
        file = self.folder / f"{secrets.token_hex(8)}.tensors"
        try:
            reply = self.ask(op, shape, file=str(file), sample_seed=sample_seed, limit_elements=sampling.above,
                             sample_elements=sampling.elements, **fields)
            if isinstance(reply, OtherRun) and not reply.applicable:
                return reply, []
            return reply, read_leaves(file)
        except Malformed as error:
            raise WorkerFailed("malformed", f"gave an output file that cannot be read ({error})", role=self.worker.role) from error
        finally:
            remove(file)
