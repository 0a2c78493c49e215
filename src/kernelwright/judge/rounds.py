"""The correctness half: rounds of fresh inputs, the candidate first, then the reference, compared by the parent."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..model.verdict import Correctness, OtherInputs, OutputError, Reproducer, Steadiness, VerdictName
from ..model.workload import Precision
from .channel import ENDED, WorkerFailed
from .correctness import (
    PRECISION_ORDER,
    Expected,
    check_elsewhere,
    check_round,
    comparable,
    decidable,
    finite_everywhere,
    is_evidence,
    is_of,
    nonfinite_difference,
    structure_problem,
)
from .degenerate import warnings_of
from .distance import same_values
from .distributions import WORDS, Budget, left_out, plan
from .exchange import MARK, OWN_ROUNDS, ROUGHLY, TIMED, Exchange, Sampling, Seeds
from .expectations import Expectations
from .memory import layout_notes, layout_problem
from .options import Deadline, JudgeOptions, OutOfTime, ReferenceFailed
from .replies import Called, Layouts, Surveyed, SurveyedKind
from .results import RoundResult, smallest, stale_problem, written_inputs
from .sharing import Sharing
from .steady import check_reference, differs, drift, follows_other_numbers, repeat, unrepeatable
from .tensors import BUFFER, STATE_PREFIXES, WRITTEN, Leaf

REFILLED_ROUND = 1
"""This round's inputs are copied into the tensors that the round before used: same address, other values."""
MAX_REASONS = 4
SAID_BY_TORCH = "overwritten by a subsequent run"
"""torch.compile's CUDA graphs refuse, in these words, to show an output after the next call: nothing is wrong silently."""


