"""Programs called again on inputs that they have had before: the candidate at once and after many calls, the reference before it counts
against a candidate that it gave something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..model.verdict import Steadiness
from .correctness import structure_problem
from .distance import errors_of, same_values
from .exchange import OWN_ROUNDS
from .options import ReferenceFailed
from .replies import Called, Churned
from .results import RoundResult, smallest, written_inputs
from .tensors import WRITTEN, Leaf

if TYPE_CHECKING:
    from .rounds import Rounds

CHURN_CALLS, CHURN_S = 50, 0.3
UNSTEADY, UNSTEADY_SHORT, SHORT_EPS = 2.0**-13, 0.05, 2.0**-12
"""Two runs of the reference that differ by more of an output's norm (5% where its dtype has an eps above SHORT_EPS) do so for another
reason than the order in which atomic additions arrive, which is some eps."""


def repeat(rounds: Rounds) -> None:
    """A round again, under the same seed: bits that differ are a note, an output outside its limit is wrong."""
    base = _base(rounds)
    if base is None:
        return
    got, result = _again(rounds, base)
    first = [leaf for leaf in base.got if not leaf.path.startswith(WRITTEN)]
    same = same_values(got, first)
    difference = None
    if not same and structure_problem(got, first) is None:
        difference = max((min(errors_of(two, one, one).norm, 1e308) for one, two in zip(first, got, strict=True)), default=0.0)
    rounds.steadiness = Steadiness(repeatable=same, difference=difference, reference_repeatable=rounds.survey.deterministic)
    if not result.passed:
        _fail(rounds, result, len(rounds.results))
    elif not same and rounds.survey.deterministic and difference is not None:
        rounds.notes.append(f"not deterministic: two calls on the same inputs differ by {difference:.2g}, within the limit "
                            "(the reference's do not differ)")


def drift(rounds: Rounds) -> None:
    """A round again after many calls that nobody checks."""
    base = _base(rounds)
    if base is None:
        return
    churned = rounds.candidate.ask("churn", Churned, rounds=list(range(rounds.count)), calls=CHURN_CALLS, seconds=CHURN_S,
                                   seed=rounds.seeds.of("churn"))
    _, result = _again(rounds, base)
    calls = len(rounds.results) + 1 + churned.calls
    rounds.steadiness = (rounds.steadiness or Steadiness()).model_copy(update={"calls": calls})
    if not result.passed:
        _fail(rounds, result, calls)


def check_reference(rounds: Rounds, wrong: Sequence[Mapping[str, float]]) -> None:
    """Before a candidate is blamed: raises ReferenceFailed where the reference itself, called again, differs by more than half of what the
    candidate is off, on an output on which it is wrong. wrong: by path, of several comparisons, the candidate's errors."""
    least = {path: max(errors.get(path, 0.0) for errors in wrong) / 2 for errors in wrong for path in errors}
    if why := differs(rounds, least):
        raise unrepeatable(why)


def differs(rounds: Rounds, least: Mapping[str, float] | None = None) -> str:
    """What the reference does when it is called on round 0 again: "" where it gives what it gave, but for noise. least: by path of the
    outputs that count, how far they have to be apart; None: all count."""
    base = rounds.results[0]
    if rounds.expectations.stateful:
        return ""
    again = _reference_again(rounds, base, f"call {base.number}")
    first = [leaf for leaf in base.expected.reference if not leaf.path.startswith(WRITTEN)]
    if structure_problem(again, first) is None and not any(
            _moved(one, two, 0.0 if least is None else least[one.path]) for one, two in zip(first, again, strict=True)
            if least is None or one.path in least):
        return ""
    return "called again on the same inputs, it gives another output"


def follows_other_numbers(rounds: Rounds) -> bool:
    """Whether the reference's output changes with the seed alone."""
    base = rounds.results[0]
    first = [leaf for leaf in base.expected.reference if not leaf.path.startswith(WRITTEN)]
    return not same_values(_reference_again(rounds, base, "another seed"), first)


def _reference_again(rounds: Rounds, base: RoundResult, seed: str) -> list[Leaf]:
    rounds.reference.ask("call", Called, round=base.number, seed=rounds.seeds.of(seed), refill=False, keep=False)
    return rounds.reference.export("outputs", rounds.seeds.of(f"sample {base.number}"), OWN_ROUNDS)


def unrepeatable(why: str) -> ReferenceFailed:
    """why: what `differs` says."""
    return ReferenceFailed(
        "not_repeatable", f"{why}: the workload keeps state that torch does not hold, or is not deterministic, so no candidate can be "
        "judged",
        fix="keep what forward changes in buffers (register_buffer), and draw from torch's, Python's or NumPy's global random numbers, "
        "which the judge seeds")


def _moved(first: Leaf, again: Leaf, least: float) -> bool:
    noise = 0.0 if not first.floating else UNSTEADY_SHORT if first.eps > SHORT_EPS else UNSTEADY
    return errors_of(again, first, first).norm > max(least, noise)


def _base(rounds: Rounds) -> RoundResult | None:
    """The first round that is evidence, to be called again; None where the reference itself gives something else then.

    It does where it changes buffers, or was seen to (random numbers follow the seed).
    """
    if not rounds.options.steadiness or rounds.expectations.stateful or rounds.survey.deterministic is False:
        return None
    return next((result for result in rounds.results[: rounds.count] if result.evidence), None)


def _again(rounds: Rounds, base: RoundResult) -> tuple[list[Leaf], RoundResult]:
    """Another call on a round's inputs: its outputs, and how they compare with what that round expected."""
    seed = rounds.seeds.of(f"sample {base.number}")
    rounds.call(base.number, refill=True)
    outputs = rounds.candidate.export("outputs", seed)
    written = written_inputs(base.expected.reference)
    after = {leaf.path: leaf for leaf in rounds.candidate.export("inputs", seed)} if written else {}
    got = [*outputs, *(replace(after[path], path=f"{WRITTEN}{path}") for path in written if path in after)]
    return outputs, rounds.compare(base.number, got, base.expected)


def _fail(rounds: Rounds, result: RoundResult, calls: int) -> None:
    detail = result.problem or next(error.note for error in result.errors if not error.passed)
    others = [other for other in rounds.results if other.got and other.number != result.number]
    stale = any(same_values(other.got, result.got) for other in others)
    rounds.late = (f"state drifts after {calls} calls: called again on the first inputs it is wrong: {detail}"
                   + ("; it returned another round's output" if stale else ""))
    rounds.late_wrong = result.wrong
    rounds.reproducer = smallest([result], state=True)
