"""A candidate's process that is started before its candidate is known: confined as any other, quiet when asked, and never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.judge import JudgeOptions, ReferenceSession, judge, spare
from kernelwright.judge.confine import supported
from kernelwright.judge.options import Deadline
from kernelwright.judge.rounds import Rounds
from kernelwright.judge.run import _Judgement
from kernelwright.judge.spare import Spare
from kernelwright.model.errors import BadInput
from kernelwright.model.workload import VersionSource, WorkloadRef
from kernelwright.optimize import screen
from kernelwright.optimize import stages as stage_module
from kernelwright.optimize.confirm import Effort
from kernelwright.optimize.screen import Ask, Screener
from kernelwright.optimize.stages import OptimizeOptions, RealStages
from kernelwright.probe import judge_ahead
from processes import alive, gone, soon, status
from warm_start import warm_start

DATA = Path(__file__).resolve().parents[1] / "data" / "judge"
WORKLOAD = WorkloadRef(path=DATA / "wide.py", name="wide", params={"rows": "64"})
CANDIDATE = DATA / "wide" / "same.py"
OPTIONS = JudgeOptions(device="cpu", python=sys.executable, timing=False, distributions=False, steadiness=False, degenerate=False,
                       compile_cache="user", timeout_s=60, memory_limit_bytes=2 << 30)

pytestmark = pytest.mark.skipif(not supported(), reason="candidates are confined on Linux only")


@pytest.fixture(autouse=True)
def room(monkeypatch, tmp_path):
    """A machine that has room for a spare process, and compile caches that are nobody's."""
    monkeypatch.setattr(spare, "LEAST_CORES", 1)
    monkeypatch.setattr(spare, "LEAST_MEMORY_BYTES", 0)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))


@pytest.fixture
def session():
    with warm_start(), ReferenceSession(WORKLOAD, OPTIONS, start=False) as session:
        yield session


def both(one):
    """A spare's supervisor and its worker, once that has reported."""
    assert soon(lambda: (one.worker.hear(), one.confinement.report is not None)[1])
    return one.worker.process.pid, one.worker.pid


@pytest.mark.parametrize(("cores", "gibibytes", "has_room"), [(4, 8, True), (2, 8, False), (16, 1, False)])
def test_small_machines_start_nothing_ahead(monkeypatch, cores, gibibytes, has_room):
    monkeypatch.undo()
    monkeypatch.setattr(spare, "granted_cpus", lambda: cores)
    monkeypatch.setattr(spare, "available_bytes", lambda: gibibytes * 2**30)
    assert spare.worthwhile(WORKLOAD) is has_room


def test_nothing_is_imported_ahead_of_a_workload_that_sets_variables(tmp_path):
    for name, text in (("plain.py", "import torch"), ("sets.py", "import os\nos.environ['TORCHINDUCTOR_MAX_AUTOTUNE'] = '1'")):
        (tmp_path / name).write_text(text)
    plain, sets = (WorkloadRef(path=tmp_path / name, name=name) for name in ("plain.py", "sets.py"))
    assert spare.worthwhile(plain) and not spare.worthwhile(sets)
    assert not spare.worthwhile(plain.model_copy(update={"source": VersionSource(path=sets.path, function="f")}))


def test_a_spare_process_is_the_next_candidates_and_as_confined_as_a_new_one(session):
    new = judge(WORKLOAD, CANDIDATE, session=session)
    session.prepare()
    waiting = session._spare
    session.prepare()
    assert session._spare is waiting  # one at a time
    verdict = judge(WORKLOAD, CANDIDATE, session=session)
    assert waiting.worker.log == session.shared / "candidate.log"  # it was this one
    assert verdict.correctness.passed and verdict.verdict == new.verdict
    assert verdict.separation == new.separation and "no writing outside" in {item.name for item in verdict.separation.held}
    supervisor, worker = waiting.worker.process.pid, waiting.confinement.report.pid
    assert gone((supervisor, worker)) and not waiting.folder.exists()
    assert session._spare not in (None, waiting)  # the next one's, started meanwhile


