"""The search where the workload can be screened: many quick looks, few judgements, ablation at the end."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..model.trial import Screen
from ..model.verdict import Experiment
from . import ablation, beside, memory, shown, strategy
from .ahead import AHEAD, Ahead, Compiling
from .budget import ENDING_S, LAST_TRY_SHARE, SETUP_S, START_S, TUNING, UNSEEN_SHARE, compiled_estimate_s, is_cheap, kind, reference_start_s
from .confirm import OF, ROLE, refuted, undecided
from .generate import render_source, write_source
from .ledger import CAUSE, NOT_BEGUN, NOT_JUDGED, ORIGINAL
from .passes import CATALOGUE
from .passes.base import Pass
from .plan import WARM, Candidate, candidate, carrier_of, first_round, lasts, measures
from .ruled_out import still_open
from .screen import TIMING_LIMIT_S, Ask, Unusable
from .search import NO_COMPILER, Status, file_name, line_of
from .state import utc_now
from .timed import LIMIT_FACTOR, TimedSearch, is_open
from .view import View, incumbent
from .waiting import NOT_LOOKED_FOR, Waiting, looked_no_further, not_tried, waiting

HOPELESS = 0.5
"""Timing ends early below this share of the best speed-up at the same precision."""
LADDER_MARGIN = 1.5
"""The ladder's turn comes while the time left is this many times what those of its rows take that fit, or they and the next screen."""
SHOWN_SHARE = 0.2
"""In the ladder's turn a row for comparison may take this share of the time left for screens (H200: 2 to 4 s)."""
SHORTLY_S = 20.0
"""Few kernels that a process measures ahead are waited for so long, or for what the screen itself is expected to take, where that is more
(a cross entropy, H200: 13 and 18 s)."""
MOST_NAMED = 40
"""Candidates that one row lists by name."""


class Screening(Compiling, Protocol):
    """Looks at candidates quickly, and compiles others meanwhile (screen.Screener)."""

    def screen(self, ask: Ask) -> Screen:
        """One candidate. Raises Unusable when the workload itself can't be screened."""

    def let_end(self) -> None:
        """Tell all processes to end, and wait for none; what is asked for later starts new ones."""


