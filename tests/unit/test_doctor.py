"""doctor against stand-in machines, but for Nsight (test_doctor_nsight.py)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from doctor_machine import ALL_MODES, H200, Machine
from kernelwright.capture.doctor import OWN_TORCH, PACKAGES, Check, examine
from kernelwright.capture.gpu_processes import GpuProcess, gpu_processes, short_name
from kernelwright.capture.interpreter import Interpreter
from kernelwright.capture.system_view import Gpu, run_command
from kernelwright.cli import doctor as verb
from kernelwright.model.errors import BadInput, KernelwrightError, MachineLacks
from kernelwright.model.workload import WorkloadRef
from kernelwright.setup import build, torch_install
from published_schemas import check_document

ROOT = Path(__file__).resolve().parents[2]


def test_a_complete_machine_has_all_modes(h200: Machine) -> None:
    report = examine(h200.view(), ALL_MODES)
    names = ("python", "environment", "torch", "gpu", "gpu users", "counters", "ncu", "nsys", "compiler", "triton", "disk", "memory",
             "load", "lock")
    # An ordinary user can't lock clocks.
    assert {check.name: check.status for check in report.checks} == dict.fromkeys(names, "ok") | {"clocks": "warn"}
    assert all(mode.works and not mode.fix for mode in report.modes.values())
    text = verb.render(report)
    assert "1 x NVIDIA H200 (sm_90), memory 141.0 GiB, driver 580.82 (up to CUDA 13.0) (by NVML)" in text
    assert "none seen; device memory 140.0 GiB free of 141.0 GiB" in text
    assert "torch 2.11.0+cu130 (CUDA 13.0 build)" in text and "2025.3.2.474" in text and "2025.3.1.0" in text and "3.5.0" in text


def test_a_bare_machine_is_told_every_fix(tmp_path: Path) -> None:
    bare = Machine(tmp_path, torch=MachineLacks("no_gpu", "no GPU", fix="-"))
    report = examine(bare.view(), ALL_MODES)
    lacking = {check.name: check for check in report.checks if check.status == "missing"}
    assert set(lacking) == {"torch", "gpu", "counters", "ncu", "nsys", "compiler"}
    assert all(check.fix for name, check in lacking.items() if name != "counters") and lacking["counters"].advice
    assert f"pip install {OWN_TORCH} --index-url https://download.pytorch.org/whl/cpu" in lacking["torch"].fix
    assert "g++" in lacking["compiler"].fix
    assert not any(mode.works for mode in report.modes.values()) and all(mode.fix for mode in report.modes.values())
    memory = next(check for check in report.checks if check.name == "memory")
    assert memory.detail.startswith("n/a")


def test_modes_that_this_version_lacks_do_not_work_anywhere(h200: Machine) -> None:
    assert [name for name, mode in examine(h200.view(), verb.AVAILABLE_MODES).modes.items() if mode.works] == list(ALL_MODES)
    modes = examine(h200.view(), ("event", "annotation", "ncu")).modes
    assert [name for name, mode in modes.items() if mode.works] == ["event", "annotation", "ncu"]
    assert "not in this version" in modes["nsys"].evidence and "has what it needs" in modes["nsys"].evidence


def test_the_verb_claims_exactly_the_modes_that_profile_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelwright.pipeline import profile as module
    from kernelwright.pipeline.ncu import Selection
    from kernelwright.pipeline.ncu_live import profile_ncu
    from kernelwright.pipeline.nsys_live import profile_nsys
    from kernelwright.pipeline.profile import ProfileOptions, profile

    monkeypatch.setattr(module, "gpu_visible", lambda: True)
    workload = WorkloadRef(path=tmp_path / "absent.py", name="absent")
    for mode in ALL_MODES:
        with pytest.raises(KernelwrightError) as caught:
            if mode == "ncu":
                profile_ncu(workload, tmp_path / "out", ProfileOptions(), Selection())
            elif mode == "nsys":
                profile_nsys(workload, tmp_path / "out", ProfileOptions())
            else:
                profile(workload, mode, tmp_path / "out", ProfileOptions(device="cpu"))
        assert (caught.value.code == "no_such_workload") == (mode in verb.AVAILABLE_MODES), mode


def test_cpu_only_machine_runs_event_and_annotation(machine: Machine) -> None:
    machine.torch = Interpreter(Path("/usr/bin/python3"), "2.13.0+cpu", "cpu", "VIRTUAL_ENV")
    modes = examine(machine.view(), ALL_MODES).modes
    assert [name for name, mode in modes.items() if mode.works] == ["event", "annotation"]
    assert "the CPU" in modes["event"].evidence


def test_gpu_with_a_cpu_torch_stops_all_modes_with_the_fix(h200: Machine) -> None:
    h200.torch = MachineLacks("torch_without_cuda", "torch is a CPU-only build", where="/x/bin/python", fix="install a CUDA build")
    report = examine(h200.view(), ALL_MODES)
    assert not any(mode.works for mode in report.modes.values())
    install = "/x/bin/python -m pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130"
    assert all(install in mode.fix for mode in report.modes.values())
    torch = next(check for check in report.checks if check.name == "torch")
    assert torch.status == "missing" and "/x/bin/python" in torch.detail and "--device cpu" in torch.advice


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
    smi = machine.program("/usr/bin/nvidia-smi", "echo 'NVIDIA L4, 550.54, 23034, 22000, 8.9'; echo 'NVIDIA L4, 550.54, 23034, 22000, 8.9'")
    assert "2 x NVIDIA L4 (sm_89), memory 22.5 GiB, driver 550.54 (by nvidia-smi)" in machine.checks()["gpu"].detail
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed' >&2\nexit 9\n")
    assert "A100" in machine.checks()["gpu"].detail


@pytest.mark.parametrize(("uid", "inside", "fix"), [
    (1000, False, "sudo modprobe nvidia && nvidia-smi"), (0, True, "docker run --gpus all IMAGE")])
def test_what_a_failing_nvidia_smi_says_is_told(machine: Machine, uid: int, inside: bool, fix: str) -> None:
    machine.uid = uid
    if inside:
        machine.file("/.dockerenv")
    machine.program("/usr/bin/nvidia-smi", "printf 'NVIDIA-SMI has failed because it could not\\ncommunicate with it \\033[31m'; exit 9")
    check = machine.checks()["gpu"]
    assert check.status == "missing" and check.fix == fix and "dmesg" in check.advice
    assert "NVIDIA-SMI has failed because it could not communicate with it" in check.detail and check.detail.isprintable()


def test_run_command_gives_up_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelwright.capture.system_view.COMMAND_TIMEOUT_S", 0.1)
    assert run_command(["sleep", "20"]).exit_code is None
    assert run_command(["/no/such/program"]).stderr


def test_compiler(machine: Machine) -> None:
    assert machine.checks()["compiler"].status == "ok"
    machine.env["CXX"] = "no-such-compiler"
    assert machine.checks()["compiler"].status == "missing"
    del machine.env["CXX"]
    (machine.root / "usr/bin/g++").unlink()
    machine.program("/usr/bin/clang++", "exit 0")
    check = machine.checks()["compiler"]
    assert check.status == "warn" and "export CXX=" in check.fix


@pytest.mark.parametrize(("name", "fix"), [("out", "cd DIR"), ("tmp", "export TMPDIR=DIR")])
def test_a_disk_that_is_almost_full_is_named(machine: Machine, name: str, fix: str) -> None:
    assert machine.checks()["disk"].status == "ok"
    machine.free = {name: 2**30}
    check = machine.checks()["disk"]
    assert check.status == "warn" and f"1.0 GiB free in {machine.root / name}" in check.detail and fix in check.fix


@pytest.mark.parametrize(("load", "status", "says"), [
    ("0.50", "ok", "load average 0.5 (last minute) on 5 usable CPUs"), ("5.10", "warn", "busy: load average 5.1 (last minute) on 5")])
def test_the_load_is_held_against_the_usable_cpus(machine: Machine, load: str, status: str, says: str) -> None:
    machine.file("/proc/loadavg", f"{load} 0.40 0.30 1/200 4242\n")
    check = machine.checks()["load"]
    assert check.status == status and check.detail.startswith(says) and bool(check.fix) == (status == "warn")


def test_a_machine_that_tells_no_load(machine: Machine) -> None:
    machine.file("/proc/loadavg", "")
    assert machine.checks()["load"].detail.startswith("n/a")


def test_memory_is_what_the_control_group_leaves(machine: Machine) -> None:
    machine.file("/sys/fs/cgroup/memory.max", "max\n")
    machine.file("/sys/fs/cgroup/memory.current", "1\n")
    assert machine.checks()["memory"].detail == "32.0 GiB available of 64.0 GiB there"
    machine.file("/sys/fs/cgroup/memory.max", str(16 * 2**30))
    machine.file("/sys/fs/cgroup/memory.current", str(12 * 2**30))
    assert machine.checks()["memory"].detail == "4.0 GiB available of 16.0 GiB allowed to this container"
    # What the kernel keeps of files is given back when a program wants the memory.
    machine.file("/sys/fs/cgroup/memory.stat", f"anon 1\ninactive_file {6 * 2**30}\n")
    assert machine.checks()["memory"].detail.startswith("10.0 GiB available")
    machine.file("/sys/fs/cgroup/memory.max", str(3 * 2**30))
    check = machine.checks()["memory"]
    assert check.status == "warn" and "docker update" in check.fix


def test_memory_of_an_own_group_and_of_version_1(machine: Machine) -> None:
    machine.file("/proc/self/cgroup", "0::/user.slice/mine\n")
    machine.file("/sys/fs/cgroup/user.slice/memory.max", str(8 * 2**30))
    machine.file("/sys/fs/cgroup/user.slice/memory.current", str(2**30))
    assert machine.checks()["memory"].detail.startswith("7.0 GiB available of 8.0 GiB")
    machine.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", str(2**63 - 4096))
    machine.file("/sys/fs/cgroup/memory/memory.usage_in_bytes", str(2**30))
    assert machine.checks()["memory"].detail.startswith("7.0 GiB available of 8.0 GiB"), "no limit, in version 1's words"
    machine.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", str(5 * 2**30))
    assert machine.checks()["memory"].detail.startswith("4.0 GiB available of 5.0 GiB")


def test_clock_changes_forbidden_is_said(h200: Machine) -> None:
    h200.env["KERNELWRIGHT_CLOCKS"] = "none"
    check = h200.checks()["clocks"]
    assert check.status == "ok" and "forbidden" in check.detail


def test_packages_checked_are_those_of_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    block = re.search(r"^dependencies = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    # Those with a marker are not everywhere; what needs them says so itself.
    everywhere = [line for line in block[1].splitlines() if ";" not in line]
    assert sorted(re.findall(r'"([A-Za-z0-9-]+)', "\n".join(everywhere))) == sorted(PACKAGES)
    # The set-up, which imports nothing of ours, knows the same ones by what is imported.
    imported = {"pyyaml": "yaml", "nvidia-ml-py": "pynvml"}
    assert sorted(imported.get(name, name) for name in PACKAGES) == sorted(build.MODULES)


def test_the_torch_that_doctor_names_is_the_one_that_the_setup_installs() -> None:
    assert torch_install.TORCH == OWN_TORCH


def test_rendering_puts_each_fix_under_its_line(h200: Machine) -> None:
    report = examine(h200.view(), ALL_MODES)
    checks = (Check(name="gpu", status="missing", detail="none", fix="buy one", advice="or\x1b[2J rent one"),)
    text = verb.render(report.model_copy(update={"checks": checks}))
    assert re.search(r"gpu +missing +none\n +fix: buy one\n +note: or\\x1b\[2J rent one\n", text)
    lines = [line.strip() for line in text.partition("Modes\n")[2].splitlines()]
    annotation = next(index for index, line in enumerate(lines) if line.startswith("annotation  works"))
    assert "TC%, DRAM%, Occ%: counters (ncu)" in lines[annotation:annotation + 5]


@pytest.mark.parametrize(("uid", "programs", "env", "fix"), [
    (1000, ("apt-get",), {}, "sudo apt-get update && sudo apt-get install -y g++"),
    (0, ("apt-get",), {}, "apt-get update && apt-get install -y g++"),
    (1000, ("dnf",), {}, "sudo dnf install -y gcc-c++"),
    (1000, ("apt-get", "conda"), {"CONDA_PREFIX": "/conda"}, "conda install -y -c conda-forge gxx"),
    (1000, ("apt-get", "conda"), {}, "sudo apt-get update && sudo apt-get install -y g++"),
])
def test_the_fix_is_for_this_machines_packages_and_user(tmp_path: Path, uid: int, programs: tuple[str, ...], env: dict[str, str],
                                                        fix: str) -> None:
    machine = Machine(tmp_path, uid=uid, env=env)
    for name in programs:
        machine.program(f"/usr/bin/{name}", "exit 0")
    check = machine.checks()["compiler"]
    assert check.status == "missing" and check.fix == fix


def test_no_torch_is_mended_in_the_active_environment(h200: Machine) -> None:
    h200.torch = MachineLacks("no_torch", "a GPU is visible, but no Python here has torch", fix="-")
    index = "--index-url https://download.pytorch.org/whl/cu130"
    check = h200.checks()["torch"]
    assert check.status == "missing" and check.fix == f"python3 -m venv .venv && .venv/bin/python -m pip install torch {index}"
    h200.env["VIRTUAL_ENV"] = str(h200.root / "env")
    assert h200.checks()["torch"].fix == f"{h200.root}/env/bin/python -m pip install torch {index}"
    h200.file("/env/pyvenv.cfg")  # made by uv: it has no pip
    h200.program("/usr/bin/uv", "exit 0")
    assert h200.checks()["torch"].fix == f"uv pip install --python {h200.root}/env/bin/python torch {index}"
    h200.gpus = (replace(H200, driver="550.54.14", driver_cuda=(12, 4)),)
    assert "whl/cu126" in h200.checks()["torch"].fix


def test_a_named_python_without_torch_is_mended_there(h200: Machine) -> None:
    python = h200.root / "usr" / "bin" / "python3"
    h200.torch = BadInput("bad_python", "has no torch", where=f"--python {python}", fix="name a Python >= 3.10 that has torch")
    check = h200.checks()["torch"]
    assert check.detail == f"--python {python} has no torch" and check.fix.startswith(f"{python} -m pip install torch --index-url")
    h200.file("/usr/lib/python3.11/EXTERNALLY-MANAGED")
    assert h200.checks()["torch"].fix.startswith(f"{python} -m venv --system-site-packages .venv && .venv/bin/python -m pip install torch")
    h200.torch = BadInput("bad_python", "is not a working Python", where="--python /x", fix="name a Python >= 3.10 that has torch")
    check = h200.checks()["torch"]
    assert check.detail == "--python /x is not a working Python" and check.fix == "" and check.advice


@pytest.mark.parametrize(("gpu", "build", "status", "says", "fix"), [
    (replace(H200, driver="535.104.05", driver_cuda=(12, 2)), "13.0", "missing", "needs driver 580.65.06 or newer", "whl/cu126"),
    (replace(H200, driver="535.104.05", driver_cuda=None), "13.0", "missing", "up to CUDA 12", "whl/cu126"),
    (replace(H200, driver="535.104.05", driver_cuda=(13, 0)), "13.0", "ok", "", ""),  # with NVIDIA's compatibility package
    (replace(H200, driver="535.104.05", driver_cuda=(12, 2)), "12.8", "ok", "", ""),  # any driver of the same major version
    (replace(H200, driver="440.33", driver_cuda=(10, 2)), "12.8", "missing", "needs driver 525.60.13", ""),
    (replace(H200, driver="999.1", driver_cuda=None), "13.0", "ok", "", ""),
    (replace(H200, name="B200", compute_capability=(10, 0)), "12.6", "missing", "sm_100", "whl/cu128"),
    (replace(H200, name="V100", compute_capability=(7, 0)), "13.0", "missing", "no longer runs on V100", "whl/cu126"),
    (H200, "6.2.41133", "ok", "ROCm", ""),
])
def test_torch_against_driver_and_architecture(h200: Machine, gpu: Gpu, build: str, status: str, says: str, fix: str) -> None:
    h200.gpus = (gpu,)
    h200.torch = Interpreter(h200.root / "usr/bin/python3", "2.13.0", build, "python3")
    report = examine(h200.view(), ALL_MODES)
    check = next(check for check in report.checks if check.name == "torch")
    assert check.status == status and says in check.detail and fix in check.fix
    assert report.modes["event"].works == (status == "ok")
    if status == "missing":
        assert check.fix or "driver" in check.advice


def test_a_busy_gpu_is_told_with_the_names(h200: Machine) -> None:
    h200.processes = (GpuProcess(0, 4242, "python train.py", 60 * 2**30), GpuProcess(0, 4243, "vllm", None))
    report = examine(h200.view(), ALL_MODES)
    check = next(check for check in report.checks if check.name == "gpu users")
    assert check.status == "warn" and "python train.py (process 4242, GPU 0, 60.0 GiB); vllm (process 4243, GPU 0, n/a)" in check.detail
    assert "ps -fp 4242,4243" in check.fix and "CUDA_VISIBLE_DEVICES" in check.advice
    assert report.modes["event"].works and report.facts.gpu_processes is not None and report.facts.gpu_processes[0].pid == 4242


def test_a_busy_gpu_whose_processes_a_container_hides(h200: Machine) -> None:
    h200.gpus = (replace(H200, memory_free_bytes=41 * 2**30),)
    h200.file("/.dockerenv")
    check = h200.checks()["gpu users"]
    assert check.status == "warn" and "100.0 GiB in use by processes that can't be seen" in check.detail and "on the host" in check.advice


def test_users_of_the_gpu_by_nvidia_smi(machine: Machine) -> None:
    machine.processes = None
    machine.program("/usr/bin/nvidia-smi", """case "$1" in
