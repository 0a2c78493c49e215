"""The correctness half: rounds of fresh inputs, the candidate first, then the reference, compared by the parent."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..model.verdict import Correctness, OutputError, VerdictName
from ..model.workload import Precision
from .correctness import PRECISION_ORDER, UNDECIDABLE, Expected, check_round, comparable, decidable, is_of, same_values
from .exchange import Exchange, Seeds
from .options import ReferenceFailed
from .replies import Called, Done, InputsMade
from .tensors import Leaf
from .untrusted import remove

REFILLED_ROUND = 1
"""This round's inputs are copied into the tensors that the round before used: same address, other values."""
YARDSTICKS: dict[str, tuple[str, ...]] = {"tf32": ("flags",), "bf16": ("autocast", "converted")}
MAX_REASONS = 4
STATE_PREFIXES = ("written input ", "buffer ")
"""Leaves beside the outputs: inputs that the reference writes to, and buffers after a training step (the names are the probe's)."""


@dataclass
class RoundResult:
    """What became of one round."""

    number: int
    errors: tuple[OutputError, ...]
    problem: str | None
    """A structural difference, or inputs that were written to."""
    got: Sequence[Leaf]
    expected: Expected

    @property
    def passed(self) -> bool:
        """No structural problem and every leaf within its limit."""
        return self.problem is None and all(error.passed for error in self.errors)


