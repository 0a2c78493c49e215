"""What doctor says of Nsight Compute, Nsight Systems and the permission for counters, on stand-in machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from doctor_machine import ALL_MODES, NCU_SAYS, NSYS_SAYS, Machine, hide_nsys
from kernelwright.capture.doctor import examine
from kernelwright.capture.nsight import find_ncu, find_nsys
from kernelwright.capture.system_view import Ran, run_command

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("params", "uid", "capabilities", "status", "fix"),
    [
        ("RmProfilingAdminOnly: 0", 1000, None, "ok", ""),
        ("RmProfilingAdminOnly: 1", 1000, None, "missing", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("RmProfilingAdminOnly: 1", 0, None, "ok", ""),
        ("RmProfilingAdminOnly: 1", 0, "000001ffffffffff", "ok", ""),
        ("RmProfilingAdminOnly: 1", 0, "00000000a80425fb", "missing", "--cap-add=SYS_ADMIN"),  # a default Docker container
        ("RmProfilingAdminOnly: 1", 1000, "0000000000200000", "ok", ""),
        ("RmProfilingAdminOnly: 1", 1000, "0000004000000000", "ok", ""),  # CAP_PERFMON
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
    assert not modes["ncu"].works and "RmProfilingAdminOnly" in modes["ncu"].evidence and "--ncu-sudo" in modes["ncu"].advice
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
    assert not wrong.works and "/nowhere/ncu" in wrong.problem and "--ncu-executable" in wrong.advice


def test_a_tool_that_cannot_start_is_no_tool(h200: Machine) -> None:
    h200.program("/usr/bin/nsys", "echo 'nsys: error while loading shared libraries: libdw.so.1: cannot open' >&2; exit 127")
    check = h200.checks()["nsys"]
    assert check.status == "warn" and "libdw.so.1" in check.detail and check.fix == "sudo apt-get update && sudo apt-get install -y libdw1"


def test_a_tool_that_hangs_is_given_up(machine: Machine) -> None:
    machine.program("/usr/bin/nsys", "exec sleep 20")
    found = find_nsys(replace(machine.view(), run=lambda command: Ran(None, stderr="no answer in 2 s")))
    assert not found.works and "no answer in 2 s" in found.problem


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
    assert "libdw.so.1 missing" in check.detail and check.fix.startswith("sudo apt-get update && sudo apt-get install -y libdw1 && mkdir")
    mode = examine(h200.view(), ALL_MODES).modes["nsys"]
    assert mode.works and "torch.profiler records in its place" in mode.evidence and mode.fix == check.fix
    assert "torch.profiler" in " ".join(mode.figures.values())


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


@pytest.mark.parametrize(("file", "env", "fix"), [
    ("/.dockerenv", {}, "docker run --gpus all --cap-add=SYS_ADMIN IMAGE"), ("/run/.containerenv", {}, "podman run"),
    ("/x", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubectl patch"), ("/x", {}, "sudo update-initramfs -u"),
])
def test_counters_are_opened_where_the_machine_is(h200: Machine, file: str, env: dict[str, str], fix: str) -> None:
    h200.file("/proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n")
    h200.file(file)
    h200.env.update(env)
    check = h200.checks()["counters"]
    assert check.status == "missing" and fix in check.fix and "reboot" in check.advice


def test_root_of_a_rootless_container_reads_no_counters(h200: Machine) -> None:
    h200.file("/proc/driver/nvidia/params", "RmProfilingAdminOnly: 1\n")
    h200.file("/proc/self/status", "CapEff:\t000001ffffffffff\n")
    h200.uid = 0
    h200.file("/proc/self/uid_map", "         0          0 4294967295\n")
    assert h200.checks()["counters"].status == "ok" and h200.checks()["clocks"].status == "ok"
    h200.file("/proc/self/uid_map", "         0       1000          1\n")
    assert "user namespace" in h200.checks()["counters"].detail and h200.checks()["clocks"].status == "warn"


def test_an_installed_nsys_without_its_importer(h200: Machine) -> None:
    program = h200.program("/opt/nvidia/nsight-systems/2025.5.1/target-linux-x64/nsys", NSYS_SAYS)
    (h200.root / "usr/bin/nsys").unlink()
    (h200.root / "usr/bin/nsys").symlink_to(program)
    report = examine(h200.view(), ALL_MODES)
    check = next(check for check in report.checks if check.name == "nsys")
    assert check.status == "warn" and "no importer" in check.detail and "nsight-systems" in check.fix
    assert "torch.profiler records in its place" in report.modes["nsys"].evidence
    h200.program("/opt/nvidia/nsight-systems/2025.5.1/host-linux-x64/QdstrmImporter", "exit 0")
    assert h200.checks()["nsys"].status == "ok"


def test_an_assembled_nsys_still_needs_its_libraries(h200: Machine) -> None:
    (h200.root / "usr/bin/nsys").unlink()
    hide_nsys(h200)
    assert run_command(["/bin/sh", "-c", h200.checks()["nsys"].fix]).exit_code == 0
    assert h200.checks()["nsys"].status == "ok"
    (h200.root / "usr/lib/x86_64-linux-gnu/libelf.so.1").unlink()
    check = h200.checks()["nsys"]
    assert check.status == "warn" and "libelf.so.1 missing" in check.detail and check.fix.endswith("install -y libelf1")
