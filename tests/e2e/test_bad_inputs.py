"""Every row of the table of bad inputs: one clear line, the documented code, nothing half-written, nothing of the user's touched."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from bad_inputs import PROCESS, ROWS, SCRIPT, Row
from kernelwright.cli import main
from kernelwright.cli.main import VERBS
from warm_start import warm_start

ROOT = Path(__file__).resolve().parents[2]
AT_ONCE = 2
"""Rows that start a process run beside the others, two at a time: most of their time is the import of torch."""
MAX_LINE_CHARACTERS = 4000
TEMPORARY = re.compile(r"\..+\.partial$|\.running-.*")
"""What an atomic write and a run leave when they are cut short: `.NAME.RANDOM.partial`, `.running-STAMP`."""


@dataclass(frozen=True)
class Seen:
    """What one command left."""

    status: int
    out: str
    err: str


def folder_of(row: Row, root: Path) -> Path:
    """The row's folder, with its files in it."""
    folder = root / f"{ROWS.index(row):03d} it's $HOME"  # blanks and quotes in every path
    folder.mkdir()
    for name, content in row.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    if row.prepare is not None:
        row.prepare(folder)
    return folder


def argv_of(row: Row, folder: Path) -> list[str]:
    return [word.replace("{dir}", str(folder)) for word in row.argv]


def in_json(row: Row) -> bool:
    """Rows that cost a process are run once, in one of the two forms: text where error.json tells the rest."""
    return not row.begun or ROWS.index(row) % 2 == 0


def of_its_own(row: Row) -> bool:
    """As a user starts it, or under a limit that holds for the whole process. Of the others only the workload has a process."""
    return row.how == SCRIPT or row.file_limit_bytes is not None


def start(row: Row, folder: Path) -> Seen:
    """The row as a process of its own."""
    verb, *rest = argv_of(row, folder)
    command = [sys.executable, str(ROOT / "scripts" / f"{verb}.py")] if row.how == SCRIPT else [sys.executable, "-m", "kernelwright", verb]
    command += ["--json", *rest] if in_json(row) else rest
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "KERNELWRIGHT_LOCK": str(folder.parent / f"{folder.name[:3]}.lock"),
           "KERNELWRIGHT_PYTHON": sys.executable, **row.env}

    def limit() -> None:
        if row.file_limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (row.file_limit_bytes, row.file_limit_bytes))

    done = subprocess.run(command, capture_output=True, cwd=folder, env=env, timeout=120, preexec_fn=limit)
    return Seen(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bad")


@pytest.fixture(scope="module")
def started(root: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, tuple[Path, Future[Seen]]]]:
    """All chosen rows that need a process, under way."""
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = {}
        for row in (found["row"] for found in parameters if isinstance(found.get("row"), Row)):
            if of_its_own(row):
                folder = folder_of(row, root)
                rows[row.name] = (folder, pool.submit(start, row, folder))
        yield rows


def check_line(line: str, row: Row) -> None:
    """One line for a person: bounded, printable, with what, where and the mend."""
    assert line.startswith("kernelwright: ") and line.isprintable() and len(line) < MAX_LINE_CHARACTERS, line[:500]
    for words in (row.says, row.fix.strip()):
        assert words in line, line
    assert " Fix: " in line


def check_error(error: dict[str, str], row: Row) -> None:
    """The error object: all four parts, a place that does not hang on the current folder, a mend."""
    assert set(error) == {"code", "message", "where", "fix"} and all(isinstance(part, str) for part in error.values())
    assert error["message"] and error["where"] and error["fix"], error
    assert error["code"] == row.code or not row.code, error
    assert row.says in error["message"] and row.where in error["where"] and row.fix.strip() in error["fix"], error
    place = re.sub(r":\d+$", "", error["where"])
    if not place.startswith("--") and ("/" in place or place.endswith((".py", ".json", ".yaml", ".md"))):
        verb_script = place in {f"{verb}.py" for verb in VERBS}
        assert Path(place).is_absolute() or verb_script or row.code == "bad_encoding", error


def check_answer(seen: Seen, row: Row, as_json: bool) -> None:
    assert seen.status == row.exit, (seen.status, seen.out[-2000:], seen.err[-2000:])
    assert "Traceback (most recent call last)" not in seen.err and "Exception ignored" not in seen.err, seen.err[-2000:]
    lines = seen.err.splitlines()
    assert all(line.isprintable() for line in lines), seen.err
    if as_json:
        answer = json.loads(seen.out)
        assert seen.out.count("\n") == 1 and set(answer) == {"status", "error"} and answer["status"] == "error"
        check_error(answer["error"], row)
        assert not any(line.startswith("kernelwright: ") for line in lines), "the error is told once, on stdout"
    else:
        assert seen.out == "" and [line for line in lines if line.startswith("kernelwright: ")] == lines[-1:], (seen.out, seen.err)
        check_line(lines[-1], row)


