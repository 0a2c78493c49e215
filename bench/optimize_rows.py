"""One workload optimised and the torch.compile ladder beside it, as one row: what optimize_table.py and kernelbench_table.py share.

The original, the ladder and what was kept are timed in the same command, each in pairs with the original, so a drift of the machine between
them cancels. Ladder rows that the search did not look at are screened here (judged, where they can't be), and the best of the ladder is
judged, so that a judge's figure is held against a judge's figure.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import platform
import re
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import optimize_page  # noqa: E402

from kernelwright.judge import JudgeOptions, ReferenceSession, judge  # noqa: E402
from kernelwright.judge.correctness import PRECISION_ORDER  # noqa: E402
from kernelwright.judge.options import CONDITIONS  # noqa: E402
from kernelwright.model.capture import ProbeResult  # noqa: E402
from kernelwright.model.errors import BadInput, KernelwrightError  # noqa: E402
from kernelwright.model.files import write_json_atomic, write_text_atomic  # noqa: E402
from kernelwright.model.measurement import Measurement  # noqa: E402
from kernelwright.model.profile import Profile  # noqa: E402
from kernelwright.model.verdict import ConditionTiming, Experiment  # noqa: E402
from kernelwright.model.workload import Precision, WorkloadRef  # noqa: E402
from kernelwright.optimize import OptimizeOptions, Outcome, ablation, optimize  # noqa: E402
from kernelwright.optimize.claims import best_ladder_row, is_ladder_row, over  # noqa: E402
from kernelwright.optimize.confirm import OF, counted, is_audit, is_confirmation  # noqa: E402
from kernelwright.optimize.ending import Kept, gain_of  # noqa: E402
from kernelwright.optimize.generate import render_source, write_source  # noqa: E402
from kernelwright.optimize.ledger import Ledger  # noqa: E402
from kernelwright.optimize.memory import screened_speedup  # noqa: E402
from kernelwright.optimize.passes import CATALOGUE, Context  # noqa: E402
from kernelwright.optimize.plan import CASTS, LADDER, Candidate, candidate, ranked, refusal  # noqa: E402
from kernelwright.optimize.screen import Ask, Screener, Unusable  # noqa: E402
from kernelwright.optimize.stages import RealStages  # noqa: E402
from kernelwright.pipeline.profile import ProfileRun  # noqa: E402

LADDER_TIMING_S = 3.0
"""Timing of one ladder row that the search left unjudged."""
LADDER_S = 90.0
"""Kept free for the ladder until one workload has shown what it takes."""
LADDER_BUILD_S = 240.0
"""Longest build of one ladder row for its screen (H200: max_autotune of attention 110 s, of a GPT block more than 125 s). What is cut short
costs more: the next row, and the judge, compile it again."""
NO_TIME = "no time for it in this command"
LADDER_JUDGED_S = 45.0
"""Of --limit-s, kept from screens of the ladder for judging its best row (H200: 12 to 40 s where it compiles)."""
CLOSING_S = 20.0
"""The closing profile and the report."""
WARM_SHARE = 0.5
"""Of the budget, at most, for the run that has what the first one taught; it ends when it has reached the same result."""
NOTHING_TO_REACH = {"speedup": 1.0, "cold_s": None, "warm_s": None, "share": None}
"""Of a workload for which the first run kept nothing."""
MOST_ANEW = 2
"""Candidates of a higher level than was asked for that are judged, the fastest by their screens first, beside the judge's own best."""
SAME_RESULT = 0.98
"""A run has reached another's result when it has found this share of its speed-up."""
SAME_PASSES = 0.95
"""The same where the passes are those that the other kept: two judgements of one program differ."""
DROP = re.compile("undeclared precision drop: as inaccurate as (tf32|bf16),")
"""The judge's reason where a candidate is right at a lower precision alone."""
LEVEL_CASTS: dict[Precision, tuple[str, ...]] = {"equal": (), "tf32": ("tf32",), "bf16": ("bf16",)}
"""What gives a ladder row its precision."""


