"""The table of bad inputs: what a person can get wrong, and what each verb then says.

A row names the command, the files it finds, and the documented answer: exit code, error code, words of the message, of the place and of the
mend. `tests/e2e/test_bad_inputs.py` runs it.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import sys
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

import builders
from kernelwright.optimize import state as states
from kernelwright.report import write_profile

IN_PROCESS, PROCESS, SCRIPT = "in-process", "process", "script"
ESC = "\x1b]0;owned\x07\x1b[31m"

ENTRY = "\n\n\ndef get_model_and_input():\n    return None\n"
"""Makes a file a workload: without an entry point it would be a script."""
GOOD = "import torch\n\n\ndef get_model_and_input():\n    return torch.nn.Linear(4, 4), torch.ones(2, 4)\n"
VERSIONS = ("import torch\n\nPARAMS = {'n': 4, 'dtype': torch.float32}\n\n\ndef get_inputs(n, dtype):\n"
            "    return (torch.ones(n, dtype=dtype),)\n\n\nVERSIONS = {'v1': lambda x: x + 1}\n")
PROJECT = ("kernels:\n  mla: {file: w.py, versions: [v1, v2], default_version: v1}\n  softmax: {file: w.py, versions: [v2]}\n"
           "  gone: {file: gone.py}\n")


def archive_of(*names: str) -> bytes:
    """An xz archive of empty files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as made:
        for name in names:
            made.addfile(tarfile.TarInfo(name))
    return lzma.compress(buffer.getvalue())


def bomb(folder: Path) -> None:
    (folder / "b.tar.xz").write_bytes(lzma.compress(bytes(100 << 20), preset=0))


def body(code: str) -> str:
    """A workload whose model, when called, runs `code`."""
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    return f"import ctypes, os, shutil, signal, sys\nimport torch\n\n\ndef model(x):\n{lines}    return x\n\n\n" \
           "def get_model_and_input():\n    return model, torch.ones(2)\n"


@dataclass(frozen=True)
class Row:
    """One bad input. `argv` starts with the verb; `{dir}` in it stands for the folder that the row runs in."""

    name: str
    argv: tuple[str, ...]
    exit: int
    code: str
    says: str = ""
    where: str = ""
    fix: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    prepare: Callable[[Path], object] | None = None
    """Runs in the row's folder once the files are there."""
    env: Mapping[str, str] = field(default_factory=dict)
    how: str = IN_PROCESS
    begun: bool = False
    """A run had begun: error.json is in its folder."""
    file_limit_bytes: int | None = None
    """A full disk: no file may become larger than this (RLIMIT_FSIZE)."""
    check: Callable[[Path], object] | None = None
    """What else must hold of the folder afterwards."""


def link(target: str, name: str = "w.py") -> Callable[[Path], object]:
    return lambda folder: (folder / name).symlink_to(target)


def sparse(size: int, name: str = "w.py") -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        with (folder / name).open("wb") as file:
            file.truncate(size)

    return make


def fifo(name: str) -> Callable[[Path], object]:
    return lambda folder: os.mkfifo(folder / name)


def executable(text: str, name: str = "python") -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    return make


def stored(name: str = "p", **changes: object) -> Callable[[Path], object]:
    """A stored event profile of an H200."""
    def make(folder: Path) -> None:
        profile = builders.event(capture_metadata=builders.metadata(mode="event", **changes))
        write_profile(profile, folder / name, params_doc={"kernel": "mla", "version": "v4"})

    return make


def two_stored(folder: Path) -> None:
    stored("p")(folder)
    stored("q", device_name="NVIDIA A100")(folder)


def newer(folder: Path) -> None:
    stored()(folder)
    file = folder / "p" / "profile.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "schema_version": "9.0", "quantum": True}))


def logged(change: Callable[[Path], object]) -> Callable[[Path], object]:
    """A profile and a log with one entry; then `change`."""
    def make(folder: Path) -> None:
        from kernelwright.devlog import add_entry

        stored()(folder)
        add_entry(builders.event(), folder / "k.devlog.md")
        change(folder)

    return make


def optimisation(ledger: str = "", state: str | None = None, **changes: object) -> Callable[[Path], object]:
    """An optimisation in opt/ that can be resumed, but for what is broken in it."""
    def make(folder: Path) -> None:
        opt, capture = folder / "opt", Path(__file__).parent / "data" / "captures" / "h200" / "mlp_activations" / "result.json"
        write_profile(builders.gpu_annotation(), opt / "baseline", params_doc={})
        (opt / "baseline" / "raw").mkdir()
        (opt / "baseline" / "raw" / "result.json").write_bytes(capture.read_bytes())
        values = {"workload": str(folder / "w.py"), "workload_sha256": states.digest_of(folder / "w.py"), "version": None, "params": {},
                  "precision": "equal", "device": "cpu", "device_name": "cpu", "torch_version": torch.__version__, "seed": 0,
                  "budget_s": 60.0, "started_utc": states.utc_now()}
        states.save(opt, states.State.model_validate({**values, **changes}))
        (opt / "ledger.jsonl").write_text(ledger)
        if state is not None:
            (opt / "state.json").write_text(state)

    return make


def nothing_made(folder: Path) -> None:
    assert not (folder / "out").exists(), "a refused input leaves no folder"


