"""What the hooks recognise in a shell command: second runs and clock changes, through whatever they are wrapped in, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recognise import clock_changes, timing_runs, verbs
from shell_commands import commands

from hook_runner import SCRIPTS

PROFILE = f"{SCRIPTS}/profile_kernel.py"


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-smi -lgc 1500",
        "nvidia-smi -i 0 --lock-gpu-clocks=1500,1500",
        "sudo -n -u root nvidia-smi -lgc 1500,1500 && python train.py",
        "sudo env CUDA=1 nvidia-smi -lgc 1500",
        "/usr/bin/nvidia-smi '-lgc' 1500 > /dev/null 2>&1",
        'bash -c "nvidia-smi -lgc 1500"',
        "sh -lc 'nvidia-smi -lgc 1500' &",
        'bash -o pipefail -c "true; sudo nvidia-smi -lgc 1500"',
        "echo start; (cd /tmp; nvidia-smi -lgc 1500)",
        "true || { nvidia-smi -lgc 1500; }",
        "for i in 0 1; do nvidia-smi -i $i -lgc 1500; done",
        "if true\nthen\n  nvidia-smi -lgc 1500\nfi",
        "x=$(nvidia-smi -lgc 1500)",
        'echo "now `nvidia-smi -lgc 1500`"',
        "bash <<'END'\nnvidia-smi -lgc 1500\nEND",
        "timeout -k 5 60 nice -n 5 nvidia-smi -lgc 1500",
        "nvidia-smi \\\n  -lgc 1500",
        "eval 'nvidia-smi -lgc 1500'",
        "nvidia-smi -rgc; nvidia-smi -lgc 1500",
        "echo 0 | xargs -n 1 nvidia-smi -lgc 1500 -i",
        "nvidia-smi -lgc 1500 # and reset later: nvidia-smi -rgc",
        "nvidia-smi -lgc 1500; echo 'nvidia-smi -rgc'",
    ],
)
def test_a_clock_lock_without_a_reset_is_seen(text: str) -> None:
    assert clock_changes(text)[1] == {"gpu"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("nvidia-smi -lmc 2600", "memory"),
        ("nvidia-smi --lock-memory-clocks=2600", "memory"),
        ("nvidia-smi -ac 2600,1500", "application"),
        ("nvidia-smi --applications-clocks=2600,1500", "application"),
        ("nvidia-smi -pl 300", "power limit"),
        ("nvidia-smi -pm 1", "persistence"),
        ("nvidia-smi -lgc 1500; ./run; nvidia-smi -rmc", "gpu"),
    ],
)
def test_other_clock_changes_are_seen(text: str, kind: str) -> None:
    assert clock_changes(text)[1] == {kind}


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-smi -lgc 1500; python run.py; nvidia-smi -rgc",
        "sudo nvidia-smi --lock-gpu-clocks=1500 && python run.py; sudo nvidia-smi --reset-gpu-clocks",
        "trap 'sudo nvidia-smi -rgc' EXIT; nvidia-smi -lgc 1500; python run.py",
        "bash -c 'nvidia-smi -lgc 1500; ./run; nvidia-smi -rgc'",
        "nvidia-smi -pm 1; ./run; nvidia-smi -pm 0",
        "nvidia-smi -ac 2600,1500; ./run; nvidia-smi -rac",
    ],
)
def test_a_change_with_its_reset_is_let_go(text: str) -> None:
    changed, left = clock_changes(text)
    assert changed and not left


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-smi",
        "nvidia-smi -q -d CLOCK",
        "nvidia-smi --query-gpu=clocks.sm --format=csv -lms 100",
        "nvidia-smi -rgc",
        "nvidia-smi --help",
        "grep nvidia-smi notes.md",
        'echo "-lgc"',
        "echo nvidia-smi -lgc 1500",
        "echo 'nvidia-smi -lgc 1500' > notes.txt",
        'git commit -m "never nvidia-smi -lgc 1500 by hand"',
        "rg -e 'nvidia-smi -lgc' docs",
        "# nvidia-smi -lgc 1500",
        "man nvidia-smi | grep lgc",
        "cat > lock.sh <<'END'\nnvidia-smi -lgc 1500\nEND\n",
        "python -c 'print(\"nvidia-smi -lgc\")'",
        "which nvidia-smi; ls -lgc",
        "sed -n 's/nvidia-smi -lgc/x/p' file",
        "printf '%s' \"$(echo nvidia-smi -lgc)\"",
        "",
        ";;&&",
        "'unfinished nvidia-smi -lgc",
    ],
)
def test_what_only_looks_like_a_clock_change_is_none(text: str) -> None:
    assert clock_changes(text) == (set(), set())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f'python3 "{PROFILE}" v4 --mode event', ["profile_kernel.py"]),
        (f"cd {SCRIPTS} && python3 profile_kernel.py v4", ["profile_kernel.py"]),
        (f"cd {SCRIPTS.parent}; python3 scripts/optimize.py w.py", ["optimize.py"]),
        (f"KERNELWRIGHT_CLOCKS=none nohup python3.11 -I -X utf8 {SCRIPTS}/optimize.py w.py > log 2>&1 &", ["optimize.py"]),
        (f"{SCRIPTS}/judge.py w.py c.py", ["judge.py"]),
        ("python -m kernelwright judge w.py c.py", ["judge.py"]),
        ("uv run --with torch python -m kernelwright profile-kernel w.py", []),
        ("uv run python -m kernelwright profile-kernel w.py", ["profile_kernel.py"]),
        ("kernelwright profile-kernel w.py", ["profile_kernel.py"]),
        ("kernelwright bench --check", ["bench.py"]),
        ("ncu --set full -o out python train.py -i data", ["ncu"]),
        ("sudo -E env PATH=$PATH /opt/nvidia/ncu --nvtx python x.py", ["ncu"]),
        ("nsys profile -o out python train.py", ["nsys"]),
        (f"kernelwright doctor; ncu python a.py; python3 {PROFILE} w.py", ["ncu", "profile_kernel.py"]),
    ],
)
def test_profilers_and_timing_runs_are_recognised(text: str, names: list[str]) -> None:
    assert timing_runs(text, "/") == names


@pytest.mark.parametrize(
    "text",
    [
        "python optimize.py w.py",  # somebody else's
        "python3 /elsewhere/scripts/optimize.py w.py",
        f"python3 {PROFILE} --help",
        f"python3 {PROFILE}",
        f"python3 {PROFILE} stored.ncu-rep",
        f"python3 {PROFILE} stored.sqlite --mode nsys",
        f"python3 {PROFILE} trace.json.gz",
        f"python3 {SCRIPTS}/compare.py a b",
        f"python3 {SCRIPTS}/doctor.py",
        f"python3 {SCRIPTS}/devlog.py show",
        f"cat {PROFILE}",
        f"wc -l {PROFILE}",
        "ncu --import a.ncu-rep --page raw",
        "ncu -i a.ncu-rep",
        "ncu --version",
        "ncu --list-sets",
        "ncu --query-metrics --chip gh100",
        "ncu",
        "nsys stats a.nsys-rep",
        "nsys export --type sqlite a.nsys-rep",
        "nsys --version",
        "nsys",
        "which ncu nsys",
        "echo ncu python x.py",
        "pip install ncu-report",
        "grep -r 'ncu --set full' .",
        "ls /opt/nvidia/nsight-compute/*/ncu",
    ],
)
def test_what_starts_no_run_is_not_recognised_as_one(text: str) -> None:
    assert timing_runs(text, "/") == []


def test_arguments_arrive_whole() -> None:
    assert verbs(f"""python3 "{PROFILE}" "my file.py" v4 --mode 'event' --b=32""", "/") == [
        ("profile_kernel", ["my file.py", "v4", "--mode", "event", "--b=32"])
    ]


@given(st.text(alphabet="abc '\"\\$`(){}<>|&;#\n=-/ 0nvidia-smi", max_size=80))
def test_no_text_breaks_the_parser(text: str) -> None:
    for command in commands(text):
        assert command.words and all(isinstance(word, str) for word in command.words)


@pytest.mark.parametrize(
    "text", ["(" * 5000, "$(" * 5000, "`" * 5001, '"$(' * 3000, "bash -c " * 3000, "sudo " * 20000, "a;" * 50000, "<<x\n" * 5000]
)
def test_hostile_texts_end_soon(text: str) -> None:
    assert isinstance(commands(text), list)
