"""The hooks as a client starts them: what they say, that they say it in JSON, fast, and that no fault of their own reaches the session."""

from __future__ import annotations

import glob
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hook_runner import HOOKS, ROOT, SCRIPTS, ask, bash, command_of, context, objection, refusal, script, start

EVENTS = tuple(json.loads((HOOKS / "hooks.json").read_text())["hooks"])
HELD = """
import sys, time
from kernelwright.capture.lock import device_lock
with device_lock("profile of something"):
    print("held", flush=True)
    sys.stdin.read()
"""
CONTRACT = (ROOT / "tests" / "golden" / "expected").rglob("*contract*.md")


def a_contract() -> str:
    """A contract as kernelwright wrote it."""
    found = sorted(CONTRACT_FILES)
    return found[0].read_text()


CONTRACT_FILES = list(CONTRACT)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[int]:
    """Another run that holds the device lock: its process number."""
    env = {**os.environ, "KERNELWRIGHT_LOCK": str(tmp_path / "device.lock"), "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen([sys.executable, "-c", HELD], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout and process.stdout.readline() == "held\n"
        yield process.pid
        process.stdin.close()


# --- PreToolUse ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        f"{script('profile_kernel')} v4",
        f"{script('optimize')} w.py --json",
        f"{script('judge')} w.py c.py",
        "ncu python x.py",
        "sudo nsys profile -o x python x.py",
        "kernelwright bench --check",
    ],
)
def test_a_second_run_is_refused_while_one_holds_the_lock(tmp_path: Path, held: int, command: str) -> None:
    said = refusal(ask("PreToolUse", tmp_path, bash(command)))
    assert f"process {held}" in said and "profile of something" in said and "Do next: wait" in said


@pytest.mark.parametrize(
    "command",
    [f"{script('profile_kernel')} --help", f"{script('compare')} a b", f"{script('doctor')}", "ls", "ncu --version", "cat report.md"],
)
def test_other_commands_go_on_meanwhile(tmp_path: Path, held: int, command: str) -> None:
    assert held and ask("PreToolUse", tmp_path, bash(command)) == {}


def test_a_run_is_let_go_when_the_lock_is_free(tmp_path: Path) -> None:
    assert ask("PreToolUse", tmp_path, bash(f"{script('profile_kernel')} v4")) == {}  # no lock file yet
    (tmp_path / "device.lock").write_text("")
    (tmp_path / "device.holder.json").write_text('{"pid": "1", "what": "a run that was killed", "since": "?"}')
    assert ask("PreToolUse", tmp_path, bash(f"{script('profile_kernel')} v4")) == {}


def test_the_lock_is_the_one_that_kernelwright_takes(tmp_path: Path) -> None:
    """Without KERNELWRIGHT_LOCK both must come to the same file."""
    both = [
        [sys.executable, "-c", "from kernelwright.capture.lock import lock_path; print(lock_path())"],
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(HOOKS)!r}); from device_lock import lock_path; print(lock_path())"],
    ]
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    paths = {subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout for command in both}
    assert len(paths) == 1


def test_raw_clock_changes_are_refused_unless_undone(tmp_path: Path) -> None:
    said = refusal(ask("PreToolUse", tmp_path, bash("sudo nvidia-smi -lgc 1500; python x.py")))
    assert "--clocks lock" in said and "nvidia-smi -rgc" in said
    for path in SCRIPTS.glob("*lock*.sh"):
        assert str(path) in said
    assert ask("PreToolUse", tmp_path, bash("nvidia-smi -lgc 1500; python x.py; nvidia-smi -rgc")) == {}
    assert ask("PreToolUse", tmp_path, bash("grep nvidia-smi -r . ; echo -lgc")) == {}


