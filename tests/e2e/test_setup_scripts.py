"""The scripts themselves: on old Pythons, on interpreters used as they are, and from a checkout that was never set up."""

from __future__ import annotations

import ast
import glob
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path for path in (ROOT / "scripts").glob("*.py"))
VERBS = [path for path in SCRIPTS if not path.name.startswith("_")]


def run(command: list[str | Path], **variables: str) -> subprocess.CompletedProcess[str]:
    """One command with only these variables beside PATH and HOME."""
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **variables}
    return subprocess.run([str(part) for part in command], env=env, capture_output=True, text=True, timeout=200)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_short_and_parses_on_old_pythons(script: Path) -> None:
    source = script.read_text(encoding="ascii")  # Python 2 takes no other encoding unasked
    assert len(source.splitlines()) <= 40
    tree = ast.parse(source, feature_version=(3, 4))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.AsyncFunctionDef | ast.NamedExpr | ast.Nonlocal), (
            f"line {node.lineno}"
        )
        if isinstance(node, ast.FunctionDef):
            assert not node.args.kwonlyargs and not node.args.posonlyargs and node.returns is None, f"line {node.lineno}"
            assert not any(argument.annotation for argument in node.args.args), f"line {node.lineno}"
        if isinstance(node, ast.Raise):
            assert node.cause is None, f"line {node.lineno}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            assert "from __future__ import print_function" in source


def old_pythons() -> list[str]:
    """Real interpreters older than 3.10 on this machine; there may be none, and then the parsing test above stands alone."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))]
    names = ("python2.7", "python3.6", "python3.7", "python3.8", "python3.9")
    found = {name: str(path) for folder in folders for name in names if os.access(path := Path(folder, name), os.X_OK)}
    return [path for path in found.values() if subprocess.run([path, "-c", "pass"], capture_output=True).returncode == 0]


def test_old_pythons_are_told_what_is_needed() -> None:
    for python in old_pythons():
        for script in VERBS:
            said = run([python, "-B", script])
            assert said.returncode == 3, python
            assert said.stdout == ""
            assert re.fullmatch(r"kernelwright: .*Python 3\.10 or newer is needed, this is \d\.\d+\.? Fix: .*\n", said.stderr), said.stderr
        said = run([python, "-B", VERBS[0], "x.py", "--json"])
        assert (said.returncode, said.stderr) == (3, "")
        assert set(json.loads(said.stdout)["error"]) == {"code", "message", "where", "fix"}
        assert run([python, "-B", VERBS[0], "x.py", "--", "--json"]).stdout == ""  # that one belongs to the workload


def test_the_words_for_old_pythons_without_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The same lines, spoken by this Python: they are tested on every machine."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    import _entry

    monkeypatch.setattr(sys, "version_info", (3, 6, 15))
    monkeypatch.setattr(sys, "argv", ["scripts/optimize.py", "w.py"])
    newer = tmp_path / "python3.11"
    newer.write_text("")
    newer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as exit_:
        _entry.run("optimize")
    assert exit_.value.code == 3
    out, err = capsys.readouterr()
    assert out == "" and "needed, this is 3.6" in err and "Fix: run python3.11 scripts/optimize.py" in err and err.count("\n") == 1
    monkeypatch.setattr(sys, "argv", ["scripts/optimize.py", "w.py", "--json"])
    with pytest.raises(SystemExit):
        _entry.run("optimize")
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["code"] == "python_too_old" and err == ""


def test_an_interpreter_that_is_used_as_it_is() -> None:
    for script in VERBS:
        said = run([sys.executable, script, "--help"], KERNELWRIGHT_PYTHON=sys.executable)
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith(f"usage: {script.name}")


def test_an_interpreter_that_lacks_modules(tmp_path: Path) -> None:
    """An empty environment: no pydantic, no numpy; nothing is installed into it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    python = tmp_path / "bare" / "bin" / "python"
    said = run([sys.executable, VERBS[0], "--help"], KERNELWRIGHT_PYTHON=str(python))
    assert said.returncode == 3
    assert len(said.stderr.splitlines()) == 1
    assert "pydantic" in said.stderr and "numpy" in said.stderr and "requirements.lock" in said.stderr
    said = run([sys.executable, VERBS[0], "--json"], KERNELWRIGHT_PYTHON=str(python))
    assert json.loads(said.stdout)["error"]["code"] == "modules_missing"


@pytest.mark.parametrize("wrong", ["/no/such/python", "/bin/true"])
def test_an_interpreter_that_is_none(wrong: str) -> None:
    said = run([sys.executable, VERBS[0], "--help"], KERNELWRIGHT_PYTHON=wrong)
    assert said.returncode == 3
    assert wrong in said.stderr and "Fix:" in said.stderr and len(said.stderr.splitlines()) == 1


def copy_to(folder: Path) -> Path:
    """What runs of the checkout, without .git."""
    for name in ("scripts", "src", "knowledge", "templates", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "requirements.lock", folder)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="the user's data folder is moved by XDG_DATA_HOME on Linux alone")
