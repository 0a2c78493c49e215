"""How far TF32's roundings may take an output whose error is decided by few of them.

Where torch's flags let the reference compute in TF32, its error is one draw of what those roundings do. Over many independent elements
two such draws are alike. Over few they are not: the mean over an image leaves the roundings of the weights, which all images share, so
that ten classes are ten draws, and a loss is one. Then a candidate that rounds the same weights after scaling them (a folded BatchNorm)
errs by more than twice the reference's error by luck. So the reference is drawn again, with its weights rounded beforehand, each up or
down at random, and what such draws usually err by counts where it is more than the reference's own error.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

DRAWS = 8
SPREAD = math.sqrt(2.0)
"""Rounding up or down at random has twice the variance of rounding to nearest (ulp**2 / 6, ulp**2 / 12; Croci et al. 2022, Stochastic
rounding: implementation, error analysis and applications, Royal Society Open Science 9)."""
SCATTER_SHARE = 0.5
"""Of the draws' standard deviation, added to their root mean square. Simulated with Gaussian errors, shares of judgements in which a
candidate of the same precision is beyond twice the reference's own error, and beyond twice the larger of that and this: 30% and 2.3% with
one degree of freedom, 10% and 0.1% with four, 2.0% and less than 0.01% with ten. One that errs three times as much is within the limit in
37% and 63%, 22% and 39%, 11% and 19%; the largest of the draws in the place of this would make it 75%, 57% and 35%."""
LEAST_DRAWS = 2
HOPELESS = 4.0
"""What is beyond so many times the limit after the first draws is not brought within it by the others."""
ALIKE, ALIKE_DRAWS = 1.1, 3
"""So many draws that differ by no more than this factor: the others are alike, and what is beyond the limit by it stays there."""
Drawn = Sequence[tuple[float, float]] | None
"""Of each leaf: ||x - oracle|| / ||oracle|| and max |x - oracle| of one more run of the reference."""


@dataclass
class Draws:
    """More runs of a round's reference, each asked for once, and only where a candidate is beyond the limit."""

    ask: Callable[[int], Drawn]
    """Draw number -> the errors with the weights that it rounds to TF32 rounded at random; None: it rounds none."""
    _drawn: list[Drawn] = field(default_factory=list, init=False)

    def __iter__(self) -> Iterator[Sequence[tuple[float, float]]]:
        """One after the other; none where there are none."""
        for number in range(DRAWS):
            if number == len(self._drawn):
                self._drawn.append(self.ask(number))
            if (found := self._drawn[number]) is None:
                return
            yield found

    def only(self, keep: Sequence[int]) -> Draws:
        """The same of these leaves alone."""
        def ask(number: int) -> Drawn:
            found = next(itertools.islice(self, number, None), None)
            return None if found is None else [found[index] for index in keep]

        return Draws(ask)


def usual(drawn: Sequence[float]) -> float:
    """What rounding to nearest usually errs by, from what rounding at random did: two draws at least."""
    sizes = [one / SPREAD for one in drawn]
    return math.sqrt(statistics.fmean(one * one for one in sizes)) + SCATTER_SHARE * statistics.stdev(sizes)


def is_settled(drawn: Sequence[float], error: float, limit: float) -> bool:
    """Whether more draws can't bring this error within the limit."""
    alike = len(drawn) >= ALIKE_DRAWS and max(drawn) <= ALIKE * min(drawn)
    return error > HOPELESS * limit or (alike and error > ALIKE * limit)