def test_where_clock_changes_are_forbidden_a_reset_does_not_help(tmp_path: Path) -> None:
    said = refusal(ask("PreToolUse", tmp_path, bash("nvidia-smi -lgc 1500; ./x; nvidia-smi -rgc"), KERNELWRIGHT_CLOCKS="none"))
    assert "KERNELWRIGHT_CLOCKS=none" in said and "--clocks none" in said
    assert ask("PreToolUse", tmp_path, bash("nvidia-smi"), KERNELWRIGHT_CLOCKS="none") == {}


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        (f"{script('profile_kernel')} v4 --mode event", True),
        (f"{script('compare')} a b", True),
        (f"{script('doctor')}", True),
        (f"{script('optimize')} w.py", False),
        (f"{script('judge')} w.py c.py", False),
        ("ls", False),
        ("python3 w.py", False),
        ("", False),
        (f"{script('profile_kernel')} v4; rm -r out", False),
        (f"{script('profile_kernel')} v4 $(touch x)", False),
    ],
)
def test_the_profiler_keeps_to_its_verbs(tmp_path: Path, command: str, allowed: bool) -> None:
    said = refusal(ask("PreToolUse", tmp_path, bash(command, agent_type="kernelwright:profiler")))
    assert (said == "") is allowed
    assert allowed or ("profile_kernel.py" in said and "Do next" in said)
    assert ask("PreToolUse", tmp_path, bash(command, agent_type="other:profiler")) == {}
    assert ask("PreToolUse", tmp_path, bash(command)) == {}


# --- PostToolUse --------------------------------------------------------------------------------------------------------------------------