class Bench:
    """Rows of one document, written after each."""

    def __init__(self, args: argparse.Namespace, benchmark: str) -> None:
        self.args = args
        self.stop_at_s = time.monotonic() + args.limit_s
        self.taken_s: dict[float, float] = {}
        """Budget -> the longest that a workload took in this command."""
        self.document: dict[str, Any] = {"benchmark": benchmark, "machine": platform.node(), "device": args.device, "rows": []}
        if args.append and args.out.exists():
            self.document = json.loads(args.out.read_text())
            if self.document.get("device", args.device) != args.device:
                raise SystemExit(f"{args.out} was made with --device {self.document['device']} (fix: another --out)")

    def run(self, workloads: Sequence[WorkloadRef]) -> None:
        """Measure what is missing, then again what failed before, until the limit."""
        asked = [self.args.precisions[-1]] if self.args.shared else self.args.precisions
        wanted = [(workload, precision, budget_s) for workload in workloads for precision in asked for budget_s in self.args.budget]
        untried = [one for one in wanted if not self._known(*one)]
        failed = [one for one in wanted if any("error" in row for row in self._known(*one))]
        short = [one for one in wanted if one not in untried and one not in failed and not self._is_whole(*one)]
        for one in (*untried, *short, *failed):
            if time.monotonic() + self._expected_s(one[2]) > self.stop_at_s:
                _say("stopped before --limit-s; continue with --append")
                return
            start = time.monotonic()
            self._put(self._measured(*one), *one)
            self.taken_s[one[2]] = max(self.taken_s.get(one[2], 0.0), time.monotonic() - start)

    def _put(self, found: list[dict[str, Any]], workload: WorkloadRef, asked: Precision, budget_s: float) -> None:
        """These rows in the place of what was known of the same run, on the disk too. An error takes no row's place, and a row without its
        ladder gives no more than its warm run to one that has it."""
        earlier = self._known(workload, asked, budget_s)
        good = {row["precision"]: row for row in earlier if "error" not in row}
        kept = []
        for row in found:
            known = good.get(row["precision"])
            if known is not None and "error" in row:
                kept.append(known)
            elif known is not None and known["over"] is not None and row["over"] is None:
                kept.append(known | ({"warm": row["warm"]} if row.get("warm") else {}))
            else:
                kept.append(row)
        self.document["rows"] = [row for row in self.document["rows"] if row not in earlier] + kept
        self.write()

    def _known(self, workload: WorkloadRef, asked: Precision, budget_s: float) -> list[dict[str, Any]]:
        wanted = (workload.name, asked, budget_s)
        return [row for row in self.document["rows"] if (row["workload"], row["asked"], row["budget_s"]) == wanted]

    def _is_whole(self, workload: WorkloadRef, asked: Precision, budget_s: float) -> bool:
        """Whether the file has every precision of it, and the ladder and the warm run where they are asked for."""
        known = self._known(workload, asked, budget_s)
        levels = set(self.args.precisions) if self.args.shared else {asked}
        return (levels <= {row["precision"] for row in known} and (not self.args.warm or any(row.get("warm") for row in known))
                and (not self.args.ladder or all(row["over"] is not None for row in known)))

    def _expected_s(self, budget_s: float) -> float:
        """What a workload takes: as long as the longest so far, before the first no less than this."""
        runs = [budget_s, *([WARM_SHARE * budget_s] if self.args.warm else [])]
        return self.taken_s.get(budget_s, sum(one + CLOSING_S for one in runs) + LADDER_S * self.args.ladder)

    def write(self) -> None:
        """The document so far, and its table beside it."""
        write_json_atomic(self.args.out, self.document)
        write_text_atomic(self.args.out.with_suffix(".md"), optimize_page.table(self.document["rows"]))

    def _measured(self, workload: WorkloadRef, precision: Precision, budget_s: float) -> list[dict[str, Any]]:
        folder = self.args.out.parent / "optimize" / workload.name / f"{precision}-{budget_s:g}s"
        shutil.rmtree(folder, ignore_errors=True)
        levels = self.args.precisions if self.args.shared else [precision]
        found: list[dict[str, Any]] = []
        try:
            with _own_caches(folder.parent) if self.args.warm else contextlib.nullcontext():
                outcome, wall_s = self._optimised(workload, precision, budget_s, folder)
                looked_at: dict[str, Experiment] = {}
                run = {"budget_s": budget_s, "wall_s": round(wall_s, 1), **_looked(outcome.out_dir, wall_s)}
                if self.args.ladder and levels == [precision]:  # a command that ends amid the ladder has the run all the same
                    found = [self._row(workload, precision, precision, outcome, {}, ladder=False) | run]
                    self._put(found, workload, precision, budget_s)
                found = [self._row(workload, precision, level, outcome, looked_at) | run for level in levels]
                if self.args.warm:
                    found[-1]["warm"] = self._warm(workload, precision, budget_s, folder, outcome) if outcome.kept else NOTHING_TO_REACH
                return found
        except KernelwrightError as error:
            _say(f"{workload.name} {precision}: {error.line()}")
            return found or [{"workload": workload.name, "asked": precision, "precision": level, "budget_s": budget_s,
                              "error": error.line()} for level in levels]

    def _optimised(self, workload: WorkloadRef, precision: Precision, budget_s: float, folder: Path, *, target: Outcome | None = None,
                   ) -> tuple[Outcome, float]:
        """(the run, its wall seconds from the first to the last: baseline, search, confirmation, closing profile, report). target: a
        run whose result is all that is asked for: this one ends with it, without a closing profile."""
        _say(f"== {workload.name} at {precision}, {budget_s:g} s")

        waiting = [target] if target is not None else []

        def say(line: str) -> None:
            _say(line)
            if waiting and (folder / "state.json").exists() and reached_s(folder, waiting[0].speedup, waiting[0].kept) is not None:
                waiting.clear()  # once: the run says more while it writes its documents
                raise KeyboardInterrupt

        options = OptimizeOptions(budget_s=budget_s, precision=precision, device=self.args.device, python=self.args.python)
        start = time.monotonic()
        outcome = optimize(workload, options, folder, stages=None if target is None else _Unprofiled(options, _say), say=say)
        return outcome, time.monotonic() - start

    def _row(self, workload: WorkloadRef, asked: Precision, level: Precision, outcome: Outcome,
             looked_at: dict[str, Experiment], *, ladder: bool | None = None) -> dict[str, Any]:
        """looked_at: ladder rows that were screened or judged here for a higher level; this level's join them. ladder: whether the others
        are measured; as asked for."""
        ladder = self.args.ladder if ladder is None else ladder
        report = json.loads((outcome.out_dir / "report.json").read_text())
        ledger = Ledger(outcome.out_dir / "ledger.jsonl").rows
        rows = {row.name: row for row in ledger if not row.tags.get("role")} | looked_at
        casts = tuple(one for one in outcome.kept if one in CASTS) if level == asked else ()
        rung_rows, missing, lower = self._ladder(workload, level, outcome.out_dir, rows, looked_at, of_kept=casts, ladder=ladder)
        kept, name = self._kept(workload, asked, level, outcome, ledger)
        rung = best_ladder_row(rung_rows, level)
        found, interval = kept.least if kept is not None else (None, None)
        verdict, speedup = (kept.apart[0] if kept.apart else kept.verdict) if kept is not None else None, found or 1.0
        beyond, beyond_interval = over(speedup, interval, rung)
        beside = None
        if name == rung.row:  # two judgements of one program differ by noise alone
            beyond, beyond_interval = 1.0, None
        elif ladder and kept is not None:
            beside = self._beside(workload, level, outcome, kept, next((row for row in rung_rows if row.name == rung.row), None))
            beyond, beyond_interval = beside or (beyond, beyond_interval)
        timings, anew = self._timings(workload, level, outcome, kept, anew=ladder and level == asked)
        timing = verdict.comparison if verdict is not None else None
        seen = [row.verdict.comparison.reference.median_ns / 1e3 for row in rung_rows if row.verdict and row.verdict.comparison]
        reached = report["reached"] or {}
        before, after = statistics.median(seen) if seen else None, None
        if timing is not None:
            before, after = timing.reference.median_ns / 1e3, timing.candidate.median_ns / 1e3
        if not ladder:
            beyond, beyond_interval = None, None
        return {
            "workload": workload.name, "asked": asked, "precision": level, "kept": name, "idle": idle_passes(ledger, kept),
            "confirmed": None if verdict is None else outcome.confirmed if level == asked else True,  # else judged anew for this row
            "apart": [[one.speedup, *one.interval] for one in kept.apart if one.interval] if kept is not None and kept.apart else None,
            "before_us": before, "after_us": after, "speedup": speedup, "interval": interval,
            "timings": [one.model_dump(mode="json") for one in timings], "conditions_anew": anew,
            "rung": rung.name + (f" (errs as {lower[rung.name]})" if rung.name in lower else "")
            + (f" ({rung.undecided} undecided)" if rung.undecided else ""),
            "rung_speedup": rung.speedup, "rung_interval": rung.interval, "over": beyond, "over_interval": beyond_interval,
            "over_beside": beside is not None,
            "ladder": {row.name: gain_of(row) for row in rung_rows if is_ladder_row(row)}, "ladder_missing": missing,
            "ladder_lower": lower, "bound": reached.get("before"),
            "bound_after": reached.get("after") if level == asked else None,
            "bound_ceiling": reached.get("ceiling_after") if level == asked else None, "most": reached.get("most"),
            "used_s": round(report["used_s"], 2), "pace": report["pace"], "bought": report["bought"],
            "device_name": report["state"]["device_name"], "torch": report["state"]["torch_version"],
            "day": report["state"]["started_utc"][:10],
        }

    def _kept(self, workload: WorkloadRef, asked: Precision, level: Precision, outcome: Outcome, ledger: list[Experiment],
              ) -> tuple[Kept | None, str]:
        """(what counts at this level, the candidate's name): the run's own; for a higher level than was asked for, what was fastest of
        that level by the screen, or by the judge, is judged anew, by fresh processes."""
        own = [row for row in ledger if is_confirmation(row)]
        rows = [row for row in {row.name: row for row in ledger}.values() if not row.tags.get("role")]
        if level == asked:
            name = "+".join(one for one in outcome.kept if one != "no_grad") or ("no_grad" if outcome.kept else "nothing")
            first = next((row for row in rows if outcome.kept and row.passes == outcome.kept and row.verdict is not None), None)
            assert first is not None or not outcome.kept, name
            audit = next((row for row in reversed(ledger) if is_audit(row) and row.kept and first is not None
                          and row.tags[OF] == first.name), None)
            return Kept(first, next((row for row in reversed(own) if row.kept), None), audit) if first is not None else None, name
        allowed = PRECISION_ORDER[: PRECISION_ORDER.index(level) + 1]
        open_ = [one for one in counted(rows, own) if one.precision in allowed]
        seen = {one.name: speedup for one in open_ if (speedup := screened_speedup(one)) is not None and speedup > 1.0}
        by_screen = sorted((one for one in open_ if one.name in seen), key=lambda one: -seen[one.name])[:MOST_ANEW]
        judged = []
        for row in {one.name: one for one in (*ranked(open_)[:1], *by_screen)}.values():
            if judged and time.monotonic() + LADDER_JUDGED_S > self.stop_at_s:
                break
            with ReferenceSession(workload, self._judging(level, 6.0), say=_say) as session:
                said = judge(workload, outcome.out_dir / row.candidate_file, self._judging(level, 6.0), session=session)
            judged.append(row.model_copy(update={"verdict": said, "status": "judged"}))
        best = next(iter(ranked(judged)), None)
        return (Kept(best, None), best.name) if best is not None else (None, "nothing")

    def _timings(self, workload: WorkloadRef, level: Precision, outcome: Outcome, kept: Kept | None, *, anew: bool,
                 ) -> tuple[Sequence[ConditionTiming], bool]:
        """(times of what was kept under each condition, by its last judgement; whether they are of one made here instead, since the search
        had no time for the conditions). anew: whether one may be made."""
        known = kept.verdict.timings if kept is not None else ()
        if kept is None or not anew or _has_conditions(known) or time.monotonic() + LADDER_JUDGED_S > self.stop_at_s:
            return known, False
        options = self._judging(level, LADDER_TIMING_S).model_copy(update={"conditions": CONDITIONS})
        with contextlib.suppress(KernelwrightError), ReferenceSession(workload, options, say=_say, start=False) as session:
            said = judge(workload, outcome.out_dir / kept.row.candidate_file, options, session=session)
            if said.verdict == "FASTER" and _has_conditions(said.timings):
                return said.timings, True
        return known, False

    def _beside(self, workload: WorkloadRef, level: Precision, outcome: Outcome, kept: Kept, rung: Experiment | None,
                ) -> tuple[float, tuple[float, float] | None] | None:
        """(speed-up of what was kept over that row of the ladder, its interval), both timed in turns in one process: a ratio of two ratios
        over the original has the original's drift in it (H100: a call took 5.3 ms, and 7.0 ms half a minute later, when the host was busy).
        None where that is not to be had."""
        left_s = self.stop_at_s - time.monotonic()
        if rung is None or left_s < 0.5 * LADDER_JUDGED_S:
            return None
        ask = Ask(outcome.out_dir / kept.row.candidate_file, kept.row.precision, min(LADDER_BUILD_S, left_s), left_s, compiles=True,
                  against=outcome.out_dir / rung.candidate_file, against_name=rung.name)
        with Screener(workload, self._judging(level, LADDER_TIMING_S), _say) as screener, contextlib.suppress(Unusable):
            seen = screener.screen(ask)
            _say(f"{kept.row.name} beside {rung.name}: {seen.speedup} {seen.reason}")
            return (seen.speedup, seen.interval) if seen.status == "timed" and seen.speedup is not None else None
        return None

    def _ladder(self, workload: WorkloadRef, level: Precision, folder: Path, known: dict[str, Experiment],
                looked_at: dict[str, Experiment], *, of_kept: tuple[str, ...] = (), ladder: bool = True,
                ) -> tuple[list[Experiment], list[str], dict[str, Precision]]:
        """(all rows; why some of the level's ladder could not be judged; those that err as a lower precision does, and as which). Those
        that the run neither judged nor screened are screened here: with the level's own cast, with the casts of what was kept (of_kept),
        and, where the best row has another or none, with that. Judged is the best by what is known, until that one is a judged one, and
        what could not be screened, while --limit-s has room for it. A row that errs more than its flag says is what torch gives for that
        flag all the same, and is timed as one of the lower precision."""
        baseline = folder / "baseline"
        result = ProbeResult.model_validate_json((baseline / "raw" / "result.json").read_bytes())
        assert result.facts is not None and result.environment is not None
        context = Context(facts=result.facts, environment=result.environment, profile=Profile.load(baseline))
        missing: list[str] = []
        lower: dict[str, Precision] = {}
        tried: list[tuple[str, ...]] = []
        casts, is_usable = LEVEL_CASTS[level], True
        while casts not in tried:
            queue: list[Candidate] = []
            while casts not in tried:
                tried.append(casts)
                unseen = [item for item in _ladder_with(casts, context) if not _is_seen(known.get(item.name))]
                if not ladder:
                    return list(known.values()), [f"{item.name}: not measured" for item in unseen], lower
                seen, late, is_usable = self._screened(workload, level, folder, context, unseen)
                missing += [f"{name}: {NO_TIME}" for name in late]
                queue += [item for item in unseen if item.name not in {*late, *seen}]
                known |= seen
                looked_at |= seen
                if is_usable:  # else all is left to the judge
                    casts = of_kept if of_kept and of_kept not in tried else _casts_of_best(known, level)
            self._judge_ladder(workload, level, folder, context, queue, known, looked_at, missing, lower)
            casts = _casts_of_best(known, level)  # the judge may have turned the order of the screens round
        return list(known.values()), missing, lower

    def _judge_ladder(self, workload: WorkloadRef, level: Precision, folder: Path, context: Context, queue: list[Candidate],
                      known: dict[str, Experiment], looked_at: dict[str, Experiment], missing: list[str], lower: dict[str, Precision],
                      ) -> None:
        """See _ladder: the queue and the best by what is known; adds to the last four."""
        needed_s = 0.0  # the first is what the reserve is for
        with ReferenceSession(workload, self._judging(level, LADDER_TIMING_S), say=_say, start=False) as session:
            while waiting := self._only_screened(known, level, context, missing) or queue:
                item = waiting[0]
                queue = [one for one in queue if one is not item]
                if time.monotonic() + needed_s > self.stop_at_s:
                    missing.append(f"{item.name}: {NO_TIME}")
                    continue
                needed_s = LADDER_JUDGED_S
                try:
                    file, source = _ladder_file(workload, folder, context, item)
                    said = judge(workload, file, self._judging(level, LADDER_TIMING_S), session=session)
                    if (found := DROP.match(said.reasons[0]) if said.verdict == "WRONG" and said.reasons else None) is not None:
                        if time.monotonic() + needed_s > self.stop_at_s:
                            missing.append(f"{item.name}: errs as {found[1]}; {NO_TIME}")
                            continue
                        lower[item.name] = found[1]
                        write_source(file, f"{source}\n\nPRECISION = {found[1]!r}\n")
                        said = judge(workload, file, self._judging(found[1], LADDER_TIMING_S), session=session)
                except KernelwrightError as error:
                    missing.append(f"{item.name}: {error.line()}")
                    continue
                if said.speedup is None:
                    missing.append(f"{item.name}: {said.verdict} {said.reasons[0] if said.reasons else ''}")
                known[item.name] = looked_at[item.name] = _of_ladder(item, file, status="judged", verdict=said)
                _say(f"ladder {item.name}: {gain_of(known[item.name])}")

    def _screened(self, workload: WorkloadRef, level: Precision, folder: Path, context: Context, items: Sequence[Candidate],
                  ) -> tuple[dict[str, Experiment], list[str], bool]:
        """(rows of those that the screen could time, names of those that --limit-s left no time for, whether this workload can be
        screened); what it could not time otherwise is left to the judge."""
        found: dict[str, Experiment] = {}
        late: list[str] = []
        with Screener(workload, self._judging(level, LADDER_TIMING_S), _say) as screener, contextlib.suppress(Unusable):
            for item in items:
                left_s = self.stop_at_s - time.monotonic() - LADDER_JUDGED_S
                if left_s <= 0:
                    late.append(item.name)
                    continue
                file, _ = _ladder_file(workload, folder, context, item)
                seen = screener.screen(Ask(file, item.precision, min(LADDER_BUILD_S, left_s), left_s, compiles=True,
                                           shapes=bool(context.facts.changing_inputs)))
                row = _of_ladder(item, file, status="screened", screen=seen)
                _say(f"ladder {item.name}, screened: {gain_of(row)} {seen.reason}")
                if seen.speedup is not None:
                    found[item.name] = row
                elif seen.status == "out_of_budget" and left_s < LADDER_BUILD_S:
                    late.append(item.name)
            return found, late, True
        return found, late, False

    def _only_screened(self, known: dict[str, Experiment], level: Precision, context: Context, missing: list[str]) -> list[Candidate]:
        """The best row of the ladder where only its screen was seen: the judge's figure of what was kept is held against a judge's figure.
        Nothing where it could not be judged."""
        best = known.get(best_ladder_row(list(known.values()), level).row)
        if best is None or best.verdict is not None or any(line.startswith(f"{best.name}:") for line in missing):
            return []
        return [item for item in (candidate(best.passes, context),) if refusal(item, context) is None]

    def _judging(self, level: Precision, timing_s: float) -> JudgeOptions:
        return JudgeOptions(precision=level, device=self.args.device, python=self.args.python, max_timing_s=timing_s, compile_cache="user",
                            conditions=(), cross_check=False, confirm=False)

    def _warm(self, workload: WorkloadRef, precision: Precision, budget_s: float, folder: Path, cold: Outcome) -> dict[str, Any]:
        """The same again in half the time, with what the first run left: lessons, and the compilers' caches."""
        again, _ = self._optimised(workload, precision, WARM_SHARE * budget_s, folder.with_name(folder.name + "-warm"), target=cold)
        first, second = (reached_s(out.out_dir, cold.speedup, cold.kept) for out in (cold, again))  # None: never, however fast it was
        both = first and second
        whole = [_baseline_s(out.out_dir) + (took_s or 0.0) for out, took_s in ((cold, first), (again, second))]
        return {"speedup": again.speedup, "cold_s": first, "warm_s": second, "share": second / first if both else None,
                "whole_share": whole[1] / whole[0] if both else None}


