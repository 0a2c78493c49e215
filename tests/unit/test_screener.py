"""The screen's side that starts, asks and ends processes: how long each may take, and who is kept still. Fakes in place of processes."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.judge import options as judge_options
from kernelwright.judge.channel import WorkerFailed
from kernelwright.judge.options import JudgeOptions, OutOfTime
from kernelwright.model.errors import MachineLacks
from kernelwright.model.workload import WorkloadRef
from kernelwright.optimize import screen
from kernelwright.optimize.screen import GRACE_S, LEAST_GRACE_S, TIMING_LIMIT_S, Ask, Screener, Unusable

FILE = Path("c_one.py")
REPLIES = {"load": {"device": "cuda"}, "prepare": {"build_s": 1.0, "error": None, "limit": None, "wrong": "", "spoiled": False},
           "time": {"speedup": 1.5, "interval": None, "pairs": 9, "reference_ns": 3.0, "candidate_ns": 2.0, "calls": 2,
                    "hopeless": False},
           "drop": {"spoiled": False}, "compile": {}}


class Bench:
    """A clock, the lock, and what each operation takes; `events` has what happened in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.now = 0.0
        self.takes = {"load": 5.0, "prepare": 4.0, "time": 2.0, "drop": 0.1, "lock": 0.0}
        self.replies = dict(REPLIES)
        self.events: list[str] = []
        self.ends: list[str] = []
        self.asked: list[tuple[str, float, float]] = []
        self.waits: list[float] = []
        self.workers: list[FakeWorker] = []
        self.path = tmp_path
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(screen, "time", clock)
        monkeypatch.setattr(judge_options, "time", clock)
        monkeypatch.setattr(screen, "device_lock", self.lock)
        monkeypatch.setattr(screen, "granted_cpus", lambda: 8.5)
        monkeypatch.setattr(Screener, "_spawn", lambda _screener, name, **how: FakeWorker(self, name, **how))
        monkeypatch.setattr(screen, "worthwhile", lambda _workload: self.has_room)
        self.has_room = True

    @contextlib.contextmanager
    def lock(self, _what, _say, *, timeout_s=None):
        assert self.events.count("lock") == self.events.count("unlock"), "this very process holds it"
        self.waits.append(timeout_s)
        self.now += min(self.takes["lock"], max(0.0, timeout_s))
        if self.takes["lock"] > max(0.0, timeout_s):  # a free one is taken whatever is left
            raise MachineLacks("busy", "another profile still runs", where="the device", fix="wait")
        self.events.append("lock")
        try:
            yield
        finally:
            self.events.append("unlock")

    @contextlib.contextmanager
    def session(self):
        self.events.append("judge still")
        try:
            yield
        finally:
            self.events.append("judge goes on")

    def screener(self) -> Screener:
        workload = self.path / "net.py"
        workload.write_text("")
        session = SimpleNamespace(prepare=lambda: None, quiet=self.session, others=contextlib.nullcontext)
        options = JudgeOptions(python=sys.executable, timeout_s=500.0)
        return Screener(WorkloadRef(path=workload, name="net"), options, judging=lambda: session)


class FakeWorker:
    def __init__(self, bench: Bench, name: str, *, ahead: bool = False) -> None:
        self.bench, self.name, self.ahead, self.process = bench, name, ahead, SimpleNamespace(poll=lambda: None)
        self._pending: str | None = None
        self.fields: dict[str, object] = {}
        self.closed, self.is_known = False, True
        bench.workers.append(self)

    def send(self, op: str, **fields: object) -> None:
        self._pending, self.fields = op, fields

    def receive(self, *, timeout_s, deadline=None):
        op, self._pending = self._pending, None
        until = min(timeout_s, deadline.left_s() if deadline is not None else math.inf)
        takes = self.bench.takes.get(op, 0.0)
        self.bench.asked.append((op, float(self.fields.get("limit_s", math.nan)), until))
        self.bench.events.append(op)
        self.bench.now += min(takes, max(until, 0.0))
        if takes > until:
            self.closed = True
            if deadline is not None and deadline.left_s() <= 0:
                raise OutOfTime(f"the {self.name} was at it")
            raise WorkerFailed("timeout", f"did not finish its {op}")
        if isinstance(answer := self.bench.replies[op], Exception):
            raise answer
        return answer

    def answered(self) -> bool:
        return False

    def reported(self, _within_s: float) -> bool:
        return self.is_known

    def signal(self, number: int) -> bool:
        self.bench.events.append({signal.SIGSTOP: "compiler stops", signal.SIGCONT: "compiler goes on"}[number])
        return True

    def tell_to_end(self) -> None:
        self.bench.ends.append("told")

    def close(self) -> None:
        self.closed = True
        self.bench.ends.append("ended")


