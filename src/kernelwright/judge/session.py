"""The reference's worker, kept alive over many candidates so that its start-up is paid once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..capture.byte_code import byte_code_variables
from ..capture.interpreter import Interpreter, find_interpreter
from ..model.capture import ProbeWorkload
from ..model.errors import EXIT_BAD_INPUT, EXIT_MACHINE_LACKS, BadInput, MachineLacks
from ..model.nearest import did_you_mean
from ..model.saying import Say, silent
from ..model.workload import WorkloadRef
from .channel import ENDED, Worker, WorkerFailed
from .confine import Confinement, prune_caches, supported
from .distributions import survey_seconds
from .exchange import Exchange, Seeds
from .options import Deadline, JudgeOptions, OfReference, ReferenceFailed, ReferenceLacks, ReferenceUnusable
from .replies import Done, Loaded, Surveyed
from .scratch import Scratch, guard
from .spare import Spare, worthwhile
from .untrusted import open_regular

_OF_REFERENCE: dict[int, type[OfReference]] = {EXIT_BAD_INPUT: ReferenceUnusable, EXIT_MACHINE_LACKS: ReferenceLacks}

_FIX = {
    "died": "run the file by itself and see what it prints last", "timeout": "raise --timeout, or make the workload smaller",
    "noisy": "let it print less",
}
"""What to do about failures that the parent found, by their code."""


class ReferenceSession:
    """`with ReferenceSession(workload, options) as session: judge(..., session=session)`.

    The worker starts on entering (its imports run beside the caller's work) and again by itself after it died.
    Raises BadInput, MachineLacks, WorkloadFailed when the workload itself cannot be run.
    """

    def __init__(self, workload: WorkloadRef, options: JudgeOptions | None = None, *, say: Say = silent, start: bool = True,
                 others: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext) -> None:
        """start: False leaves the worker's start to the first `ready`. others: what the caller computes meanwhile is still in it."""
        self.workload = workload
        self.options = options or JudgeOptions()
        self.say = say
        self.others = others
        self.seed = secrets.randbits(48) if self.options.seed is None else self.options.seed
        self.workload_seed = Seeds(self.seed).of("workload")
        self.facts = Loaded(environment={}, training=False, form="", state={})
        self.survey: Surveyed | None = None
        """How the reference behaves on other inputs; None until a judgement has asked for it."""
        self._survey_s = 0.0
        self.interpreter: Interpreter
        self.worker: Worker | None = None
        self._loading = False
        self._told = False
        """The worker was told what to load."""
        self._spare: Spare | None = None
        self._ahead = False
        """Somebody prepares: a further judgement is likely."""
        self._start_now = start
        self._scratch: list[Scratch] = []
        self._judged: dict[str, int] = {}
        self.unconfinable = ""
        """Why the workload cannot be loaded in a confined process; "" while nothing is known against it."""

    def __enter__(self) -> ReferenceSession:
        if not self.workload.path.is_file():
            raise BadInput("no_such_workload", "no such file", where=str(self.workload.path),
                           fix=did_you_mean(self.workload.path, "give the path of a Python file", suffix=".py"))
        self.interpreter = find_interpreter(self.options.python, self.workload.path, self.options.device, self.say)
        self.byte_code = byte_code_variables(self.interpreter)
        self.private = self._folder("reference")
        self.shared = self._folder("candidate")
        guard(self.private)
        prune_caches()
        try:
            if self._start_now:
                self.living()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the reference's process and remove (or, with keep_dir, keep) the files."""
        self.rest()
        for scratch in self._scratch:
            if self.options.keep_dir is not None:
                _keep_logs(scratch.folder, self.options.keep_dir)
            scratch.remove()
        self._scratch.clear()

    def rest(self) -> None:
        """End the reference's process, and with it the memory it holds; `ready` starts another."""
        if self._spare is not None:
            if self.worker is not None:
                self.worker.tell_to_end()
            self._spare.end()
            self._spare = None
        if self.worker is not None:
            self.worker.close()
            self.worker = None

    def count(self, sha256: str) -> int:
        """How often a candidate with this hash was judged before."""
        earlier = self._judged.get(sha256, 0)
        self._judged[sha256] = earlier + 1
        return earlier

    def load_request(self) -> dict[str, Any]:
        """What both workers are told to load."""
        return {**ProbeWorkload.of(self.workload).model_dump(), "device": self.options.device, "seed": self.workload_seed}

    def workspace(self) -> Path:
        """A new folder for one candidate, which may write there alone."""
        folder = self.shared / f"w-{secrets.token_hex(4)}"
        folder.mkdir(mode=0o700)
        return folder

    def living(self) -> Worker:
        """The reference's worker, loading or loaded; starts it again when it has died."""
        worker = self._alive()
        if not self._told:
            self._told = self._loading = True
            try:
                worker.send("load", **self.load_request())
            except WorkerFailed as error:
                raise self.failure(error) from error
        return worker

    def prepare(self) -> None:
        """Start what the next judgement needs, where this machine has room for it and the candidates are our own (they share the user's
        compile caches): the reference's process, which loads nothing yet, and a candidate's, which imports what compilers need.

        Never fails: what cannot start is started, and complained of, by the judgement.
        """
        self._ahead = True
        if (self._spare is not None or self.unconfinable or self.options.compile_cache != "user" or not self.options.confine
                or not supported() or not worthwhile(self.workload)):
            return
        with contextlib.suppress(MachineLacks, OSError):
            self._spare = self._started_ahead()

    def prepare_next(self) -> None:
        """`prepare` while another judgement is on, where somebody prepares at all."""
        if self._ahead:
            self.prepare()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """What `prepare` started does nothing inside this."""
        with contextlib.ExitStack() as still:
            if self._spare is not None:
                still.enter_context(self._spare.quiet())
            if self.worker is not None and not self._told:
                self.worker.pause()
                still.callback(self.worker.resume)
            yield

    def take_spare(
        self, stack: contextlib.ExitStack, candidate: Path, sha256: str, options: JudgeOptions, deadline: Deadline,
    ) -> Spare | None:
        """The spare worker as this candidate's, where there is one that will do; the stack ends it. Raises OutOfTime."""
        spare, self._spare = self._spare, None
        if spare is None:
            return None
        stack.callback(spare.end)
        if not spare.fits(options, self._protected(self.living())):
            spare.end()
            return None
        if not spare.admitted(candidate, sha256, self.options.timeout_s, deadline):
            return None
        spare.worker.log = spare.worker.log.rename(self.shared / spare.worker.log.name)
        return spare

    def ready(self, deadline: Deadline, *, survey: bool = False) -> Exchange:
        """The reference's side, loaded and reset; starts it again when it has died. survey: fill in `self.survey`, once a session."""
        self.worker = self.living()
        side = Exchange(self.worker, self.private, self.options.timeout_s, deadline)
        try:
            if self._loading:
                self.facts = side.receive("load", Loaded)
                self._loading = False
            side.ask("reset", Done)
        except WorkerFailed as error:
            raise self.failure(error) from error
        if not survey or self.survey is not None:
            return side
        begin = time.monotonic()
        try:
            self.survey = side.ask("survey", Surveyed, seed=Seeds(self.seed).of("survey"), **survey_seconds(deadline))
        except WorkerFailed as error:  # inputs that it was not written for may cost it its device or its life
            self.survey = Surveyed(applicable=False, reason=" ".join(error.message.split())[:200])
            self.failure(error)
            return self.ready(deadline)
        finally:
            self._survey_s = time.monotonic() - begin
        return side

    def surveyed_s(self) -> float:
        """Seconds of the survey since this was last asked."""
        spent, self._survey_s = self._survey_s, 0.0
        return spent

    def failure(self, error: WorkerFailed) -> OfReference:
        """The reference failed: the workload's own failure, with the exit code the probe gave it."""
        if self.worker is not None:
            self.worker.close()
            self.worker = None
        of_process = error.code in ENDED
        message = f"the workload's process {error.message}" if of_process else error.message
        kind = _OF_REFERENCE.get(error.exit_code, ReferenceFailed)
        return kind("workload_died" if error.code == "died" else error.code, message, where=error.where or str(self.workload.path),
                    fix=error.fix or _FIX.get(error.code, "run it by itself (a model's call more than once) and correct the error"))

    def _alive(self) -> Worker:
        """The reference's worker, which may have been told nothing yet."""
        if self.worker is not None and self.worker.is_ending:
            self.worker.close()
        if self.worker is None or self.worker.process.poll() is not None:
            self.worker = Worker("reference", self.interpreter.path, self.private, device=self.options.device, variables=self.byte_code)
            self._told = self._loading = False
        return self.worker

    def _started_ahead(self) -> Spare:
        folder = self.workspace()
        confinement = Confinement(folder, self.options, "", self.workload.path, None, self.private, self._protected(self._alive()))
        log = self.shared / f"{folder.name}.spare"
        log.mkdir()
        return Spare(Worker("candidate", self.interpreter.path, log, device=self.options.device, confinement=confinement,
                            variables=self.byte_code, ahead=True), confinement, folder)

    def _protected(self, reference: Worker) -> tuple[int, ...]:
        return os.getpid(), reference.process.pid

    def _folder(self, role: str) -> Path:
        self._scratch.append(Scratch(role))
        return self._scratch[-1].folder


def sha256_of(path: Path) -> str:
    """Hex digest of a regular file; "" when it cannot be read (deleted or replaced meanwhile)."""
    digest = hashlib.sha256()
    try:
        with open_regular(path, follow=True) as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return ""
    return digest.hexdigest()


def _keep_logs(folder: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.move(str(log), str(target / log.name))
