"""How far TF32's roundings may take an output whose error is decided by few of them.

Where torch's flags let the reference compute in TF32, its error is one draw of what those roundings do. Over many independent elements
two such draws are alike. Over few they are not: the mean over an image leaves the roundings of the weights, which all images share, so
that ten classes are ten draws, and a loss is one. Then a candidate that rounds the same weights after scaling them (a folded BatchNorm)
errs by more than twice the reference's error once in fifty judgements, at the same precision. So the reference is drawn again: with its
weights rounded beforehand, each up or down at random, and the largest of these errors counts where it is more than the reference's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

DRAWS = 8
"""Simulated with Gaussian errors: a candidate of the same precision is beyond twice the reference's own error in 2% of judgements with ten
degrees of freedom, in 29% with one (a loss); beyond twice the largest of nine draws in none of 200000 and in 0.6%. With a hundred the
largest is 1.1 times the usual one."""
SPREAD = math.sqrt(2.0)
"""Rounding up or down at random has twice the variance of rounding to nearest (ulp**2 / 6, ulp**2 / 12; Croci et al. 2022, Stochastic
rounding: implementation, error analysis and applications, Royal Society Open Science 9)."""
FIRST_DRAWS = 2
HOPELESS = 4.0
"""What is beyond so many times the limit after the first draws is not brought within it by the others."""
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