@dataclass
class ScreenedSearch(TimedSearch):
    """A search that screens first. Without `screening`, or once that is unusable, it judges each candidate as Search does."""

    screening: Screening | None = field(default=None, init=False)
    _not_shown: set[str] = field(default_factory=set, init=False)
    """Rows for comparison that found no time once: not again in this run."""
    _not_beside: list[set[str]] = field(default_factory=list, init=False)
    """Pairs that found no time to be timed in turns: not again in this run."""
    _waited_for: set[str] = field(default_factory=set, init=False)
    """Candidates that were compiled ahead while nothing else was done: not again in this run."""
    _unusable: bool = field(default=False, init=False)
    """The workload could not be screened, or no longer."""

    def run(self) -> None:
        """See Search; what is there to do comes first from screening, then judging, then ablation. Where nothing can be screened any more
        what was goes to the judge first."""
        self._ahead = Ahead(self.screening, self._put_ahead) if self.screening is not None else None
        try:
            while self._screens_now() and self._act():
                pass
        except Unusable as why:
            self._unusable = True
            self.say(f"candidates can't be screened ({why}): each is judged")
        finally:
            if self.screening is not None and self.budget.left_s() <= 2 * ENDING_S:  # too little for anything more
                self.screening.let_end()  # beside the judge's: one that holds a GPU's memory takes a second
            if self._ahead is not None:
                self._ahead.end()
        if self.screening is not None and not self._unusable:
            self.note_untried()
            return
        while self.stopped is None and (row := self._to_judge()) is not None:
            self._judge_one(row)
        super().run()

    def pending(self) -> bool:
        """See Search."""
        if not self._screens():
            return super().pending()
        view = self.view()
        waiting = [item for item in strategy.proposals(view) if self.why_not(item) is None]
        return bool(waiting) or bool(self._queue(view)) or self._ablation() is not None or self._slim() is not None \
            or self._rival() is not None or self._rival(lower=True) is not None

    def ablate_confirmed(self) -> None:
        """Try the winner without the passes that ablation had no time for, as far as the confirmation left some. Nothing is judged: where
        one earns nothing, what is left is for a run that resumes this one."""
        with contextlib.suppress(Unusable):
            while self._screens_now() and self._ablate_one(self.budget.left_s() - TIMING_LIMIT_S - ENDING_S, LAST_TRY_SHARE):
                pass

    def takes_apart(self, winner: Experiment) -> bool:
        """Whether something is left for ablate_confirmed, and may have time after a confirmation: that takes two fifths of what the
        judgement took at least."""
        left_s = self.budget.left_s() - LAST_TRY_SHARE * winner.elapsed_s - TIMING_LIMIT_S - 2 * ENDING_S
        return left_s > 0 and self._screens_now() and self._ablation() is not None

    def idle_passes(self, winner: Experiment) -> list[str]:
        """Passes of this winner that earn nothing, where what is left without them may be kept in its place, and is not decided."""
        dropped = ablation.superfluous(ablation.rows_of(self.ledger.rows, winner.name))
        if not dropped:
            return []
        rest = candidate(ablation.slimmed(winner.passes, dropped), self.context)
        if any(row.name == rest.name for row in self.best()):
            return [] if ablation.was_told(self.ledger.rows, rest.name, winner.name) else dropped
        return dropped if is_open(self.view().row(rest.name)) else []

    def ready(self) -> bool:
        """See Search."""
        if self.stopped is not None:
            return False
        return self._to_judge() is not None or (self._next() is not None if self._screens() else super().ready())

    def overtaken(self) -> bool:
        """See Search."""
        said = self.ledger.rows
        return self.screening is not None and bool(refuted(said)) and not undecided(said) and self._judgeable() is not None

    def note_untried(self) -> None:
        """See Search. What applies and was not begun stands in one row, what promised most first; of the combinations those that would
        have come next."""
        self._note_shown("not measured: no time" if self._screens() else "not measured: nothing was screened")
        if not self._screens():
            super().note_untried()
            return
        done = self._finished()
        items = first_round(self.context, self.precision)
        self.note([item for item in items if self.why_not(item) is not None or item.ladder_row or self.stopped is not None], done)
        self._note_not_begun()

    def _why_not_begun(self, item: Candidate, done: Mapping[str, Experiment]) -> tuple[Status, str]:
        if self.stopped is not None or not self._screens():
            return super()._why_not_begun(item, done)
        screen_s, judge_s = self._screen_s(item, self.rows())[0], self._judgement_s(None)
        return "out_of_budget", (f"about {screen_s:.0f} s for its screen and {judge_s:.0f} s for a judgement expected, "
                                 f"{self.left_s():.0f} s left")

    def waiting(self, ended: str = "") -> list[Waiting]:
        """What applies and was not begun, the largest expectation first. ended: why nothing more was begun, where that is not the search's
        own doing."""
        view, done = self.view(), self._finished()
        proposed = strategy.proposals(view, whole=True) if self._screens() else self._combinations(done)
        singles = still_open(view, not_tried(view, first_round(self.context, self.precision)))
        items = {item.name: item for item in (*singles, *proposed) if item.name not in done and self.why_not(item) is None}
        why = ended or self.stopped or looked_no_further(view)
        looked_for = {item.name for item in strategy.proposals(view)} if self._screens() else items.keys()

        def why_not_begun(item: Candidate) -> str:
            row = view.row(item.name)
            return (row.reason if row is not None else "") or why or (
                self._why_not_begun(item, done)[1] if item.name in looked_for else NOT_LOOKED_FOR)

        return waiting(view, items.values(), why_not_begun)

    def _note_not_begun(self) -> None:
        entries = [one for one in self.waiting() if one.candidate not in self.set_aside]
        if self.stopped is not None or not entries:
            return
        words = [f"{one.candidate} (expected {one.expected_speedup:.2f}x)" for one in entries]
        more = f", and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
        why = looked_no_further(self.view())
        row = Experiment(
            index=self.ledger.next_index(), name=NOT_BEGUN, passes=(), precision="equal", candidate_file="", status="out_of_budget",
            reason=f"not begun with {self.left_s():.0f} s left{f' ({why})' if why else ''}: {', '.join(words[:MOST_NAMED])}{more}",
            started_utc=utc_now(), tags={ROLE: NOT_BEGUN})
        known = next((one for one in reversed(self.ledger.rows) if one.name == NOT_BEGUN), None)
        if known is None or known.reason != row.reason:
            self.ledger.append(row)

    def depth_s(self) -> float:
        """How long the search was that this run's result comes from: its budget, an earlier one's whose result it took over, ALL_S where
        nothing is left to try."""
        view = self.view()
        if strategy.settled(view):
            return max(self.searched_s, self.budget.total_s)
        waiting = [item for item in strategy.proposals(view, whole=True) if self.why_not(item) is None and not item.ladder_row]
        return self.budget.total_s if waiting else memory.ALL_S

    def _screens_now(self) -> bool:
        """Whether another candidate may be screened, the time apart."""
        return self.screening is not None and not self._unusable and self.stopped is None

    def _screens(self) -> bool:
        """Whether this run, or the one that is resumed, screens."""
        return not self._unusable and (self.screening is not None or any(row.screen is not None for row in self.ledger.rows))

    def _act(self) -> bool:
        """One screen, judgement or ablation; False when there is nothing to do, or no time for it."""
        proven = self._proven()
        if proven is not None:
            self.write(proven)
            self._judge_one(proven)
            return True
        item = self._next()
        # Not first: what little time it may take must not end the loading of the workload.
        loaded = item is None or any(row.screen is not None for row in self.ledger.rows)
        if loaded and self._show_one(self._screening_left_s() * (SHOWN_SHARE if item is not None and item.ladder_row else item is None)):
            return True
        top = next(iter(self.best()), None)
        if item is None and top is not None:
            alike_s = top.elapsed_s + reference_start_s(self.rows()) + START_S + 2 * ENDING_S
            if self._weigh(top, self.budget.left_s() - alike_s):
                return True
        row = self._overdue() if item is not None else self._to_judge()
        if row is not None:
            limit_s = max(LIMIT_FACTOR * self._judgement_s(row), self.budget.total_s / 4) if item is not None else math.inf
            held_s = self._weighing_s(row) if top is None else 0.0
            if self._weigh(row, self._screening_left_s() + held_s, limit_s):
                return True
            self._judge_one(row, limit_s)
            return True
        if item is not None:
            if not self._wait_for_tuned(item):
                self._screen_one(item)
            return True
        return self._time_beside(lower=True) or self._judge_slim() or self._ablate_one(self.left_s()) or self._wait_for_ladder() \
            or self._time_beside()

    def _proven(self) -> Experiment | None:
        """What won for this workload before, in a search that had at least this budget: the judge sees it at once, since that is all that a
        screen would lead to; also where the time left may be short, since a screen would leave less. None: there is none, it was tried, or
        it does not apply."""
        if self.won is None or not self.winners or not set(self.winners[0]) <= CATALOGUE.keys():
            return None
        item = candidate(self.winners[0], self.context, origin=WARM)
        known = item.name in self._finished() or item.name in self._unproven
        if known or item.precision not in self.view().allowed or self.why_not(item) is not None:
            return None
        return self.row(item) if self.left_s() >= LAST_TRY_SHARE * self._judgement_s(None) else None

    def _to_show(self) -> list[Pass]:
        """Rows for comparison that have no figure yet, and may get one in this run."""
        done = shown.rows_of(self.ledger.rows)
        return [item for item in shown.wanted(self.context, self.precision)
                if not shown.measured(done.get(item.name)) and item.name not in self._not_shown]

    def _shown_row(self, item: Pass, **changes: object) -> Experiment:
        passes = tuple(one.name for one in shown.with_condition(item, self.context))
        index = self.ledger.next_index()
        return Experiment.model_validate({
            "index": index, "name": f"{item.name} ({shown.SHOWN})", "passes": passes, "precision": item.precision, "ladder_row": True,
            "candidate_file": file_name(index, item.name), "started_utc": utc_now(), "tags": {ROLE: shown.SHOWN}, **changes})

    def _show_one(self, left_s: float) -> bool:
        """Screen one of the rows that stand beside the ladder, where its screen fits into `left_s`; False: none is left, or no time."""
        item = next((one for one in self._to_show() if one.refusal(self.context) is None), None)
        if item is None or left_s < self._usual_s((), self.view().rows)[0]:
            return False
        row = self._shown_row(item, status="screened")
        source = render_source(self.workload, self.context.facts, shown.with_condition(item, self.context),
                               device=self.context.environment.device)
        file = write_source(self.folder / row.candidate_file, source)
        self.say(f"screening {row.name}")
        limit_s = min(self._limit_s(()), left_s)
        screen = self._screened(item.name, Ask(file, item.precision, limit_s, min(self._most_s(limit_s), left_s), shapes=self._changes()))
        status = screen.status if screen.status in ("failed", "not_applicable", "out_of_budget") else "screened"
        row = row.model_copy(update={"status": status, "screen": screen, "reason": screen.reason, "elapsed_s": screen.elapsed_s})
        if status == "out_of_budget":
            self._not_shown.add(item.name)
        self.ledger.append(row)
        self.say(line_of(row))
        return True

    def _note_shown(self, why: str) -> None:
        """Why the others have no figure."""
        known = shown.rows_of(self.ledger.rows)
        for item in (one for one in self._to_show() if one.name not in known):
            refused = item.refusal(self.context)
            self.ledger.append(self._shown_row(item, status="not_applicable" if refused else "out_of_budget",
                                               reason=refused or self.stopped or why))

    def _next(self) -> Candidate | None:
        """The next candidate to screen, if the time allows one."""
        view = self.view()
        # Where the best so far needs no compiler, what does takes longer to judge and to confirm than what is held back.
        queue = self._queue(view) if next(iter(self.best()), None) is None else []
        left_s = self._screening_left_s()
        # A compilation may give more than a look at what is in doubt takes off (a depthwise network on two cores, 60 s: 1.7x, not 1.4x).
        item = self._affordable(view, left_s, longer_s=2 * SETUP_S if queue and is_cheap(queue[0].passes) else 0.0,
                                looks_s=self._screening_left_s(doubts=False) - left_s)
        hopeful = self._hopeful() if item is None else None
        if item is None and (hopeful is None or not self._is_large(hopeful)):
            # Nothing else would use the time well: of the judgements of small gains few are FASTER.
            item = self._affordable(view, self._but_one_judgement_s())
        return item

    def _affordable(self, view: View, left: float, *, longer_s: float = 0.0, looks_s: float = 0.0) -> Candidate | None:
        """The next candidate whose screen fits into `left` seconds. One that compiles needs longer_s beside that, and may use looks_s."""

        def affordable(item: Candidate) -> bool:
            if item.name in self.set_aside or self.why_not(item) is not None or self._tunes_meanwhile(item):
                return False
            expected_s, seen = self._screen_s(item, view.rows)
            compiles = not is_cheap(item.passes) and item.origin != WARM
            own_s, more_s = (left + looks_s, longer_s) if compiles else (left, 0.0)
            return own_s > 0 and own_s >= expected_s * (1.0 if seen else UNSEEN_SHARE) + more_s

        item = strategy.next_candidate(view, affordable)
        due = self._due(view, left, self._screen_s(item, view.rows)[0] if item is not None else 0.0)
        return strategy.next_candidate(view, affordable, due=due) if due else item

    def _tunes_meanwhile(self, item: Candidate) -> bool:
        """Whether kernels would be measured in its screen that a process measures at present, for a row of the ladder that is not worth
        waiting for."""
        if self._ahead is None or item.origin == WARM or self._is_compiled(item) or self._is_worth_waiting(item):
            return False
        return kind(item.passes, has_products=self.has_products) in TUNING and self._ahead.is_tuning()

    def _is_worth_waiting(self, item: Candidate) -> bool:
        """Whether a process measures its few kernels at present and it is expected to gain. It is stopped while others are timed: beside
        twelve short screens it was ready 41 s after it was begun (a cross entropy, H200), where its own screen takes 13 to 18 s."""
        return self._ahead is not None and item.name not in self._waited_for and self._ahead.is_compiling(item) \
            and strategy.is_tuned_shortly(self.view(), item)

    def _wait_for_tuned(self, item: Candidate) -> bool:
        """Wait, once, for what a process measures few kernels of. False: it is not waited for."""
        if not self._is_worth_waiting(item):
            return False
        self._waited_for.add(item.name)
        until_s = self.left_s() - max(SHORTLY_S, self._screen_s(item, self.view().rows)[0])
        self._wait_for([item], lambda: self.left_s() - until_s)
        return True

    def _wait_for_ladder(self) -> bool:
        """Wait for a row of the ladder that is compiled ahead, where nothing else is to do. False: none is, or no time is left."""
        view = self.view()
        return self._wait_for([item for item in strategy.untried_ladder(view)
                               if self.why_not(item) is None and item.name not in self.set_aside])

    def _wait_for(self, items: Sequence[Candidate], patience_s: Callable[[], float] = lambda: math.inf) -> bool:
        """Wait for one of these that is compiled ahead, while there are both patience and the time for its screen. False: nothing has
        changed."""
        view = self.view()
        left_s = self._screening_left_s if self._queue(view) else self._but_one_judgement_s
        return self._ahead is not None and self._ahead.wait(
            items, lambda: min(left_s() - compiled_estimate_s(view.rows), patience_s()), self.say)

    def _due(self, view: View, left_s: float, next_s: float) -> list[str]:
        """The ladder's rows whose turn it is: those that fit, the cheapest first, once they would not after a screen of next_s. One whose
        kernels are still to be measured must not press what pays: it comes when nothing else does, or once it was compiled ahead."""
        total_s, names = 0.0, []
        for item in strategy.untried_ladder(view):
            expected_s = self._screen_s(item, view.rows)[0]
            is_dear = kind(item.passes, has_products=self.has_products) == "autotune" and not self._is_compiled(item)
            if not is_dear and self.why_not(item) is None and item.name not in self.set_aside and total_s + expected_s <= left_s:
                total_s += expected_s
                names.append(item.name)
        return names if left_s < max(LADDER_MARGIN * total_s, total_s + next_s) else []

    def _changes(self) -> bool:
        """Whether a candidate must be seen on several inputs."""
        return bool(self.context.facts.changing_inputs or self.context.facts.changing_values)

    def _screen_one(self, item: Candidate) -> None:
        row, is_compiled = self.row(item), self._is_compiled(item)
        if self._ahead is not None and (known := self._ahead.take(item.name)) is not None:
            row = row.model_copy(update={"candidate_file": str(known.relative_to(self.folder))})
        file = self.write(row)
        best = incumbent(self.view(), row.precision)
        self.say(f"screening {row.name}")
        limit_s = self._limit_s(row.passes, warm=row.origin == WARM)
        most_s = self._most_s(limit_s if row.origin != WARM else 0.0)
        screen = self._screened(item.name, Ask(
            file, row.precision, min(limit_s, most_s), most_s, strict=bool(self.best()),
            compiles=carrier_of(row.passes) is not None, measures=measures(row.passes), lasts=lasts(row.passes), shapes=self._changes(),
            hopeless=HOPELESS * best.screen.speedup if best is not None and best.screen is not None and best.screen.speedup
            and not row.ladder_row and row.origin != WARM else None)).model_copy(update={"compiled_ahead": is_compiled})
        status = {"failed": "failed", "not_applicable": "not_applicable", "out_of_budget": "out_of_budget"}.get(screen.status, "screened")
        row = row.model_copy(update={"status": status, "screen": screen, "reason": screen.reason, "elapsed_s": screen.elapsed_s})
        if status == "failed" and NO_COMPILER.search(row.reason):
            self.no_compiler = row.reason
        if status == "out_of_budget":
            self.set_aside.add(row.name)
        self.ledger.append(row)
        self.say(line_of(row))

    def _screened(self, name: str, ask: Ask) -> Screen:
        """One screen; meanwhile others compile what is likely to come after it."""
        assert self.screening is not None and self._ahead is not None
        view = self.view()
        likely, tuned = ([item for item in items if self.why_not(item) is None and item.name not in self.set_aside and item.name != name]
                         for items in (strategy.upcoming(view, AHEAD + 1), strategy.tuning(view)))
        tuning_s = self._usual_s(tuned[0].passes, view.rows)[0] if tuned else 0.0
        self._ahead.begin(likely, tuned, ask.limit_s, tuning_s, self.left_s())
        return self.screening.screen(ask)

    def _put_ahead(self, item: Candidate, others: int) -> Path:
        name = file_name(self.ledger.next_index() + 1 + others, item.name)
        return self.write(self.row(item).model_copy(update={"candidate_file": name}))

    def _judge_one(self, screened: Experiment, limit_s: float = math.inf) -> Experiment:
        """Judge a finalist; its row. limit_s: the longest that it may take, where there is something else to do. What that, the budget or
        the original ends says nothing of it: it stays a screened one."""
        row = screened.model_copy(update={"index": self.ledger.next_index(), "status": "judged", "reason": "", "started_utc": utc_now(),
                                          "tags": {name: value for name, value in screened.tags.items() if name != CAUSE}})
        self.say(f"judging {row.name}")
        row = self.judge_file(self.folder / row.candidate_file, row, min(self.left_s(), limit_s))
        if row.status == "out_of_budget" or row.tags.get(CAUSE) == ORIGINAL:
            status = "screened" if row.screen is not None else "out_of_budget"
            (self._cut_short if status == "screened" else self._unproven).add(row.name)
            row = row.model_copy(update={"status": status, "reason": f"{NOT_JUDGED}{row.reason}"})
        self.ledger.append(row)
        self.say(line_of(row))
        return row

    def _ablate_one(self, limit_s: float, share: float = 1.0) -> bool:
        """One pass of the winner dropped, in limit_s; share: of the expected seconds, what it begins with. False: nothing to do, or no
        time."""
        open_ = self._ablation()
        if open_ is None:
            return False
        return self._try_without(open_[0], open_[1][0], limit_s, share)

    def _try_without(self, winner: Experiment, name: str, limit_s: float, share: float) -> bool:
        if limit_s < max(1.0, share * self._usual_s(winner.passes, self.rows())[0]):
            return False
        lowers = ablation.lowers(winner, name)
        rest = candidate(ablation.slimmed(winner.passes, [name]), self.context, origin="ablation", parents=(winner.name,))
        row = self.row(rest).model_copy(update={
            "name": f"{winner.name} without {name}", "candidate_file": file_name(self.ledger.next_index(), f"{rest.name}__rest"),
            "tags": {ROLE: ablation.ABLATION, OF: winner.name, ablation.WITHOUT: name}, "status": "screened"})
        if set(rest.passes) == set(winner.passes):
            row = row.model_copy(update={"reason": "the other passes need it", "tags": {**row.tags, ablation.EARNED: "yes"}})
        else:
            self.say(f"screening {row.name}")
            assert self.screening is not None
            screen = self.screening.screen(Ask(
                self.folder / winner.candidate_file, winner.precision, self._limit_s(winner.passes, left_s=limit_s), limit_s, strict=True,
                compiles=carrier_of(winner.passes) is not None, measures=measures(winner.passes),
                lasts=lasts(winner.passes), shapes=self._changes(),
                against=self.write(row), against_name=rest.name))
            row = row.model_copy(update={"screen": screen, "reason": screen.reason, "elapsed_s": screen.elapsed_s,
                                         "tags": {**row.tags, ablation.EARNED: ablation.earned(screen, lowers=lowers)}})
            self._looked_s += screen.elapsed_s
            if screen.status == "out_of_budget":
                self._not_without.add((winner.name, name))
            self.say(line_of(row))
        self.ledger.append(row)
        return True

    def _weigh(self, row: Experiment, limit_s: float, judging_s: float = math.inf) -> bool:
        """Do the passes of a finalist, or of the winner, earn anything that lower precision, are all that it has, or are in doubt by the
        screens? Where one does not, what is left is screened, looked at in the same way, and judged in its place, in judging_s at most: two
        that earn nothing, each beside the other, may do so together. False: nothing to do, or no time."""
        is_lower = row.precision != "equal"
        if is_lower and row.verdict is not None and self._time_beside(lower=True):  # of two lower precisions the one to keep
            return True
        idle = self._idle(row)
        if not idle:
            open_ = self._to_weigh(row)
            return bool(open_) and self._try_without(row, open_[0], limit_s, LAST_TRY_SHARE)
        item = candidate(ablation.slimmed(row.passes, idle), self.context, origin="ablation", parents=(row.name,))
        known = self.view().row(item.name)
        if item.name in self._cut_short | self.set_aside | self._unproven or not is_open(known):
            return False
        if known is None or known.screen is None:
            if self.left_s() < compiled_estimate_s(self.rows()):
                return False
            self._screen_one(item)
            return True
        rest = known.model_copy(update={"tags": {**known.tags, ablation.LEFT_OF: row.name}})
        if ablation.whole_of(known) is None and self._to_weigh(rest):  # what the whole was tried without is not tried again
            self.ledger.append(rest.model_copy(update={"index": self.ledger.next_index()}))
        if self._weigh(rest, limit_s, judging_s):
            return True
        if self.left_s() < UNSEEN_SHARE * self._judgement_s(known):
            return False
        self._judge_one(rest, judging_s)
        return True

    def _rival(self, *, lower: bool = False) -> Experiment | None:
        found = beside.rival(self.best(), self.ledger.rows, lower=lower)
        return None if found is None or {found.name, self.best()[0].name} in self._not_beside else found

    def _time_beside(self, *, lower: bool = False) -> bool:
        """The winner and another that the judge found as fast, in turns; `lower`: one of lower precision. False: nothing to do, or no
        time."""
        rival = self._rival(lower=lower)
        if rival is None or self.left_s() < 2 * compiled_estimate_s(self.rows()):  # both were called before: the caches have their code
            return False
        winner, limit_s = self.best()[0], self._limit_s(rival.passes, left_s=self.left_s())
        row = self.row(candidate(rival.passes, self.context)).model_copy(update={
            "name": f"{rival.name} beside {winner.name}", "candidate_file": rival.candidate_file, "status": "screened",
            "tags": {ROLE: beside.BESIDE, OF: rival.name, beside.AGAINST: winner.name}})
        self.say(f"screening {row.name}")
        screen = self._screened(rival.name, Ask(
            self.folder / rival.candidate_file, rival.precision, limit_s, self._most_s(limit_s),
            compiles=any(carrier_of(one.passes) is not None for one in (rival, winner)),
            measures=measures(rival.passes) or measures(winner.passes), lasts=lasts(rival.passes) or lasts(winner.passes),
            shapes=self._changes(), against=self.folder / winner.candidate_file, against_name=winner.name))
        status = "out_of_budget" if screen.status == "out_of_budget" else "screened"
        row = row.model_copy(update={"status": status, "screen": screen, "reason": screen.reason, "elapsed_s": screen.elapsed_s})
        if status == "out_of_budget":
            self._not_beside.append({rival.name, winner.name})
        self.say(line_of(row))
        self.ledger.append(row)
        return True

    def _judge_slim(self) -> bool:
        """The winner less what earns nothing goes to the judge; it is kept in the winner's place unless that is clearly faster. Where the
        judge saw it before, its row is written again, with its tag. False: nothing to do, or no time."""
        found = self._slim()
        if found is None:
            return False
        winner, item = found
        of_it = {ablation.LEFT_OF: winner.name}
        known = next((row for row in self.best() if row.name == item.name), None)
        if known is not None:
            self.ledger.append(known.model_copy(update={"index": self.ledger.next_index(), "tags": {**known.tags, **of_it}}))
            return True
        known = self.view().row(item.name)
        if known is None or known.screen is None or known.status != "screened":
            if self.left_s() >= self._usual_s(item.passes, self.rows())[0] + self._judgement_s(None):
                self._screen_one(item)
                return True
            known = self.row(item)  # the look without what earns nothing was one at this, too
        if self.left_s() < UNSEEN_SHARE * self._judgement_s(known):
            return False
        self.write(known)
        self._judge_one(known.model_copy(update={"tags": {**known.tags, **of_it}}))
        return True