def intact(name: str) -> Callable[[Path], object]:
    def check(folder: Path) -> None:
        assert (folder / name).is_file(), f"{name} is gone"

    return check


def _profile(name: str, code: str, says: str, **more: object) -> Row:
    """A workload file that no process need be started for."""
    argv = more.pop("argv", ("profile_kernel", "w.py"))
    return Row(name, argv, 2, code, says, check=nothing_made, **more)  # type: ignore[arg-type]


def _usage(name: str, argv: tuple[str, ...], says: str, code: str = "usage", **more: object) -> Row:
    return Row(name, argv, 2, code, says, files={"w.py": GOOD}, check=nothing_made, **more)  # type: ignore[arg-type]


def _yaml(name: str, text: str | bytes, code: str, says: str, **more: object) -> Row:
    argv = more.pop("argv", ("profile_kernel", "mla"))
    return Row(name, argv, 2, code, says, where="kernelwright.yaml", files={"kernelwright.yaml": text, "w.py": GOOD},
    # type: ignore[arg-type]
               check=nothing_made, **more)  # type: ignore[arg-type]


FILES = [
    _profile("missing file", "no_such_workload", "no such file", where="w.py", fix="path"),
    _profile("no such kernel, no project", "no_such_workload", "kernelwright.yaml", argv=("profile_kernel", "v4"), where="v4"),
    _profile("folder", "is_folder", "is a folder", prepare=lambda folder: (folder / "w.py").mkdir()),
    _profile("binary file", "not_python", "NUL", files={"w.py": b"\x7fELF\x02\x01\x01" + bytes(64)}),
    _profile("UTF-16 file", "not_python", "UTF-16", files={"w.py": GOOD.encode("utf-16")}),
    _profile("Latin-1 file", "not_python", "UTF-8", where="w.py:2", fix="coding", files={"w.py": b"import torch\nx = '\xe9'\n"}),
    _profile("link to itself", "unreadable", "symbolic links", prepare=link("w.py")),
    _profile("link to nothing", "no_such_workload", "no such file", prepare=link("gone.py")),
    _profile("pipe", "not_a_file", "regular file", prepare=fifo("w.py")),
    _profile("device", "not_a_file", "regular file", argv=("profile_kernel", "/dev/zero")),
    _profile("file that can't be read", "unreadable", "can't be read", prepare=link("/proc/self/mem")),
    _profile("huge file", "not_python", "larger than", prepare=sparse(1 << 36)),
    _profile("name too long", "unreadable", "File name too long", argv=("profile_kernel", "x" * 300 + ".py")),
    _profile("name with a line end", "no_such_workload", "no such file", argv=("profile_kernel", "a\nkernelwright: done.py"),
        where="a\nkern"),
    _profile("name with terminal escapes", "no_such_workload", "no such file", argv=("profile_kernel", f"{ESC}.py")),
    _profile("name that is a shell command", "no_such_workload", "no such file", argv=("profile_kernel", "$(touch owned).py")),
    _profile("name that is no text", "bad_encoding", "UTF-8", argv=("profile_kernel", "\udcff.py")),
    _profile("name with NUL", "bad_encoding", "UTF-8", argv=("profile_kernel", "a\0.py")),
    _profile("empty name", "is_folder", "is a folder", argv=("profile_kernel", "")),
]