class _Unprofiled(RealStages):
    """Without the closing profile: nothing of it is in the table."""

    def profile(
        self, workload: WorkloadRef, folder: Path, baseline: Profile | None, timeout_s: float, timing: Measurement | None = None
    ) -> ProfileRun:
        """See Stages."""
        if baseline is not None:
            raise BadInput("left_out", "this benchmark needs no profile of it", where=str(folder), fix="none needed")
        return super().profile(workload, folder, baseline, timeout_s, timing)


def _has_conditions(timings: Sequence[ConditionTiming]) -> bool:
    return any(one.condition == "end to end" for one in timings)


def idle_passes(ledger: Sequence[Experiment], kept: Kept | None) -> list[str]:
    """Passes of what was kept that earned less than half a percent when they were dropped."""
    return sorted(set(ablation.superfluous(ablation.tried(ledger, kept.row))) & set(kept.row.passes)) if kept is not None else []


def _is_seen(row: Experiment | None) -> bool:
    """Whether there is a figure of it that counts: the judge's, else the screen's. One that the search's judge refused (it errs as a lower
    precision does, say) has none yet: it is what torch gives for its flags all the same."""
    said = None if row is None else row.verdict or row.screen
    return said is not None and said.speedup is not None


def _ladder_with(casts: tuple[str, ...], context: Context) -> list[Candidate]:
    """The rows of the ladder that apply, with these casts."""
    return [item for name in LADDER if refusal(item := candidate([name, *casts], context), context) is None]