def test_the_judge_of_an_optimisation_takes_what_was_prepared_for_it_and_leaves_nothing():
    stages = RealStages(OptimizeOptions(device="cpu", python=sys.executable, timeout_s=60), lambda _line: None)
    with warm_start(), stages.preparing(WORKLOAD, judge=True):
        stages._prepare()
        prepared = stages.prepared[0]
        waiting, reference = prepared._spare, prepared.worker
        assert waiting is not None and reference.process.poll() is None and not prepared._told, "nothing is loaded"
        with stages.judging(WORKLOAD) as judging:
            verdict = judging(CANDIDATE, "equal", 60.0, Effort(timing_s=0.5))
            assert verdict.correctness.passed and waiting.worker.log == prepared.shared / "candidate.log", "it was this one"
        assert gone((waiting.worker.process.pid, reference.process.pid)) and stages.prepared == []
        with stages.judging(WORKLOAD):
            assert stages.open_sessions != [prepared], "the confirmation has processes of its own"
    with warm_start(), stages.preparing(WORKLOAD, judge=True):
        assert stages.prepared[0].worker is None and stages.screeners[0]._spares == [], "another run may hold the machine's lock"
        stages._prepare()
        unused = stages.prepared[0]._spare
        screeners = [spare.process.pid for spare in stages.screeners[0]._spares]
        assert screeners and all(map(alive, screeners))
    assert gone((unused.worker.process.pid, *screeners)) and not unused.folder.exists() and stages.prepared == stages.screeners == []


def test_the_confirmations_processes_start_beside_the_first_judgement_and_are_still_while_others_time(monkeypatch):
    monkeypatch.setattr(stage_module, "judge", lambda *_, **__: judged.append(list(stages.prepared)))
    stages, judged = RealStages(OptimizeOptions(device="cpu", python=sys.executable, timeout_s=60), lambda _line: None), []
    with warm_start(), stages.preparing(WORKLOAD, judge=False):
        with stages.screening(WORKLOAD), stages.judging(WORKLOAD) as judging:
            assert stages.prepared == []
            for _ in range(2):
                judging(CANDIDATE, "equal", 60.0, Effort())
            [prepared] = stages.prepared
            assert judged == [[prepared]] * 2, "once"
            (supervisor, worker), reference = both(prepared._spare), prepared.worker.pid
            with stages.open_sessions[0].others():
                assert soon(lambda: status(worker)[0] == status(reference)[0] == "T")
            assert soon(lambda: "T" not in (status(worker)[0], status(reference)[0]))
        with stages.screening(WORKLOAD), stages.judging(WORKLOAD, confirms=True) as judging:
            assert stages.open_sessions == [prepared]
            judging(CANDIDATE, "equal", 60.0, Effort())
            assert stages.prepared == [], "nothing follows a confirmation as a rule"
        assert gone((supervisor, worker, reference))
        with stages.screening(WORKLOAD), stages.judging(WORKLOAD) as judging, monkeypatch.context() as full:
            full.setattr(stage_module.ReferenceSession, "__enter__", lambda _session: (_ for _ in ()).throw(OSError(28, "No space left")))
            judging(CANDIDATE, "equal", 60.0, Effort())
        assert len(judged) == 4 and stages.prepared == [], "what cannot be prepared costs no judgement"
    assert stages.lifetimes == []
    with stages.screening(WORKLOAD), stages.judging(WORKLOAD) as judging:
        judging(CANDIDATE, "equal", 60.0, Effort())
    assert stages.prepared == [], "on a CPU it would take the cores of what is measured"


