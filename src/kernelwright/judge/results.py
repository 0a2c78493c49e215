"""What became of one round of a judgement, and what a failed one shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..model.verdict import OutputError, Reproducer
from .correctness import Expected
from .distance import same_values
from .distributions import WORDS
from .reproducer import of_structure, of_value
from .tensors import BUFFER, WRITTEN, Leaf


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
    free: bool = False
    """Its values may have left the range that the generator's keep to."""
    changed: dict[str, str] = field(default_factory=dict)
    evidence: bool = True
    """The reference is well-conditioned on some output of the round."""
    note: str = ""
    mark: Sequence[Leaf] = ()
    """What came, where it is a sample, once more at the places of every round's mark."""
    reference_mark: Sequence[Leaf] = ()
    """The same of what the reference gave."""

    @property
    def passed(self) -> bool:
        """No structural problem and, where the round is evidence, every leaf within its limit."""
        return self.problem is None and (not self.evidence or all(error.passed for error in self.errors))

    @property
    def wrong(self) -> dict[str, float]:
        """By path: the errors of what is beyond its limit."""
        return {error.path: error.candidate_error for error in self.errors if not error.passed}

    @property
    def label(self) -> str:
        """In words, as reasons begin."""
        return f"on {WORDS[self.kind]}" if self.kind else f"round {self.number + 1}"

    def repeats(self, earlier: RoundResult) -> bool:
        """Whether the candidate gave what it gave in the earlier round, bit for bit."""
        return same_values(_outputs(earlier.mark or earlier.got), _outputs(self.mark or self.got))

    def expects_the_same(self, earlier: RoundResult) -> bool:
        """Whether the reference did."""
        return same_values(_outputs(earlier.reference_mark or earlier.expected.reference),
                           _outputs(self.reference_mark or self.expected.reference))

    def forget(self) -> None:
        """Its values are not needed any more."""
        self.got, self.expected, self.mark, self.reference_mark = (), Expected((), ()), (), ()


def _outputs(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Without buffers, which go on where an output stays."""
    return [leaf for leaf in leaves if not leaf.path.startswith(BUFFER)]


def written_inputs(reference: Sequence[Leaf]) -> list[str]:
    """Paths of the inputs that the reference writes to."""
    return [leaf.path.removeprefix(WRITTEN) for leaf in reference if leaf.path.startswith(WRITTEN)]


def smallest(failed: Sequence[RoundResult], *, state: bool = False) -> Reproducer | None:
    """The first leaf that is off, where values are the matter."""
    for result in failed:
        for index, error in enumerate(result.errors):
            if not error.passed and result.evidence:
                return of_value(error, result.got[index], result.expected, index, inputs_seed=result.seed, changed=result.changed,
                                free=result.free, state=state)
    for result in failed:
        if result.problem is not None:
            return of_structure(result.problem, round_number=result.number, inputs_seed=result.seed, kind=result.kind,
                                changed=result.changed, free=result.free)
    return None


def stale_problem(failed: Sequence[RoundResult], results: Sequence[RoundResult], refilled_round: int) -> str | None:
    """A right output given again for other inputs."""
    for result in failed:
        for earlier in results:
            if earlier.got and earlier.number < result.number and earlier.passed and result.repeats(earlier):
                where = "the same tensors refilled with other values" if result.number == refilled_round else "new inputs"
                return f"stale or cached result: on {where} it returned round {earlier.number + 1}'s output again"
    return None