--query-gpu=uuid) echo GPU-a; echo GPU-b;;
--query-gpu=*) echo 'NVIDIA L4, 550.54, 23034, 22000, 8.9'; echo 'NVIDIA L4, 550.54, 23034, 22000, 8.9';;
--query-compute-apps=*) echo 'GPU-b, 77, /usr/bin/python3, 512';;
esac""")
    assert "python3 (process 77, GPU 1, 0.5 GiB)" in machine.checks()["gpu users"].detail
    (machine.root / "usr/bin/nvidia-smi").unlink()
    machine.gpus = (H200,)
    assert machine.checks()["gpu users"].detail.startswith("n/a")


def test_processes_by_a_stand_in_nvml() -> None:
    class Nvml:
        NVMLError = RuntimeError
        nvmlDeviceGetCount = staticmethod(lambda: 2)
        nvmlDeviceGetHandleByIndex = staticmethod(lambda index: index)
        nvmlSystemGetProcessName = staticmethod(lambda pid: b"/opt/bin/trainer")

        @staticmethod
        def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
            return [SimpleNamespace(pid=2**22 + 1, usedGpuMemory=5 if handle else None)]

    assert gpu_processes(Nvml) == (GpuProcess(0, 2**22 + 1, "trainer", None), GpuProcess(1, 2**22 + 1, "trainer", 5))

    class Denied(Nvml):
        @staticmethod
        def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
            raise RuntimeError

    assert gpu_processes(Denied) is None


@pytest.mark.parametrize(("words", "name"), [
    (["/usr/bin/python3", "-u", "/project/train.py", "--token=secret"], "python3 train.py"), (["/opt/vllm", "--key", "x"], "vllm"),
    (["a\x1b[2J"], "a\\x1b[2J"), ([""], "unknown"),
])
def test_a_process_is_named_without_its_arguments(words: list[str], name: str) -> None:
    assert short_name(words) == name


def test_another_run_that_measures_is_named(machine: Machine) -> None:
    machine.holder = {"pid": "77", "what": "profile gpt2", "since": "12:00:00"}
    check = machine.checks()["lock"]
    assert check.status == "warn" and "process 77 (profile gpt2) since 12:00:00" in check.detail
    machine.holder = MachineLacks("lock_taken_over", "belongs to somebody else", where="/tmp/kernelwright-0")
    check = machine.checks()["lock"]
    assert check.status == "missing" and "KERNELWRIGHT_LOCK" in check.fix


def test_compiling_needs_the_pythons_headers_and_on_a_gpu_a_c_compiler(h200: Machine) -> None:
    assert h200.checks()["triton"].status == "ok"
    (h200.root / "usr/bin/gcc").unlink()
    check = h200.checks()["triton"]
    assert check.status == "missing" and "gcc" in check.fix
    torch = h200.program("/usr/bin/python3.12", "echo none; echo False")
    h200.torch = Interpreter(torch, "2.13.0", "13.0", "--python")
    checks = h200.checks()
    assert checks["triton"].status == "missing" and checks["triton"].fix == f"{torch} -m pip install triton"
    assert checks["compiler"].status == "missing" and "no Python.h" in checks["compiler"].detail and "python3-dev" in checks["compiler"].fix


def test_the_document_holds_to_its_schema_and_has_the_facts(h200: Machine) -> None:
    h200.processes = (GpuProcess(0, 7, "other", 2**30),)
    report = examine(h200.view(), ("event", "annotation"))
    document = report.model_dump(mode="json")
    check_document(document, "doctor")
    gpu = document["facts"]["gpus"][0]
    assert (gpu["compute_capability"], gpu["driver_cuda"], gpu["memory_free_bytes"]) == ("9.0", "13.0", 140 * 2**30)
    assert document["facts"]["torch"]["triton"] == "3.5.0" and document["facts"]["lock_holder"] is None
    figures = document["modes"]["annotation"]["figures"]
    assert figures["duration"] == "events (CUDA events)" and figures["TC%, DRAM%, Occ%"] == "counters (ncu)"