@pytest.fixture
def bench(monkeypatch, tmp_path) -> Bench:
    return Bench(monkeypatch, tmp_path)


def test_one_deadline_holds_for_building_waiting_and_timing(bench):
    bench.takes |= {"prepare": 20.0, "lock": 8.0}
    with bench.screener() as screener:
        found = screener.screen(Ask(FILE, "equal", 30.0))
    assert found.status == "timed" and found.calls == 2 and found.elapsed_s == pytest.approx(5.0 + 20.0 + 8.0 + 2.0 + 0.1)
    limits = {op: limit for op, limit, _until in bench.asked}
    assert limits["prepare"] == 30.0, "loading does not count"
    assert bench.waits == [10.0], "what building left"
    assert limits["time"] == pytest.approx(2.0 + TIMING_LIMIT_S), "what building and waiting left, and the timing's own"


def test_what_building_took_beyond_its_limit_is_not_the_timings(bench):
    """GPT-2 on two cores: with the compiler's import building took longer than it may, and the timing had 2 s of its 4."""
    bench.takes["prepare"] = 32.0
    bench.replies["prepare"] = {**REPLIES["prepare"], "build_s": 31.0}
    with bench.screener() as screener:
        found = screener.screen(Ask(FILE, "equal", 30.0))
        bench.takes["time"] = 1000.0
        late = screener.screen(Ask(FILE, "equal", 30.0))
    assert found.status == "timed" and [limit for op, limit, _until in bench.asked if op == "time"] == [TIMING_LIMIT_S] * 2
    assert (late.status, late.build_s) == ("out_of_budget", 31.0)
    assert late.reason == "it did not finish its time, in its timing (built in 31 s)"


@pytest.mark.parametrize("slow", ["prepare", "lock", "time"])
def test_a_screen_takes_its_limit_and_the_timing_at_most_whatever_is_slow(bench, slow):
    bench.takes |= {"load": 0.0, "prepare": 25.0, slow: 1000.0}
    with bench.screener() as screener:
        found = screener.screen(Ask(FILE, "equal", 30.0))
    assert found.status == "out_of_budget"
    assert found.elapsed_s <= 30.0 + TIMING_LIMIT_S + GRACE_S + 0.2


def test_a_slow_build_and_a_slow_timing_take_no_more_than_their_limits_with_their_grace(bench):
    bench.takes |= {"load": 0.0, "prepare": 30.0 + GRACE_S - 0.1, "time": 1000.0}
    with bench.screener() as screener:
        found = screener.screen(Ask(FILE, "equal", 30.0, 30.0))
    assert found.status == "out_of_budget" and found.elapsed_s <= 30.0 + GRACE_S + TIMING_LIMIT_S + GRACE_S + 0.2


@pytest.mark.parametrize("slow", ["prepare", "time"])
def test_where_a_confirmation_comes_next_a_candidate_that_does_not_end_itself_has_a_second_more(bench, slow):
    """The MLP on an H200: the ablation's last candidate took five seconds of those held back, and the confirmation was cut short."""
    bench.takes |= {"load": 0.0, "prepare": 29.5, slow: 1000.0}
    with bench.screener() as screener:
        found = screener.screen(Ask(FILE, "equal", 30.0, 30.0, strict=True))
    at_most = 30.0 + LEAST_GRACE_S + (TIMING_LIMIT_S if slow == "time" else 0.0)
    assert found.status == "out_of_budget" and at_most - 0.5 <= found.elapsed_s <= at_most + 0.2


def test_the_lock_that_another_holds_is_waited_for_no_longer_than_the_limit(bench):
    bench.takes["lock"] = 1000.0
    with bench.screener() as screener:
        found = screener.screen(Ask(FILE, "equal", 30.0))
        assert (found.status, found.reason, found.build_s) == ("out_of_budget", "another profile or timing ran", 1.0)
        assert len(bench.workers) == 1 and not bench.workers[0].closed, "the process is as good as before"


def test_a_process_that_is_started_anew_may_load_as_long_as_the_budget_lasts_and_no_longer(bench):
    with bench.screener() as screener:
        assert screener.screen(Ask(FILE, "equal", 30.0, 100.0)).status == "timed"
        bench.replies["prepare"] = WorkerFailed("died", "was killed by signal 9")
        assert screener.screen(Ask(FILE, "equal", 30.0, 90.0)).status == "failed"
        bench.replies["prepare"], bench.takes["load"], start = REPLIES["prepare"], 40.0, bench.now
        found = screener.screen(Ask(FILE, "equal", 30.0, 5.0))
        assert found.status == "out_of_budget" and "not loaded in the time left" in found.reason
        assert bench.now - start == pytest.approx(5.0) == found.elapsed_s
        assert screener.screen(Ask(FILE, "equal", 30.0, 60.0)).status == "timed", "with time it loads"