@pytest.mark.parametrize(("measures", "order"), [(False, ["compared", "still", "goes on"]), (True, ["still", "compared", "goes on"])])
def test_what_compiles_ahead_goes_on_beside_a_judgement_and_is_still_while_that_times(monkeypatch, measures, order):
    happened = []

    @contextlib.contextmanager
    def quiet():
        happened.append("still")
        yield
        happened.append("goes on")

    compare = Rounds.run
    monkeypatch.setattr(Rounds, "run", lambda rounds: (compare(rounds), happened.append("compared"))[0])
    stages = RealStages(OptimizeOptions(device="cpu", python=sys.executable, timeout_s=60), lambda _line: None)
    stages.open_screeners.append(SimpleNamespace(quiet=quiet))
    with warm_start(), stages.judging(WORKLOAD) as judging:
        verdict = judging(CANDIDATE, "equal", 60.0, Effort(timing_s=0.2, measures=measures))
    assert verdict.correctness.passed and happened[:3] == order
    assert happened[3:] == ["still", "goes on"] * (len(happened[3:]) // 2) and verdict.comparison is not None


def test_what_was_prepared_is_stopped_while_the_baseline_is_measured_and_screens_then(monkeypatch, tmp_path):
    seen, started, stages = [], [], RealStages(OptimizeOptions(device="cpu", python=sys.executable, timeout_s=60), lambda _line: None)

    def all_are(stopped):
        return soon(lambda: all((status(pid)[0] == "T") is stopped for pid in started))

    def profile(_workload, _mode, _folder, options, *, say):
        options.when_begun()
        session, spares = stages.prepared[0], stages.screeners[0]._spares
        assert soon(lambda: all(spare.reported(1.0) for spare in spares))
        started.extend([both(session._spare)[1], session.worker.pid, *(spare.pid for spare in spares)])
        for is_measuring in (True, False):
            options.when_measuring(is_measuring)
            seen.append(all_are(is_measuring))
        options.when_measuring(True)
        raise BadInput("enough", "that is all", where="here", fix="none")

    monkeypatch.setattr(stage_module, "profile", profile)
    with warm_start(), stages.preparing(WORKLOAD, judge=True):
        with pytest.raises(BadInput, match="that is all"):
            stages.profile(WORKLOAD, tmp_path, None, 60.0)
        assert seen == [True, True] and len(started) > 2 and all_are(False)
        first = stages.screeners[0]._spares[0]
        with stages.screening(WORKLOAD) as screener:
            found = screener.screen(Ask(CANDIDATE, "equal", 60.0, left_s=60.0))
            assert found.status in ("timed", "hopeless") and screener._worker is first, found


def test_a_prepared_process_imports_what_compilers_need_and_the_cache_of_graphs_is_on(monkeypatch):
    asked = []
    fake = SimpleNamespace(close=lambda: None, tell_to_end=lambda: None)
    monkeypatch.setattr(screen, "Worker", lambda *_, **how: (asked.append(how), fake)[1])
    with Screener(WORKLOAD, OPTIONS) as screener:
        screener.prepare()
    assert asked and all(how["ahead"] and how["variables"]["TORCHINDUCTOR_FX_GRAPH_CACHE"] == "1" for how in asked)


@pytest.fixture
def stack():
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.mark.parametrize(("detail", "sealed"), [("ABI 7", True), ("ABI 6", True), ("ABI 5", False), ("not here", False)])
def test_a_spare_process_counts_only_where_the_candidate_before_could_not_signal_it(detail, sealed):
    report = SimpleNamespace(checks=[SimpleNamespace(name="Landlock", held=True, detail=detail)])
    one = Spare(SimpleNamespace(reported=lambda _within_s: True), SimpleNamespace(report=report), Path())
    assert one._sealed() is sealed


def test_a_spare_process_that_was_made_for_something_else_is_not_used(session, stack):
    session.prepare()
    unlimited = session._spare
    assert session.take_spare(stack, CANDIDATE, "0" * 64, OPTIONS.model_copy(update={"process_limit": 9}), Deadline(None)) is None
    session.prepare()
    before = session._spare
    session.worker.close()  # the reference dies: the spare's filter names a process that is gone
    assert session.take_spare(stack, CANDIDATE, "0" * 64, OPTIONS, Deadline(None)) is None
    for one in (unlimited, before):
        assert one.worker.process.poll() is not None and not one.folder.exists()


def test_a_candidate_that_it_cannot_read_gets_a_process_of_its_own(session, stack):
    session.prepare()
    waiting = session._spare
    candidate = session.private / "late.py"  # where no candidate may read
    candidate.write_text(CANDIDATE.read_text())
    taken = session.take_spare(stack, candidate, "0" * 64, OPTIONS, Deadline(None))
    if not next(check.held for check in waiting.confinement.report.checks if check.name == "reference's files unreadable"):
        pytest.skip("this machine hides no files")
    assert taken is None and waiting.worker.process.poll() is not None
    candidate.unlink()
    assert judge(WORKLOAD, CANDIDATE, session=session).correctness.passed


def test_it_is_stopped_while_something_is_timed_and_ends_with_its_session(session):
    session.prepare()
    supervisor, worker = both(session._spare)

    with session.quiet():
        assert soon(lambda: status(worker)[0] == "T")
        assert status(supervisor)[0] != "T"  # it must be able to end the worker
    assert soon(lambda: status(worker)[0] != "T")
    with session.quiet():
        session.close()  # an end in the midst of a timing
    assert gone((supervisor, worker))


def test_it_is_gone_when_the_judge_was_killed_even_while_it_is_stopped(tmp_path):
    script = ("import sys, time\n"
              f"sys.path.insert(0, {str(DATA.parents[1] / 'unit')!r})\n"
              "import test_judge_spare as tests\n"
              "tests.spare.LEAST_CORES, tests.spare.LEAST_MEMORY_BYTES = 1, 0\n"
              "with tests.ReferenceSession(tests.WORKLOAD, tests.OPTIONS, start=False) as session:\n"
              "    session.prepare()\n"
              "    numbers = tests.both(session._spare)\n"
              "    with session.quiet():\n"
              "        print(*numbers, session.worker.process.pid, flush=True)\n"
              "        time.sleep(60)\n")
    paths = os.pathsep.join([*(entry for entry in sys.path if entry), str(DATA.parents[1])])
    judge_process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=tmp_path,
                                     env={**os.environ, "PYTHONPATH": paths})
    try:
        numbers = [int(word) for word in judge_process.stdout.readline().split()]
        assert len(numbers) == 3 and all(alive(number) for number in numbers)
    finally:
        judge_process.send_signal(signal.SIGKILL)
        judge_process.wait()
        judge_process.stdout.close()
    assert gone(numbers), "a process outlived the judge"


