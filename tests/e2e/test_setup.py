"""The environment is whole or gone, whatever happens while it is made. A tiny lock of one local wheel stands for the real one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from processes import soon

SRC = Path(__file__).resolve().parents[2] / "src"
INSTALL_TORCH = SRC / "kernelwright" / "setup" / "install_torch.py"
DRIVER = """
import sys
from pathlib import Path
sys.path.insert(0, {src!r})
from kernelwright.setup.build import Wanted, ensure
from kernelwright.setup.errors import SetupError
from kernelwright.setup.start import report, say
{venv}
try:
    print(ensure(Path(sys.argv[1]), say, Wanted(locks=(Path(sys.argv[2]),), modules=("tinything",), needed_mb={needed_mb})))
except SetupError as error:
    sys.exit(report(error, sys.argv))
"""
# venv with the pip that the test run has: one of its own, as the first use makes it, takes five seconds to install.
QUICK_VENV = """
from kernelwright.setup import build
QUICK = '''
import os, pip, subprocess, sys, sysconfig
subprocess.check_call([sys.executable, "-I", "-m", "venv", "--without-pip", sys.argv[1]])
site = sysconfig.get_path("purelib", "venv", dict.fromkeys(("base", "platbase", "installed_base"), sys.argv[1]))
os.symlink(os.path.dirname(pip.__file__), os.path.join(site, "pip"))
'''
before = build._creation
build._creation = lambda tool, place: [sys.executable, "-c", QUICK, place] if tool == "pip" else before(tool, place)
"""


class Bench:
    """A package source with one tiny wheel, a lock that pins it, and a place for an environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = folder / "place" / "env"
        self.lock = folder / "tiny.lock"
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.tools = folder / "tools"
        self.tools.mkdir()
        self.variables = {
            "PATH": f"{self.tools}:/usr/bin:/bin",
            "HOME": str(folder),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
        }
        self.answers: list[tuple[str, str]] = []
        self.quick = False
        """Whether venv does not install a pip of its own (QUICK_VENV)."""
        self.pin("1.0")

    def pin(self, version: str) -> None:
        """Add the wheel of this version and make the lock pin it."""
        wheel = self.wheel("tinything", version)
        self.lock.write_text(f"tinything=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")

    def wheel(self, name: str, version: str) -> Path:
        """A wheel of one module that knows its version."""
        wheel = self.wheels / f"{name}-{version}-py3-none-any.whl"
        info = f"{name}-{version}.dist-info"
        with zipfile.ZipFile(wheel, "w") as file:
            file.writestr(f"{name}.py", f"__version__ = {version!r}\n")
            file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
            file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            file.writestr(f"{info}/RECORD", "")
        return wheel

    def have_uv(self) -> None:
        """A stand-in for uv that does with venv and a pip from elsewhere what it is asked: every option must be the one that uv knows. It
        takes a tenth of the time that venv takes with a pip of its own."""
        uv = self.tools / "uv"
        uv.write_text(
            f"""#!{sys.executable}
import subprocess, sys
if sys.argv[1:4] == ["venv", "--allow-existing", "--python"]:
    sys.exit(subprocess.call([sys.argv[4], "-m", "venv", "--without-pip", sys.argv[5]]))
assert sys.argv[1:4] == ["pip", "install", "--python"], sys.argv
assert sys.argv[5:9] == ["--require-hashes", "--only-binary", ":all:", "-r"], sys.argv
sys.exit(subprocess.call([sys.executable, "-m", "pip", "--python", sys.argv[4], "install", *sys.argv[5:]]))
"""
        )
        uv.chmod(0o755)

    def start(self, *arguments: str, needed_mb: int = 1, prelude: str = "") -> subprocess.Popen[str]:
        """One use of the environment, running."""
        code = prelude + DRIVER.format(src=str(SRC), needed_mb=needed_mb, venv=QUICK_VENV if self.quick else "")
        command = [sys.executable, "-c", code, str(self.environment), str(self.lock), *arguments]
        return subprocess.Popen(command, env=self.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def use(self, *arguments: str, needed_mb: int = 1, prelude: str = "") -> subprocess.CompletedProcess[str]:
        """One use of the environment, to its end."""
        process = self.start(*arguments, needed_mb=needed_mb, prelude=prelude)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def stamp(self) -> dict[str, object]:
        """The stamp's fields."""
        fields: dict[str, object] = json.loads((self.environment / "kernelwright-env.json").read_text())
        return fields

    def installed(self, name: str = "tinything") -> str:
        """The version of a package inside the environment."""
        code = f"import {name}; print({name}.__version__)"
        return subprocess.run(
            [self.environment / "bin" / "python", "-I", "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()

    def wait_until_half_made(self) -> None:
        """Until the stamp of a build that is under way is there, and a file of the interpreter beside it."""
        assert soon((self.environment / "pyvenv.cfg").exists, 60), "the build did not start"
        assert self.stamp()["complete"] is False


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def first_use(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A place with an environment that its first use made, of which there were two at once. The tests get copies."""
    made = Bench(tmp_path_factory.mktemp("first"))
    made.variables |= {"PIP_TARGET": str(made.folder / "elsewhere"), "PIP_USER": "1", "PYTHONPATH": str(made.folder / "nowhere")}
    both = [made.start(), made.start()]
    made.answers = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], made.answers
    return made


@pytest.fixture
def made(bench: Bench, first_use: Bench) -> Bench:
    """A bench whose environment is ready, for version 1.0 of the wheel."""
    shutil.copytree(first_use.wheels, bench.wheels, dirs_exist_ok=True)
    shutil.copy(first_use.lock, bench.lock)
    shutil.copytree(first_use.environment, bench.environment, symlinks=True)
    return bench


def test_two_first_uses_at_once_make_one_environment(first_use: Bench) -> None:
    """And the user's own variables do not send packages elsewhere."""
    bench, answers = first_use, first_use.answers
    assert {out.strip() for out, _ in answers} == {str(bench.environment / "bin" / "python")}
    assert sum("making kernelwright's environment" in err for _, err in answers) == 1
    assert sum("waiting for it" in err for _, err in answers) == 1
    assert bench.installed() == "1.0"
    before = bench.stamp()
    again = bench.use()
    assert (again.returncode, again.stderr) == (0, "")  # ready: nothing to say, nothing made anew
    assert bench.stamp() == before
    assert not list(bench.environment.parent.glob("*.log")) and not (bench.folder / "elsewhere").exists()


def test_a_changed_lock_is_installed_and_what_else_was_installed_stays(made: Bench) -> None:
    site = next((made.environment / "lib").glob("python3*/site-packages"))
    (site / "torch_stand_in.py").write_text("")
    made.pin("2.0")
    assert made.use().returncode == 0
    assert made.installed() == "2.0"
    assert (site / "torch_stand_in.py").exists()

    made.pin("3.0")
    (made.wheels / "tinything-3.0-py3-none-any.whl").unlink()
    failed = made.use()
    assert failed.returncode == 3
    assert made.installed() == "2.0"  # a failed update leaves the environment as it was
    (made.environment / "bin" / "python").unlink()
    made.quick = True
    assert made.use().returncode == 3
    assert not made.environment.exists()  # but one without an interpreter can't be kept


def test_a_killed_build_is_repaired_by_the_next_use(bench: Bench) -> None:
    bench.quick = True
    first = bench.start()
    bench.wait_until_half_made()
    first.kill()
    first.wait()
    second = bench.use()
    assert second.returncode == 0, second.stderr
    assert "half-made" in second.stderr
    assert bench.stamp()["complete"] is True
    assert bench.installed() == "1.0"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_build_leaves_nothing(bench: Bench, number: signal.Signals) -> None:
    process = bench.start("--json")
    bench.wait_until_half_made()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert json.loads(out)["error"]["code"] == "interrupted"
    assert not bench.environment.exists()


def test_a_replaced_base_interpreter_of_the_same_version_needs_no_installation(made: Bench) -> None:
    stamp = made.stamp()
    (made.environment / "kernelwright-env.json").write_text(json.dumps({**stamp, "base": "another"}))
    again = made.use()
    assert (again.returncode, again.stderr) == (0, "")
    assert made.stamp() == stamp


def test_an_environment_of_another_python_version_is_made_anew(made: Bench) -> None:
    stamp = made.stamp()
    (made.environment / "kernelwright-env.json").write_text(json.dumps({**stamp, "base": "another", "python_version": "3.7"}))
    (made.environment / "left-over").write_text("")
    made.have_uv()
    assert made.use().returncode == 0
    assert made.stamp() == stamp
    assert not (made.environment / "left-over").exists()


def test_a_folder_of_someone_else_is_never_touched(bench: Bench) -> None:
    bench.environment.mkdir(parents=True)
    (bench.environment / "thesis.tex").write_text("all of it")
    refused = bench.use("--json")
    assert refused.returncode == 3
    assert json.loads(refused.stdout)["error"]["code"] == "environment_not_ours"
    assert [path.name for path in bench.environment.iterdir()] == ["thesis.tex"]


def test_no_package_index(bench: Bench) -> None:
    for wheel in bench.wheels.iterdir():
        wheel.unlink()
    bench.quick = True
    failed = bench.use()
    last = failed.stderr.splitlines()[-1]
    assert failed.returncode == 3
    assert "no package index could be reached" in last and "Fix:" in last and "KERNELWRIGHT_PYTHON" in last
    log = bench.environment.parent / "env-setup.log"
    assert str(log) in last and "No matching distribution" in log.read_text()
    assert not bench.environment.exists()


def test_a_download_that_differs_from_the_lock_is_refused(made: Bench) -> None:
    made.pin("2.0")
    made.lock.write_text(made.lock.read_text().strip()[:-4] + "0000\n")
    failed = made.use("--json")
    assert failed.returncode == 3
    assert json.loads(failed.stdout)["error"]["code"] == "hash_mismatch"
    assert made.installed() == "1.0"


def test_a_disk_that_is_too_small_is_found_out_before_anything_is_made(bench: Bench) -> None:
    failed = bench.use("--json", needed_mb=10**9)
    assert failed.returncode == 3
    error = json.loads(failed.stdout)["error"]
    assert error["code"] == "no_disk_space" and "KERNELWRIGHT_ENV" in error["fix"]
    assert not bench.environment.exists()


@pytest.mark.parametrize("missing", ["ensurepip", "venv"])
def test_a_python_without_ensurepip_or_venv(bench: Bench, missing: str) -> None:
    block = f"""
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name == {missing!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Block())
"""
    failed = bench.use("--json", prelude=block)
    assert failed.returncode == 3
    error = json.loads(failed.stdout)["error"]
    assert error["code"] == "no_ensurepip" and "-venv" in error["fix"]
    assert not bench.environment.exists()


def test_uv_is_used_where_it_is_and_pip_where_it_fails(bench: Bench) -> None:
    """A stand-in for uv writes down how it was called, and fails: pip takes over."""
    uv = bench.tools / "uv"
    uv.write_text(f'#!/bin/sh\necho "$@" >> {bench.folder}/uv-calls\necho "error: Failed to fetch"\nexit 2\n')
    uv.chmod(0o755)
    bench.quick = True
    used = bench.use()
    assert used.returncode == 0, used.stderr
    assert "trying venv and pip" in used.stderr
    assert (bench.folder / "uv-calls").read_text().startswith("venv --allow-existing --python")
    assert bench.installed() == "1.0"


def test_uv_alone_is_enough(bench: Bench) -> None:
    """And no pip is needed in the environment."""
    bench.have_uv()
    used = bench.use()
    assert used.returncode == 0, used.stderr
    assert "with uv" in used.stderr and "with pip" not in used.stderr
    assert bench.installed() == "1.0"


def test_a_place_that_cannot_be_written_to(bench: Bench) -> None:
    (bench.folder / "file").write_text("")
    bench.environment = bench.folder / "file" / "env"
    failed = bench.use("--json")
    assert failed.returncode == 3
    error = json.loads(failed.stdout)["error"]
    assert error["code"] == "environment_not_writable" and "KERNELWRIGHT_ENV" in error["fix"]


def install_torch(bench: Bench, python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a verb runs where no interpreter has torch."""
    return subprocess.run([python, INSTALL_TORCH, *arguments], env=bench.variables, capture_output=True, text=True, timeout=120)


def test_torch_into_the_environment_with_the_cpu_build_preferred(made: Bench) -> None:
    python = made.environment / "bin" / "python"

    failed = install_torch(made, python, "--json")  # nothing offers torch yet
    assert failed.returncode == 3
    error = json.loads(failed.stdout)["error"]
    assert error["code"] == "no_package_index" and "--python" in error["fix"]
    assert made.stamp()["complete"] is True  # the failure did no harm

    made.wheel("torch", "2.13.0")
    made.wheel("torch", "2.13.0+cpu")
    made.wheel("torch", "2.14.0")
    done = install_torch(made, python)
    assert done.returncode == 0, done.stderr
    assert made.installed("torch") == "2.13.0+cpu"
    assert made.stamp()["complete"] is True
    assert made.use().stderr == ""
    assert "installing torch" not in install_torch(made, python).stderr


def test_torch_is_never_put_into_an_interpreter_of_the_user(bench: Bench) -> None:
    bench.variables["KERNELWRIGHT_PYTHON"] = sys.executable
    refused = install_torch(bench, Path(sys.executable), "--json")
    assert refused.returncode == 3
    assert json.loads(refused.stdout)["error"]["code"] == "torch_missing"
    del bench.variables["KERNELWRIGHT_PYTHON"]
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    refused = install_torch(bench, base)
    assert refused.returncode == 3
    assert "no virtual environment" in refused.stderr and len(refused.stderr.splitlines()) == 1


class Installed:
    """The plugin as a client installs it: PLUGINS/cache/MARKET/kernelwright/VERSION, read-only, with a tiny lock for the real one."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.plugins = bench.folder / "plugins"

    def copy(self, version: str) -> Path:
        """One installed version, with the lock of this moment."""
        folder = self.plugins / "cache" / "market" / "kernelwright" / version
        shutil.copytree(
            SRC / "kernelwright" / "setup", folder / "src" / "kernelwright" / "setup", ignore=shutil.ignore_patterns("__pycache__")
        )
        (folder / "src" / "kernelwright" / "__init__.py").write_text("")
        shutil.copy(self.bench.lock, folder / "requirements.lock")
        for path in [folder, *folder.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
        return folder

    def use(self, folder: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """What a script of that copy does first: find or make the environment."""
        code = (
            "from kernelwright.setup import build, place, start\n"
            "import os\n"
            "wanted = build.Wanted(modules=('tinything',), needed_mb=1)\n"
            "print(build.ensure(place.environment_folder(place.CHECKOUT, os.environ), start.say, wanted))\n"
        )
        env = {**self.bench.variables, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([sys.executable, "-c", code], env=env, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_an_installed_plugin_keeps_its_environment_in_its_data_folder(bench: Bench, tmp_path: Path) -> None:
    """An update with the same lock uses the environment as it is, one with another lock mends it; the copies stay as they were."""
    bench.have_uv()
    installed, work = Installed(bench), tmp_path / "project"
    work.mkdir()
    first = installed.copy("0.1.0")
    files = sorted(first.rglob("*"))
    made = installed.use(first, work)
    environment = installed.plugins / "data" / "kernelwright-market" / "env"
    assert (made.returncode, made.stdout.strip()) == (0, str(environment / "bin" / "python")), made.stderr
    assert "creating" in made.stderr or "installing" in made.stderr, "the first use sets up, and says so"
    mark = environment / "mark"
    mark.write_text("")
    stamp = (environment / "kernelwright-env.json").stat().st_mtime_ns

    same = installed.use(installed.copy("0.2.0"), work)
    assert (same.returncode, same.stderr) == (0, ""), "the same lock: nothing to do"
    assert mark.exists() and (environment / "kernelwright-env.json").stat().st_mtime_ns == stamp

    bench.pin("2.0")
    other = installed.use(installed.copy("0.3.0"), work)
    assert other.returncode == 0 and other.stderr != ""
    bench.environment = environment
    assert bench.installed() == "2.0"
    assert sorted(first.rglob("*")) == files and list(work.iterdir()) == [], "neither the plugin nor the project is written to"
    for path in [installed.plugins, *installed.plugins.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)  # so that the test's folder can be removed
