"""judge REF.py NEW.py ... --kernelbench: several candidates against one live reference, one row of KernelBench's fields each."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..judge import OfReference, ReferenceSession, judge
from ..judge.kernelbench import Result, candidates_of, error_of, result_of, summary_of
from ..model.errors import EXIT_NOT_ACCEPTABLE, EXIT_OK, BadInput, Interrupted, KernelwrightError, NotWritable
from ..model.files import leave_error, write_json_atomic
from ..model.profile import ClockReading
from ..model.saying import Say
from ..model.verdict import ACCEPTABLE
from ..model.workload import WorkloadRef
from ..pipeline.source import check_source
from ..pipeline.stored import safe_name
from .common import Answer, run_clocks
from .judge import again, options_of, result_folder, write_verdict

FILE = "kernelbench.json"


def judge_all(args: argparse.Namespace, workload: WorkloadRef, say: Say) -> Answer:
    """Judge each candidate; what fails of one is its row. kernelbench.json is written anew after each, so that a stop leaves what was
    judged. Exit 5 where one was judged not acceptable or could not be judged."""
    if args.bundle is not None:
        raise BadInput("usage", "--bundle can't be given with --kernelbench", where="judge", fix="bundle one candidate, judged by itself")
    candidates = candidates_of(args.candidate)
    if len(candidates) == 1:
        check_source(candidates[0], "candidate")  # the only one named: bad input, as without --kernelbench
    folder = result_folder(args.out, workload)
    batch = _Batch(args, workload, folder, candidates, say)
    try:
        with run_clocks(args, workload, say) as clocks, ReferenceSession(workload, options_of(args, folder), say=say) as session:
            for number, candidate in enumerate(candidates):
                batch.add(_one(batch, session, candidate, number, clocks.reading))
    except KeyboardInterrupt:
        leave_error(folder, Interrupted(str(folder)))
        raise
    except (KernelwrightError, OSError) as error:
        fault = error if isinstance(error, KernelwrightError) else NotWritable(error, error.filename or folder)
        leave_error(folder, fault)
        raise fault from error.__cause__
    return batch.answer()


class _Batch:
    """The rows so far."""

    def __init__(self, args: argparse.Namespace, workload: WorkloadRef, folder: Path, candidates: list[Path], say: Say) -> None:
        self.args, self.workload, self.folder, self.candidates, self.say = args, workload, folder, candidates, say
        self.results: list[Result] = []

    def add(self, result: Result) -> None:
        """Keep a row, in the file too."""
        self.results.append(result)
        write_json_atomic(self.folder / FILE, self.document())
        self.say(f"{len(self.results)} of {len(self.candidates)}: {Path(result.candidate).name}: {result.verdict or 'not judged'}")

    def document(self) -> dict[str, Any]:
        """`kernelbench.json`. The fields of the only candidate stand at the top too, as KernelBench's evaluators have them."""
        rows = [result.model_dump(mode="json") for result in self.results]
        only = rows[0] if len(self.candidates) == 1 else {}
        return {**only, "reference": str(self.workload.path), "results": rows,
                "summary": summary_of(self.results, len(self.candidates)).model_dump(mode="json")}

    def answer(self) -> Answer:
        """All rows as one JSON object, with --json or without."""
        document = {"out_dir": str(self.folder), **self.document()}
        fine = all(result.verdict in ACCEPTABLE for result in self.results)
        return Answer(document, json.dumps(document, indent=1, allow_nan=False), EXIT_OK if fine else EXIT_NOT_ACCEPTABLE,
                      tail=f"\nresults: {self.folder / FILE}")


def _one(batch: _Batch, session: ReferenceSession, candidate: Path, number: int,
         reading: Callable[[], ClockReading]) -> Result:
    place = batch.folder / f"{number:03d}-{safe_name(candidate.stem)}"
    options = session.options.model_copy(update={"keep_dir": None})
    try:
        check_source(candidate, "candidate")
        verdict = judge(batch.workload, candidate, options, session=session, say=batch.say)
    except KernelwrightError as error:
        if isinstance(error, NotWritable) or (isinstance(error, OfReference) and not batch.results):
            raise  # a full disk, or a reference that never ran: no candidate can be judged
        return error_of(error, candidate, number)
    finally:
        _keep_log(session.shared / "candidate.log", place)
    verdict = verdict.model_copy(update={"clocks": reading()})
    report = write_verdict(place, verdict, batch.workload, again(verdict, batch.workload, batch.args))
    return result_of(verdict, number, str(report))


def _keep_log(log: Path, place: Path) -> None:
    """What the candidate printed: the next one's worker writes another."""
    if log.is_file() and not log.is_symlink():
        (place / "raw").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, place / "raw" / "candidate.log", follow_symlinks=False)
