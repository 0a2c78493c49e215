"""kernelwright.profile, Profile.load and kernelwright.capture as a person calls them."""

import inspect
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import builders
import kernelwright
from kernelwright.api import own_steps, profiling
from kernelwright.model.errors import BadInput
from kernelwright.model.profile import Profile
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline.profile import ProfileOptions
from kernelwright.report import write_profile
from warm_start import warm_start

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = """
import torch
def once(x): return x @ x
def twice(x): return (x @ x) @ x
def get_inputs(n=64): return (torch.ones(n, n),)
PARAMS = {"n": 64}
VERSIONS = {"v1": once, "v2": twice}
"""


def in_a_process(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(textwrap.dedent(code))
    return subprocess.run([sys.executable, "mine.py"], cwd=folder, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **variables})


def test_a_profile_is_written_returned_and_loaded_again(tmp_path: Path) -> None:
    (tmp_path / "mm.py").write_text(WORKLOAD)
    with warm_start():
        found = kernelwright.profile(tmp_path / "mm.py", "event", tmp_path / "here", "v2", 12, params={"n": 32}, device="cpu",
                                     python=sys.executable)
    assert isinstance(found, kernelwright.Profile) and found.folder == tmp_path / "here"
    assert found.timing is not None and found.timing.samples == 12 and found.parameters == {"n": 32}
    assert found.capture_metadata.version == "v2" and found.capture_metadata.mode == "event"
    again = kernelwright.Profile.load(tmp_path / "here")
    assert again == found and again.folder == found.folder
    assert kernelwright.Profile.load(tmp_path / "here" / "profile.json") == found
    assert {"report.md", "contract.md", "params.json"} <= {file.name for file in (tmp_path / "here").iterdir()}
    assert "folder" not in json.loads((tmp_path / "here" / "profile.json").read_text())


def test_a_run_that_fails_leaves_no_document_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "mm.py").write_text(WORKLOAD)
    write_profile(builders.event(), tmp_path / "here", params_doc={})
    with warm_start(), pytest.raises(kernelwright.KernelwrightError):
        kernelwright.profile(tmp_path / "mm.py", "event", tmp_path / "here", "v1", params={"n": -1}, device="cpu", python=sys.executable)
    assert {file.name for file in (tmp_path / "here").iterdir()} == {"raw", "error.json"}
    with pytest.raises(BadInput, match=r"there is no profile\.json") as raised:
        Profile.load(tmp_path / "here")
    assert "error.json says why" in raised.value.fix


@pytest.mark.parametrize(("given", "says"), [
    ({"bench_runs": 0}, "bench_runs is 0"), ({"bench_runs": True}, "bench_runs is True"), ({"warmup": -1}, "warmup is -1"),
    ({"mode": "ncu", "bench_runs": 5}, "mode ncu"), ({"mode": "fast"}, "unknown mode"), ({"clocks": "up"}, "clocks is 'up'"),
    ({"timeout_s": 0.0}, "timeout_s is 0.0"), ({"device": "tpu"}, "device is 'tpu'"), ({"compile_mode": "fast"}, "compile_mode is 'fast'"),
    ({"version": 3}, "version is 3"), ({"workload": 5}, "workload is '5'"),
    ({"version": "v9", "params": {}, "workload": WorkloadRef(path=Path("x"), name="x")}, "belong"),
])
def test_what_a_profile_can_not_be_asked_is_one_line(given: dict[str, object], says: str, tmp_path: Path) -> None:
    (tmp_path / "mm.py").write_text(WORKLOAD)
    with pytest.raises(kernelwright.KernelwrightError, match=says) as raised:
        kernelwright.profile(**{"workload": tmp_path / "mm.py", **given})  # type: ignore[arg-type]
    assert isinstance(raised.value, BadInput) and raised.value.fix


