"""What a search that screens has time for: how the seconds left are shared among screens, judgements, the confirmation and ablation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..model.verdict import ACCEPTABLE, Experiment
from . import ablation, finalists
from .ahead import Ahead
from .budget import (
    ABLATION_SHARE,
    ENDING_S,
    JUDGEMENT,
    JUDGING_SHARE,
    LAST_TRY_SHARE,
    PLENTY,
    SCREENED_MARGIN,
    SLIM_SHARE,
    UNSEEN_SHARE,
    WEIGHING_SHARE,
    compiled_estimate_s,
    is_cheap,
    judge_estimate_s,
    judgements_s,
    screen_estimate_s,
    workload_s,
)
from .confirm import OF, refuted
from .expected import as_screened
from .ledger import CAUSE, ORIGINAL
from .passes.conditions import call_ns
from .plan import WARM, Candidate, candidate
from .search import Search
from .view import OPENING, View, scattered_originals_ns

LEAST_LIMIT_S = 30.0
LEAST_WARM_S = 10.0
"""What won before may take so long at least: the rest of a short budget is for its judgement."""
LIMIT_FACTOR = 5.0
"""A candidate is ended after so many times the expected seconds: a hang must not take the budget."""
LEAST_CALLS = 40
"""It may take so many of the original's calls at least: a screen makes 12 of a slow one, 26 of a training step, more where inputs are
several."""
FIRST_SHARE = 0.75
"""Of the seconds that a run's first judgement is expected to take. On a CPU those are 17; over the ledgers of docs/predictions.md half take
at most 8.5, nine of ten 11.8."""
FAR = 1.5
"""Where a finalist's screen is so many times that of the same without its cast, no look says more."""
CONFIRMED_SHARE = 0.5
"""While nothing was FASTER the confirmation's margin is held back too on a GPU, where with it no more than this share of the budget is. In
120 s on an H200 four of five large workloads had no time to be confirmed: their judgements took 20 to 35 s. On a CPU one takes less than is
expected of it."""
ROOMY = 10.0
"""A budget with room for so many judgements has its first at half time."""


