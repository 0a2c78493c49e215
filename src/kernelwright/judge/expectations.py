"""What a round should give: runs of the reference, in its own precision, in float64, on perturbed inputs and in lower precisions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model.workload import Precision
from .correctness import UNIT_ROUNDOFF, Expected, comparable, distances
from .exchange import OWN_ROUNDS, Exchange, Sampling, Seeds
from .options import ReferenceFailed
from .replies import Called
from .tensors import WRITTEN, Leaf
from .tf32_luck import Drawn, Draws

PERTURBED_RUNS = 2
YARDSTICKS: dict[str, tuple[str, ...]] = {"tf32": ("flags",), "bf16": ("autocast", "converted")}


@dataclass
class Expectations:
    """Asks the reference's process; the candidate's has no part in it."""

    reference: Exchange
    seeds: Seeds
    count: int
    """Of the generator's rounds."""
    training: bool
    oracle: str = "float64"
    """Or "reference (<why no float64>)"."""
    repeatable: bool = True
    """The reference gives the same output when called again (no random numbers of torch's drawn, no buffers changed)."""
    drew_outside: bool = False
    """The reference drew Python's or NumPy's random numbers: the same ones in float64."""
    drawing_s: float = 0.0
    """Seconds that draws of TF32's roundings took (tf32_luck)."""
    stateful: bool = False
    """The reference changes buffers that no one restores before the next call."""

    def of(self, number: int, sample_seed: int, level: Precision, *, elsewhere: bool = False,
           sampling: Sampling = OWN_ROUNDS) -> tuple[Expected, list[str]]:
        """What the round should give, written inputs among its leaves, and the paths of those inputs."""
        call_seed, keep = self.seeds.of(f"call {number}"), 0 < number < self.count
        called = self.reference.ask("call", Called, round=number, seed=call_seed, refill=False, keep=keep)
        reference = self.reference.export("outputs", sample_seed, sampling)
        written = list(dict.fromkeys(called.written))
        if written:
            inputs = {leaf.path: leaf for leaf in self.reference.export("inputs", sample_seed, sampling)}
            reference += [replace(inputs[path], path=f"{WRITTEN}{path}") for path in written]
        if not reference:
            raise ReferenceFailed("no_tensor_output", "the workload's output holds no tensor or number, so nothing can be compared",
                                  fix="return the computed tensor (or a tuple, dict or dataclass that holds it)")
        if called.drew_random_numbers or called.buffers_changed:
            self.repeatable = False
        self.drew_outside = self.drew_outside or called.drew_outside
        self.stateful = self.stateful or (called.buffers_changed and not self.training)
        oracle, why = None, "the workload draws random numbers"
        if not called.drew_random_numbers:
            reply, oracle = self.reference.run("oracle", sample_seed, sampling, round=number, seed=call_seed, written=written)
            why = reply.reason
        if oracle is not None and not comparable([oracle], reference):
            oracle, why = None, "in float64 the output has another structure"
        if oracle is None and not elsewhere:
            self.oracle = f"reference ({why})"
        yardsticks = comparable(self.yardsticks(number, sample_seed, level, written, sampling), reference)
        expected = Expected(reference, oracle or reference, oracle_is_reference=oracle is None, yardstick=yardsticks)
        if elsewhere:
            moved = [run for draw in range(PERTURBED_RUNS) for run in self._perturbed(number, sample_seed, sampling, 0.0, written, draw)]
            lower = []
            if level != "equal":
                lower = comparable(self._perturbed(number, sample_seed, sampling, UNIT_ROUNDOFF[level], written), reference)
            expected = replace(expected, perturbed=comparable(moved, reference), yardstick=[*yardsticks, *lower])
        return replace(expected, draws=self._draws(number, sample_seed, written, sampling, expected)), written

    def _perturbed(self, number: int, sample_seed: int, sampling: Sampling, roundoff: float, written: Sequence[str], draw: int = 0,
                   ) -> list[list[Leaf]]:
        leaves = self._other("perturbed", number, sample_seed, written, sampling, roundoff=roundoff,
                             noise_seed=self.seeds.of(f"noise {number} {draw}"))
        return [] if leaves is None else [leaves]

    def yardsticks(self, number: int, sample_seed: int, level: Precision, written: Sequence[str], sampling: Sampling = OWN_ROUNDS,
                   ) -> list[list[Leaf]]:
        """Runs of the reference in a lower precision."""
        runs = []
        for how in YARDSTICKS.get(level, ()):
            leaves = self._other("yardstick", number, sample_seed, written, sampling, precision=level, how=how)
            if leaves is not None:
                runs.append(leaves)
        return runs

    def _draws(self, number: int, sample_seed: int, written: Sequence[str], sampling: Sampling, expected: Expected) -> Draws:
        def ask(draw: int) -> Drawn:
            start = time.monotonic()
            run = self._other("rounded", number, sample_seed, written, sampling, noise_seed=self.seeds.of(f"rounding {number} {draw}"))
            found = distances(run, expected) if run is not None and comparable([run], expected.reference) else None
            self.drawing_s += time.monotonic() - start
            return found

        return Draws(ask)

    def _other(
        self, op: str, number: int, sample_seed: int, written: Sequence[str], sampling: Sampling, **fields: Any,
    ) -> list[Leaf] | None:
        """Another run of a round's reference; None where it is not applicable."""
        return self.reference.run(op, sample_seed, sampling, round=number, seed=self.seeds.of(f"call {number}"), written=list(written),
                                  **fields)[1]
