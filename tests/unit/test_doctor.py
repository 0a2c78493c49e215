"""doctor against stand-in machines: temporary roots with fake driver files and fake executables."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kernelwright.capture import doctor
from kernelwright.capture.doctor import Check, Examination, examine
from kernelwright.capture.interpreter import Interpreter
from kernelwright.capture.nsight import find_ncu, find_nsys
from kernelwright.capture.system_view import Gpu, Ran, SystemView, run_command
from kernelwright.cli import doctor as verb
from kernelwright.model.errors import KernelwrightError, MachineLacks
from kernelwright.model.workload import WorkloadRef

ALL_MODES = ("event", "annotation", "ncu", "nsys")
H200 = Gpu("NVIDIA H200", "580.82", 141 * 2**30)
NSYS_SAYS = "echo 'NVIDIA Nsight Systems version 2025.3.2.474-253236389321v0'"
NCU_SAYS = "printf 'NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 36398880)\\n'"


@dataclass
class Machine:
    """A machine under a temporary folder, from which a SystemView is made."""

    root: Path
    gpus: tuple[Gpu, ...] | None = None
    uid: int = 1000
    env: dict[str, str] = field(default_factory=dict)
    torch: Interpreter | KernelwrightError | None = None
    free: int = 100 * 2**30

    def file(self, place: str, text: str = "") -> Path:
        path = self.root / place.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, place: str, body: str) -> Path:
        path = self.file(place, f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def view(self) -> SystemView:
        (self.root / "home").mkdir(exist_ok=True)
        python = self.program("/usr/bin/python3", "echo 3.5.0")
        torch = self.torch or Interpreter(python, "2.11.0+cu130", "13.0", "python3")

        def interpreter() -> Interpreter:
            if isinstance(torch, KernelwrightError):
                raise torch
            return torch

        return SystemView(
            root=self.root, env={"PATH": str(self.root / "usr/bin"), "HOME": str(self.root / "home"), **self.env}, cwd=self.root,
            uid=self.uid, machine="x86_64", python=(3, 11, 0), python_path="/usr/bin/python3", run=run_command,
            nvml_gpus=lambda: self.gpus, interpreter=interpreter, package_version=lambda _name: "1.0", free_bytes=lambda _path: self.free,
        )

    def checks(self) -> dict[str, Check]:
        return {check.name: check for check in examine(self.view(), ALL_MODES).checks}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.program("/usr/bin/g++", "exit 0")
    made.program("/usr/bin/apt-get", "exit 0")
    made.file("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable:   33554432 kB\n")
    return made


@pytest.fixture
def h200(machine: Machine) -> Machine:
    """Everything there: one H200, open counters, ncu and nsys on PATH."""
    machine.gpus = (H200,)
    machine.file("/proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 0\n")
    machine.program("/usr/bin/ncu", NCU_SAYS)
    machine.program("/usr/bin/nsys", NSYS_SAYS)
    return machine


def hide_nsys(machine: Machine, *, libraries: bool = True, release: str = "2025.3.1") -> Path:
    """Nsight Compute with the nsys under its host/ folder, split as NVIDIA ships it. Returns host/."""
    host = f"/opt/nvidia/nsight-compute/{release}/host"
    machine.program(f"{host}/target-linux-x64/nsys", NSYS_SAYS)
    machine.program(f"{host}/linux-desktop-glibc_2_11_3-x64/QdstrmImporter", "exit 0")
    if libraries:
        for name in ("libdw.so.1", "libelf.so.1"):
            machine.file(f"/usr/lib/x86_64-linux-gnu/{name}")
    return machine.root / host.lstrip("/")


def test_a_complete_machine_has_all_modes(h200: Machine) -> None:
    report = examine(h200.view(), ALL_MODES)
    names = ("python", "environment", "torch", "gpu", "counters", "ncu", "nsys", "compiler", "triton", "disk", "memory")
    # An ordinary user can't lock clocks.
    assert {check.name: check.status for check in report.checks} == dict.fromkeys(names, "ok") | {"clocks": "warn"}
    assert all(mode.works and not mode.fix for mode in report.modes.values())
    text = verb.render(report)
    assert "1 x NVIDIA H200, memory 141.0 GiB, driver 580.82 (by NVML)" in text
    assert "torch 2.11.0+cu130 (CUDA 13.0 build)" in text and "2025.3.2.474" in text and "2025.3.1.0" in text and "3.5.0" in text


def test_a_bare_machine_is_told_every_fix(tmp_path: Path) -> None:
    bare = Machine(tmp_path, torch=MachineLacks("no_gpu", "no GPU", fix="-"))
    report = examine(bare.view(), ALL_MODES)
    lacking = {check.name: check for check in report.checks if check.status == "missing"}
    assert set(lacking) == {"torch", "gpu", "counters", "ncu", "nsys", "compiler"}
    assert all(check.fix for check in lacking.values())
    assert "pip install torch==" in lacking["torch"].fix and "g++" in lacking["compiler"].fix
    assert not any(mode.works for mode in report.modes.values()) and all(mode.fix for mode in report.modes.values())
    memory = next(check for check in report.checks if check.name == "memory")
    assert memory.detail.startswith("n/a")


def test_modes_that_this_version_lacks_do_not_work_anywhere(h200: Machine) -> None:
    modes = examine(h200.view(), ("event", "annotation")).modes
    assert [name for name, mode in modes.items() if mode.works] == ["event", "annotation"]
    assert "not in this version" in modes["ncu"].evidence and "has what it needs" in modes["ncu"].evidence


def test_the_verb_claims_exactly_the_modes_that_profile_has(tmp_path: Path) -> None:
    from kernelwright.pipeline.profile import ProfileOptions, profile

    workload = WorkloadRef(path=tmp_path / "absent.py", name="absent")
    for mode in ALL_MODES:
        with pytest.raises(KernelwrightError) as caught:
            profile(workload, mode, tmp_path / "out", ProfileOptions(device="cpu"))
        assert (caught.value.code == "no_such_workload") == (mode in verb.AVAILABLE_MODES), mode


def test_cpu_only_machine_runs_event_and_annotation(machine: Machine) -> None:
    machine.torch = Interpreter(Path("/usr/bin/python3"), "2.13.0+cpu", "cpu", "VIRTUAL_ENV")
    modes = examine(machine.view(), ALL_MODES).modes
    assert [name for name, mode in modes.items() if mode.works] == ["event", "annotation"]
    assert "the CPU" in modes["event"].evidence


def test_gpu_with_a_cpu_torch_stops_all_modes_with_the_fix(h200: Machine) -> None:
    h200.torch = MachineLacks("torch_without_cuda", "torch is a CPU-only build", where="/x/python", fix="install a CUDA build")
    report = examine(h200.view(), ALL_MODES)
    assert not any(mode.works for mode in report.modes.values())
    assert all("install a CUDA build" in mode.fix for mode in report.modes.values())
    torch = next(check for check in report.checks if check.name == "torch")
    assert "/x/python" in torch.detail


def test_hidden_gpu_is_said_to_be_hidden(h200: Machine) -> None:
    h200.env["CUDA_VISIBLE_DEVICES"] = ""
    report = examine(h200.view(), ALL_MODES)
    gpu = next(check for check in report.checks if check.name == "gpu")
    assert gpu.status == "warn" and "CUDA_VISIBLE_DEVICES" in gpu.detail and "unset" in gpu.fix
    assert "the CPU" in report.modes["event"].evidence and not report.modes["ncu"].works


def test_gpu_by_nvidia_smi_then_by_the_drivers_files(machine: Machine) -> None:
    machine.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build\n")
    machine.file("/proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ: 5\n")
    assert "1 x NVIDIA A100-SXM4-80GB, memory n/a, driver 580.82.07 (by driver files)" in machine.checks()["gpu"].detail
    smi = machine.program("/usr/bin/nvidia-smi", "echo 'NVIDIA L4, 550.54, 23034'; echo 'NVIDIA L4, 550.54, 23034'")
    assert "2 x NVIDIA L4, memory 22.5 GiB, driver 550.54 (by nvidia-smi)" in machine.checks()["gpu"].detail
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed' >&2\nexit 9\n")
    assert "A100" in machine.checks()["gpu"].detail


@pytest.mark.parametrize(
    ("params", "uid", "capabilities", "status", "fix"),
    [
        ("RmProfilingAdminOnly: 0", 1000, None, "ok", ""),
        ("RmProfilingAdminOnly: 1", 1000, None, "missing", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("RmProfilingAdminOnly: 1", 0, None, "ok", ""),
        ("RmProfilingAdminOnly: 1", 0, "000001ffffffffff", "ok", ""),
        ("RmProfilingAdminOnly: 1", 0, "00000000a80425fb", "missing", "--cap-add=SYS_ADMIN"),  # a default Docker container
        ("RmProfilingAdminOnly: 1", 1000, "0000000000200000", "ok", ""),
        ("SomethingElse: 1", 0, None, "warn", ""),
    ],
)
def test_counter_permission(h200: Machine, params: str, uid: int, capabilities: str | None, status: str, fix: str) -> None:
    h200.file("/proc/driver/nvidia/params", params + "\n")
    h200.uid = uid
    if capabilities:
        h200.file("/proc/self/status", f"Name:\tpython\nCapEff:\t{capabilities}\n")
    check = h200.checks()["counters"]
    assert check.status == status and (fix in check.fix if fix else check.fix == "")


def test_denied_counters_stop_ncu_but_not_nsys(h200: Machine) -> None:
    h200.file("/proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n")
    modes = examine(h200.view(), ALL_MODES).modes
    assert not modes["ncu"].works and "RmProfilingAdminOnly" in modes["ncu"].evidence and "--ncu-sudo" in modes["ncu"].fix
    assert modes["nsys"].works


def test_ncu_in_a_toolkit_the_newest_first(machine: Machine) -> None:
    for release in ("9.2", "12.4", "13.0"):
        machine.program(f"/usr/local/cuda-{release}/bin/ncu", NCU_SAYS)
    found = find_ncu(machine.view())
    assert found.works and found.source == "CUDA toolkit" and "cuda-13.0" in str(found.path)
    machine.env["CUDA_HOME"] = "/usr/local/cuda-12.4"
    assert "cuda-12.4" in str(find_ncu(machine.view()).path)


def test_ncu_named_by_the_user(machine: Machine) -> None:
    mine = machine.program("/somewhere/ncu", NCU_SAYS)
    assert find_ncu(machine.view(), str(mine)).source == "--ncu-executable"
    wrong = find_ncu(machine.view(), "/nowhere/ncu")
    assert not wrong.works and "/nowhere/ncu" in wrong.problem and "--ncu-executable" in wrong.fix


def test_a_tool_that_cannot_start_is_no_tool(h200: Machine) -> None:
    h200.program("/usr/bin/nsys", "echo 'nsys: error while loading shared libraries: libdw.so.1: cannot open' >&2; exit 127")
    check = h200.checks()["nsys"]
    assert check.status == "warn" and "libdw.so.1" in check.detail and check.fix == "sudo apt-get install -y libdw1"


def test_a_tool_that_hangs_is_given_up(machine: Machine) -> None:
    machine.program("/usr/bin/nsys", "exec sleep 20")
    found = find_nsys(replace(machine.view(), run=lambda command: Ran(None, stderr="no answer in 2 s")))
    assert not found.works and "no answer in 2 s" in found.problem


def test_run_command_gives_up_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.capture.system_view.COMMAND_TIMEOUT_S", 0.1)
    assert run_command(["sleep", "20"]).exit_code is None
    assert run_command(["/no/such/program"]).stderr


def test_hidden_nsys_is_found_and_the_fix_makes_it_work(h200: Machine) -> None:
    (h200.root / "usr/bin/nsys").unlink()
    host = hide_nsys(h200)
    hide_nsys(h200, release="2024.1.0")
    check = h200.checks()["nsys"]
    assert check.status == "warn" and "hidden in" in check.detail and "2025.3.1" in check.detail and "libdw" not in check.fix
    ran = run_command(["/bin/sh", "-c", check.fix])
    assert ran.exit_code == 0, ran.stderr
    after = find_nsys(h200.view())
    assert after.works and after.version == "2025.3.2.474"
    importer = after.path.parent.parent / "host-linux-x64" / "QdstrmImporter"  # type: ignore[union-attr]
    assert importer.resolve() == (host / "linux-desktop-glibc_2_11_3-x64" / "QdstrmImporter").resolve()


def test_hidden_nsys_with_missing_libraries_names_their_packages(h200: Machine) -> None:
    (h200.root / "usr/bin/nsys").unlink()
    hide_nsys(h200, libraries=False)
    h200.file("/usr/lib/x86_64-linux-gnu/libelf.so.1")
    check = h200.checks()["nsys"]
    assert "libdw.so.1 missing" in check.detail and check.fix.startswith("sudo apt-get install -y libdw1 && mkdir")
    assert not examine(h200.view(), ALL_MODES).modes["nsys"].works


def test_hidden_nsys_on_a_dnf_machine(h200: Machine) -> None:
    (h200.root / "usr/bin/nsys").unlink()
    (h200.root / "usr/bin/apt-get").unlink()
    h200.program("/usr/bin/dnf", "exit 0")
    hide_nsys(h200, libraries=False)
    assert h200.checks()["nsys"].fix.startswith("sudo dnf install -y elfutils-libs")


def test_nsight_systems_wins_over_the_hidden_one(machine: Machine) -> None:
    hide_nsys(machine)
    machine.program("/opt/nvidia/nsight-systems/2025.5.1/bin/nsys", NSYS_SAYS)
    assert find_nsys(machine.view()).source == "Nsight Systems"


def test_compiler(machine: Machine) -> None:
    assert machine.checks()["compiler"].status == "ok"
    machine.env["CXX"] = "no-such-compiler"
    assert machine.checks()["compiler"].status == "missing"
    del machine.env["CXX"]
    (machine.root / "usr/bin/g++").unlink()
    machine.program("/usr/bin/clang++", "exit 0")
    check = machine.checks()["compiler"]
    assert check.status == "warn" and "export CXX=" in check.fix


def test_disk_and_memory(machine: Machine) -> None:
    machine.free = 2**30
    assert machine.checks()["disk"].status == "warn"
    machine.file("/sys/fs/cgroup/memory.max", "max\n")
    machine.file("/sys/fs/cgroup/memory.current", "1\n")
    assert machine.checks()["memory"].detail == "32.0 GiB available"
    machine.file("/sys/fs/cgroup/memory.max", str(3 * 2**30))
    assert machine.checks()["memory"].status == "warn"


def test_clock_changes_forbidden_is_said(h200: Machine) -> None:
    h200.env["KERNELWRIGHT_CLOCKS"] = "none"
    check = h200.checks()["clocks"]
    assert check.status == "ok" and "forbidden" in check.detail


def test_packages_checked_are_those_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert sorted(re.findall(r'"([A-Za-z0-9-]+)', block[1])) == sorted(doctor.PACKAGES)


def test_rendering_puts_each_fix_under_its_line() -> None:
    report = Examination(checks=(Check(name="gpu", status="missing", detail="none", fix="buy one"),), modes={})
    assert re.search(r"gpu +missing +none\n +fix: buy one", verb.render(report))