def _casts_of_best(known: dict[str, Experiment], level: Precision) -> tuple[str, ...]:
    """What lowers the precision of the best row of the ladder."""
    best = known.get(best_ladder_row(list(known.values()), level).row)
    return () if best is None else tuple(name for name in best.passes if CATALOGUE[name].precision != "equal")


def _of_ladder(item: Candidate, file: Path, **found: Any) -> Experiment:
    return Experiment(index=1, name=item.name, passes=item.passes, precision=item.precision, candidate_file=str(file), **found)


def _ladder_file(workload: WorkloadRef, folder: Path, context: Context, item: Candidate) -> tuple[Path, str]:
    """(the candidate's file, its text)."""
    source = render_source(workload, context.facts, [CATALOGUE[name] for name in item.passes], device=context.environment.device)
    return write_source(folder / "candidates" / f"ladder_{item.name}.py", source), source


def reached_s(folder: Path, speedup: float, kept: Sequence[str]) -> float | None:
    """Seconds from the baseline's profile until a candidate was judged to be as fast as another run's result (its speed-up, its passes): a
    screen is no result. None: never."""
    started = datetime.fromisoformat(json.loads((folder / "state.json").read_text())["started_utc"])
    times = [(datetime.fromisoformat(row.started_utc) - started).total_seconds() + row.elapsed_s
             for row in Ledger(folder / "ledger.jsonl").rows
             if not row.tags.get("role") and row.verdict is not None and row.verdict.verdict == "FASTER" and row.verdict.speedup is not None
             and row.verdict.speedup >= speedup * (SAME_PASSES if set(row.passes) == set(kept) else SAME_RESULT)]
    return min(times, default=None)