def test_options_come_from_the_call_then_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[WorkloadRef, str, ProfileOptions]] = []
    (tmp_path / "mm.py").write_text(WORKLOAD)
    (tmp_path / "kernelwright.yaml").write_text("clocks: '1200'\nkernels: {mm: {file: mm.py, versions: [v1, v2], device: cpu}}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(profiling, "_run", lambda workload, mode, out_dir, options, say: asked.append((workload, mode, options)))
    kernelwright.profile("v2")
    kernelwright.profile("mm", "nsys", version="v1", clocks="none", bench_runs=7)
    assert [(work.version, mode, options.clocks, options.device, options.steps) for work, mode, options in asked] == \
        [("v2", "annotation", "1200", "cpu", None), ("v1", "nsys", "none", "cpu", 7)]


def test_the_signatures_are_those_that_are_documented() -> None:
    assert list(inspect.signature(kernelwright.profile).parameters)[:5] == ["workload", "mode", "out_dir", "version", "bench_runs"]
    page = (ROOT / "docs" / "api.md").read_text()
    for function in (kernelwright.profile, own_steps.capture):
        for name in inspect.signature(function).parameters:
            assert f"`{name}`" in page, name
    assert all(f"`{name}" in page or f"kernelwright.{name}" in page for name in kernelwright.__all__)


def test_a_program_records_its_own_steps(tmp_path: Path) -> None:
    done = in_a_process("""
        import sys, torch, kernelwright
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
        x = torch.ones(8, 64)
        with kernelwright.capture("mine", out_dir="out", warmup=2, steps=3, model=model) as capture:
            for _ in range(9):
                with capture.step():
                    y = model(x)
        heavy = [name for name in ("pydantic", "matplotlib", "kernelwright.pipeline") if name in sys.modules]
        assert not heavy, heavy  # until here torch and the standard library were enough
        profile = capture.profile()
        assert profile == kernelwright.Profile.load("out")
        assert sum(operator.operator_name == "aten::addmm" for operator in profile.operators), profile.operators
        print(profile.script.profiled_steps, profile.script.warmup_steps, profile.capture_metadata.training, profile.folder.name)
        print(profile.capture_metadata.dtype, sorted({operator.module for operator in profile.operators if operator.module}))
    """, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "3 2 False out" and lines[1] == "float32 ['0', '1']" and "warning" not in done.stderr.lower()
    assert (tmp_path / "out" / "report.md").is_file() and (tmp_path / "out" / "contract.md").is_file()


def test_a_capture_never_breaks_the_program(tmp_path: Path) -> None:
    done = in_a_process("""
        import torch, kernelwright
        with kernelwright.capture("few", "event", "few", warmup=1, steps=4) as few:
            with few.step():
                torch.ones(4)
        try:
            few.profile()
        except kernelwright.KernelwrightError as error:
            print(error.code)
        with kernelwright.capture("none", "event", "none") as none:
            pass
        try:
            with kernelwright.capture("raising", "event", "raising", warmup=0, steps=1) as raising:
                with raising.step():
                    raise KeyError("mine")
        except KeyError as error:
            print("own", error)
        try:
            raising.profile()
        except kernelwright.KernelwrightError as error:
            print(error.code, error.exit_code)
        try:
            with kernelwright.capture("x", out_dir="mine.py"):
                pass
        except OSError as error:
            print("mine.py is a file" in str(error))
        with torch.profiler.profile():
            with kernelwright.capture("busy", out_dir="busy", warmup=0, steps=1) as busy:
                for _ in range(2):
                    with busy.step():
                        torch.ones(4)
        try:
            busy.profile()
        except kernelwright.KernelwrightError as error:
            print(error.code)
        with kernelwright.capture("timed", "event", "timed", warmup=1, steps=6) as timed:
            for _ in range(7):
                with timed.step():
                    torch.ones(4)
        print(timed.profile().timing.samples)
        with kernelwright.capture("nested", out_dir="nested", warmup=0, steps=2, stacks=False) as nested:
            for _ in range(2):
                with nested.step():
                    with nested.step():
                        torch.ones(4)
        found = nested.profile()
        print(found.script.profiled_steps, [line for line in found.warnings if "inside another one" in line])
        with torch.profiler.profile():  # no profiler was left running
            torch.ones(4)
    """, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["too_few_steps", "own 'mine'", "step_raised 4", "True", "profiler_busy", "6",
                                        "2 ['a step began inside another one: it counts as part of that']"]
    assert "ended after 1 step;" in done.stderr and "no step was marked" in done.stderr
    assert json.loads((tmp_path / "few" / "error.json").read_text())["code"] == "too_few_steps"


def test_a_step_that_did_not_come_to_its_end_says_how_it_was_left(tmp_path: Path) -> None:
    done = in_a_process("""
        import sys, torch, kernelwright
        def closed(capture):
            with capture.step():
                yield
        def interrupted(capture):
            with capture.step():
                raise KeyboardInterrupt
        def ended(capture):
            with capture.step():
                sys.exit(3)
        def leave(capture):
            torch.ones(4)
            generator = closed(capture)
            next(generator)
            generator.close()
        for how in (leave, interrupted, ended):
            try:
                with kernelwright.capture("mine", "event", how.__name__, warmup=0, steps=2) as capture:
                    with capture.step():
                        torch.ones(4)
                    how(capture)
            except (KeyboardInterrupt, SystemExit) as error:
                print(type(error).__name__)
            try:
                capture.profile()
            except kernelwright.KernelwrightError as error:
                print(error.code, error.exit_code, error.message)
    """, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "step_raised 4 a step of the capture was left before its end, and that ended it after 1 step",
        "KeyboardInterrupt", "interrupted 130 interrupted", "SystemExit",
        "step_raised 4 a step of the capture ended the program (exit status 3), and that ended it after 1 step"]
    assert "was left before its end" in done.stderr and json.loads((tmp_path / "interrupted" / "error.json").read_text())["fix"]


def test_a_run_that_is_refused_before_it_begins_leaves_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "mm.py").write_text(WORKLOAD)
    write_profile(builders.event(), tmp_path / "here", params_doc={})
    before = {file.name: file.read_bytes() for file in (tmp_path / "here").iterdir()}
    with pytest.raises(BadInput) as raised:
        kernelwright.profile(tmp_path / "mm.py", "event", tmp_path / "here", "v1", device="cpu", python=tmp_path / "nothing")
    assert raised.value.code == "bad_python" and before == {file.name: file.read_bytes() for file in (tmp_path / "here").iterdir()}


@pytest.mark.parametrize("given", [{"mode": "ncu"}, {"steps": 0}, {"warmup": -1}, {"device": "tpu"}, {"name": " "}, {"steps": True}])
def test_what_a_capture_can_not_be_asked(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        kernelwright.capture(**given)


def test_a_capture_that_has_not_run_says_so(tmp_path: Path) -> None:
    made = kernelwright.capture("x", out_dir=tmp_path)
    assert isinstance(made, kernelwright.Capture)
    with pytest.raises(RuntimeError, match="belongs inside"):
        made.step()
    with pytest.raises(RuntimeError, match="has not ended"):
        made.profile()