@dataclass
class Rounds:
    """Runs the rounds of one judgement. `level` is the precision that the candidate declares."""

    reference: Exchange
    candidate: Exchange
    seeds: Seeds
    count: int
    level: Precision
    inputs_folder: Path
    options: JudgeOptions = field(default_factory=JudgeOptions)
    survey: Surveyed = field(default_factory=lambda: Surveyed(applicable=False))
    deadline: Deadline = field(default_factory=lambda: Deadline(None))
    training: bool = False
    results: list[RoundResult] = field(default_factory=list)
    others: list[OtherInputs] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    first_call_s: float = 0.0
    round_s: float = 0.0
    """Of the generator's rounds: the longest after the first, in which the candidate may compile."""
    timed_expected: dict[int, Expected] = field(default_factory=dict)
    _written: set[str] = field(default_factory=set)
    """Inputs that the reference was seen to write to."""
    _lent: set[str] = field(default_factory=set)
    """Outputs that lie in an input's memory with the reference."""
    _timed_right: dict[int, Sequence[Leaf]] = field(default_factory=dict)
    """By round: the last output of a timed call that was right."""
    steadiness: Steadiness | None = None
    reproducer: Reproducer | None = None
    late: str | None = None
    """What is wrong with a call after the rounds."""
    late_wrong: dict[str, float] = field(default_factory=dict)
    """By path: the errors beyond their limits there."""

    def __post_init__(self) -> None:
        self.expectations = Expectations(self.reference, self.seeds, self.count, self.training)
        self.sharing = Sharing(self.reference, self.candidate, self.seeds, self.inputs_folder)

    def repeatable(self) -> bool:
        """The reference gives the same output when called again, whatever the seed."""
        return self.expectations.repeatable and not (self.expectations.drew_outside and follows_other_numbers(self))

    def share_inputs(self) -> None:
        """Every round's inputs, made in the reference's process and read in the candidate's."""
        for number in range(self.count):
            made = self.sharing.share(number, upcoming=(number + 1, None) if number + 1 < self.count else None)
        if made.jittered:
            names = ", ".join(f"input {name.partition('.')[2]}" for name in made.jittered[:4])
            self.notes.append(f"the workload's generator ignores its seed ({names}): "
                              "scaled element by element by 0.5 to 1.5 in later rounds")

    def run(self) -> None:
        """All rounds; stops after a structural problem, and before the other distributions when the generator's are not all right."""
        took = []
        for number in range(self.count):
            start = self._clock()
            self.results.append(self._round(number))
            took.append(self._clock() - start)
            self.round_s = max(took[1:], default=0.0)
            if number == 0 and self.survey.remembers and (why := differs(self)):
                raise unrepeatable(why)
            if self.results[-1].problem is not None:
                return
        self._again_for_dropped()
        if not self._right():
            return
        repeat(self)
        if self._right() and self.options.distributions:
            self._other_distributions(Budget(took, self.deadline, self._clock))
        if self._right():
            drift(self)

    def _clock(self) -> float:
        """Seconds, less those that draws took: they leave no fewer rounds on other inputs."""
        return time.monotonic() - self.expectations.drawing_s

    def verdict(self) -> tuple[VerdictName | None, Correctness]:
        """WRONG or CHEAT with its reasons, or None when everything is right. Raises ReferenceFailed where nothing can be decided."""
        failed = [result for result in self.results if not result.passed]
        errors = tuple(error for result in self.results for error in result.errors)
        if not failed and self.late is None:
            self._check_decidable()
            if not all(decidable(result.expected) for result in self.results if not result.kind):
                reason = "not decidable: the reference's output is NaN or infinite everywhere, so nothing can be compared"
                return "FAILED", self._correctness(False, errors, (reason,))
            return None, self._correctness(True, errors, ())
        check_reference(self, [*(result.wrong for result in failed), self.late_wrong])
        stale = stale_problem(failed, self.results, REFILLED_ROUND)
        self.reproducer = self.reproducer or smallest(failed)
        if stale:
            return "CHEAT", self._correctness(False, errors, (stale,))
        if self.late is not None:
            return "WRONG", self._correctness(False, errors, (self.late,))
        reasons = [f"{result.label}: {result.problem}" if result.kind else result.problem for result in failed if result.problem]
        reasons += [f"{result.label}: {error.note}" for result in failed for error in result.errors if not error.passed and result.evidence]
        drop = self._undeclared_drop(failed)
        if drop:
            reasons.insert(0, drop)
        if not self.expectations.repeatable or self.expectations.drew_outside:
            reasons.append("the workload draws random numbers or changes its buffers: a candidate must draw and change the same")
        return "WRONG", self._correctness(False, errors, tuple(reasons[:MAX_REASONS]))

    def timed_seed(self, pool_index: int) -> int:
        """Which elements of large outputs are compared after timed calls on this round's inputs."""
        return self.seeds.of(f"timed sample {pool_index}")

    def check_timed(self, pool_index: int, got: Sequence[Leaf]) -> str | None:
        """The output of a timed call, exported under timed_seed, against what the reference gives on the inputs that it had.

        That is known from the round, but where only a sample was compared: then the reference runs again, for another sample.
        """
        if pool_index not in self.timed_expected:
            expected = next((result.expected for result in self.results if result.number == pool_index), None)
            if expected is None or any(leaf.sampled for leaf in (*expected.reference, *got)):
                expected, _ = self.expectations.of(pool_index, self.timed_seed(pool_index), self.level, sampling=TIMED)
            keep = [index for index, leaf in enumerate(expected.reference) if not leaf.path.startswith(STATE_PREFIXES)]
            self.timed_expected[pool_index] = expected.only(keep)
        right = self._timed_right.get(pool_index)
        if right is not None and [_about(leaf) for leaf in right] == [_about(leaf) for leaf in got] and same_values(right, got):
            return None  # the very bits that were compared before, with the same
        result = self.compare(pool_index, got, self.timed_expected[pool_index])
        if result.passed:
            self._timed_right[pool_index] = got
            return None
        check_reference(self, [result.wrong])
        self.reproducer = smallest([result], state=True)
        detail = result.problem or next(error.note for error in result.errors if not error.passed)
        return f"the checked calls were right, the output of a randomly chosen timed call is not: {detail}"

    def _right(self) -> bool:
        return self.late is None and all(result.passed for result in self.results)

    def _again_for_dropped(self) -> None:
        """As many new rounds as were dropped, once."""
        dropped = [result for result in self.results if not result.evidence]
        if not dropped or not self._right():
            return
        for number in range(self.count, self.count + len(dropped)):
            self.sharing.share(number)
            self.results.append(self._round(number))
            if not self.results[-1].passed:
                return
            self.sharing.forget(number)
        self.notes.append(f"{len(dropped)} rounds dropped, in which the reference's own error is above 1% on every output; drawn again")

    def _round(self, number: int, kind: SurveyedKind | None = None, changed: dict[str, str] | None = None) -> RoundResult:
        seed, watch = self.seeds.of(f"sample {number}"), kind is None and 0 < number < self.count
        refill = number == REFILLED_ROUND if number < self.count else bool(seed & 1)
        called, raised = self.call(number, refill=refill, keep=watch, catch=kind is not None)
        if raised is not None:
            self.sharing.settle()
            return self._raised(number, seed, raised, kind)
        if number == 0:
            self.first_call_s = called.call_s
        sampling = OWN_ROUNDS if kind is None or kind.kind == "nonfinite" else ROUGHLY  # few elements may hold all NaN that there is
        got = self.candidate.export("outputs", seed, sampling)
        mark = self._mark(self.candidate, got)
        # At once, before the reference runs: what is written later comes too late. What it writes is compared as outputs are.
        of_inputs = sampling if number == 0 or self._written else ROUGHLY
        after = {leaf.path: leaf for leaf in self.candidate.export("inputs", seed, of_inputs)}
        self.sharing.settle()
        expected, written = self.expectations.of(number, seed, self.level, elsewhere=kind is not None, sampling=sampling)
        got, expected = self._with_state(got, expected, seed, sampling, is_own=kind is None)
        if not self._right():
            expected = replace(expected, draws=None)  # wrong already, whatever they show
        if of_inputs != sampling and any(after[path].sampled for path in written if path in after):  # written in this round alone
            after |= {leaf.path: leaf for leaf in self.candidate.export("inputs", seed, sampling) if leaf.path in written}
        self._written |= set(written)
        got += [replace(after[path], path=f"{WRITTEN}{path}") for path in written if path in after]
        result = self.compare(number, got, expected, kind)
        result.changed, result.mark, result.reference_mark = changed or {}, mark, self._mark(self.reference, expected.reference)
        untouched = [leaf for leaf in self.reference.export("pristine", seed, of_inputs, round=number) if leaf.path not in written]
        mine = [after[leaf.path] for leaf in untouched if leaf.path in after]
        if result.problem is None and (set(called.written) - set(written) or not same_values(mine, untouched)):
            result.problem = "it writes to its inputs, which the reference leaves alone"
        if result.problem is None and kind is None and number == 0:
            result.problem = self._layout()
        if result.problem is None and watch:
            result.problem = self._overwritten(number)
        return result

    def _mark(self, side: Exchange, got: Sequence[Leaf]) -> list[Leaf]:
        """The latest outputs at the places of every round's mark; nothing where they are there whole."""
        sampled = any(leaf.sampled for leaf in got if self.training or not leaf.path.startswith(BUFFER))
        marks = side.export("outputs", self.seeds.of("mark"), MARK) if sampled else []
        return marks if self.training else [leaf for leaf in marks if not leaf.path.startswith(BUFFER)]

    def _with_state(self, got: list[Leaf], expected: Expected, seed: int, sampling: Sampling, *, is_own: bool,
                    ) -> tuple[list[Leaf], Expected]:
        """With the buffers that the reference was seen to change, of the candidate's too where its process was not told of all of them
        before; both without those that the candidate's process does not give (of a ModelNew). is_own: a round of the generator's. On other
        inputs none is compared: what they hold of earlier ones may err by far more than is allowed here."""
        wanted = [] if self.training else [leaf.path for leaf in expected.reference if leaf.path.startswith(BUFFER)]
        if not wanted:
            return got, expected
        if is_own and not {leaf.path for leaf in got}.issuperset(wanted):
            held = self.candidate.export("state", seed, sampling, names=[path.removeprefix(BUFFER) for path in wanted])
            got = [*(leaf for leaf in got if leaf.path not in wanted), *held]
        compared = {leaf.path for leaf in got} if is_own else set()
        keep = [place for place, leaf in enumerate(expected.reference) if leaf.path not in wanted or leaf.path in compared]
        perturbed = [[run[place] for place in keep] for run in expected.perturbed]
        return [leaf for leaf in got if is_own or leaf.path not in wanted], replace(expected.only(keep), perturbed=perturbed)

    def call(self, number: int, *, refill: bool, keep: bool = False, catch: bool = False) -> tuple[Called, WorkerFailed | None]:
        """One checked call of the candidate; with catch, the exception that it raised, if its process lives on."""
        try:
            return self.candidate.ask("call", Called, round=number, seed=self.seeds.of(f"call {number}"), refill=refill, keep=keep,
                                      poison=self.options.poison), None
        except WorkerFailed as error:
            if not catch or error.code in ENDED:
                raise
            return Called(call_s=0.0), error

    def _raised(self, number: int, seed: int, error: WorkerFailed, kind: SurveyedKind | None) -> RoundResult:
        """The candidate raised on another distribution: its failure, where the reference gives finite numbers."""
        assert kind is not None
        expected, _ = self.expectations.of(number, seed, "equal")
        if finite_everywhere(expected.reference):
            error.message = f"on {WORDS[kind.kind]} it fails where the reference does not: {error.message}"
            raise error
        note = f"it raises where the reference is not finite: {' '.join(error.message.split())[:200]}"
        return RoundResult(number, (), None, (), expected, kind=kind.kind, evidence=False, note=note)

    def compare(self, number: int, got: Sequence[Leaf], expected: Expected, kind: SurveyedKind | None = None) -> RoundResult:
        """What the candidate gave in a round against what it should have given."""
        seed = self.sharing.seed(number)
        if kind is not None:
            return self._compare_elsewhere(number, got, expected, kind)
        errors, problem = check_round(got, expected, round_number=number, level=self.level, steps=self._steps(number))
        evidence = problem is not None or is_evidence(errors, expected.reference)
        return RoundResult(number, errors, problem, got, expected, seed, evidence=evidence)

    def _steps(self, number: int) -> int:
        """Calls whose errors a buffer holds after this round: a training step begins with those that were loaded."""
        return 1 if self.training else number + 1

    def _compare_elsewhere(self, number: int, got: Sequence[Leaf], expected: Expected, kind: SurveyedKind) -> RoundResult:
        """Values count where the reference is finite and well-conditioned; NaN and infinities given to it only where it stays finite."""
        result = RoundResult(number, (), structure_problem(got, expected.reference), got, expected, self.sharing.seed(number), kind.kind,
                             kind.free)
        if result.problem is not None:
            return result
        if kind.kind == "nonfinite" and not finite_everywhere(expected.reference):
            lacks, has = nonfinite_difference(got, expected.reference)
            result.evidence = False
            result.note = "the reference is not finite itself" + (
                f"; the candidate is not in {lacks} other elements, and is finite in {has} of the reference's" if lacks or has else "")
            return result
        if not expected.perturbed:
            result.evidence, result.note = False, "what rounding does there is not known: the reference could not run on perturbed inputs"
            return result
        checked = [check_elsewhere(index, got, expected, round_number=number, level=self.level, kind=kind.kind)
                   for index in range(len(got))]
        result.errors, result.evidence = tuple(error for error, _ in checked), any(compared for _, compared in checked)
        result.note = "" if result.evidence else "the reference is ill-conditioned or not finite there"
        return result

    def _other_distributions(self, budget: Budget) -> None:
        """One round on each kind of other inputs, in a secret order, while there is time."""
        kinds = plan(self.survey, self.seeds.of("distributions"))
        numbered = list(enumerate(kinds, 2 * self.count))
        try:
            for done, (number, kind) in enumerate(numbered):
                if not budget.allows():
                    note = budget.note(done, len(kinds), self.survey.call_s)
                    self.notes += [note] if note else []
                    break
                self._elsewhere(number, kind, next(iter(numbered[done + 1 :]), None) if budget.allows(2) else None)
                if not self._right():
                    break
        finally:
            self.sharing.drop()
        without = left_out(self.survey)
        self.notes += [without] if without else []

    def _elsewhere(self, number: int, kind: SurveyedKind, upcoming: tuple[int, SurveyedKind] | None) -> None:
        try:
            made = self.sharing.share(number, kind, upcoming)
            if not made.changed:
                return
            result = self._round(number, kind, made.changed)
        except (WorkerFailed, OutOfTime) as error:
            if isinstance(error, OutOfTime) or error.role != "reference" or error.code in ENDED:
                self.sharing.drop()
                raise
            self._note_other(kind, number, "dropped", {}, f"the reference itself fails: {' '.join(error.message.split())[:200]}")
            return
        finally:
            self.forget_quietly(number)
        status = "failed" if not result.passed else "passed" if result.evidence else "dropped"
        self._note_other(kind, number, status, made.changed, result.note)
        self.results.append(result)
        if result.passed:
            result.forget()

    def forget_quietly(self, number: int) -> None:
        """As Sharing.forget, without a failure of its own."""
        with contextlib.suppress(WorkerFailed):  # it is already being told why
            self.sharing.forget(number)

    def _note_other(self, kind: SurveyedKind, number: int, status: str, changed: dict[str, str], note: str) -> None:
        self.others.append(OtherInputs.model_validate(
            {"kind": kind.kind, "round": number, "status": status, "changed": changed, "note": note}))

    def _layout(self) -> str | None:
        """Memory that the reference's output has for itself, and the candidate's not."""
        theirs = self.reference.ask("layout", Layouts).outputs
        self._lent = {layout.path for layout in theirs if layout.inputs}
        if self.training:
            return None
        mine = self.candidate.ask("layout", Layouts).outputs
        self.notes += layout_notes(mine, theirs)
        return layout_problem(mine, theirs)

    def _overwritten(self, number: int) -> str | None:
        """The output of the call before must be what it was; gradients and buffers are made anew by every step. One that lies in an input's
        memory with the reference, too, changes where that input is refilled."""
        earlier, seed = self.results[number - 1], self.seeds.of(f"sample {number - 1}")
        lent = self._lent if number == REFILLED_ROUND else set()
        before = [leaf for leaf in earlier.got if not leaf.path.startswith((*STATE_PREFIXES, "grad.")) and leaf.path not in lent]
        try:
            now = {leaf.path: leaf for leaf in self.candidate.export("previous", seed)}
        except WorkerFailed as error:
            if SAID_BY_TORCH not in error.message:
                raise
            self.notes.append("torch.compile's CUDA graphs overwrite its output at the next call, and say so when it is read: "
                              "clone what you keep")
            return None
        if same_values([now[leaf.path] for leaf in before if leaf.path in now], before):
            return None
        was = [leaf for leaf in earlier.expected.reference if not leaf.path.startswith((*STATE_PREFIXES, "grad."))]
        theirs = {leaf.path: leaf for leaf in self.reference.export("previous", seed)}
        if not same_values([theirs[leaf.path] for leaf in was if leaf.path in theirs], was):
            return None
        return "its output changes when it is called again: the next call overwrites it, and the reference's stays as it was"

    def _undeclared_drop(self, failed: Sequence[RoundResult]) -> str | None:
        if any(result.problem or result.kind for result in failed):
            return None
        for lower in PRECISION_ORDER[PRECISION_ORDER.index(self.level) + 1 :]:
            if all(self._passes_at(result, lower) for result in failed):
                return f"undeclared precision drop: as inaccurate as {lower}, but declared {self.level}"
        return None

    def _passes_at(self, result: RoundResult, level: Precision) -> bool:
        """Right at this lower level, and every leaf that is wrong now errs as this precision does."""
        reference = result.expected.reference
        written = written_inputs(reference)
        runs = self.expectations.yardsticks(result.number, self.seeds.of(f"sample {result.number}"), level, written)
        expected = replace(result.expected, yardstick=comparable(runs, reference))
        errors, problem = check_round(result.got, expected, round_number=result.number, level=level, steps=self._steps(result.number))
        wrong = [index for index, error in enumerate(result.errors) if not error.passed]
        return (problem is None and all(error.passed for error in errors)
                and all(is_of(level, index, result.got, expected) for index in wrong))

    def _check_decidable(self) -> None:
        if not any(result.evidence for result in self.results if not result.kind):
            again = differs(self)
            raise ReferenceFailed(
                "ill_conditioned", "the workload's own error against float64 is above 1% on every output in every round, "
                f"so no candidate can be judged{f'; {again}, which may be why' if again else ''}",
                fix="use inputs on which the computation is well-conditioned; or where TF32 is the cause, which torch allows convolutions "
                "by default, set torch.backends.cudnn.allow_tf32 = False in the workload")

    def _correctness(self, passed: bool, errors: tuple[OutputError, ...], reasons: tuple[str, ...]) -> Correctness:
        own = [result for result in self.results if not result.kind]
        warnings = warnings_of(self.survey, [error for result in own for error in result.errors]) if self.options.degenerate else ()
        return Correctness(passed=passed, oracle=self.expectations.oracle, rounds=len(own), errors=errors,
                           reasons=(*reasons, *self.notes, *warnings),
                           dropped_rounds=tuple(result.number for result in own if not result.evidence), distributions=tuple(self.others),
                           steadiness=self.steadiness, warnings=warnings)


def _about(leaf: Leaf) -> tuple[str, str, str, bool]:
    return leaf.path, leaf.device, leaf.kind, leaf.sampled
