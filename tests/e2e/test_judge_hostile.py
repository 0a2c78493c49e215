"""Candidates that attack the machine or the judge: a verdict each time, nothing left running, nothing touched.

What a verdict says of its separation is held against what the candidate could really do on this machine.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import kernelwright.judge.run
from kernelwright.judge import JudgeOptions, ReferenceSession, judge
from kernelwright.model.workload import WorkloadRef
from processes import soon
from warm_start import warm_start

WIDE = Path(__file__).resolve().parents[1] / "data" / "judge" / "wide.py"
JUDGE_FILE = Path(kernelwright.judge.run.__file__)
GIB = 2**30
IMPORTS = """
import contextlib, ctypes, errno, glob, os, resource, shutil, signal, socket, subprocess, sys, tempfile, time
from pathlib import Path
"""
ATTACK = """
def optimize(model, inputs):
    done = []
    def call(x):
        if not done:
            done.append(attack())
        return model(x)
    return call
"""
CHEAPLY = """
import torch
import torch._inductor.config as settings
settings.cpp_cache_precompile_headers = False
settings.cpp.vec_isa_ok = False
"""
"""Inductor then starts the C++ compiler once or twice, not a dozen times for what this processor can do (the variables for it are not read
where Inductor was imported before the fork)."""
TRY = """
def attempts(*actions):
    through = []
    for name, action in actions:
        try:
            action()
            through.append(name)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOENT, errno.ESRCH, errno.EXDEV):
                raise
    if through:
        raise RuntimeError("got through: " + ", ".join(through))