def test_only_our_own_candidates_get_one_and_only_where_it_is_confined():
    for change in ({"compile_cache": "own"}, {"confine": False}):
        with ReferenceSession(WORKLOAD, OPTIONS.model_copy(update=change), start=False) as session:
            session.prepare()
            assert session._spare is None and session.worker is None


LOOKS = """import fcntl

def optimize(model, inputs):
    with open({lock!r}) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RuntimeError("the lock is held")
    raise RuntimeError("the lock is free")
"""


def test_a_candidate_that_times_kernels_is_built_under_the_lock_while_the_spare_is_still(session, tmp_path, monkeypatch):
    lock, candidate = tmp_path / "device.lock", tmp_path / "looks.py"
    lock.touch()
    candidate.write_text(LOOKS.format(lock=str(lock)))
    monkeypatch.setenv("KERNELWRIGHT_LOCK", str(lock))
    session.prepare()
    build, states = _Judgement._build, []

    def watched(judgement, mine):
        states.append(soon(lambda: status(session._spare.worker.pid)[0] == "T", 1.0))
        build(judgement, mine)

    monkeypatch.setattr(_Judgement, "_build", watched)
    for measures, word in ((True, "held"), (False, "free")):
        verdict = judge(WORKLOAD, candidate, OPTIONS.model_copy(update={"measures": measures}), session=session)
        assert verdict.verdict == "FAILED" and f"the lock is {word}" in verdict.reasons[0]
    assert states == [True, False]


def test_the_lock_is_free_again_before_the_timing(session, tmp_path, monkeypatch):
    """One process that takes it twice would wait for itself until the deadline."""
    monkeypatch.setenv("KERNELWRIGHT_LOCK", str(tmp_path / "device.lock"))
    options = OPTIONS.model_copy(update={"measures": True, "timing": True, "max_timing_s": 0.5, "confirm": False, "audits": False,
                                         "conditions": (), "cross_check": False})
    verdict = judge(WORKLOAD, CANDIDATE, options, session=session, deadline_s=time.monotonic() + 60.0)
    assert verdict.correctness.passed and verdict.comparison is not None


@pytest.mark.parametrize("own", [None, "1"])
def test_importing_ahead_starts_no_pool_of_compilers(monkeypatch, tmp_path, own):
    (tmp_path / "imported_ahead.py").write_text("import os\nSEEN = os.environ.get('TORCH_WARM_POOL')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(judge_ahead, "MODULES", ("imported_ahead", "nowhere.to_be_found"))
    monkeypatch.setattr(judge_ahead, "KEYS", ())
    monkeypatch.delenv("TORCH_WARM_POOL", raising=False)
    if own is not None:
        monkeypatch.setenv("TORCH_WARM_POOL", own)
    monkeypatch.delitem(sys.modules, "imported_ahead", raising=False)
    reading, writing = os.pipe()
    try:
        judge_ahead.load(reading)
        assert sys.modules.pop("imported_ahead").SEEN == "0" and os.environ.get("TORCH_WARM_POOL") == own, "the first compilation has it"
        os.write(writing, b"asked")
        judge_ahead.load(reading)
        assert "imported_ahead" not in sys.modules, "a command should not wait"
    finally:
        os.close(reading)
        os.close(writing)