USAGE = [
    _usage("unknown verb", ("polish", "w.py"), "unknown verb", "unknown_verb", fix="profile_kernel"),
    _usage("no target", ("profile_kernel",), "TARGET"),
    _usage("name that begins with a dash", ("profile_kernel", "--", "-dash.py"), "TARGET", fix="./-NAME.py"),
    _usage("unknown mode", ("profile_kernel", "w.py", "--mode", "magic"), "--mode"),
    _usage("unknown device", ("profile_kernel", "w.py", "--device", "tpu"), "--device"),
    _usage("unknown compile mode", ("profile_kernel", "w.py", "--compile-mode", "fast"), "--compile-mode"),
    _usage("nonsense clocks", ("profile_kernel", "w.py", "--clocks", "fast"), "MHz"),
    _usage("negative steps", ("profile_kernel", "w.py", "--steps", "-1"), "--steps"),
    _usage("no steps", ("profile_kernel", "w.py", "--steps", "0"), "at least 1"),
    _usage("steps in words", ("profile_kernel", "w.py", "--warmup", "some"), "whole number"),
    _usage("missing value", ("profile_kernel", "w.py", "--steps"), "expected one argument"),
    _usage("option twice", ("profile_kernel", "w.py", "--mode", "event", "--mode=annotation"), "2 times", "given_twice"),
    _usage("parameter twice", ("profile_kernel", "w.py", "--b=1", "--b=2"), "twice", "given_twice", where="profile_kernel"),
    _usage("parameter without value", ("profile_kernel", "w.py", "--b"), "'--b'", "unknown_argument", fix="--NAME=VALUE"),
    _usage("stray word", ("judge", "w.py", "w.py", "v2"), "2 candidates"),
    _usage("nonsense timeout", ("profile_kernel", "w.py", "--timeout", "soon"), "not a duration"),
    _usage("endless timeout", ("profile_kernel", "w.py", "--timeout", "9" * 400 + "h"), "at most"),
    _usage("empty output folder", ("profile_kernel", "w.py", "--out", ""), "--out"),
    _usage("empty model name", ("profile_kernel", "w.py", "--model-name", " "), "--model-name"),
    _usage("endless model name", ("profile_kernel", "w.py", "--model-name", "x" * 10_000), "--model-name"),
    _usage("nonsense budget", ("optimize", "w.py", "--budget", "lots"), "not a duration"),
    _usage("no budget", ("optimize", "w.py", "--budget", "0"), "above 0"),
    _usage("negative budget", ("optimize", "w.py", "--budget=-5m"), "not a duration"),
    _usage("unknown precision", ("optimize", "w.py", "--precision", "fp8"), "--precision"),
    _usage("judge without candidate", ("judge", "w.py"), "CANDIDATE"),
    _usage("too few rounds", ("judge", "w.py", "w.py", "--rounds", "2"), "at least 3"),
    _usage("two candidates", ("judge", "w.py", "w.py", "w.py"), "2 candidates", fix="--kernelbench"),
    _usage("bundle of another ending", ("judge", "w.py", "w.py", "--bundle", "b.zip"), ".tar.xz"),
    _usage("unknown sanitizer", ("judge", "w.py", "w.py", "--sanitize=valgrind"), "--sanitize"),
    _usage("precision of a bundle", ("judge", "b.tar.xz", "--precision", "bf16"), "--precision", fix="leave it out"),
    _usage("candidate beside a bundle", ("judge", "b.tar.xz", "c.py"), "CANDIDATE", fix="leave it out"),
    _usage("parameter of a bundle", ("judge", "b.tar.xz", "--b=3"), "--b", fix="leave it out"),
    _usage("bundle of many", ("judge", "w.py", "w.py", "--kernelbench", "--bundle", "b.tar.xz"), "--bundle"),
    _usage("negative seed", ("judge", "w.py", "w.py", "--seed=-1"), "--seed"),
    _usage("compare nothing", ("compare",), "needs at least two profiles", "one_profile"),
    _usage("nonsense gate", ("compare", "a", "b", "--fail-above", "a lot"), "percentage"),
    _usage("negative gate", ("compare", "a", "b", "--fail-above=-3"), "percentage"),
    _usage("endless gate", ("compare", "a", "b", "--fail-above", "1e999%"), "percentage"),
    _usage("parameter for compare", ("compare", "a", "b", "--b=3"), "--b", "unknown_argument"),
    _usage("devlog without action", ("devlog",), "add|show"),
    _usage("unknown action", ("devlog", "burn"), "burn"),
    _usage("log twice", ("devlog", "show", "--log", "a.md", "--log", "b.md"), "2 times", "given_twice"),
    _usage("stray word for doctor", ("doctor", "please"), "please", "unknown_argument", how=SCRIPT, where="doctor.py"),
    _usage("unknown option of doctor", ("doctor", "--fix"), "--fix", "unknown_argument"),
    _usage("parameter for doctor", ("doctor", "--b=3"), "--b", "unknown_argument"),
    _usage("unknown action for the clocks", ("gpu_clock", "boost"), "boost", how=SCRIPT),
    _usage("doctor's missing value", ("doctor", "--python"), "expected one argument"),
]

REPORTS = [
    Row("text file named as a report", ("profile_kernel", "r.ncu-rep"), 2, "not_a_report", "Nsight Compute", "r.ncu-rep", "ncu",
        files={"r.ncu-rep": "kernel,duration"}, check=nothing_made),
    Row("empty report", ("profile_kernel", "r.ncu-rep"), 2, "empty_report", "empty", "r.ncu-rep",
        files={"r.ncu-rep": b""}, check=nothing_made),
    Row("no such report", ("profile_kernel", "r.ncu-rep"), 2, "no_such_report", "no such file", "r.ncu-rep", check=nothing_made),
    Row("report of 2 GB", ("profile_kernel", "r.ncu-rep"), 2, "report_too_large", "larger than", "r.ncu-rep",
        prepare=sparse(2 << 30, "r.ncu-rep"), check=nothing_made),
    Row("folder without reports", ("profile_kernel", "d", "--mode", "ncu"), 2, "no_reports", "holds no", "d",
        prepare=lambda folder: (folder / "d").mkdir(), check=nothing_made),
    Row("report in another mode", ("profile_kernel", "r.ncu-rep", "--mode", "event"), 2, "report_not_taken", "mode ncu", "r.ncu-rep",
        files={"r.ncu-rep": b"NVR"}),
    Row("report with parameters", ("profile_kernel", "r.ncu-rep", "--b=3"), 2, "report_not_run", "--b", "r.ncu-rep",
        files={"r.ncu-rep": b"NVR"}),
    Row("budget for counters in mode ncu", ("profile_kernel", "w.py", "--mode", "ncu", "--ncu-budget", "30s"), 2, "only_annotation",
        "--ncu-budget", "--mode", files={"w.py": GOOD}, check=nothing_made),
    Row("choice of launches in another mode", ("profile_kernel", "w.py", "--kernel", "gemm"), 2, "only_ncu", "--kernel", "--mode",
        files={"w.py": GOOD}),
    Row("report against a workload", ("compare", "r.ncu-rep", "w.py"), 2, "mixed_modes", "mode ncu", "compare",
        files={"r.ncu-rep": b"NVR", "w.py": GOOD}),
    Row("three reports", ("compare", "r.ncu-rep", "r.ncu-rep", "r.ncu-rep"), 2, "two_captures", "two at a time", "compare",
        files={"r.ncu-rep": b"NVR"}),
]