def _baseline_s(folder: Path) -> float:
    """Seconds from the run's start to the end of its baseline's profile, from where reached_s counts."""
    return float(json.loads((folder / "state.json").read_text()).get("baseline_s", 0.0))


def _looked(folder: Path, wall_s: float) -> dict[str, Any]:
    """Candidates that were screened or judged in a run, and how many a minute of its wall time."""
    names = {row.name for row in Ledger(folder / "ledger.jsonl").rows
             if not row.tags.get("role") and (row.verdict is not None or row.screen is not None)}
    return {"candidates": len(names), "per_minute": 60 * len(names) / wall_s}


def add_options(parser: argparse.ArgumentParser, out: str) -> None:
    """What both tables take."""
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=["equal"],
                        help="comma-separated, from equal, tf32, bf16; a run each (default: equal)")
    parser.add_argument("--shared", action="store_true", help="one run at the lowest of --precisions; the others' best are judged anew")
    parser.add_argument("--budget", type=_budgets_s, default=[120.0], metavar="S[,S...]",
                        help="of one run, seconds; several: a run each (default: 120)")
    parser.add_argument("--no-ladder", dest="ladder", action="store_false", help="don't judge the ladder rows that a search left unjudged")
    parser.add_argument("--warm", action="store_true", help="each run again in half the budget, with what it left: lessons, caches")
    parser.add_argument("--append", action="store_true", help="continue the file of --out")
    parser.add_argument("--limit-s", type=float, default=math.inf, help="start no run that would not be done after this many seconds")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--python", help="interpreter with torch (default: found)")
    parser.add_argument("--out", type=Path, default=Path(out))


def _budgets_s(text: str) -> list[float]:
    found = sorted({float(one) for one in text.split(",")})
    if not all(0 < one < math.inf for one in found):
        raise ValueError(text)
    return found


def checked(args: argparse.Namespace, parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Precisions in order; usage errors end the command."""
    unknown = [name for name in args.precisions if name not in PRECISION_ORDER]
    if unknown:
        parser.error(f"no precision {unknown[0]!r}; there are equal, tf32, bf16")
    args.precisions.sort(key=PRECISION_ORDER.index)
    return args


@contextlib.contextmanager
def _own_caches(folder: Path) -> Iterator[None]:
    """Lessons and compiled code of one workload alone, empty at first."""
    places = {"KERNELWRIGHT_CACHE": folder / "cache", "TORCHINDUCTOR_CACHE_DIR": folder / "inductor"}
    for place in places.values():
        shutil.rmtree(place, ignore_errors=True)
    with mock.patch.dict(os.environ, {name: str(place.resolve()) for name, place in places.items()}):
        yield


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)