def stored(folder: Path, name: str, text: str) -> Path:
    """A run's folder with one document; its report's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / "report.md"


@pytest.mark.parametrize("event", ["PostToolUse", "PostToolUseFailure"])
def test_the_contract_comes_after_a_profile(tmp_path: Path, event: str) -> None:
    contract = a_contract()
    report = stored(tmp_path / "run", "contract.md", contract)
    as_json = json.dumps({"status": "ok", "out_dir": str(report.parent), "report": str(report)})
    said = context(ask(event, tmp_path, bash(f"{script('profile_kernel')} v4 --json", tool_response={"stdout": f"working\n{as_json}\n"})))
    assert contract in said and "unchanged" in said
    said = context(
        ask(event, tmp_path, bash(f"{script('profile_kernel')} v4 | tail -3", tool_response={"stdout": f"...\nreport: {report}"}))
    )
    assert contract in said
    whole = {"stdout": f"profiling\n{contract}\nreport: {report}"}
    said = context(ask(event, tmp_path, bash(f"{script('profile_kernel')} v4", tool_response=whole)))
    assert "complete and in its exact form" in said and contract not in said, "it must not be shown twice"


def test_only_a_contract_is_handed_on(tmp_path: Path) -> None:
    report = stored(tmp_path / "run", "contract.md", "root:x:0:0 secret\n")
    call = bash(f"{script('profile_kernel')} v4", tool_response={"stdout": f"report: {report}"})
    said = context(ask("PostToolUse", tmp_path, call))
    assert "breaks the contract's form" in said and "Do next" in said
    report = stored(tmp_path / "other", "secret.md", a_contract())
    call = bash(f"{script('profile_kernel')} v4", tool_response={"stdout": f"report: {report}"})
    assert ask("PostToolUse", tmp_path, call) == {}
    call = bash("cat log", tool_response={"stdout": f"report: {tmp_path / 'run' / 'report.md'}"})
    assert ask("PostToolUse", tmp_path, call) == {}, "not a profile"


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        ("FASTER", "report the speed-up"),
        ("SLOWER", "report no speed-up"),
        ("SAME", "report no speed-up"),
        ("AMBIGUOUS", "the noise hides it"),
        ("WRONG", "mend the candidate, never the tolerance"),
        ("CHEAT", "discard the candidate"),
        ("FAILED", "mend what the reason names"),
    ],
)
def test_the_verdict_comes_after_a_judgement(tmp_path: Path, verdict: str, words: str) -> None:
    better = verdict in ("FASTER", "SLOWER")
    document = {
        "verdict": verdict,
        "candidate": "/x/c.py",
        "precision": "equal",
        "reasons": ["because\x1b[31m of this\nline"],
        "speedup": 1.31 if better else None,
        "interval": [1.28, 1.35] if better else None,
    }
    report = stored(tmp_path / "run", "verdict.json", json.dumps(document))
    given = bash(f"{script('judge')} w.py c.py", tool_response={"stdout": f"{verdict}\nreport: {report.with_name('verdict.md')}"})
    if verdict in ("WRONG", "CHEAT", "FAILED"):  # exit 5: the client calls that a failure, and gives the output as an error
        given = bash(f"{script('judge')} w.py c.py", error=f"Exit code 5\n{verdict}\nreport: {report.with_name('verdict.md')}")
    said = context(ask("PostToolUse" if "error" not in given else "PostToolUseFailure", tmp_path, given))
    assert f"is {verdict}" in said and words in said and "because [31m of this line" in said
    assert ("1.310x, 95% interval 1.280 to 1.350" in said) is better


def test_a_forged_verdict_is_not_handed_on(tmp_path: Path) -> None:
    for text in ('{"verdict": "SUPERFAST"}', "[]", "no json", '{"verdict": ["FASTER"]}', ""):
        report = stored(tmp_path / "run", "verdict.json", text)
        assert ask("PostToolUse", tmp_path, bash(f"{script('judge')} w.py c.py", tool_response={"stdout": f"report: {report}"})) == {}


def test_the_result_comes_after_the_loop(tmp_path: Path) -> None:
    data = {
        "status": "ok",
        "kept": ["tf32"],
        "speedup": 2.5,
        "interval": [2.4, 2.6],
        "optimized": "/o/optimized.py",
        "report": "/o/report.md",
    }
    call = bash(f"{script('optimize')} w.py --json", tool_response={"stdout": json.dumps(data)})
    said = context(ask("PostToolUse", tmp_path, call))
    assert "kept tf32" in said and "2.500x" in said and "/o/optimized.py" in said
    data = {**data, "kept": [], "speedup": 1.0, "interval": None, "optimized": None, "contract": "/o/baseline/contract.md"}
    call = bash(f"{script('optimize')} w.py --json", tool_response={"stdout": json.dumps(data)})
    said = context(ask("PostToolUse", tmp_path, call))
    assert "nothing better was found" in said and "claim no speed-up" in said and "/o/baseline/contract.md" in said


# --- Stop and SubagentStop ----------------------------------------------------------------------------------------------------------------


def answers(event: str, home: Path, *given: dict[str, Any]) -> list[dict[str, Any]]:
    """Of several hooks at once: each may wait for a transcript that is still being written."""
    with ThreadPoolExecutor(len(given)) as pool:
        return list(pool.map(lambda one: ask(event, home, one), given))


def session_of(tmp_path: Path, *results: str) -> str:
    """A transcript in which kernelwright was used, with these tool results."""
    entries: list[object] = [{"type": "user", "message": {"content": f"{script('judge')} w.py c.py"}}]
    entries += [{"type": "user", "message": {"content": [{"type": "tool_result", "content": text}]}} for text in results]
    path = tmp_path / "transcript.jsonl"
    path.write_text("\n".join(map(json.dumps, entries)))
    return str(path)


@pytest.mark.parametrize(("event", "key"), [("Stop", "transcript_path"), ("SubagentStop", "agent_transcript_path")])
def test_a_claim_needs_a_verdict(tmp_path: Path, event: str, key: str) -> None:
    claim = {"last_assistant_message": "Done: it is 1.3x faster now."}
    said = objection(ask(event, tmp_path, {**claim, key: session_of(tmp_path)}))
    assert "no verdict" in said and "judge.py" in said and "1.30x" in said
    said = objection(ask(event, tmp_path, {**claim, key: session_of(tmp_path, '{"verdict": "FASTER", "speedup": 1.1}')}))
    assert "highest measured in this session is 1.10x" in said
    assert ask(event, tmp_path, {**claim, key: session_of(tmp_path, '{"verdict": "FASTER", "speedup": 1.31}')}) == {}
    assert ask(event, tmp_path, {"last_assistant_message": "It could be 1.3x faster.", key: session_of(tmp_path)}) == {}


@pytest.mark.parametrize(("event", "key"), [("Stop", "transcript_path"), ("SubagentStop", "agent_transcript_path")])
def test_a_contract_is_handed_on_word_for_word(tmp_path: Path, event: str, key: str) -> None:
    contract = a_contract()
    table = "| Kernel | Share |\n|---|---|\n| gemm | 90.0% |\n"
    measured = session_of(tmp_path, f"kernelwright: starting\n{contract}\n{table}\n\nreport: /somewhere/report.md\none call: 3 us")

    row = next(line for line in contract.splitlines() if line.startswith("| ") and line.count("n/a") > 1)
    texts = [contract, f"Here it is:\n\n```\n{contract}```\n\none call: 3 us.", f"{contract}\n{table}\n1. Wait.",
             "It took 3 us; the contract is above.", "## Profile: another v9\n\n### Stages\n| a |\n",
             contract.replace(row, row.replace("n/a", "99.9", 1)), contract[: contract.index("### Bottleneck")]]
    *right, altered, cut = answers(event, tmp_path, *({key: measured, "last_assistant_message": text} for text in texts))
    assert right == [{}] * 5
    assert all(words in objection(altered) for words in ("not word for word", "its line ", "99.9"))
    assert "is missing: ### Bottleneck" in objection(cut)


@pytest.mark.parametrize("result", ["contract", "verdict"])
def test_a_transcript_that_is_still_being_written_is_waited_for(tmp_path: Path, result: str) -> None:
    """The result comes after the hook has begun: what is altered is seen all the same, and what is proved is not objected to."""
    contract = a_contract()
    row = next(line for line in contract.splitlines() if line.startswith("| ") and line.count("n/a") > 1)
    said = contract.replace(row, row.replace("n/a", "99.9", 1)) if result == "contract" else "It is 1.3x faster now."
    path = Path(session_of(tmp_path, "python3 scripts/judge.py began"))
    early = path.read_bytes()
    whole = Path(session_of(tmp_path, contract if result == "contract" else '{"verdict": "FASTER", "speedup": 1.31}')).read_bytes()
    path.write_bytes(early)
    writer = threading.Timer(0.7, lambda: path.write_bytes(early + whole))
    writer.start()
    answer = ask("Stop", tmp_path, {"transcript_path": str(path), "last_assistant_message": said})
    writer.join()
    assert ("not word for word" in objection(answer)) if result == "contract" else answer == {}


def test_an_agent_may_quote_a_verdict_and_nothing_else(tmp_path: Path) -> None:
    main, own = session_of(tmp_path, '{"verdict": "FASTER", "speedup": 1.31}'), tmp_path / "agent.jsonl"
    own.write_text('{"type": "user", "message": {"content": "Write a candidate."}}\n')
    given = {"agent_type": "kernelwright:kernel-engineer", "agent_transcript_path": str(own), "transcript_path": main}
    assert ask("SubagentStop", tmp_path, {**given, "last_assistant_message": "The last one is 1.3x faster."}) == {}
    assert objection(ask("SubagentStop", tmp_path, {**given, "last_assistant_message": "Mine is 2x faster."}))
    other = {**given, "agent_type": "Explore", "transcript_path": str(own), "last_assistant_message": "Mine is 2x faster."}
    assert ask("SubagentStop", tmp_path, other) == {}, "a session without kernelwright"


def test_nothing_is_said_twice(tmp_path: Path) -> None:
    given = {"last_assistant_message": "It is 3x faster.", "transcript_path": session_of(tmp_path)}
    assert objection(ask("Stop", tmp_path, {**given, "stop_hook_active": False}))
    assert ask("Stop", tmp_path, {**given, "stop_hook_active": True}) == {}
    given = {"agent_type": "kernelwright:profiler", "last_assistant_message": "no", "stop_hook_active": True}
    assert ask("SubagentStop", tmp_path, given) == {}


def of_profiler(*texts: str) -> Iterator[dict[str, Any]]:
    return ({"agent_type": "kernelwright:profiler", "last_assistant_message": text} for text in texts)


def test_a_profiler_that_answers_with_the_contract_may_stop(tmp_path: Path) -> None:
    text = a_contract()
    assert answers("SubagentStop", tmp_path, *of_profiler(text, text.strip(), "\n" + text + "\n\n")) == [{}] * 3


def test_a_profiler_that_answers_with_anything_else_may_not(tmp_path: Path) -> None:
    text = a_contract()
    other = [
        "Here it is:\n\n" + text,
        text + "\nThe kernel is slow.\n",
        f"```\n{text}```",
        text.replace("### Stages", "## Stages"),
        text.replace("### Bottleneck", "### Bottle"),
        text[: len(text) // 2],
        "",
        "No contract: ",
        "No contract: \n" + text * 3,
    ]
    for said, answer in zip(other, answers("SubagentStop", tmp_path, *of_profiler(*other)), strict=True):
        assert "contract.md, unchanged" in objection(answer) and "No contract: " in objection(answer), said[:40]
    assert answers("SubagentStop", tmp_path, *({**one, "agent_type": "other:profiler"} for one in of_profiler(*other))) == [{}] * 9


def test_a_profiler_may_say_why_there_is_no_contract(tmp_path: Path) -> None:
    text = "No contract: w.py: the file is missing. Fix: give the path of the workload's file"
    assert ask("SubagentStop", tmp_path, {"agent_type": "kernelwright:profiler", "last_assistant_message": text}) == {}


def locked(tmp_path: Path, **lease: object) -> None:
    """The record of a clock lock of this boot, with one lease."""
    folder = tmp_path / "state" / "clocks"
    folder.mkdir(parents=True, exist_ok=True)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record = {
        "uuid": "GPU-1",
        "mhz": 1500,
        "route": [],
        "boot": boot,
        "since": "",
        "leases": [{"token": "t", "pid": 0, "start": "", **lease}],
    }
    (folder / "GPU-1.json").write_text(json.dumps({**record, "boot": lease.get("boot", boot)}))


def test_clocks_left_locked_by_a_dead_run(tmp_path: Path) -> None:
    state = {"KERNELWRIGHT_STATE": str(tmp_path / "state")}
    assert ask("Stop", tmp_path, {}, **state) == {}
    locked(tmp_path, pid=2**22 + 5, start="1")
    said = objection(ask("Stop", tmp_path, {}, **state))
    assert "GPU-1 (1500 MHz)" in said and "reset-gpu-clock.sh" in said and "Do next" in said
    assert ask("Stop", tmp_path, {"background_tasks": [{"id": "1"}]}, **state) == {}, "a run in the background may hold them yet"
    assert ask("SubagentStop", tmp_path, {}, **state) == {}
    start_ticks = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    locked(tmp_path, pid=os.getpid(), start=start_ticks)
    assert ask("Stop", tmp_path, {}, **state) == {}, "that run is alive and resets them itself"
    locked(tmp_path, pid=2**22 + 5, start="1", boot="an earlier boot")
    assert ask("Stop", tmp_path, {}, **state) == {}


def test_clocks_locked_by_hand_are_minded_in_the_session_that_did_it(tmp_path: Path) -> None:
    state = {"KERNELWRIGHT_STATE": str(tmp_path / "state")}
    locked(tmp_path)
    transcript = tmp_path / "transcript.jsonl"
    transcript.write_text('{"type": "assistant"}\n')
    assert ask("Stop", tmp_path, {"transcript_path": str(transcript)}, **state) == {}
    call = {"type": "tool_use", "name": "Bash", "input": {"command": f'"{SCRIPTS}/lock-gpu-clock.sh" 1500'}}
    transcript.write_text(json.dumps({"message": {"content": [call]}}) + "\n")
    assert "GPU-1" in objection(ask("Stop", tmp_path, {"transcript_path": str(transcript)}, **state))


# --- SessionStart -------------------------------------------------------------------------------------------------------------------------


def driver(folder: Path, admin_only: str = "1") -> str:
    """The driver's files of a machine with two GPUs."""
    for index in range(2):
        place = folder / "gpus" / f"0000:0{index}:00.0"
        place.mkdir(parents=True)
        (place / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 1\n")
    (folder / "params").write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {admin_only}\n")
    return str(folder)


def test_the_line_on_a_machine_with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import session_start

    monkeypatch.setattr(session_start, "PLACES", {"ncu": (str(tmp_path / "opt" / "*" / "ncu"),), "nsys": ()})
    monkeypatch.setattr(session_start, "_environment_ready", lambda: "yes")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    folder = driver(tmp_path / "nvidia", "0")
    line = session_start.machine_line(folder)
    assert line == "kernelwright on this machine: 2 x NVIDIA H200; neither ncu nor nsys found; counters allowed; environment ready."
    (tmp_path / "opt" / "v1").mkdir(parents=True)
    (tmp_path / "opt" / "v1" / "ncu").write_text("")
    (tmp_path / "nsys").write_text("")
    (tmp_path / "nsys").chmod(0o755)
    (tmp_path / "nvidia" / "params").write_text("RmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(session_start, "_environment_ready", lambda: "no")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    line = session_start.machine_line(folder)
    assert "ncu and nsys found; counters for administrators only (doctor.py has the fix); the first command installs" in line
    assert "\n" not in line


def test_silence_where_there_is_nothing_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import session_start

    monkeypatch.setattr(session_start, "PLACES", {"ncu": (), "nsys": ()})
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(session_start, "_environment_ready", lambda: "yes")
    assert session_start.machine_line(str(tmp_path / "none")) == ""
    monkeypatch.setattr(session_start, "_environment_ready", lambda: "no")
    assert "no NVIDIA GPU" in session_start.machine_line(str(tmp_path / "none"))


def test_the_line_arrives_as_context(tmp_path: Path) -> None:
    line = context(ask("SessionStart", tmp_path, {"source": "startup"}, KERNELWRIGHT_ENV=str(tmp_path / "none")))
    assert line.startswith("kernelwright on this machine: ") and "the first command installs" in line


# --- faults and cost ----------------------------------------------------------------------------------------------------------------------

GARBAGE = [
    b"",
    b"null",
    b"[]",
    b"3",
    b'"x"',
    b"{",
    b"\xff\xfe\x00",
    b"{}" * 3,
    b'{"tool_input": 3}',
    b'{"tool_input": {"command": ["a"]}}',
    b'{"cwd": 7, "tool_input": {"command": "nvidia-smi -lgc 1"}, "agent_type": []}',
    b"[" * 100_000,
    b'{"transcript_path": "/", "last_assistant_message": "3x faster"}',
    b'{"transcript_path": 5, "last_assistant_message": "3x faster"}',
    b'{"agent_transcript_path": "/nonexistent", "last_assistant_message": "3x faster"}',
    b'{"tool_response": {"stdout": 3, "stderr": null}, "tool_input": {"command": "x"}, "error": {}}',
]


@pytest.mark.parametrize("event", EVENTS)
def test_garbage_ends_silent(tmp_path: Path, event: str) -> None:
    for data in GARBAGE:
        done = start(event, data, tmp_path)
        assert (done.returncode, done.stderr) == (0, b""), data[:80]
        assert done.stdout == b"" or isinstance(json.loads(done.stdout), dict)


@pytest.mark.parametrize("event", EVENTS)
def test_an_input_beyond_all_bounds_ends_silent(tmp_path: Path, event: str) -> None:
    done = start(event, b'{"x": "' + b"y" * (17 * 1024 * 1024) + b'"}', tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("event", EVENTS)
def test_a_home_that_is_missing_or_locked_and_a_lost_temporary_folder(tmp_path: Path, event: str) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    for home in (closed, tmp_path / "missing"):
        env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "TMPDIR": "/nonexistent", "XDG_STATE_HOME": str(home / "x")}
        words = command_of(event).replace("${CLAUDE_PLUGIN_ROOT}", str(ROOT)).replace('"', "").split()
        given = json.dumps({**bash(f"{script('judge')} a b"), "transcript_path": "/nonexistent", "last_assistant_message": "3x faster"})
        done = subprocess.run([sys.executable, *words[1:]], input=given.encode(), env=env, cwd="/", capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
    assert list(closed.iterdir()) == []


def test_a_hook_that_does_not_exist_or_does_not_parse_ends_silent(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text((HOOKS / "run.py").read_text())
    (tmp_path / "broken.py").write_text("def answer(:\n")
    (tmp_path / "raises.py").write_text("def answer(given):\n    raise SystemExit(3)\n")
    (tmp_path / "unprintable.py").write_text("def answer(given):\n    return {'x': object()}\n")
    for name in (["broken"], ["raises"], ["unprintable"], ["nothing"], []):
        done = subprocess.run([sys.executable, "-I", "-S", tmp_path / "run.py", *name], input=b"{}", capture_output=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), name


def test_nobody_reads_the_answer(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(HOOKS / "run.py"), "before_bash"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()
        process.stdin.write(json.dumps(bash("nvidia-smi -lgc 1500")).encode())
        process.stdin.close()
        assert process.wait(timeout=60) == 0 and process.stderr.read() == b""


def other_pythons() -> list[str]:
    """Real interpreters of other versions on this machine; there may be none, and then the parsing in tests/contract stands alone."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))]
    names = [f"python3.{minor}" for minor in (6, 7, 8, 9, 13, 14)]
    found = {name: str(path) for folder in folders for name in names if os.access(path := Path(folder, name), os.X_OK)}
    return [path for path in found.values() if subprocess.run([path, "-c", "pass"], capture_output=True).returncode == 0]


def test_other_pythons_as_python3() -> None:
    """From 3.8 on a hook works; an older one is silent."""
    for python in other_pythons():
        command = [python, "-I", "-S", str(HOOKS / "run.py"), "before_bash"]
        env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
        done = subprocess.run(command, input=json.dumps(bash("nvidia-smi -lgc 1500")).encode(), env=env, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b""), python
        if not python.endswith(("3.6", "3.7")):
            assert refusal(json.loads(done.stdout)), python
        for name in ("session_start", "after_bash", "at_stop"):
            done = subprocess.run([*command[:-1], name], input=b'{"last_assistant_message": "x"}', env=env, capture_output=True, timeout=60)
            assert (done.returncode, done.stderr) == (0, b""), (python, name)


def test_hooks_leave_the_plugin_as_it_was(tmp_path: Path) -> None:
    """No __pycache__, no log: an installed plugin may be read-only."""
    before = sorted(HOOKS.rglob("*"))
    for event in EVENTS:
        ask(event, tmp_path, bash("nvidia-smi -lgc 1"))
    assert sorted(path for path in HOOKS.rglob("*") if path not in before) == []


def cpu_s(run: Callable[[], object]) -> float:
    """User and system time of the processes that `run` starts and waits for, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


@pytest.mark.parametrize("event", EVENTS)
def test_a_hook_costs_no_more_than_a_few_readings_of_the_transcript(tmp_path: Path, event: str) -> None:
    """CPU time, against a bare interpreter that parses the same transcript in turns with it: so on a slow machine too."""
    transcript = session_of(tmp_path, *['{"verdict": "SAME", "speedup": 1.0}' + "x" * 2000] * 300)
    given = {
        **bash(
            f"cd {tmp_path}; {script('judge')} w.py c.py | tee log", tool_response={"stdout": "y" * 30_000 + f"\nreport: {tmp_path}/r.md"}
        ),
        "transcript_path": transcript,
        "agent_transcript_path": transcript,
        "last_assistant_message": "It is 3x faster.",
        "cwd": str(tmp_path),
    }
    parse = [sys.executable, "-I", "-S", "-c", "import json, sys; [json.loads(line) for line in open(sys.argv[1])]", transcript]
    pairs = [(cpu_s(lambda: start(event, json.dumps(given), tmp_path)), cpu_s(lambda: subprocess.run(parse, check=True))) for _ in range(3)]
    costs, readings = zip(*pairs, strict=True)
    assert min(costs) < 6 * min(readings), pairs  # seen: 1.4 to 2.2