def test_an_unpacked_archive_is_not_written_into(tmp_path: Path) -> None:
    """Nor is anything but the log left where no package index could be reached."""
    copy, data = copy_to(tmp_path / "unpacked"), tmp_path / "data"
    files = {path for path in copy.rglob("*") if path.name != "__pycache__" and path.suffix != ".pyc"}
    variables = {"XDG_DATA_HOME": str(data), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "UV_OFFLINE": "1", "UV_NO_CACHE": "1"}
    said = run([sys.executable, copy / "scripts" / "doctor.py", "--json"], **variables)
    assert said.returncode == 3 and json.loads(said.stdout)["error"]["code"] == "no_package_index"
    (left,) = [path.name for path in (data / "kernelwright").iterdir() if path.suffix == ".lock"]
    assert re.fullmatch(r"env-\w{8}\.lock", left)
    assert sorted(path.name for path in (data / "kernelwright").iterdir()) == [left.replace(".lock", "-setup.log"), left]
    assert {path for path in copy.rglob("*") if path.name != "__pycache__" and path.suffix != ".pyc"} == files


def test_no_byte_code_is_written_into_an_installed_copy(tmp_path: Path) -> None:
    """Under root too, who may write anywhere. The verb's own goes beside the environment, so that the next start is quick."""
    copy, env = copy_to(tmp_path / "installed"), tmp_path / "data" / "env"
    variables = {"KERNELWRIGHT_PYTHON": sys.executable, "KERNELWRIGHT_ENV": str(env), "KERNELWRIGHT_CACHE": str(tmp_path / "cache")}
    workload = ROOT / "tests" / "data" / "workloads" / "mlp.py"
    said = run([sys.executable, copy / "scripts" / "profile_kernel.py", workload, "--mode", "event", "--steps", "3", "--device", "cpu",
                "--python", sys.executable, "--out", tmp_path / "out"], **variables)
    assert said.returncode == 0, said.stderr
    assert [path for path in copy.rglob("*") if path.name == "__pycache__"] == []
    kept = {path.name.split(".")[0] for path in (tmp_path / "data" / "env-pycache").rglob("*.pyc")}
    assert {"main", "timers", "loaders"} <= kept


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A clone, as far as its place is concerned, and the user's own variables: a real first use."""
    checkout = copy_to(tmp_path_factory.mktemp("fresh clone") / "kernelwright")
    (checkout / ".git").mkdir()
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("KERNELWRIGHT_", "CLAUDE_", "VIRTUAL_ENV"))}
    return checkout, {**variables, "PIP_COMPILE": "0"}  # the byte code of what is never imported takes a third of the time


def test_the_real_lock_on_a_fresh_checkout(fresh: tuple[Path, dict[str, str]]) -> None:
    checkout, variables = fresh
    script = checkout / "scripts" / "profile_kernel.py"
    first = run([sys.executable, script, "--help"], **variables)
    assert first.returncode == 0, first.stderr
    assert "usage: profile_kernel.py" in first.stdout
    assert f"making kernelwright's environment in {checkout / '.venv'}" in first.stderr
    assert sorted(path.name for path in checkout.iterdir() if path.name.startswith(".")) == [".git", ".venv", ".venv.lock"]

    again = run([sys.executable, script, "--help"], **variables)
    assert (again.returncode, again.stdout, again.stderr) == (0, first.stdout, "")
    # The user's own modules, in the working folder or on PYTHONPATH, never come before ours.
    (checkout / "yaml.py").write_text("raise SystemExit('a module of the user was imported')\n")
    (checkout / "jinja2.py").write_text("raise SystemExit('a module of the user was imported')\n")
    command = [sys.executable, script, "--help"]
    said = subprocess.run(command, cwd=checkout, env={**variables, "PYTHONPATH": str(checkout)}, capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr


def test_a_ready_environment_costs_little(fresh: tuple[Path, dict[str, str]]) -> None:
    """From the start of a script's Python to the hand-over nothing is started, and few modules are imported (about 40 ms when idle).

    Modules are counted, not milliseconds: those depend on what else the machine does.
    """
    checkout, variables = fresh
    assert (checkout / ".venv").is_dir(), "the test above makes it"
    code = """
import os, sys
def no_process(*_):
    raise SystemExit("a process was started")
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
for name in ("fork", "posix_spawn", "posix_spawnp", "system"):
    setattr(os, name, no_process)
import kernelwright.setup.start as start
print(start.interpreter()[0])
print(*sorted(set(sys.modules) - before))
"""
    said = run([sys.executable, "-I", "-c", code, checkout / "src"], **variables)
    assert said.returncode == 0, said.stderr
    interpreter, modules = said.stdout.splitlines()
    assert Path(interpreter) == checkout / ".venv" / "bin" / "python"
    heavy = {"subprocess", "shutil", "tempfile", "asyncio", "urllib.request", "ssl", "importlib.metadata", "typing_extensions", "pydantic"}
    assert not heavy & set(modules.split()), heavy & set(modules.split())
    assert len(modules.split()) < 60, modules