def test_a_workload_that_is_slow_to_load_gets_its_chance_and_what_is_left_is_the_candidates(bench):
    bench.takes["load"] = 90.0
    with bench.screener() as screener:
        assert screener.screen(Ask(FILE, "equal", 30.0, 100.0)).status == "timed"
    assert [limit for op, limit, _until in bench.asked if op == "prepare"] == [10.0]


def test_what_the_workload_took_to_load_is_told_apart(bench):
    with bench.screener() as screener:
        first, second = (screener.screen(Ask(FILE, "equal", 30.0)) for _ in range(2))
    assert (first.load_s, second.load_s) == (5.0, 0.0) and first.own_s == pytest.approx(second.elapsed_s)


def test_what_can_not_be_loaded_leaves_no_process_that_compiles_ahead(bench):
    bench.replies["load"] = WorkerFailed("workload_failed", "no weights here")
    with bench.screener() as screener:
        screener.compile_ahead([FILE], 30.0)
        with pytest.raises(Unusable, match="no weights here"):
            screener.screen(Ask(FILE, "equal", 30.0))
        assert len(bench.workers) == 2 and all(worker.closed for worker in bench.workers), "it would run beside the judge's timing"


def test_what_was_prepared_screens_and_compiles_and_loads_nothing_before(bench):
    with bench.screener() as screener:
        screener.prepare()
        screener.prepare()
        first, second = bench.workers
        assert first.ahead and second.ahead and bench.events == [], "one that screens, one that compiles ahead, once"
        with screener.quiet():
            assert bench.events == ["compiler stops"] * 2
        bench.events.clear()
        screener.compile_ahead([FILE], 30.0)
        assert screener._ahead[0].worker is first and screener.screen(Ask(FILE, "equal", 30.0)).status == "timed"
        assert screener._worker is second and len(bench.workers) == 2
        screener.prepare()
        assert len(bench.workers) == 2, "it is at work already"
    assert first.closed and second.closed


def test_a_prepared_process_that_is_gone_or_can_not_be_stopped_is_not_used(bench):
    with bench.screener() as screener:
        screener.prepare()
        dead, unknown = bench.workers
        dead.process = SimpleNamespace(poll=lambda: -9)
        unknown.is_known = False
        with screener.quiet():
            assert unknown.closed and not dead.closed
        assert screener.screen(Ask(FILE, "equal", 30.0)).status == "timed"
        assert dead.closed and [worker.name for worker in bench.workers[2:]] == ["screen"]
    bench.has_room = False
    with bench.screener() as screener:
        screener.prepare()
        assert len(bench.workers) == 3, "no room for processes that only wait"
    bench.has_room = True
    with bench.screener() as screener:
        screener.prepare()
    assert all(worker.closed for worker in bench.workers), "what was never needed is ended"


def test_one_quiet_inside_another_lets_nothing_go_on(bench):
    with bench.screener() as screener:
        screener.compile_ahead([FILE], 30.0)
        with screener.quiet():
            with screener.quiet():
                pass
            assert bench.events == ["compiler stops"]
        assert bench.events == ["compiler stops", "compiler goes on"]


ALONE = ["lock", "compiler stops", "judge still"]
NO_LONGER = ["judge goes on", "compiler goes on", "unlock"]


def test_a_candidate_that_times_kernels_is_built_alone_and_others_beside_what_compiles(bench):
    with bench.screener() as screener:
        screener.compile_ahead([FILE], 30.0)
        assert screener.screen(Ask(FILE, "equal", 30.0)).status == "timed"
        assert bench.events == ["load", "prepare", *ALONE, "time", *NO_LONGER, "drop"]
        bench.events.clear()
        assert screener.screen(Ask(FILE, "equal", 30.0, measures=True)).status == "timed"
        assert bench.events == [*ALONE, "prepare", *NO_LONGER, *ALONE, "time", *NO_LONGER, "drop"]
        bench.events.clear()
        bench.replies["prepare"] = WorkerFailed("died", "was killed by signal 9")
        assert screener.screen(Ask(FILE, "equal", 30.0, measures=True)).status == "failed"
        assert bench.events == [*ALONE, "prepare", *NO_LONGER], "nobody stays stopped after a failure"


def test_where_others_hold_the_lock_all_the_time_nothing_is_asked_of_the_process(bench):
    with bench.screener() as screener:
        bench.takes["load"], bench.takes["lock"] = 0.0, 1000.0
        found = screener.screen(Ask(FILE, "equal", 30.0, measures=True))
        assert (found.status, found.reason, found.elapsed_s) == ("out_of_budget", "another profile or timing ran", 30.0)
        assert bench.events == ["load"] and bench.waits == [30.0] and not bench.workers[0].closed
        bench.takes |= {"lock": 6.0, "prepare": 10.0}
        assert screener.screen(Ask(FILE, "equal", 30.0, measures=True)).status == "timed"
        assert bench.waits[1:] == pytest.approx([30.0, 14.0]), "both waits count"