def check_folder(folder: Path, row: Row) -> None:
    """Nothing half-written, nothing outside of where results go, error.json where a run had begun."""
    left = sorted(folder.rglob("*"))
    assert not [path for path in left if TEMPORARY.fullmatch(path.name)], left
    for path in left:
        if path.suffix == ".json" and path.is_file() and path.stat().st_size and str(path.relative_to(folder)) not in row.files \
                and not (row.code == "broken_state" and path.name == "state.json"):
            json.loads(path.read_bytes())
    errors = [path for path in left if path.name == "error.json"]
    assert bool(errors) == row.begun, (errors, left)
    for path in errors:
        check_error(json.loads(path.read_bytes()), row)
    known = {name.split("/")[0] for name in row.files} | {"out", "o", "opt", "p", "q", "pipe", "python", "__pycache__"}
    if row.prepare is None:
        assert {path.name for path in folder.iterdir()} <= known
    assert not (folder / "owned").exists()
    for name, content in row.files.items():
        assert (folder / name).read_bytes() == (content.encode("utf-8") if isinstance(content, str) else content), f"{name} was changed"
    if row.check is not None:
        row.check(folder)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_bad_input(row, root, started, monkeypatch, capsys):
    if of_its_own(row):
        folder, seen = started[row.name]
        check_answer(seen.result(), row, in_json(row))
        check_folder(folder, row)
        return
    folder = folder_of(row, root)
    monkeypatch.chdir(folder)
    for name, value in row.env.items():
        monkeypatch.setenv(name, value)
    with warm_start() if row.how == PROCESS else nullcontext():
        for as_json in (in_json(row),) if row.how == PROCESS else (False, True):
            verb, *rest = argv_of(row, folder)
            status = main([verb, "--json", *rest] if as_json else [verb, *rest])
            check_answer(Seen(status, *capsys.readouterr()), row, as_json)
            check_folder(folder, row)


def test_the_table_is_wide_and_covers_all_verbs():
    assert len(ROWS) >= 60 and len({row.name for row in ROWS}) == len(ROWS)
    assert {row.argv[0] for row in ROWS} >= set(VERBS)
    assert {row.argv[0] for row in ROWS if row.how == SCRIPT} == set(VERBS), "each verb once as a user starts it"
    assert {row.exit for row in ROWS} == {2, 3, 4}


def test_a_full_disk_behind_stdout_is_one_line():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "kernelwright", "--help"], stdout=full, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, timeout=60)
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and "disk is full" in done.stderr


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_fault(closed, root):
    command = [sys.executable, str(ROOT / "scripts" / "devlog.py"), "show", "--log", str(root / "none.devlog.md"), "--json"]
    done = subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], capture_output=True, text=True, cwd=root, timeout=60,
                          env={**os.environ, "KERNELWRIGHT_PYTHON": sys.executable})
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_workload_that_stops_the_clock_is_timed_by_the_real_one(root, capsys):
    """freezegun and the like replace the clocks of `time` for the whole process."""
    file = root / "frozen.py"
    file.write_text("import time\nimport torch\n\ntime.perf_counter = time.monotonic = lambda: 0.0\ntime.perf_counter_ns = lambda: 0\n\n\n"
                    "def get_model_and_input():\n    return torch.nn.Linear(64, 64), torch.ones(64, 64)\n")
    with warm_start():
        status = main(["profile_kernel", str(file), "--json", "--mode", "event", "--device", "cpu", "--python", sys.executable,
                       "--out", str(root / "frozen")])
    assert status == 0, capsys.readouterr()
    timing = json.loads((root / "frozen" / "profile.json").read_bytes())["timing"]
    assert timing["median_ns"] > 0


@pytest.mark.parametrize("verb", VERBS)
def test_help_with_json_is_one_object(verb, capsys):
    assert main([verb, "--help", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "ok" and "--json" in answer["help"]


def test_names_of_all_kinds_stay_inside_the_output_folder(root, monkeypatch, capsys):
    """File, version, stage, parameter and model names that are markup, paths and commands: the run works, and its page stays a page."""
    folder = root / "names"
    folder.mkdir()
    name = "a b'\"`$(touch owned);\n\x1b[31m|é.py"
    (folder / name).write_text(
        "import torch\nfrom torch.profiler import record_function\n\nPARAMS = {'évil': '../../x|y\\n# z'}\n\n\ndef get_inputs(**params):\n"
        "    return (torch.ones(64, 64),)\n\n\ndef run(x):\n"
        "    with record_function('stage:../../s|t\\n\\x1b[31m`u`'):\n        return x @ x\n\n\n"
        "VERSIONS = {'../v|1\\n$(touch owned)': run}\n")
    monkeypatch.chdir(folder)
    with warm_start():
        status = main(["profile_kernel", name, "--json", "--device", "cpu", "--python", sys.executable, "--model-name",
                       "../../../etc/k|e\r\n## Profile: owned", "--device-name", "d|\n\x07", "--steps", "1", "--warmup", "1"])
    said = capsys.readouterr()
    assert status == 0, said.err
    answer = json.loads(said.out)
    out = Path(answer["out_dir"])
    assert folder / "out" in out.parents and {path.name for path in folder.iterdir()} == {name, "out"}
    contract = (out / "contract.md").read_text()
    assert contract.isascii() or all(line.isprintable() for line in contract.splitlines())
    assert [line for line in contract.splitlines() if line.startswith("## ")] == [contract.splitlines()[0]]
    stages = contract[contract.index("### Stages"):contract.index("### Bottleneck")].strip().splitlines()[3:]
    assert stages and all(len(re.findall(r"(?<!\\)\|", row)) == 8 for row in stages), stages
