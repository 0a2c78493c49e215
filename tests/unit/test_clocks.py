"""Clock lock, sampling and other processes on a stand-in GPU. No real clock is ever touched."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from kernelwright.capture import gpus
from kernelwright.capture.clockguard import leases
from kernelwright.capture.clocks import DeviceClocks, finding, valid_request
from kernelwright.capture.clocks.sampler import Samples
from kernelwright.capture.gpu_users import gpu_users
from kernelwright.model.errors import BadInput
from kernelwright.model.profile import ClockReading
from processes import soon
from stand_in_gpu import NVML, UUID, StandIn


@pytest.fixture
def gpu(tmp_path, monkeypatch) -> StandIn:
    """A stand-in GPU in this very process."""
    machine = StandIn(tmp_path)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "KERNELWRIGHT_CLOCKS", "AS_ROOT", "SUDOERS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in machine.variables().items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("pynvml", NVML / "pynvml.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    quick = finding.settings().probe.model_copy(update={"settle_s": 0.0, "sample_s": 0.15})
    monkeypatch.setattr(finding, "settings", lambda: finding_settings.model_copy(update={"probe": quick}))
    finding_settings = _settings()
    return machine


def _settings():
    from kernelwright.capture.clocks.settings import settings

    return settings()


@contextlib.contextmanager
def no_load() -> Iterator[None]:
    yield


def run(requested: str, seconds: float = 0.35, **options) -> ClockReading:
    with DeviceClocks(requested, device="auto", load=no_load, **options) as clocks:
        time.sleep(seconds)
    return clocks.reading()


def test_a_lock_is_taken_held_seen_and_reset(gpu):
    reading = run("1500")
    assert reading.locked and reading.locked_mhz == 1500 == reading.sm_mhz_min == reading.sm_mhz_max == reading.sm_mhz_median
    assert reading.samples >= 2 and reading.temperature_c_max == 61 and reading.power_w_max == 512 and reading.note == ""
    assert gpu.calls() == ["set", "reset"] and gpu.gpu()["locked"] is None
    assert leases.recorded() == [], "the record outlived the lock"


def test_the_watchdog_is_gone_after_a_clean_end(gpu):
    with DeviceClocks("1500", device="auto") as clocks:
        process = clocks._lock._watchdog._process
        assert process.poll() is None and os.getsid(process.pid) != os.getsid(0)
    assert process.wait(5) == 0 and gpu.calls() == ["set", "reset"]


@pytest.mark.parametrize("asked", ["lock", "1500"])
def test_none_of_the_machine_forbids_whatever_is_asked(gpu, monkeypatch, asked):
    monkeypatch.setenv("KERNELWRIGHT_CLOCKS", "none")
    reading = run(asked)
    assert not reading.locked and "KERNELWRIGHT_CLOCKS=none" in reading.note and reading.sm_mhz_max == 1980
    assert gpu.journal() == [] and leases.recorded() == []


def test_without_a_request_the_clocks_are_only_watched(gpu):
    reading = run("none")
    assert (reading.locked, reading.locked_mhz, reading.sm_mhz_max, reading.note) == (False, None, 1980, "") and gpu.journal() == []


def test_an_exception_or_an_interrupt_resets_at_once(gpu):
    for error in (RuntimeError, KeyboardInterrupt):
        with pytest.raises(error), DeviceClocks("1500", device="auto"):
            raise error
        assert gpu.gpu()["locked"] is None


def test_the_clock_is_found_under_load_once_and_kept(gpu):
    gpu.gpu(capable=1650)
    assert run("lock").locked_mhz == 1635, "the first clock below what the load fell to, that is held without throttling"
    tried = [row["mhz"][0] for row in gpu.journal() if row["call"] == "set"]
    assert tried == [1980, 1635]
    assert run("lock").locked and [row["mhz"][0] for row in gpu.journal() if row["call"] == "set"] == [1980, 1635, 1635]


def test_a_clock_that_somebody_else_seems_to_hold_stays_theirs(gpu):
    gpu.gpu(capable=1200, quiet=True)
    reading = run("lock")
    assert not reading.locked and "somebody else seems to have locked it" in reading.note and gpu.journal() == []


def test_a_lock_that_does_not_hold_is_not_called_locked(gpu):
    gpu.gpu(capable=1200)
    reading = run("1500")
    assert not reading.locked and reading.locked_mhz == 1500 and "another" in reading.note
    assert reading.throttle_reasons == ("software power cap",) and any("throttled" in line for line in reading.warnings)
    assert gpu.gpu()["locked"] is None


def test_a_refusal_is_reported_with_its_fix_and_survived(gpu, monkeypatch):
    gpu.set(permit=False)
    monkeypatch.setenv("SUDOERS", "")
    reading = run("1500")
    assert not reading.locked and "only root" in reading.note and "sudo" in reading.note and reading.sm_mhz_max == 1980
    assert gpu.gpu()["locked"] is None and leases.recorded() == []


def test_sudo_is_used_where_it_permits_lock_and_reset_alike(gpu, monkeypatch):
    gpu.set(permit=False)
    monkeypatch.setenv("SUDOERS", "lock-only")
    assert not run("1500").locked and not any(row["permitted"] for row in gpu.journal()), "locked what could not be reset"
    monkeypatch.setenv("SUDOERS", "all")
    assert run("1500").locked and gpu.gpu()["locked"] is None
    done = [row["call"] for row in gpu.journal() if row["permitted"]]
    assert done == ["nvidia-smi --lock-gpu-clocks", "nvidia-smi --reset-gpu-clocks"]


def test_a_clock_that_the_gpu_does_not_have_is_bad_input(gpu):
    with pytest.raises(BadInput, match="345 to 1980"):
        run("3000")
    assert gpu.journal() == []


def test_nested_runs_lock_once_in_this_process_and_in_children(gpu):
    code = ("import time\nfrom kernelwright.capture.clocks import DeviceClocks\n"
            "with DeviceClocks('lock', device='auto') as clocks: time.sleep(0.35)\nprint(clocks.reading().model_dump_json())")
    with DeviceClocks("1500", device="auto"):
        assert run("1500").locked and gpu.calls() == ["set"]
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        inner = ClockReading.model_validate_json(child.stdout)
        assert inner.locked and inner.locked_mhz == 1500 and gpu.calls() == ["set"]
    assert gpu.calls() == ["set", "reset"]


def test_two_runs_share_a_lock_and_the_last_resets(gpu, monkeypatch):
    first = DeviceClocks("1500", device="auto")
    with first:
        monkeypatch.delenv("KERNELWRIGHT_CLOCK_LEASE")  # as in a process that was started elsewhere
        with DeviceClocks("1500", device="auto") as second:
            assert gpu.calls() == ["set"]
            first.__exit__(None, None, None)
            assert gpu.gpu()["locked"] == 1500, "reset under the other's run"
        assert gpu.calls() == ["set", "reset"] and "locked already" in second.reading().note


def test_another_clock_than_the_standing_one_is_refused(gpu, monkeypatch):
    with DeviceClocks("1500", device="auto"):
        monkeypatch.delenv("KERNELWRIGHT_CLOCK_LEASE")
        reading = run("1200")
        assert not reading.locked and "locked at 1500 MHz already" in reading.note and gpu.calls() == ["set"]


def test_a_stale_lock_is_reset_by_the_next_run_but_not_after_a_restart(gpu):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gpu.gpu(locked=1500)
    record = leases.Record(UUID, 1500, (), leases.boot_id(), "", (leases.Lease("t", dead.pid, "1"),))
    leases.records_dir().mkdir(parents=True)
    leases.write(record)
    reading = run("none")
    assert "had left the clocks locked" in reading.note and gpu.gpu()["locked"] is None and leases.recorded() == []
    leases.write(leases.Record(UUID, 1500, (), "an earlier boot", "", record.leases))
    run("none")
    assert gpu.calls() == ["reset"], "reset what this boot never locked"


def test_a_killed_watchdog_is_replaced_and_the_end_resets_anyway(gpu):
    with DeviceClocks("1500", device="auto") as clocks:
        first = clocks._lock._watchdog._process
        first.kill()
        first.wait()
        assert soon(lambda: clocks._lock._watchdog._process is not first and clocks._lock._watchdog.alive)
    assert gpu.gpu()["locked"] is None and "ended from outside" in clocks.reading().note


def test_the_watchdog_itself_obeys_the_machines_none(gpu, monkeypatch):
    with DeviceClocks("1500", device="auto"):
        pass
    before = gpu.calls()
    monkeypatch.setenv("KERNELWRIGHT_CLOCKS", "none")
    start = NVML.parents[2] / "src" / "kernelwright" / "capture" / "clockguard" / "start.py"
    leases.write(leases.Record(UUID, 1500, (), leases.boot_id(), "", (leases.Lease("t", os.getpid(), leases.start_of(os.getpid())),)))
    order = {"uuid": UUID, "token": "t", "nvml": str(NVML / "pynvml.py"), "parent": os.getpid(), "start": leases.start_of(os.getpid())}
    done = subprocess.run([sys.executable, "-I", str(start), "watch"], input=json.dumps(order) + "\n", capture_output=True, text=True,
                          timeout=60)
    assert done.stdout == "ready\n" and done.returncode == 3 and "KERNELWRIGHT_CLOCKS=none" in done.stderr and gpu.calls() == before
    leases.write(leases.Record(UUID, 1500, (), leases.boot_id(), "", (leases.Lease("t", 2**22 + 1, "1"),)))
    swept = subprocess.run([sys.executable, str(start), "sweep"], capture_output=True, text=True, timeout=60)
    assert swept.returncode == 3 and "forbidden" in json.loads(swept.stdout)["refused"] and gpu.calls() == before


def test_other_processes_are_named_and_our_own_are_not(gpu):
    mine = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        gpu.set(processes=[[os.getpid(), 2**30], [mine.pid, 2**30], [os.getppid(), 3 * 2**20], [2**22 + 7, None]])
        users = gpu_users()
        assert [user.pid for user in users] == [os.getppid(), 2**22 + 7] and users[1].name == "elsewhere"
        reading = run("none")
        assert any(str(os.getppid()) in line and "3 MiB" in line for line in reading.warnings)
    finally:
        mine.kill()
        mine.wait()


def test_an_unsteady_clock_is_a_warning_and_a_ramp_is_not():
    assert Samples(sm_mhz=[345, *[1980] * 30]).spread_pct() == 0
    spread = Samples(sm_mhz=[1400, 1500, 1600, 1700] * 5).spread_pct()
    assert spread is not None and spread > 10
    assert Samples(sm_mhz=[1400, 1980]).spread_pct() is None
    assert Samples(sm_mhz=[345, *[1980] * 30]).held(1980) and not Samples(sm_mhz=[1900, 1980]).held(1980) and not Samples().held(1980)


def test_cuda_device_0_is_found_by_index_uuid_and_order(gpu, monkeypatch):
    state = json.loads(gpu.file.read_text())
    second = {**state["gpus"][0], "uuid": "GPU-5a4d2000-0000"}
    gpu.set(gpus=[state["gpus"][0], second])

    def first(**env: str) -> str:
        with gpus.nvml() as binding:
            return gpus.first_visible(binding, env).uuid

    assert first() == UUID == first(CUDA_VISIBLE_DEVICES="GPU-5a4d1")
    assert first(CUDA_VISIBLE_DEVICES="1,0") == second["uuid"] == first(CUDA_VISIBLE_DEVICES="GPU-5a4d2000-0000")
    for value, says in (("", "hides"), ("-1", "hides"), ("NoDevFiles", "hides"), ("7", "no GPU"), ("GPU-5a4d", "more than one"),
                        ("x", "no GPU")):
        with pytest.raises(gpus.NoGpu, match=says):
            first(CUDA_VISIBLE_DEVICES=value)
    gpu.set(gpus=[state["gpus"][0], {**second, "name": "Another GPU"}])
    with pytest.raises(gpus.NoGpu, match="CUDA_DEVICE_ORDER"):
        first(CUDA_VISIBLE_DEVICES="1")
    assert first(CUDA_VISIBLE_DEVICES="1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == second["uuid"]


def test_a_mig_slice_is_refused_with_a_word(gpu, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234")
    reading = run("1500")
    assert not reading.locked and "MIG" in reading.note and gpu.journal() == []


@pytest.mark.parametrize("text", ["", "fast", "99", "-1500", "1500.5", "0x5dc", "10001", "²00", "LOCK", "1500 ", "1500\n"])
def test_other_requests_are_not_valid(text):
    assert not valid_request(text)
    assert all(valid_request(good) for good in ("none", "lock", "1500"))


def test_the_cpu_has_nothing_to_lock(gpu):
    with DeviceClocks("lock", device="cpu") as clocks:
        pass
    assert clocks.reading().note == "the run used no GPU" and gpu.journal() == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupt_at_the_very_change_leaves_nothing_locked(gpu, monkeypatch, moment):
    from kernelwright.capture.clocks import locking

    real = locking.switch.lock

    def interrupted(*arguments):
        if moment == "after":
            real(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(locking.switch, "lock", interrupted)
    with pytest.raises(KeyboardInterrupt), DeviceClocks("1500", device="auto"):
        pass
    assert gpu.gpu()["locked"] is None and leases.recorded() == []