MACHINE = [
    Row("mode without GPU", ("profile_kernel", "w.py", "--mode", "ncu"), 3, "no_ncu", "GPU", "--mode ncu", "--mode event",
        files={"w.py": GOOD},
        env={"CUDA_VISIBLE_DEVICES": ""}, check=nothing_made),
    Row("no such Python", ("profile_kernel", "w.py", "--python", "{dir}/none"), 2, "bad_python", "could not be run", "--python", "torch",
        files={"w.py": GOOD}, check=nothing_made),
    Row("Python that is none", ("profile_kernel", "w.py", "--python", "{dir}/python"), 2, "bad_python", "not a working Python",
        files={"w.py": GOOD}, prepare=executable("#!/bin/sh\nprintf 'TORCH \\377\\033[31m'\n"), check=nothing_made),
    Row("Python without torch", ("judge", "w.py", "w.py", "--python", "{dir}/python"), 2, "bad_python", "has no torch", fix="torch",
        files={"w.py": GOOD}, prepare=executable("#!/bin/sh\necho NONE\n"), begun=True),
    Row("Python too old", ("optimize", "w.py", "--python", "{dir}/python"), 2, "bad_python", "3.8", fix="3.10",
        files={"w.py": GOOD}, prepare=executable("#!/bin/sh\necho OLD 3.8\n"), check=nothing_made),
    Row("lock in no folder", ("profile_kernel", "w.py", "--python", sys.executable), 3, "lock_not_writable", "lock", "/dev/null/x",
        "KERNELWRIGHT_LOCK", files={"w.py": GOOD}, env={"KERNELWRIGHT_LOCK": "/dev/null/x/lock"}, begun=True),
]

OUTPUT = [
    Row("output is a file", ("profile_kernel", "w.py", "--out", "taken", "--python", sys.executable), 2, "output_not_writable",
        "can't write",
        "taken", "--out", files={"w.py": GOOD, "taken": "mine"}, check=intact("taken")),
    Row("output in no folder", ("judge", "w.py", "w.py", "--out", "/proc/none/out"), 2, "output_not_writable", "can't write",
        "/proc/none/out",
        "--out", files={"w.py": GOOD}),
    Row("optimise into a file", ("optimize", "w.py", "--out", "taken/deeper", "--python", sys.executable), 2, "output_not_writable",
        "can't write", "taken", "--out", files={"w.py": GOOD, "taken": "mine"}, check=intact("taken")),
    Row("optimise where one is", ("optimize", "w.py", "--out", "opt", "--python", sys.executable, "--device", "cpu"), 2, "folder_in_use",
        "already", "opt", "--resume", files={"w.py": GOOD}, prepare=optimisation(), check=intact("opt/state.json")),
    Row("full disk at the start", ("profile_kernel", "w.py", "--python", sys.executable, "--device", "cpu"), 3, "no_disk_space",
        "disk is full",
        "request.json", "free some space", files={"w.py": GOOD}, how=PROCESS, file_limit_bytes=0),
    Row("full disk on the way", ("profile_kernel", "w.py", "--python", sys.executable, "--device", "cpu", "--out", "o"), 3, "no_disk_space",
        "disk is full", fix="free some space", files={"w.py": body("print('x' * 100_000)")}, how=PROCESS, file_limit_bytes=20_000,
        begun=True),
    Row("full disk for a judgement", ("judge", "w.py", "w.py", "--python", sys.executable, "--device", "cpu", "--out", "o"), 3,
        "no_disk_space", "disk is full", fix="free some space", files={"w.py": GOOD}, how=PROCESS, file_limit_bytes=10),
    Row("full disk for the log", ("devlog", "add", "p", "--log", "k.devlog.md"), 3, "no_disk_space", "disk is full", "k.devlog",
        "free some",
        prepare=logged(lambda folder: None), how=PROCESS, file_limit_bytes=100, check=intact("k.devlog.jsonl")),
]