@dataclass
class TimedSearch(Search):
    """A search that knows what it has seen, what that took, and what there is time for."""

    winners: Sequence[tuple[str, ...]] = ()
    """Passes that won for this very workload before."""
    won: float | None = None
    searched_s: float = 0.0
    """Budget of the search that found them; see View.won."""
    priors: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    """Seconds that things took in earlier runs on this machine."""
    _ahead: Ahead | None = field(default=None, init=False)
    _not_without: set[tuple[str, str]] = field(default_factory=set, init=False)
    """(winner, pass) whose ablation found no time: not again in this run."""
    _cut_short: set[str] = field(default_factory=set, init=False)
    """Candidates whose judgement the budget or the original ended: not again in this run."""
    _looked_s: float = field(default=0.0, init=False)
    """What this run's looks without a pass took."""
    _unproven: set[str] = field(default_factory=set, init=False)
    """The same before their screen: a former winner is screened first then, what ablation left is not judged again."""

    def rows(self) -> list[Experiment]:
        """See Search; in the order in which they were first screened."""
        first: dict[str, int] = {}
        for place, row in enumerate(self.ledger.rows):
            if row.screen is not None and row.screen.status != "out_of_budget":
                first.setdefault(row.name, place)
        return sorted(super().rows(), key=lambda row: first.get(row.name, len(self.ledger.rows)))

    def view(self) -> View:
        """What the strategy may know. Where the confirmation of a candidate was no gain, that is its verdict."""
        said = refuted(self.ledger.rows)
        rows = [row.model_copy(update={"verdict": said[row.name]}) if row.name in said else row
                for row in self.rows() if not (row.screen is None and row.tags.get(CAUSE) == ORIGINAL)]
        view = View(as_screened(self.context, rows), self.precision, rows, self.winners, self.won, self.priors, self.costs,
                    self.budget.total_s, originals_ns=scattered_originals_ns(rows))
        return replace(view, outdone=self._outdone(view))

    def _outdone(self, view: View) -> frozenset[str]:
        """See View. None for a pass that others need, a cast (the rest is of another precision), or where the judge disagrees."""
        known, found = {row.name: row for row in view.rows}, set[str]()
        for one in self.ledger.rows:
            whole = known.get(one.tags.get(OF, "")) if ablation.is_ablation(one) and one.tags.get(ablation.EARNED) == "no" else None
            if whole is None or (name := one.tags[ablation.WITHOUT]) in ablation.OPENS or ablation.lowers(whole, name):
                continue
            rest = known.get(candidate(ablation.slimmed(whole.passes, [name]), self.context).name)
            if rest is not None and (view.speed(rest) or 0.0) >= finalists.CLOSE * (view.speed(whole) or 0.0) \
                    and not (rest.verdict is not None and ablation.are_apart(rest, [whole])):
                found.add(whole.name)
        return frozenset(found)

    def _screen_s(self, item: Candidate, rows: Sequence[Experiment]) -> tuple[float, bool]:
        """(expected seconds of its screen, whether that rests on others of its kind). The compilers' caches have what won before, and what
        was compiled ahead."""
        if item.origin == WARM:
            return self._usual_s((), rows)
        if self._is_compiled(item):
            return compiled_estimate_s(rows), True
        return self._usual_s(item.passes, rows)

    def _usual_s(self, passes: Sequence[str], rows: Sequence[Experiment]) -> tuple[float, bool]:
        return screen_estimate_s(passes, rows, self.costs, has_products=self.has_products)

    def _is_compiled(self, item: Candidate) -> bool:
        return self._ahead is not None and self._ahead.is_compiled(item)

    def _screening_left_s(self, *, doubts: bool = True) -> float:
        """Seconds for screens: less what judging, confirming and ablation will need. While none was FASTER that is one judgement and the
        confirmation, in a longer budget another judgement beside them, else, where CONFIRMED_SHARE has room for it, the confirmation with
        its margin, and the looks at lower precision and at what is in doubt (doubts). What inputs take to be made is held back for one
        alone: where that is long, a candidate that compiles is worth more than the confirmation (AlexNet, 60 s: 1.6x by the screen, 1.3x
        without)."""
        top = next(iter(self.best()), None)
        queue = self._queue(self.view())
        if top is None:
            row = queue[0] if queue else None
            further, most = self._judgement_s(row, inputs=False), JUDGING_SHARE * self.budget.total_s
            first = self._judgement_s(row)
            held, safe = first + further, first + SCREENED_MARGIN * further
            if 2 * held <= most:
                held += further
            elif self.context.on_gpu and safe <= CONFIRMED_SHARE * self.budget.total_s:
                held = safe
            held += self._weighing_s(row, doubts=doubts) if row is not None else 0.0
            return self.budget.left_s() - min(held, most)
        judging = sum(self._judgement_s(row) for row in queue[:1]) + (self._judgement_s(None) if self._costs(self._slim()) else 0.0)
        return self.left_s() - judging - min(self._ablating_s(), ABLATION_SHARE * self.budget.total_s) - self._slimming_s()

    def _ablating_s(self) -> float:
        """Seconds that the rest of the winner's ablation is expected to take."""
        open_ = self._ablation()
        return len(open_[1]) * self._usual_s(open_[0].passes, self.rows())[0] if open_ is not None else 0.0

    def _slimming_s(self) -> float:
        """Seconds held back for judging what ablation may leave of the winner, while it goes on and has found a pass that earns nothing, or
        screens don't tell of each that it earns something."""
        open_, needed_s, rows = self._ablation(), self._judgement_s(None), self.ledger.rows
        doubted = open_ is not None and (bool(ablation.superfluous(ablation.rows_of(rows, open_[0].name))) or any(
            not ablation.is_clear(rows, open_[0], name) for name in open_[1]))
        return needed_s if doubted and needed_s <= SLIM_SHARE * self.budget.total_s else 0.0

    def _to_weigh(self, row: Experiment, *, doubts: bool = True) -> list[str]:
        """Passes of this finalist that are weighed before it is judged, and that it was not tried without; none whose screens are FAR apart
        already. What is only in doubt may take WEIGHING_SHARE of the budget, and all looks ABLATION_SHARE."""
        rows, look_s, total_s = self.ledger.rows, self._usual_s(row.passes, self.rows())[0], self.budget.total_s
        is_quick = look_s <= WEIGHING_SHARE * total_s and self._looked_s + look_s <= ABLATION_SHARE * total_s
        doubts = doubts and is_quick and row.verdict is None
        seen = {name: ablation.by_screens(rows, row, name) for name in self._not_tried(row)
                if ablation.must_weigh(row, name) or (doubts and ablation.is_doubted(rows, row, name))}
        return [name for name, both in seen.items() if both is None or both[0] < FAR * both[1]]

    def _weighing_s(self, row: Experiment, *, doubts: bool = True) -> float:
        """Seconds held back for the look whether such passes of this finalist earn anything."""
        expected_s = len(self._to_weigh(row, doubts=doubts)) * self._usual_s(row.passes, self.rows())[0]
        return min(expected_s, WEIGHING_SHARE * self.budget.total_s)

    def _but_one_judgement_s(self) -> float:
        """Seconds for screens while nothing is worth judging: one judgement is all that is held back, FIRST_SHARE of it where none was
        seen, and one of what ablation may leave of the winner."""
        share = 1.0 if self._judgement_share() == 1.0 else FIRST_SHARE
        return self.left_s() - share * self._judgement_s(None) - self._slimming_s()

    def _judgement_share(self) -> float:
        """Of the seconds that a judgement is expected to take, what must be left for it to begin."""
        return 1.0 if judgements_s(self.rows()) or JUDGEMENT in self.costs else UNSEEN_SHARE

    def _judgement_s(self, row: Experiment | None, *, inputs: bool = True) -> float:
        """inputs: with the seconds that the first one waits for inputs."""
        return judge_estimate_s(row, self.rows(), self.costs, on_gpu=self.context.on_gpu,
                                inputs_s=self.context.facts.inputs_s if inputs else None, work_s=workload_s(self.context))

    def _queue(self, view: View, *, plenty: bool = False) -> list[Experiment]:
        faster, known = {row.name for row in self.best()}, {row.name: row for row in view.rows}
        judged = {row.name for row in view.rows if row.verdict is not None and row.verdict.verdict in ACCEPTABLE}
        view = replace(view, rows=[row for row in view.rows if not self._is_needless(row, known, faster, judged)])
        return [row for row in finalists.to_judge(view, plenty=plenty) if row.name not in self._cut_short]

    def _is_needless(
        self, row: Experiment, known: Mapping[str, Experiment], faster: Collection[str], judged: Collection[str]
    ) -> bool:
        """Whether it was not judged, and seen to be no faster than what is left of it, which the judge found FASTER; where that is no
        gradients alone, or found anything else but wrong (two CPU cores: `compile_default`, 0.95x of `no_grad`, which was AMBIGUOUS, was
        judged for 15 s of a minute)."""
        left: Experiment | None = row
        while left is not None and left.verdict is None and (idle := self._idle(left)):
            rest = candidate(ablation.slimmed(left.passes, idle), self.context)
            if rest.name in (judged if ablation.NEVER.issuperset(rest.passes) else faster):
                return True
            left = known.get(rest.name)
        return False

    def _idle(self, row: Experiment) -> list[str]:
        """Its passes that earn nothing: of what the judge has seen only where one is among them that is always weighed before that, else
        none that by the screens of the two earns something after all."""
        idle = ablation.superfluous(ablation.rows_of(self.ledger.rows, row.name))
        if row.verdict is not None:
            return idle if any(ablation.must_weigh(row, name) for name in idle) else []
        return [name for name in idle if ablation.must_weigh(row, name) or not ablation.is_clear(self.ledger.rows, row, name)]

    def _judgeable(self) -> Experiment | None:
        """The next finalist, where the time left has room for its judgement; with plenty of time also one that changes little."""
        left = self.left_s()
        return self._hopeful() or next(
            (row for row in self._queue(self.view(), plenty=True) if left >= PLENTY * self._judgement_s(row)), None)

    def _hopeful(self) -> Experiment | None:
        """The next finalist that may change what is kept, where the time left has room for its judgement."""
        left, share = self.left_s(), self._judgement_share()
        return next((row for row in self._queue(self.view()) if left >= share * self._judgement_s(row)), None)

    def _overdue(self) -> Experiment | None:
        """The best so far, where half of a budget with room for it has passed and the judge has timed nothing: from then on there may be a
        result, whatever ends the run, and it is known what a judgement takes."""
        is_timed = any(row.verdict is not None and row.verdict.speedup is not None for row in self.rows())
        if is_timed or self.budget.used_s() < self.budget.total_s / 2:
            return None
        row = self._hopeful()
        return row if row is not None and self.budget.total_s >= ROOMY * self._judgement_s(row) else None

    def _to_judge(self) -> Experiment | None:
        """The next finalist that there is time for."""
        return self._judgeable() or self._last_judgeable()

    def _last_judgeable(self) -> Experiment | None:
        """The next finalist where nothing was FASTER and the time left may do for its judgement: it would pass unused otherwise."""
        if next(iter(self.best()), None) is not None:
            return None
        left = self.left_s()
        return next((row for row in self._queue(self.view()) if left >= LAST_TRY_SHARE * self._judgement_s(row)), None)

    def _is_large(self, row: Experiment) -> bool:
        """Whether the screen shows, or the judge has shown of another, a gain that time is held back for. Of no gradients alone it must
        show twice as much: on two cores, 1.05x to 1.07x by the screen, the judge saw 1.01x to 1.03x, AMBIGUOUS in four of five, and the
        time for `freeze_weights` beside a compilation (1.2x) was gone."""
        least = OPENING ** (2 if ablation.NEVER.issuperset(row.passes) else 1)
        return bool(self.best()) or (self.view().speed(row) or 0.0) >= least

    def _limit_s(self, passes: Sequence[str], *, warm: bool = False, left_s: float | None = None) -> float:
        """The longest that this screen may take: of what it was found affordable by. While nothing is worth judging, the confirmation's
        seconds are its own too. Where a large gain waits for its judgement, no more than what that leaves: on two cores a decoder was
        screened at 1.16x, a compilation took all but 7 of the 39 s that were left, and the judgement did not end. left_s: so much is its
        own, since it is no candidate's."""
        expected_s, _ = self._usual_s(passes, self.rows())
        left = self._screening_left_s(doubts=is_cheap(passes)) if left_s is None else left_s
        queue = self._queue(self.view()) if left_s is None else []
        if left_s is None and left < expected_s and queue and self._is_large(queue[0]):
            left = max(left, self.left_s() - self._judgement_s(queue[0]) - 2 * ENDING_S)
        elif left_s is None and (left < expected_s or not queue):
            left = max(left, self._but_one_judgement_s())
        calls_s = LEAST_CALLS * (call_ns(self.context) or 0.0) / 1e9
        least = LEAST_WARM_S if warm else 1.0
        return max(least, min(max(LEAST_LIMIT_S, LIMIT_FACTOR * expected_s, calls_s), max(left, 0.0)))

    def _most_s(self, limit_s: float) -> float:
        """The longest that a screen with this limit may take with the loading of the workload, where a process must load it first: while
        nothing is worth judging all that is left."""
        left = self._screening_left_s() if self._queue(self.view()) else 0.0
        return max(limit_s, left if left > 0 else self.left_s())

    def _ablation(self) -> tuple[Experiment, list[str]] | None:
        """(the winner, passes that neither it nor what it was left of has been tried without); None when there is nothing to ablate."""
        winner = next(iter(self.best()), None)
        if winner is None or (winner.screen is None and winner.origin != WARM and ablation.whole_of(winner) is None):
            return None
        left = self._not_tried(winner)
        return (winner, left) if left else None

    def _not_tried(self, row: Experiment) -> list[str]:
        """Passes that neither a candidate nor what ablation left it of has been tried without; last those that clearly earn something by
        their screens."""
        rows = self.ledger.rows
        found = {name for of in (row.name, *ablation.wholes_of(rows, row)) for name, one in ablation.rows_of(rows, of).items()
                 if one.screen is None or one.screen.status != "out_of_budget" or (of, name) in self._not_without}
        left = [name for name in ablation.to_drop(row, rows) if name not in found]
        return sorted(left, key=lambda name: ablation.is_clear(rows, row, name))

    def _slim(self) -> tuple[Experiment, Candidate] | None:
        """(the winner, what it is without the passes that earn nothing), where that was neither judged nor found wanting. While other
        passes are left to try only where the judge saw it before, which costs nothing, or where the time does not do for those too."""
        winner = next(iter(self.best()), None)
        if winner is None:
            return None
        dropped = ablation.superfluous(ablation.rows_of(self.ledger.rows, winner.name))
        if not dropped:
            return None
        item = candidate(ablation.slimmed(winner.passes, dropped), self.context, origin="ablation", parents=(winner.name,))
        if any(row.name == item.name for row in self.best()):  # seen before: what ablation found of it is to be told, once
            return None if ablation.was_told(self.ledger.rows, item.name, winner.name) else (winner, item)
        if self._ablation() is not None and self.left_s() >= self._ablating_s() + self._judgement_s(None):
            return None
        is_free = item.name not in self._cut_short | self.set_aside | self._unproven and is_open(self.view().row(item.name))
        return (winner, item) if is_free else None

    def _costs(self, slim: tuple[Experiment, Candidate] | None) -> bool:
        """Whether what is left of the winner must still be judged."""
        return slim is not None and not any(row.name == slim[1].name for row in self.best())


def is_open(row: Experiment | None) -> bool:
    """Whether a candidate was neither judged nor found wanting."""
    return row is None or row.status == "out_of_budget" or (
        row.verdict is None and row.status == "screened" and (row.screen is None or row.screen.status == "timed"))