def test_a_stop_takes_nothing_of_the_time_that_compiling_may_take(bench):
    with bench.screener() as screener:
        screener.compile_ahead([FILE], 30.0)
        [compiler] = screener._ahead
        compiler.worker._pending = None  # it has loaded the workload
        screener.compile_ahead([FILE], 30.0)
        assert compiler.worker._pending == "compile"
        with screener.quiet():
            bench.now += 100.0
        screener.compile_ahead([], 30.0)
        assert screener._ahead == [compiler]
        bench.now += 30.0 + GRACE_S + 1.0
        screener.compile_ahead([], 30.0)
        assert screener._ahead == [] and compiler.worker.closed, "a hang is ended"


def test_a_process_that_can_not_be_stopped_is_ended(bench):
    with bench.screener() as screener:
        screener.compile_ahead([FILE], 30.0)
        [compiler] = screener._ahead
        compiler.worker.is_known = False
        with screener.quiet():
            assert compiler.worker.closed and screener._ahead == [] and bench.events == []


def test_all_processes_are_told_to_end_before_one_is_waited_for(bench):
    with bench.screener() as screener:
        screener.prepare()
        screener.screen(Ask(FILE, "equal", 30.0))
        screener.compile_ahead([FILE], 30.0)
        assert screener._worker is not None and screener._ahead and len(bench.workers) == 2
    assert bench.ends == ["told"] * 2 + ["ended"] * 2 and all(worker.closed for worker in bench.workers)


def test_what_was_compiled_ahead_is_known_and_none_is_begun_twice(bench):
    bench.takes["load"] = 0.0
    with bench.screener() as screener:
        screener.compile_ahead([FILE], 30.0)
        [compiler] = screener._ahead
        assert screener.compiling([FILE]) and not screener.compiled(FILE), "it loads the workload"
        compiler.worker.answered = lambda: answers.pop() if answers else False
        answers = [True]
        assert screener.compiling([FILE]) and compiler.worker._pending == "compile"
        assert not screener.compiled(FILE)
        answers = [True]
        assert screener.compiled(FILE) and not screener.compiling([FILE])
        screener.compile_ahead([FILE], 30.0)
        assert not compiler.busy and bench.events.count("compile") == 1
        other = Path("c_two.py")
        screener.compile_ahead([other], 30.0)
        bench.replies["compile"], answers = WorkerFailed("died", "was killed by signal 9"), [True]
        assert not screener.compiled(other) and screener._ahead == []
        screener.compile_ahead([other], 30.0)
        assert screener._ahead == [], "what fails is not compiled again and again"


def test_what_compiles_ahead_ends_with_the_search_and_the_screen_goes_on(bench):
    with bench.screener() as screener:
        screener.screen(Ask(FILE, "equal", 30.0))
        screener.compile_ahead([FILE], 30.0)
        [compiler] = screener._ahead
        screener.end_ahead()
        assert compiler.worker.closed and screener._ahead == [] and bench.ends == ["told", "ended"]
        assert screener.screen(Ask(FILE, "equal", 30.0)).status == "timed" and len(bench.workers) == 2, "in the same process"


def test_processes_that_are_let_end_are_waited_for_at_the_end_and_a_later_screen_has_another(bench):
    """AlexNet, 60 s on an H200: those of the screen ended after the judge's, and the search took 60.3 s."""
    with bench.screener() as screener:
        screener.screen(Ask(FILE, "equal", 30.0))
        screener.compile_ahead([FILE], 30.0)
        screener.let_end()
        screener.end_ahead()
        assert bench.ends == ["told"] * 2 and not screener.begun(FILE), "nothing is waited for"
        assert screener.screen(Ask(FILE, "equal", 30.0)).status == "timed" and len(bench.workers) == 3
    assert bench.ends == ["told"] * 3 + ["ended"] * 3 and all(worker.closed for worker in bench.workers)


def test_an_interrupt_while_processes_end_loses_none_of_them(bench):
    with bench.screener() as screener:
        screener.prepare()
        screener.screen(Ask(FILE, "equal", 30.0))
        spare, ended = bench.workers[1], FakeWorker.close

        def interrupted() -> None:
            spare.close = lambda: ended(spare)
            raise KeyboardInterrupt

        spare.close = interrupted
        with pytest.raises(KeyboardInterrupt):
            screener.end_ahead()
        assert not spare.closed
    assert all(worker.closed for worker in bench.workers)