PROJECTS = [
    _yaml("broken YAML", "kernels:\n  mla: [unclosed\n", "broken_yaml", "not valid YAML"),
    _yaml("YAML with tabs", "kernels:\n\tmla: {file: w.py}\n", "broken_yaml", "not valid YAML"),
    _yaml("kernel twice", "kernels:\n  mla: {file: w.py}\n  mla: {file: gone.py}\n", "broken_yaml", "'mla' is given twice"),
    _yaml("YAML in Latin-1", b"kernels: {m\xe9: {file: w.py}}\n", "broken_yaml", "not valid YAML"),
    _yaml("empty YAML", "", "no_kernels", "kernels:"),
    _yaml("YAML of a list", "- a\n- b\n", "no_kernels", "kernels:"),
    _yaml("kernels of text", "kernels: mla\n", "no_kernels", "kernels:"),
    _yaml("kernel without file", "kernels: {mla: {versions: [v1]}}\n", "no_kernel_file", "file:"),
    _yaml("unknown key", "kernels: {mla: {file: w.py, colour: red}}\n", "unknown_key", "colour"),
    _yaml("nested parameters", "kernels: {mla: {file: w.py, params: {b: [1, 2]}}}\n", "bad_params", "single values"),
    _yaml("versions of numbers", "kernels: {mla: {file: w.py, versions: [1, 2]}}\n", "bad_versions", "list of names"),
    _yaml("version of a date", "kernels: {mla: {file: w.py, default_version: 2024-01-01}}\n", "bad_default_version", "text"),
    _yaml("YAML that runs Python", "kernels: !!python/object/apply:os.system ['touch owned']\n", "broken_yaml", "not valid YAML"),
    _yaml("YAML merge bomb", "a0: &a0 {k: 1, l: 2}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 10)), "broken_yaml", "more than"),
    _yaml("YAML alias bomb", "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
          + "kernels: {mla: {file: w.py, versions: *a11}}\n", "unknown_key", "'a0'"),
    _yaml("YAML nested deeply", "kernels: " + "[" * 2_000 + "\n", "broken_yaml", "nested more than 50 deep"),
    _yaml("huge YAML", "# " + "x" * 2_000_000, "project_too_large", "larger"),
    _yaml("unknown kernel", PROJECT, "no_such_kernel", "v9", argv=("profile_kernel", "v9"), fix="mla (v1, v2)"),
    _yaml("unknown version of a kernel", PROJECT, "no_such_version", "v9", argv=("profile_kernel", "mla", "v9"), fix="v1, v2"),
    _yaml("version of two kernels", PROJECT, "ambiguous_version", "v2", argv=("optimize", "v2"), fix="mla v2 or softmax v2"),
    Row("kernel whose file is gone", ("judge", "gone", "w.py"), 2, "no_such_workload", "does not exist", "gone.py", "kernelwright.yaml",
        files={"kernelwright.yaml": PROJECT, "w.py": GOOD}, check=nothing_made),
    Row("project file that can't be read", ("profile_kernel", "mla"), 2, "unreadable", "can't be read", "kernelwright.yaml", "readable",
        prepare=link("/proc/self/mem", "kernelwright.yaml"), check=nothing_made),
]

STORED = [
    Row("baseline that is no profile", ("profile_kernel", "w.py", "--baseline", "."), 2, "no_profile", "no profile.json", "profile.json",
        "folder",
        files={"w.py": GOOD}, check=nothing_made),
    Row("broken baseline", ("profile_kernel", "w.py", "--baseline", "p"), 2, "broken_profile", "not a profile.json", "p/profile.json",
        "profile again", files={"w.py": GOOD, "p/profile.json": '{"schema_version": '}, check=nothing_made),
    Row("baseline of the future", ("profile_kernel", "w.py", "--baseline", "p"), 2, "newer_profile", "schema 9.0", "p/profile.json",
        "upgrade",
        files={"w.py": GOOD}, prepare=newer, check=nothing_made),
    Row("baseline that is a pipe", ("profile_kernel", "w.py", "--baseline", "pipe"), 2, "no_profile", "no profile", "pipe",
        files={"w.py": GOOD}, prepare=fifo("pipe"), check=nothing_made),
    Row("one profile", ("compare", "p"), 2, "one_profile", "two", "compare", "A B", prepare=stored(), how=SCRIPT),
    Row("compare with nothing", ("compare", "p", "v9"), 2, "no_profile", "no stored profile", "v9", "profile it first", prepare=stored()),
    Row("compare with a pipe", ("compare", "p", "pipe"), 2, "no_profile", "no profile", "pipe",
        prepare=lambda folder: (stored()(folder), fifo("pipe")(folder))),
    Row("compare with a device", ("compare", "p", "/dev/zero"), 2, "no_profile", "no profile", "/dev/zero", prepare=stored()),
    Row("compare with a binary file", ("compare", "p", "b"), 2, "broken_profile", "not a profile.json", "/b", files={"b": bytes(100)},
        prepare=stored()),
    Row("compare with the future", ("compare", "p", "p"), 2, "newer_profile", "9.0", "profile.json", "upgrade", prepare=newer),
    Row("compare a long name", ("compare", "p", "x" * 5000), 2, "no_profile", "no stored profile", "xxx", prepare=stored()),
    Row("gate over two devices", ("compare", "p", "q", "--fail-above", "3%"), 2, "gate_refused", "A100", "--fail-above", "same settings",
        prepare=two_stored, check=intact("p/profile.json")),
    Row("show without a log", ("devlog", "show"), 2, "no_log", "no development log", fix="devlog add", how=SCRIPT),
    Row("show of an unknown kernel", ("devlog", "show", "mla"), 2, "no_log", "no such", "mla.devlog.jsonl", "devlog"),
    Row("show of a folder", ("devlog", "show", "--log", "d.md"), 2, "log_is_folder", "folder", "d.md", "NAME",
        prepare=lambda folder: (folder / "d.md").mkdir()),
    Row("show of a binary file", ("devlog", "show", "--log", "b.jsonl"), 2, "not_a_log", "no development log", "b.jsonl", "--log",
        files={"b.jsonl": bytes(range(256)) * 4}),
    Row("log with another suffix", ("devlog", "add", "p", "--log", "k.txt"), 2, "log_name", ".md", "k.txt", ".devlog.md", prepare=stored()),
    Row("entry of nothing", ("devlog", "add", "gone"), 2, "no_profile", "no profile", "gone", "folder"),
    Row("empty note", ("devlog", "add", "p", "--issue", " "), 2, "empty_note", "empty", "--issue", "leave", prepare=stored()),
    Row("log in no folder", ("devlog", "add", "p", "--log", "/proc/none/k.md"), 2, "output_not_writable", "can't write", "/proc/none",
        "--log",
        prepare=stored()),
    Row("somebody else's file as log", ("devlog", "add", "p", "--log", "README.md"), 2, "foreign_log", "not made by", "README.md", "--log",
        files={"README.md": "# Mine\n"}, prepare=stored(), check=lambda folder: (folder / "README.md").read_text() == "# Mine\n" or 1 / 0),
    Row("log edited by hand", ("devlog", "add", "p", "--log", "k.devlog.md"), 2, "edited_log", "edited", "k.devlog.md", "--insight",
        prepare=logged(lambda folder: (folder / "k.devlog.md").open("a").write("mine\n"))),
    Row("project of an empty folder", ("init",), 2, "nothing_found", "no workload", fix="get_model_and_input", how=SCRIPT),
    Row("gate without a project", ("bench", "--check"), 2, "no_project", "no kernelwright.yaml", "bench", "init", how=SCRIPT),
    Row("gate that holds nothing", ("bench", "--check"), 2, "no_budgets", "no budget", "kernelwright.yaml", "budgets:",
        files={"k.py": ENTRY, "kernelwright.yaml": "kernels: {k: {file: k.py}}"}),
    Row("gate with a budget that limits nothing", ("bench",), 2, "bad_budgets", "needs a limit", "kernelwright.yaml", "duration_us",
        files={"k.py": ENTRY, "kernelwright.yaml": "kernels: {k: {file: k.py, budgets: [{params: {n: 1}}]}}"}),
    Row("gate of an unknown kernel", ("bench", "q"), 2, "no_such_kernel", "'q'", "kernelwright.yaml", "k",
        files={"k.py": ENTRY, "kernelwright.yaml": "kernels: {k: {file: k.py}}"}),
    Row("report of the gate in no folder", ("bench", "--junit", "/proc/none/r.xml"), 2, "output_not_writable", "can't write", "/proc/none",
        files={"k.py": ENTRY, "kernelwright.yaml": "kernels: {k: {file: k.py, budgets: [{duration_us: 1}]}}"}),
    Row("report of the gate as a folder", ("bench", "--junit", "d"), 2, "output_not_writable", "can't write", "d",
        prepare=lambda at: (at / "d").mkdir(),
        files={"k.py": ENTRY, "kernelwright.yaml": "kernels: {k: {file: k.py, budgets: [{duration_us: 1}]}}"}),
    _usage("too few pairs", ("bench", "--pairs", "2"), "no interval"),
    Row("nothing to resume", ("optimize", "w.py", "--resume", "--python", sys.executable, "--device", "cpu"), 2, "nothing_to_resume",
        "no optimisation", "out/optimize/w", "without --resume", files={"w.py": GOOD}, check=nothing_made),
    Row("resume of an empty folder", ("optimize", "w.py", "--resume", "--out", "opt", "--python", sys.executable, "--device", "cpu"), 2,
        "nothing_to_resume", "no optimisation", "opt", "--out", files={"w.py": GOOD}),
    *(Row(name, ("optimize", "w.py", "--resume", "--out", "opt", "--python", sys.executable, "--device", "cpu"), 2, code, says, where,
          "without --resume", files={"w.py": GOOD}, prepare=optimisation(**broken), begun=True, check=intact("opt/baseline/profile.json"))
      for name, code, says, where, broken in (
          ("broken ledger", "broken_ledger", "not a row", "ledger.jsonl:1", {"ledger": '{"index": "one"}\n{"index": 2}\n'}),
          ("binary ledger", "broken_ledger", "not a row", "ledger.jsonl:1", {"ledger": "\x00\x01\n\x02\n"}),
          ("broken state", "broken_state", "not a state.json", "state.json", {"state": "{"}),
          ("state of another precision", "resume_mismatch", "precision was bf16", "--resume", {"precision": "bf16"}),
          ("state of another file", "resume_mismatch", "workload was", "--resume", {"workload_sha256": "0" * 64}),
      )),
]

CANDIDATES = [
    Row(f"candidate: {name}", ("judge", "w.py", argument), 2, code, says, check=nothing_made,
        files={"w.py": GOOD, **files}, prepare=prepare, how=how)
    for name, argument, code, says, files, prepare, how in (
        ("missing", "c.py", "no_such_candidate", "no such file", {}, None, SCRIPT),
        ("folder", ".", "is_folder", "folder", {}, None, IN_PROCESS),
        ("binary", "c.py", "not_python", "NUL", {"c.py": bytes(10)}, None, IN_PROCESS),
        ("pipe", "c.py", "not_a_file", "regular", {}, fifo("c.py"), IN_PROCESS),
        ("huge", "c.py", "not_python", "larger", {}, sparse(1 << 36, "c.py"), IN_PROCESS),
        ("link to itself", "c.py", "unreadable", "symbolic", {}, link("c.py", "c.py"), IN_PROCESS),
    )
]

BUNDLES = [
    Row(f"bundle: {name}", ("judge", "b.tar.xz"), 2, code, says, "b.tar.xz", files=files, prepare=prepare, how=how, check=nothing_made)
    for name, code, says, files, prepare, how in (
        ("missing", "no_such_file", "no such file", {}, None, IN_PROCESS),
        ("text", "not_a_bundle", "no xz archive", {"b.tar.xz": "hello"}, None, SCRIPT),
        ("foreign", "not_a_bundle", "another archive", {"b.tar.xz": lzma.compress(bytes(10240))}, None, IN_PROCESS),
        ("no archive", "not_a_bundle", "no tar", {"b.tar.xz": lzma.compress(b"x" * 2048)}, None, IN_PROCESS),
        ("truncated", "broken_bundle", "cut off", {"b.tar.xz": lzma.compress(bytes(range(256)) * 40)[:-30]}, None, IN_PROCESS),
        ("bomb", "bundle_too_large", "unpacks to more", {}, bomb, IN_PROCESS),
        ("huge", "bundle_too_large", "is larger", {}, sparse(1 << 33, "b.tar.xz"), IN_PROCESS),
        ("parent path", "unsafe_bundle", "leads elsewhere", {"b.tar.xz": archive_of("code/../../owned")}, None, SCRIPT),
        ("folder", "unreadable", "can't be read", {}, lambda folder: (folder / "b.tar.xz").mkdir(), IN_PROCESS),
        ("pipe", "unreadable", "regular", {}, fifo("b.tar.xz"), IN_PROCESS),
    )
]


def _fails(name: str, source: str | bytes, exit_code: int, code: str, says: str = "", *more_argv: str, **more: object) -> Row:
    """A profile that begins and fails in the workload."""
    argv = ("profile_kernel", "w.py", *more_argv, "--mode", "event", "--device", "cpu", "--python", sys.executable)
    values = {"where": "w.py", "files": {"w.py": source}, "how": PROCESS, "begun": True, **more}
    return Row(name, argv, exit_code, code, says, **values)  # type: ignore[arg-type]


HOSTILE_FILE = "a b'\"`$(touch owned);\n\x1b[31m\u202e|é.py"

WORKLOADS = [
    _fails("empty file", "", 2, "", fix=" "),
    _fails("syntax error", "import torch\ndef get_model_and_input(:\n", 2, "syntax_error", "SyntaxError", where="w.py:2"),
    _fails("raises on import", "\nraise ValueError('no luck')\n" + ENTRY, 4, "workload_raised", "no luck", where="w.py:2", how=SCRIPT),
    _fails("raises in the entry point", "def get_model_and_input():\n    raise RuntimeError('no luck')\n", 4, "workload_raised", "no luck",
           where="w.py:2"),
    _fails("leaves on import", "import os\nos._exit(0)\n" + ENTRY, 4, "workload_died", "status 0", fix="workload.log"),
    _fails("sys.exit on import", "import sys\nsys.exit('usage: train.py DATA')\n" + ENTRY, 4, "workload_exited", "exit status",
           fix="__main__"),
    _fails("missing module", "import no_such_module_at_all\n" + ENTRY, 3, "missing_module", "no_such_module_at_all", fix="install"),
    _fails("wrong arity", "import torch\n\n\ndef get_model_and_input():\n    return lambda a, b: a, torch.ones(2)\n", 4, "workload_raised",
           "missing 1 required positional argument"),
    _fails("wrong shapes", GOOD.replace("ones(2, 4)", "ones(2, 5)"), 4, "workload_raised", "shapes"),
    _fails("garbage for model and input", "def get_model_and_input():\n    return 'garbage'\n", 2, "bad_return", "not str", fix="tuple"),
    _fails("model that can't be called", "import torch\n\n\ndef get_model_and_input():\n    return 3, torch.ones(2)\n", 2, "not_callable",
        "int"),
    _fails("no tensor out", body("return 'words'"), 4, "no_tensor_output", "str", fix="return the computed tensor"),
    _fails("out of device memory", body("raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 200.00 GiB')"), 4,
           "out_of_memory", "200.00 GiB", fix="smaller inputs"),
    _fails("out of host memory", body("torch.empty(1 << 60)"), 4, "out_of_memory", "", fix="smaller inputs"),
    _fails("segmentation fault", body("ctypes.string_at(0)"), 4, "workload_died", "signal 11", fix="workload.log"),
    _fails("killed", body("os.kill(os.getpid(), signal.SIGKILL)"), 4, "workload_died", "signal 9"),
    _fails("endless loop", "while True:\n    pass\n", 4, "timeout", "within 1 s", "--timeout", "1s", fix="--timeout"),
    _fails("endless recursion", body("return model(x)"), 4, "workload_raised", "RecursionError"),
    _fails("megabytes on stdout", body("print('{\"status\": \"ok\"}\\n' * 300_000)\nraise ValueError('late')"), 4, "workload_raised",
        "late"),
    _fails("closed streams", body("os.close(0), os.close(1), os.close(2)\nraise ValueError('silent')"), 4, "workload_raised", "silent"),
    _fails("another folder", body("os.chdir('/')\nraise ValueError('moved')"), 4, "workload_raised", "moved", "--out", "o"),
    _fails("removed output", body("shutil.rmtree('out')\nraise ValueError('swept')"), 4, "workload_died", ""),
    _fails("hostile message", body(f"raise ValueError({ESC!r} + '\\nkernelwright: all is well\\n' + 'x' * 3_000_000)"), 4,
        "workload_raised",
           "ValueError"),
    _fails("error without words", "class Mute(Exception):\n    def __str__(self):\n        raise RuntimeError\n\n\nraise Mute\n" + ENTRY, 4,
           "workload_raised", "Mute"),
    _fails("byte order mark", b"\xef\xbb\xbf" + body("raise ValueError('past the mark')").encode(), 4, "workload_raised", "past the mark"),
    _fails("unknown parameter", VERSIONS, 2, "unknown_parameter", "'m'", "--m=3", fix="n, dtype"),
    _fails("parameter of the wrong type", VERSIONS, 2, "bad_parameter", "'many'", "--n=many", fix="n=4"),
    _fails("unknown version", VERSIONS, 2, "unknown_version", "v9", "v9", fix="v1"),
    _fails("version of a file without", GOOD, 2, "no_versions", "v9", "v9"),
    _fails("CUDA and none there", GOOD, 3, "no_cuda", "", "--model-name", "m", where="--device", fix="--device cpu"),
    _fails("hostile names", "raise ValueError('never mind')\n" + ENTRY, 4, "workload_raised", "never mind",
           "--model-name", "../../\n../|up`",
           check=lambda folder: [path for path in folder.rglob("*") if path.name == "owned"] and 1 / 0),
]
_cuda = next(row for row in WORKLOADS if row.name == "CUDA and none there")
_named = next(row for row in WORKLOADS if row.name == "hostile names")
WORKLOADS = [row for row in WORKLOADS if row not in (_cuda, _named)] + [
    Row(_cuda.name, tuple("cuda" if word == "cpu" else word for word in _cuda.argv), 3, "no_cuda", "", "--device", "--device cpu",
        files=_cuda.files, how=PROCESS, begun=True),
    Row(_named.name, tuple(HOSTILE_FILE if word == "w.py" else word for word in _named.argv), 4, "workload_raised", "never mind", "a b'",
        files={HOSTILE_FILE: _named.files["w.py"]}, how=PROCESS, begun=True, check=_named.check),
]

_RUN = ("--device", "cpu", "--python", sys.executable)
JUDGED = [
    Row("baseline of another device", ("profile_kernel", "w.py", "--mode", "event", "--steps", "2", "--warmup", "1", "--baseline", "p",
                                      *_RUN), 2, "baseline_refused", "H200", "--baseline", "profile the baseline again",
        files={"w.py": GOOD}, prepare=stored(), how=PROCESS, begun=True, check=intact("p/profile.json")),
    Row("optimise what raises", ("optimize", "w.py", *_RUN), 4, "workload_raised", "no luck", "w.py:3", "correct",
        files={"w.py": "import torch\n\nraise ValueError('no luck')\n" + ENTRY}, how=SCRIPT, begun=True),
    Row("judge what raises", ("judge", "w.py", "c.py", *_RUN), 4, "workload_raised", "no luck", "w.py:3", "correct",
        files={"w.py": "import torch\n\nraise ValueError('no luck')\n" + ENTRY, "c.py": "def f(x):\n    return x\n"},
        how=PROCESS, begun=True),
    Row("folder without candidates", ("judge", "w.py", "d", "--kernelbench"), 2, "no_candidates", "no Python file", "d",
        "folder of candidates", files={"w.py": GOOD}, prepare=lambda folder: (folder / "d").mkdir(), check=nothing_made),
    Row("judge an unknown version", ("judge", "w.py", "c.py", "--version", "v9", *_RUN), 2, "unknown_version", "v9", "w.py", "v1",
        files={"w.py": VERSIONS, "c.py": "def f(x):\n    return x\n"}, how=PROCESS, begun=True),
    Row("judge what gives no tensor", ("judge", "w.py", "c.py", *_RUN), 4, "no_tensor_output", "no tensor", "w.py", "return the computed",
        files={"w.py": body("return None"), "c.py": "def f(x):\n    return x\n"}, how=PROCESS, begun=True),
    Row("candidate without entry", ("judge", "w.py", "c.py", *_RUN), 2, "no_entry_point", "no entry point", "c.py", "ModelNew",
        files={"w.py": GOOD, "c.py": "x = 1\n"}, how=PROCESS, begun=True),
    Row("judge an endless loop", ("judge", "w.py", "w.py", "--timeout", "1s", *_RUN), 4, "timeout", "within 1 s", "w.py", "--timeout",
        files={"w.py": "while True:\n    pass\n" + ENTRY}, how=PROCESS, begun=True),
]

ROWS = [*FILES, *USAGE, *REPORTS, *MACHINE, *OUTPUT, *PROJECTS, *STORED, *CANDIDATES, *BUNDLES, *WORKLOADS, *JUDGED]
