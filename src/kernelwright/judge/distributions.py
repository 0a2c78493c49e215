"""Which other inputs a candidate meets after the generator's own rounds: kinds, their secret order, and how long they may take."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence

from .options import Deadline
from .replies import Surveyed, SurveyedKind

WORDS = {
    "small": "inputs scaled down", "large": "inputs scaled up", "shifted": "shifted inputs",
    "constant_rows": "constant rows among the inputs", "mixed": "large and small magnitudes mixed",
    "spikes": "a few large values among the inputs", "special": "zeros and denormals among the inputs",
    "nonfinite": "NaN or infinities among the inputs",
}
MIN_BUDGET_S, MAX_BUDGET_S = 2.0, 10.0
OF_OWN_ROUNDS = 12.0
"""The eight kinds may take as long as twelve of the generator's rounds (the first aside, which may compile)."""
OF_DEADLINE = 0.1
"""And a tenth of what is left before a deadline."""
SLOW_S = 2.0
SURVEY_S = {"distributions_s": 4.0, "dependence_s": 2.0}


def survey_seconds(deadline: Deadline) -> dict[str, float]:
    """How long the session's survey may take, beside its first two calls."""
    return {name: min(seconds, OF_DEADLINE * deadline.left_s()) for name, seconds in SURVEY_S.items()}


def plan(survey: Surveyed, seed: int) -> list[SurveyedKind]:
    """The kinds on which the reference runs and is finite somewhere, in a secret order."""
    usable = [kind for kind in survey.distributions if kind.kind in WORDS and kind.finite > 0]
    random.Random(seed).shuffle(usable)
    return usable


def left_out(survey: Surveyed) -> str | None:
    """A note on the kinds on which the reference itself is no evidence."""
    if not survey.applicable:
        return f"not checked on other input distributions: {survey.reason}" if survey.reason else None
    failing = [f"{WORDS[kind.kind]} ({kind.reason})" for kind in survey.distributions
               if kind.kind in WORDS and kind.finite == 0 and kind.reason and "no float input" not in kind.reason]
    return f"not checked on {', '.join(failing)}" if failing else None


class Budget:
    """Time for the other rounds, and for saying why some were left out."""

    def __init__(self, own_rounds_s: Sequence[float], deadline: Deadline, clock: Callable[[], float] = time.monotonic) -> None:
        usual = own_rounds_s[1:] or own_rounds_s
        wanted = min(MAX_BUDGET_S, max(MIN_BUDGET_S, OF_OWN_ROUNDS * sum(usual) / max(1, len(usual))))
        self.seconds = min(wanted, OF_DEADLINE * deadline.left_s())
        self.round_s = max(usual, default=0.0)
        self.clock = clock
        self.start = clock()

    def allows(self, rounds: int = 1) -> bool:
        """So many more rounds, if each takes as long as one of the generator's."""
        return self.clock() - self.start + rounds * self.round_s <= self.seconds

    def note(self, done: int, wanted: int, call_s: float) -> str | None:
        """What was left out, and why."""
        if done >= wanted:
            return None
        why = f"one call takes {call_s:.2g} s" if call_s > SLOW_S else f"their time of {self.seconds:.2g} s was used up"
        return f"checked on {done} of {wanted} other input distributions: {why}" if math.isfinite(self.seconds) else None
