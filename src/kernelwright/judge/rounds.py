"""The correctness half: rounds of fresh inputs, the candidate first, then the reference, compared by the parent."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..model.verdict import Correctness, OtherInputs, OutputError, Reproducer, Steadiness, VerdictName
from ..model.workload import Precision
from .channel import WorkerFailed
from .correctness import (
    PRECISION_ORDER,
    UNIT_ROUNDOFF,
    Expected,
    check_elsewhere,
    check_round,
    comparable,
    decidable,
    errors_of,
    finite_everywhere,
    is_evidence,
    is_of,
    nonfinite_difference,
    same_values,
    structure_problem,
)
from .degenerate import warnings_of
from .distributions import WORDS, Budget, left_out, plan
from .exchange import Exchange, Seeds
from .memory import layout_notes, layout_problem
from .options import Deadline, JudgeOptions, ReferenceFailed
from .replies import Called, Churned, Done, InputsMade, Layouts, Surveyed, SurveyedKind
from .reproducer import of_structure, of_value
from .tensors import Leaf
from .untrusted import remove

REFILLED_ROUND = 1
"""This round's inputs are copied into the tensors that the round before used: same address, other values."""
PERTURBED_RUNS = 2
YARDSTICKS: dict[str, tuple[str, ...]] = {"tf32": ("flags",), "bf16": ("autocast", "converted")}
MAX_REASONS = 4
CHURN_CALLS, CHURN_S = 50, 0.3
SAID_BY_TORCH = "overwritten by a subsequent run"
"""torch.compile's CUDA graphs refuse, in these words, to show an output after the next call: nothing is wrong silently."""
STATE_PREFIXES = ("written input ", "buffer ", "grad input ")
"""Leaves beside the outputs: inputs that the reference writes to, buffers after a training step, inputs' gradients (the names are the
probe's)."""