def others():
    '''The supervisor, the judge and the reference.'''
    supervisor = os.getppid()
    judge = int(Path(f"/proc/{supervisor}/stat").read_text().rpartition(")")[2].split()[1])
    siblings = Path(f"/proc/{judge}/task/{judge}/children").read_text().split()
    living = [number for number in siblings if Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"]
    return [supervisor, judge, *(int(number) for number in living if int(number) != supervisor)]  # a zombie has nothing to read
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The current folder of the judge, and so of all that it starts, and of nothing else on the machine."""
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def session(place):
    with pytest.MonkeyPatch.context() as patch, warm_start():
        patch.chdir(place)
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("KERNELWRIGHT_LOCK", str(place / "lock"))
        options = JudgeOptions(device="cpu", python=sys.executable, timing=False, distributions=False, steadiness=False, timeout_s=30,
                               memory_limit_bytes=3 * GIB // 2, process_limit=64)
        with ReferenceSession(WorkloadRef(path=WIDE, name="wide"), options) as session:
            yield session


@pytest.fixture
def attacked(session, place, tmp_path):
    """Judges a candidate of this source, and sees that only the reference is left running afterwards."""

    def run(source, **changes):
        candidate = tmp_path / "hostile_candidate.py"
        candidate.write_text(IMPORTS + TRY + textwrap.dedent(source) + ATTACK)
        before = candidate.read_bytes()
        verdict = judge(session.workload, candidate, session.options.model_copy(update=changes), session=session)
        ours = {os.getpid(), session.worker.process.pid}
        assert soon(lambda: running_in(place) <= ours), verdict.reasons
        assert candidate.read_bytes() == before
        return verdict

    return run


def running_in(folder):
    found = set()
    for link in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if link.readlink() == folder:
                found.add(int(link.parent.name))
        except OSError:
            continue
    return found


def held(verdict):
    return {mechanism.name for mechanism in verdict.separation.held}


@pytest.mark.parametrize(("source", "changes", "words"), [
    ("def attack(): os.kill(os.getpid(), signal.SIGKILL)", {}, "was killed by signal 9"),
    ("def attack(): os.close(0); os.closerange(3, 100); time.sleep(60)", {"timeout_s": 1}, ""),
    ("""
     def attack():
         signal.signal(signal.SIGTERM, signal.SIG_IGN)
         while True: pass
     """, {"timeout_s": 1}, "within 1 s"),
    ("""
     def attack():
         for _ in range(1024): os.write(1, b"x" * 2**20)
     """, {}, "printed more than 64 MiB"),
    ("""
     def attack():
         for _ in range(8): os.fork()
         time.sleep(60)
     """, {}, "started more than 64 processes"),
    ("""
     def attack():
         kept = []
         for _ in range(64):
             kept.append(bytearray(os.urandom(1) * 2**26))
             time.sleep(0.01)
         time.sleep(10)
     """, {}, "used more than 1.5 GiB of memory"),
    ("""
     def attack():
         if os.fork() == 0:
             os.setsid()
             kept = [bytearray(b"x" * 2**26) for _ in range(48)]
             time.sleep(60)
         time.sleep(20)
     """, {}, "used more than 1.5 GiB of memory"),
], ids=["kills_itself", "closes_its_pipes", "hangs", "prints_1_gb", "fork_bomb", "memory", "memory_of_a_daemon"])
def test_what_ends_itself_or_takes_everything_is_failed(attacked, source, changes, words):
    verdict = attacked(source, **changes)
    assert verdict.verdict == "FAILED" and words in verdict.reasons[0], verdict.reasons


def test_a_daemon_ends_with_its_candidate(attacked):
    verdict = attacked("""
        def attack():
            if os.fork() == 0:
                os.setsid()
                for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(number, signal.SIG_IGN)
                if os.fork() == 0:
                    os.execvp("sleep", ["sleep", "100"])
                os._exit(0)
            os.wait()
            subprocess.Popen(["sleep", "100"], start_new_session=True)
        """)
    assert verdict.correctness.passed and "nothing left running" in held(verdict), verdict.reasons


@pytest.mark.parametrize(("mechanism", "source"), [
    ("no signals to the judge", """
        def attack():
            attempts(*((f"signal {number} to {pid}", lambda pid=pid, number=number: os.kill(pid, number))
                       for pid in others() for number in (0, signal.SIGSTOP, signal.SIGKILL)),
                     ("a process group", lambda: os.killpg(os.getppid(), signal.SIGKILL)),
                     ("a pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGKILL)),
                     ("limits", lambda: resource.prlimit(others()[-1], resource.RLIMIT_NOFILE, (3, 3))),
                     *((f"{name} of {pid}", lambda pid=pid, choose=choose: choose(pid))
                       for pid in (0, *others()) for name, choose in (("affinity", bind), ("priority", hurry))))

        def bind(pid):
            before = os.sched_getaffinity(pid)
            os.sched_setaffinity(pid, {min(before)})
            seen(len(before) == 1 or os.sched_getaffinity(pid) == before)

        def hurry(pid):
            before = os.getpriority(os.PRIO_PROCESS, pid)
            os.setpriority(os.PRIO_PROCESS, pid, before + 1)
            seen(os.getpriority(os.PRIO_PROCESS, pid) == before)

        def seen(unchanged):
            if unchanged:
                raise PermissionError(errno.EPERM, "it did nothing")
        """),
    ("other processes' memory unreadable", """
        def attack():
            libc = ctypes.CDLL(None, use_errno=True)
            def seize(pid):
                if libc.ptrace(0x4206, pid, None, None) != 0:
                    raise OSError(ctypes.get_errno(), "refused")
            def copy(pid):
                if libc.process_vm_readv(pid, None, 0, None, 0, 0) < 0:
                    raise OSError(ctypes.get_errno(), "refused")
            attempts(*((f"{name} of {pid}", lambda pid=pid, name=name: open(f"/proc/{pid}/{name}", "rb", buffering=0).read(1))
                       for pid in others() for name in ("mem", "environ", "maps")),
                     *((f"descriptors of {pid}", lambda pid=pid: os.readlink(f"/proc/{pid}/fd/0")) for pid in others()),
                     *((f"tracing {pid}", lambda pid=pid: seize(pid)) for pid in others()),
                     *((f"copying from {pid}", lambda pid=pid: copy(pid)) for pid in others()))
        """),
    ("no network", """
        def attack():
            attempts(("tcp", lambda: socket.create_connection(("127.0.0.1", 9), timeout=1)),
                     ("udp", lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)),
                     ("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
                     ("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
                     ("a daemon's socket", lambda: socket.socket(socket.AF_UNIX).connect(str(Path(__file__).parent / "daemon"))))
        """),
    ("no writing outside", """
        def attack():
            here = Path(__file__).parent
            attempts(("its own file", lambda: Path(__file__).write_text("")),
                     ("its own file's end", lambda: os.truncate(__file__, 0)),
                     ("the victim", lambda: (here / "victim").write_text("changed")),
                     ("removal", lambda: (here / "victim").unlink()),
                     ("renaming", lambda: (here / "victim").rename(here / "other")),
                     ("a link", lambda: os.link(here / "victim", tempfile.gettempdir() + "/victim") or
                      Path(tempfile.gettempdir(), "victim").write_text("changed")),
                     ("a folder", lambda: (here / "new").mkdir()),
                     ("the judge", lambda: os.close(os.open(JUDGE_FILE, os.O_WRONLY))),
                     ("home", lambda: Path.home().joinpath(".kernelwright-hostile").touch()),
                     ("/tmp", lambda: Path("/tmp/kernelwright-hostile").touch()),
                     ("the current folder", lambda: Path("new").touch()),
                     ("core_pattern", lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))))
            Path(tempfile.gettempdir(), "own").write_text("allowed")
        """),
    ("reference's files unreadable", """
        def attack():
            folders = glob.glob(tempfile.gettempdir().partition("kernelwright-judge-")[0] + "kernelwright-judge-reference-*/")
            assert folders
            attempts(*((name, lambda folder=folder, name=name: open(folder + name, "rb").read(1))
                       for folder in folders for name in ("canary", "reference.log")))
        """),
])
def test_what_is_said_to_be_refused_is_refused(attacked, tmp_path, mechanism, source):
    (tmp_path / "victim").write_text("whole")
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "daemon"))
        daemon.listen()
        verdict = attacked(f"JUDGE_FILE = {str(JUDGE_FILE)!r}\n" + textwrap.dedent(source))
    if mechanism in held(verdict):
        assert verdict.correctness is not None and verdict.correctness.passed, verdict.reasons
        assert (tmp_path / "victim").read_text() == "whole"
    else:
        assert verdict.verdict == "FAILED" and "got through" in verdict.reasons[0], verdict.reasons


def test_a_candidate_that_deletes_all_it_can_is_judged_like_any_other(attacked):
    verdict = attacked("""
        def attack():
            scratch = Path(tempfile.gettempdir())
            assert scratch.parent.parent.name.startswith("kernelwright-judge-candidate-")  # never anything else
            for folder in (scratch, scratch.parent, scratch.parent.parent):
                shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):
                Path(__file__).unlink()
        """)
    if "no writing outside" in held(verdict):
        assert verdict.correctness is not None and verdict.correctness.passed, verdict.reasons
    else:
        assert verdict.verdict in ("CHEAT", "FAILED")


def test_the_tier_is_what_was_in_force(attacked):
    nothing = "def attack(): pass"
    confined, unconfined, shared = (attacked(nothing, **changes) for changes in ({}, {"confine": False}, {"compile_cache": "user"}))
    assert all(verdict.correctness.passed for verdict in (confined, unconfined, shared))
    assert confined.separation.tier == ("known exploit" if confined.separation.missing else "hostile")
    assert unconfined.separation.tier == "honest mistake" and "not asked for" in {item.detail for item in unconfined.separation.missing}
    assert shared.separation.tier == "known exploit" and "compile caches of its own" not in held(shared)


def test_a_workload_that_cannot_be_loaded_confined_is_judged_with_less(place, session, tmp_path):
    """It leaves a file beside itself, as one that prepares its data would."""
    (tmp_path / "data").mkdir()
    (tmp_path / "writes.py").write_text(f"from pathlib import Path\nPath({str(tmp_path)!r}, 'data', 'made').write_text('x')\n"
                                        + WIDE.read_text())
    candidate = tmp_path / "same.py"
    candidate.write_text("def optimize(model, inputs):\n    return model\n")
    with ReferenceSession(WorkloadRef(path=tmp_path / "writes.py", name="writes"), session.options) as other:
        verdicts = [judge(other.workload, candidate, session=other) for _ in range(2)]
    assert all(verdict.correctness is not None and verdict.correctness.passed for verdict in verdicts)
    if "no writing outside" in held(judge(session.workload, candidate, session=session)):
        for verdict in verdicts:
            assert verdict.separation.tier == "known exploit"
            assert any("PermissionError" in item.detail for item in verdict.separation.missing), verdict.separation


def test_torch_compile_works_in_confinement(attacked, session, tmp_path):
    candidate = tmp_path / "compiled.py"
    candidate.write_text(CHEAPLY + "def optimize(model, inputs):\n    return torch.compile(model)\n")
    verdict = judge(session.workload, candidate, session.options.model_copy(update={"timeout_s": 240}), session=session)
    assert verdict.correctness is not None and verdict.correctness.passed, verdict.reasons


def test_a_daemon_ends_with_a_judge_that_is_killed(tmp_path):
    candidate = tmp_path / "daemon.py"
    candidate.write_text(IMPORTS + textwrap.dedent("""
        def attack():
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.write(1, b"the daemon runs\\n")
                time.sleep(300)
            time.sleep(300)
        """) + ATTACK)
    here = tmp_path / "here"
    here.mkdir()
    script = (f"from pathlib import Path; from kernelwright.judge import *; from kernelwright.model.workload import WorkloadRef\n"
              f"judge(WorkloadRef(path=Path({str(WIDE)!r}), name='w'), Path({str(candidate)!r}), "
              f"JudgeOptions(device='cpu', python={sys.executable!r}))")
    ours = {**os.environ, "PYTHONPATH": str(Path(kernelwright.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL, env=ours, cwd=here)
    try:
        logs = "kernelwright-judge-candidate-*/candidate.log"
        assert soon(lambda: any("the daemon runs" in log.read_text() for log in tmp_path.glob(logs)), 120)
        assert len(running_in(here)) == 5  # judge, reference, supervisor, candidate, daemon
        process.kill()
        process.wait()
        assert soon(lambda: not running_in(here), 60)
    finally:
        process.kill()
        for left in running_in(here):
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