@dataclass
class Rounds:
    """Runs the rounds of one judgement. `level` is the precision that the candidate declares."""

    reference: Exchange
    candidate: Exchange
    seeds: Seeds
    count: int
    level: Precision
    inputs_folder: Path
    results: list[RoundResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    oracle: str = "float64"
    first_call_s: float = 0.0
    timed_expected: dict[int, Expected] = field(default_factory=dict)
    repeatable: bool = True
    """The reference gives the same output when called again (no random numbers drawn, no buffers changed)."""

    def share_inputs(self) -> None:
        """Every round's inputs, made in the reference's process and read in the candidate's."""
        jittered: list[str] = []
        for number in range(self.count):
            file = self.inputs_folder / f"{secrets.token_hex(8)}.tensors"  # a name that a candidate cannot have occupied
            try:
                made = self.reference.ask("make_inputs", InputsMade, round=number, seed=self.seeds.of(f"inputs {number}"), file=str(file))
                self.candidate.ask("take_inputs", Done, round=number, file=str(file), plain=made.plain)
            finally:
                remove(file)
            jittered = made.jittered
        if jittered:
            names = ", ".join(f"input {name.partition('.')[2]}" for name in jittered[:4])
            self.notes.append(f"the workload's generator ignores its seed ({names}): "
                              "scaled element by element by 0.5 to 1.5 in later rounds")

    def run(self) -> None:
        """All rounds; stops after a structural problem."""
        for number in range(self.count):
            result = self._round(number)
            self.results.append(result)
            if result.problem is not None:
                return

    def verdict(self) -> tuple[VerdictName | None, Correctness]:
        """WRONG or CHEAT with its reasons, or None when everything is right."""
        failed = [result for result in self.results if not result.passed]
        errors = tuple(error for result in self.results for error in result.errors)
        if not failed:
            self._check_decidable(errors)
            if not all(decidable(result.expected) for result in self.results):
                reason = "not decidable: the reference's output is NaN or infinite everywhere, so nothing can be compared"
                return "FAILED", self._correctness(False, errors, (reason,))
            return None, self._correctness(True, errors, ())
        stale = self._stale(failed)
        if stale:
            return "CHEAT", self._correctness(False, errors, (stale,))
        reasons = [result.problem for result in failed if result.problem]
        reasons += [f"round {error.round + 1}: {error.note}" for error in errors if not error.passed]
        drop = self._undeclared_drop(failed)
        if drop:
            reasons.insert(0, drop)
        if not self.repeatable:
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
            if expected is None or any(leaf.sampled for leaf in expected.reference):
                expected, _ = self._expected(pool_index, self.timed_seed(pool_index), self.level)
            keep = [index for index, leaf in enumerate(expected.reference) if not leaf.path.startswith(STATE_PREFIXES)]
            self.timed_expected[pool_index] = Expected(
                [expected.reference[index] for index in keep], [expected.oracle[index] for index in keep],
                expected.oracle_is_reference, [[run[index] for index in keep] for run in expected.yardstick])
        result = self._compare(pool_index, got, self.timed_expected[pool_index])
        if result.passed:
            return None
        detail = result.problem or next(error.note for error in result.errors if not error.passed)
        return f"the checked calls were right, the output of a randomly chosen timed call is not: {detail}"

    def _round(self, number: int) -> RoundResult:
        seed = self.seeds.of(f"sample {number}")
        called = self.candidate.ask("call", Called, round=number, seed=self.seeds.of(f"call {number}"), refill=number == REFILLED_ROUND)
        if number == 0:
            self.first_call_s = called.call_s
        got = self.candidate.export("outputs", seed)
        after = {leaf.path: leaf for leaf in self.candidate.export("inputs", seed)}
        expected, written = self._expected(number, seed, self.level)
        got += [replace(after[path], path=f"{STATE_PREFIXES[0]}{path}") for path in written if path in after]
        result = self._compare(number, got, expected)
        untouched = [leaf for leaf in self.reference.export("pristine", seed, round=number) if leaf.path not in written]
        mine = [after[leaf.path] for leaf in untouched if leaf.path in after]
        if result.problem is None and not same_values(mine, untouched):
            result.problem = "it writes to its inputs, which the reference leaves alone"
        return result

    def _expected(self, number: int, sample_seed: int, level: Precision) -> tuple[Expected, list[str]]:
        """What the round should give, written inputs among its leaves, and the paths of those inputs."""
        call_seed = self.seeds.of(f"call {number}")
        called = self.reference.ask("call", Called, round=number, seed=call_seed, refill=False)
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
        oracle, why = None, "the workload draws random numbers"
        if not called.drew_random_numbers:
            reply, oracle = self.reference.run("oracle", sample_seed, round=number, seed=call_seed, written=written)
            why = reply.reason
        if oracle is not None and not comparable([oracle], reference):
            oracle, why = None, "in float64 the output has another structure"
        if oracle is None:
            self.oracle = f"reference ({why})"
        yardsticks = comparable(self._yardsticks(number, sample_seed, level, written), reference)
        return Expected(reference, oracle or reference, oracle_is_reference=oracle is None, yardstick=yardsticks), written

    def _yardsticks(self, number: int, sample_seed: int, level: Precision, written: Sequence[str]) -> list[list[Leaf]]:
        runs = []
        for how in YARDSTICKS.get(level, ()):
            call_seed = self.seeds.of(f"call {number}")
            _, leaves = self.reference.run("yardstick", sample_seed, round=number, seed=call_seed, precision=level, how=how,
                                           written=list(written))
            if leaves is not None:
                runs.append(leaves)
        return runs

    def _compare(self, number: int, got: Sequence[Leaf], expected: Expected) -> RoundResult:
        errors, problem = check_round(got, expected, round_number=number, level=self.level)
        return RoundResult(number, errors, problem, got, expected)

    def _stale(self, failed: Sequence[RoundResult]) -> str | None:
        """A right output given again for other inputs."""
        for result in failed:
            for earlier in self.results:
                if earlier.number < result.number and earlier.passed and same_values(earlier.got, result.got):
                    where = "the same tensors refilled with other values" if result.number == REFILLED_ROUND else "new inputs"
                    return f"stale or cached result: on {where} it returned round {earlier.number + 1}'s output again"
        return None

    def _undeclared_drop(self, failed: Sequence[RoundResult]) -> str | None:
        if any(result.problem for result in failed):
            return None
        for lower in PRECISION_ORDER[PRECISION_ORDER.index(self.level) + 1 :]:
            if all(self._passes_at(result, lower) for result in failed):
                return f"undeclared precision drop: as inaccurate as {lower}, but declared {self.level}"
        return None

    def _passes_at(self, result: RoundResult, level: Precision) -> bool:
        """Right at this lower level, and every leaf that is wrong now errs as this precision does."""
        reference = result.expected.reference
        written = [leaf.path.removeprefix(STATE_PREFIXES[0]) for leaf in reference if leaf.path.startswith(STATE_PREFIXES[0])]
        runs = self._yardsticks(result.number, self.seeds.of(f"sample {result.number}"), level, written)
        expected = replace(result.expected, yardstick=comparable(runs, reference))
        errors, problem = check_round(result.got, expected, round_number=result.number, level=level)
        wrong = [index for index, error in enumerate(result.errors) if not error.passed]
        return (problem is None and all(error.passed for error in errors)
                and all(is_of(level, index, result.got, expected) for index in wrong))

    def _check_decidable(self, errors: Sequence[OutputError]) -> None:
        if errors and all(error.reference_error > UNDECIDABLE for error in errors):
            raise ReferenceFailed(
                "ill_conditioned", "the workload's own error against float64 is above 10% on every output, so no candidate can be judged",
                fix="use inputs on which the computation is well-conditioned")

    def _correctness(self, passed: bool, errors: tuple[OutputError, ...], reasons: tuple[str, ...]) -> Correctness:
        return Correctness(passed=passed, oracle=self.oracle, rounds=len(self.results), errors=errors, reasons=(*reasons, *self.notes))