@dataclass
class RoundResult:
    """What became of one round."""

    number: int
    errors: tuple[OutputError, ...]
    problem: str | None
    """A structural difference, or inputs that were written to."""
    got: Sequence[Leaf]
    expected: Expected
    seed: int = 0
    """Of its inputs."""
    kind: str = ""
    """Of the other distribution; empty for the generator's."""
    changed: dict[str, str] = field(default_factory=dict)
    evidence: bool = True
    """The reference is well-conditioned on some output of the round."""
    note: str = ""

    @property
    def passed(self) -> bool:
        """No structural problem and, where the round is evidence, every leaf within its limit."""
        return self.problem is None and (not self.evidence or all(error.passed for error in self.errors))

    @property
    def label(self) -> str:
        """In words, as reasons begin."""
        return f"on {WORDS[self.kind]}" if self.kind else f"round {self.number + 1}"

    def forget(self) -> None:
        """Its values are not needed any more."""
        self.got, self.expected = (), Expected((), ())


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
    oracle: str = "float64"
    first_call_s: float = 0.0
    repeatable: bool = True
    """The reference gives the same output when called again (no random numbers drawn, no buffers changed)."""
    stateful: bool = False
    """The reference changes buffers that no one restores before the next call."""
    steadiness: Steadiness | None = None
    reproducer: Reproducer | None = None
    late: str | None = None
    """What is wrong with a call after the rounds."""

    def share_inputs(self) -> None:
        """Every round's inputs, made in the reference's process and read in the candidate's."""
        for number in range(self.count):
            made = self._share(number)
        if made.jittered:
            names = ", ".join(f"input {name.partition('.')[2]}" for name in made.jittered[:4])
            self.notes.append(f"the workload's generator ignores its seed ({names}): "
                              "scaled element by element by 0.5 to 1.5 in later rounds")

    def run(self) -> None:
        """All rounds; stops after a structural problem, and before the other distributions when the generator's are not all right."""
        took = []
        for number in range(self.count):
            start = time.monotonic()
            self.results.append(self._round(number))
            took.append(time.monotonic() - start)
            if self.results[-1].problem is not None:
                return
        self._again_for_dropped()
        if not self._right():
            return
        self._repeat()
        if self._right() and self.options.distributions:
            self._other_distributions(Budget(took, self.deadline))
        if self._right():
            self._drift()

    def verdict(self) -> tuple[VerdictName | None, Correctness]:
        """WRONG or CHEAT with its reasons, or None when everything is right."""
        failed = [result for result in self.results if not result.passed]
        errors = tuple(error for result in self.results for error in result.errors)
        if not failed and self.late is None:
            self._check_decidable()
            if not all(decidable(result.expected) for result in self.results if not result.kind):
                reason = "not decidable: the reference's output is NaN or infinite everywhere, so nothing can be compared"
                return "FAILED", self._correctness(False, errors, (reason,))
            return None, self._correctness(True, errors, ())
        stale = self._stale(failed)
        self.reproducer = self.reproducer or self._smallest(failed)
        if stale:
            return "CHEAT", self._correctness(False, errors, (stale,))
        if self.late is not None:
            return "WRONG", self._correctness(False, errors, (self.late,))
        reasons = [f"{result.label}: {result.problem}" if result.kind else result.problem for result in failed if result.problem]
        reasons += [f"{result.label}: {error.note}" for result in failed for error in result.errors if not error.passed and result.evidence]
        drop = self._undeclared_drop(failed)
        if drop:
            reasons.insert(0, drop)
        if not self.repeatable:
            reasons.append("the workload draws random numbers or changes its buffers: a candidate must draw and change the same")
        return "WRONG", self._correctness(False, errors, tuple(reasons[:MAX_REASONS]))

    def check_timed(self, pool_index: int) -> str | None:
        """The output of the last timed call against a new run of the reference on the inputs that call had."""
        seed = self.seeds.of("timed sample")
        got = self.candidate.export("timed", seed)
        expected, _ = self._expected(pool_index, seed, self.level)
        keep = [index for index, leaf in enumerate(expected.reference) if not leaf.path.startswith(STATE_PREFIXES)]
        only = Expected([expected.reference[index] for index in keep], [expected.oracle[index] for index in keep],
                        expected.oracle_is_reference, [[run[index] for index in keep] for run in expected.yardstick])
        result = self._compare(pool_index, got, only)
        if result.passed:
            return None
        self.reproducer = self._smallest([result], state=True)
        detail = result.problem or next(error.note for error in result.errors if not error.passed)
        return f"the checked calls were right, the output of the last timed call is not: {detail}"

    def _share(self, number: int, kind: SurveyedKind | None = None) -> InputsMade:
        """One round's inputs, in both processes."""
        file = self.inputs_folder / f"{secrets.token_hex(8)}.tensors"  # a name that a candidate cannot have occupied
        other = {} if kind is None else {"kind": kind.kind, "free": kind.free}
        try:
            made = self.reference.ask("make_inputs", InputsMade, round=number, seed=self._inputs_seed(number), file=str(file), **other)
            self.candidate.ask("take_inputs", Done, round=number, file=str(file), plain=made.plain)
        finally:
            remove(file)
        return made

    def _inputs_seed(self, number: int) -> int:
        return self.seeds.of(f"inputs {number}")

    def _forget(self, number: int) -> None:
        for side in (self.reference, self.candidate):
            side.ask("forget", Done, round=number)

    def _right(self) -> bool:
        return self.late is None and all(result.passed for result in self.results)

    def _again_for_dropped(self) -> None:
        """As many new rounds as were dropped, once."""
        dropped = [result for result in self.results if not result.evidence]
        if not dropped or not self._right():
            return
        for number in range(self.count, self.count + len(dropped)):
            self._share(number)
            self.results.append(self._round(number))
            if not self.results[-1].passed:
                return
            self._forget(number)
        self.notes.append(f"{len(dropped)} rounds dropped, in which the reference's own error is above 1% on every output; drawn again")

    def _round(self, number: int, kind: SurveyedKind | None = None, changed: dict[str, str] | None = None) -> RoundResult:
        seed, watch = self.seeds.of(f"sample {number}"), kind is None and 0 < number < self.count
        refill = number == REFILLED_ROUND if number < self.count else bool(seed & 1)
        called, raised = self._call(number, refill=refill, keep=watch, catch=kind is not None)
        if raised is not None:
            return self._raised(number, seed, raised, kind)
        if number == 0:
            self.first_call_s = called.call_s
        got = self.candidate.export("outputs", seed)
        after = {leaf.path: leaf for leaf in self.candidate.export("inputs", seed)}
        expected, written = self._expected(number, seed, self.level, elsewhere=kind is not None)
        got += [replace(after[path], path=f"{STATE_PREFIXES[0]}{path}") for path in written if path in after]
        result = self._compare(number, got, expected, kind)
        result.changed = changed or {}
        untouched = [leaf for leaf in self.reference.export("pristine", seed, round=number) if leaf.path not in written]
        mine = [after[leaf.path] for leaf in untouched if leaf.path in after]
        if result.problem is None and not same_values(mine, untouched):
            result.problem = "it writes to its inputs, which the reference leaves alone"
        if result.problem is None and kind is None and number == 0:
            result.problem = self._layout()
        if result.problem is None and watch:
            result.problem = self._overwritten(number)
        return result

    def _call(self, number: int, *, refill: bool, keep: bool = False, catch: bool = False) -> tuple[Called, WorkerFailed | None]:
        """One checked call of the candidate; with catch, the exception that it raised, if its process lives on."""
        try:
            return self.candidate.ask("call", Called, round=number, seed=self.seeds.of(f"call {number}"), refill=refill, keep=keep,
                                      poison=self.options.poison), None
        except WorkerFailed as error:
            if not catch or error.code in ("died", "timeout", "noisy", "forged", "malformed"):
                raise
            return Called(call_s=0.0), error

    def _raised(self, number: int, seed: int, error: WorkerFailed, kind: SurveyedKind | None) -> RoundResult:
        """The candidate raised on another distribution: its failure, where the reference gives finite numbers."""
        assert kind is not None
        expected, _ = self._expected(number, seed, "equal")
        if finite_everywhere(expected.reference):
            error.message = f"on {WORDS[kind.kind]} it fails where the reference does not: {error.message}"
            raise error
        note = f"it raises where the reference is not finite: {' '.join(error.message.split())[:200]}"
        return RoundResult(number, (), None, (), expected, kind=kind.kind, evidence=False, note=note)

    def _expected(self, number: int, sample_seed: int, level: Precision, *, elsewhere: bool = False) -> tuple[Expected, list[str]]:
        """What the round should give, written inputs among its leaves, and the paths of those inputs."""
        call_seed, keep = self.seeds.of(f"call {number}"), 0 < number < self.count
        called = self.reference.ask("call", Called, round=number, seed=call_seed, refill=False, keep=keep)
        reference = self.reference.export("outputs", sample_seed)
        written = list(dict.fromkeys(called.written))
        if written:
            inputs = {leaf.path: leaf for leaf in self.reference.export("inputs", sample_seed)}
            reference += [replace(inputs[path], path=f"{STATE_PREFIXES[0]}{path}") for path in written]
        if not reference:
            raise ReferenceFailed("no_tensor_output", "the workload's output holds no tensor or number, so nothing can be compared",
                                  fix="return the computed tensor (or a tuple, dict or dataclass that holds it)")
        if called.drew_random_numbers or called.buffers_changed:
            self.repeatable = False
        self.stateful = self.stateful or (called.buffers_changed and not self.training)
        oracle, why = None, "the workload draws random numbers"
        if not called.drew_random_numbers:
            reply, oracle = self.reference.run("oracle", sample_seed, round=number, seed=call_seed, written=written)
            why = reply.reason
        if oracle is not None and not comparable([oracle], reference):
            oracle, why = None, "in float64 the output has another structure"
        if oracle is None and not elsewhere:
            self.oracle = f"reference ({why})"
        yardsticks = comparable(self._yardsticks(number, sample_seed, level, written), reference)
        expected = Expected(reference, oracle or reference, oracle_is_reference=oracle is None, yardstick=yardsticks)
        if elsewhere:
            moved = [run for draw in range(PERTURBED_RUNS) for run in self._perturbed(number, sample_seed, 0.0, written, draw)]
            lower = comparable(self._perturbed(number, sample_seed, UNIT_ROUNDOFF[level], written), reference) if level != "equal" else []
            expected = replace(expected, perturbed=comparable(moved, reference), yardstick=[*yardsticks, *lower])
        return expected, written

    def _perturbed(self, number: int, sample_seed: int, roundoff: float, written: Sequence[str], draw: int = 0) -> list[list[Leaf]]:
        _, leaves = self.reference.run("perturbed", sample_seed, round=number, seed=self.seeds.of(f"call {number}"), written=list(written),
                                       roundoff=roundoff, noise_seed=self.seeds.of(f"noise {number} {draw}"))
        return [] if leaves is None else [leaves]

    def _yardsticks(self, number: int, sample_seed: int, level: Precision, written: Sequence[str]) -> list[list[Leaf]]:
        runs = []
        for how in YARDSTICKS.get(level, ()):
            call_seed = self.seeds.of(f"call {number}")
            _, leaves = self.reference.run("yardstick", sample_seed, round=number, seed=call_seed, precision=level, how=how,
                                           written=list(written))
            if leaves is not None:
                runs.append(leaves)
        return runs

    def _compare(self, number: int, got: Sequence[Leaf], expected: Expected, kind: SurveyedKind | None = None) -> RoundResult:
        seed = self._inputs_seed(number)
        if kind is not None:
            return self._compare_elsewhere(number, got, expected, kind)
        errors, problem = check_round(got, expected, round_number=number, level=self.level)
        evidence = problem is not None or is_evidence(errors, expected.reference)
        return RoundResult(number, errors, problem, got, expected, seed, evidence=evidence)

    def _compare_elsewhere(self, number: int, got: Sequence[Leaf], expected: Expected, kind: SurveyedKind) -> RoundResult:
        """Values count where the reference is finite and well-conditioned; NaN and infinities given to it only where it stays finite."""
        result = RoundResult(number, (), structure_problem(got, expected.reference), got, expected, self._inputs_seed(number), kind.kind)
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
        number = 2 * self.count
        for done, kind in enumerate(kinds):
            if not budget.allows():
                note = budget.note(done, len(kinds), self.survey.call_s)
                self.notes += [note] if note else []
                break
            self._elsewhere(number + done, kind)
            if not self._right():
                break
        without = left_out(self.survey)
        self.notes += [without] if without else []

    def _elsewhere(self, number: int, kind: SurveyedKind) -> None:
        try:
            made = self._share(number, kind)
            if not made.changed:
                return
            result = self._round(number, kind, made.changed)
        except WorkerFailed as error:
            if error.role != "reference" or error.code in ("died", "timeout", "noisy", "forged", "malformed"):
                raise
            self._note_other(kind, number, "dropped", {}, f"the reference itself fails: {' '.join(error.message.split())[:200]}")
            return
        finally:
            self._forget_quietly(number)
        status = "failed" if not result.passed else "passed" if result.evidence else "dropped"
        self._note_other(kind, number, status, made.changed, result.note)
        self.results.append(result)
        if result.passed:
            result.forget()

    def _forget_quietly(self, number: int) -> None:
        try:
            self._forget(number)
        except WorkerFailed:  # it is already being told why
            return

    def _note_other(self, kind: SurveyedKind, number: int, status: str, changed: dict[str, str], note: str) -> None:
        self.others.append(OtherInputs.model_validate(
            {"kind": kind.kind, "round": number, "status": status, "changed": changed, "note": note}))

    def _layout(self) -> str | None:
        """Memory that the reference's output has for itself, and the candidate's not."""
        if self.training:
            return None
        mine, theirs = (side.ask("layout", Layouts).outputs for side in (self.candidate, self.reference))
        self.notes += layout_notes(mine, theirs)
        return layout_problem(mine, theirs)

    def _overwritten(self, number: int) -> str | None:
        """The output of the call before must be what it was; gradients and buffers are made anew by every step."""
        earlier, seed = self.results[number - 1], self.seeds.of(f"sample {number - 1}")
        before = [leaf for leaf in earlier.got if not leaf.path.startswith((*STATE_PREFIXES, "grad."))]
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

    def _repeat(self) -> None:
        """The first round again at once, under the same seed."""
        base = self._base()
        if base is None:
            return
        got, result = self._again(base)
        first = [leaf for leaf in base.got if not leaf.path.startswith(STATE_PREFIXES[0])]
        same = same_values(got, first)
        difference = None
        if not same and structure_problem(got, first) is None:
            difference = max((min(errors_of(two, one, one).norm, 1e308) for one, two in zip(first, got, strict=True)), default=0.0)
        self.steadiness = Steadiness(repeatable=same, difference=difference, reference_repeatable=self.survey.deterministic)
        if not result.passed:
            self._fail_late(result, f"state drifts after {len(self.results)} calls: called again on the first inputs it is wrong")
        elif not same and self.survey.deterministic and difference is not None:
            self.notes.append(f"not deterministic: two calls on the same inputs differ by {difference:.2g}, within the limit "
                              "(the reference's do not differ)")

    def _drift(self) -> None:
        """The first round again after many calls."""
        base = self._base()
        if base is None:
            return
        own = list(range(self.count))
        churned = self.candidate.ask("churn", Churned, rounds=own, calls=CHURN_CALLS, seconds=CHURN_S, seed=self.seeds.of("churn"))
        _, result = self._again(base)
        calls = sum(1 for item in self.results) + 1 + churned.calls
        self.steadiness = (self.steadiness or Steadiness()).model_copy(update={"calls": calls})
        if not result.passed:
            self._fail_late(result, f"state drifts after {calls} calls: called again on the first inputs it is wrong")

    def _base(self) -> RoundResult | None:
        """The first round that is evidence, to be called again; None where the reference itself gives something else then.

        It does where it changes buffers, or was seen to (random numbers follow the seed).
        """
        if not self.options.steadiness or self.stateful or self.survey.deterministic is False:
            return None
        return next((result for result in self.results[: self.count] if result.evidence), None)

    def _again(self, base: RoundResult) -> tuple[list[Leaf], RoundResult]:
        """Another call on a round's inputs: its outputs, and how they compare with what that round expected."""
        seed = self.seeds.of(f"sample {base.number}")
        self._call(base.number, refill=True)
        outputs = self.candidate.export("outputs", seed)
        written = _written(base.expected.reference)
        after = {leaf.path: leaf for leaf in self.candidate.export("inputs", seed)} if written else {}
        got = [*outputs, *(replace(after[path], path=f"{STATE_PREFIXES[0]}{path}") for path in written if path in after)]
        return outputs, self._compare(base.number, got, base.expected)

    def _fail_late(self, result: RoundResult, words: str) -> None:
        detail = result.problem or next(error.note for error in result.errors if not error.passed)
        stale = self._stale([replace(result, number=len(self.results))])
        self.late = f"{words}: {detail}" + ("; it returned another round's output" if stale else "")
        self.reproducer = self._smallest([result], state=True)

    def _smallest(self, failed: Sequence[RoundResult], *, state: bool = False) -> Reproducer | None:
        """The first leaf that is off, where values are the matter."""
        for result in failed:
            for index, error in enumerate(result.errors):
                if not error.passed and result.evidence:
                    return of_value(error, result.got[index], result.expected, index, inputs_seed=result.seed, changed=result.changed,
                                    state=state)
        for result in failed:
            if result.problem is not None:
                return of_structure(result.problem, round_number=result.number, inputs_seed=result.seed, kind=result.kind,
                                    changed=result.changed)
        return None

    def _stale(self, failed: Sequence[RoundResult]) -> str | None:
        """A right output given again for other inputs."""
        for result in failed:
            for earlier in self.results:
                if earlier.got and earlier.number < result.number and earlier.passed and same_values(earlier.got, result.got):
                    where = "the same tensors refilled with other values" if result.number == REFILLED_ROUND else "new inputs"
                    return f"stale or cached result: on {where} it returned round {earlier.number + 1}'s output again"
        return None

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
        written = _written(reference)
        runs = self._yardsticks(result.number, self.seeds.of(f"sample {result.number}"), level, written)
        expected = replace(result.expected, yardstick=comparable(runs, reference))
        errors, problem = check_round(result.got, expected, round_number=result.number, level=level)
        wrong = [index for index, error in enumerate(result.errors) if not error.passed]
        return (problem is None and all(error.passed for error in errors)
                and all(is_of(level, index, result.got, expected) for index in wrong))

    def _check_decidable(self) -> None:
        if not any(result.evidence for result in self.results if not result.kind):
            raise ReferenceFailed(
                "ill_conditioned", "the workload's own error against float64 is above 1% on every output in every round, "
                "so no candidate can be judged", fix="use inputs on which the computation is well-conditioned")

    def _correctness(self, passed: bool, errors: tuple[OutputError, ...], reasons: tuple[str, ...]) -> Correctness:
        own = [result for result in self.results if not result.kind]
        warnings = warnings_of(self.survey, [error for result in own for error in result.errors]) if self.options.degenerate else ()
        return Correctness(passed=passed, oracle=self.oracle, rounds=len(own), errors=errors, reasons=(*reasons, *self.notes, *warnings),
                           dropped_rounds=tuple(result.number for result in own if not result.evidence), distributions=tuple(self.others),
                           steadiness=self.steadiness, warnings=warnings)


def _written(reference: Sequence[Leaf]) -> list[str]:
    """Paths of the inputs that the reference writes to."""
    return [leaf.path.removeprefix(STATE_PREFIXES[0]) for leaf in reference if leaf.path.startswith(STATE_PREFIXES[0])]
