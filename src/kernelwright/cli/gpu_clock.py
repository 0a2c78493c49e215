"""gpu_clock lock [MHZ] | reset | show: the GPU's clocks by hand. scripts/lock-gpu-clock.sh and reset-gpu-clock.sh call it."""

from __future__ import annotations

import argparse
from typing import Any

from ..capture.clockguard import leases, switch
from ..capture.clockguard.release import sweep
from ..capture.clocks.finding import known_mhz, supported_mhz
from ..capture.clocks.load import torch_load
from ..capture.clocks.locking import ClockLock, standing
from ..capture.gpus import NoGpu, VisibleGpu, first_visible, nvml
from ..capture.interpreter import find_interpreter
from ..capture.lock import device_lock
from ..model.errors import BadInput, MachineLacks
from ..model.saying import Say
from .common import Answer, clocks

HELP = "lock, reset or show the GPU's clocks by hand"
DESCRIPTION = (
    "Lock the clocks of the GPU that CUDA would use first, reset them, or show them. A lock by hand stays until it is reset by hand; "
    "`--clocks lock` of the other verbs locks for one run and needs none of this."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The action and the clock."""
    parser.add_argument("action", choices=("lock", "reset", "show"))
    parser.add_argument("mhz", metavar="MHZ", nargs="?", type=clocks, help="lock: the clock (default: the highest that is held under load)")
    parser.add_argument("--force", action="store_true", help="reset: also what kernelwright did not lock, or what a run still holds")
    parser.add_argument("--python", metavar="PATH", help="lock: the interpreter whose torch gives the load for finding the clock")


def run(args: argparse.Namespace, params: dict[str, str], say: Say) -> Answer:
    """Act. Raises MachineLacks (exit 3) when the clocks may not or can't be changed."""
    if params or (args.mhz is not None and (args.action != "lock" or args.mhz == "none")):
        raise BadInput("unknown_argument", "takes `lock [MHZ]`, `reset` or `show`", where="gpu_clock", fix="see gpu_clock --help")
    reason = switch.forbidden()
    if reason and args.action != "show":
        raise MachineLacks("clocks_forbidden", reason, where="the GPU's clocks",
                           fix=f"unset {switch.VARIABLE}, if this machine is yours alone")
    try:
        with nvml() as binding:
            gpu = first_visible(binding)
            if args.action == "lock":
                return _lock(binding, gpu, args, say)
            return _reset(binding, gpu, args.force) if args.action == "reset" else _show(binding, gpu)
    except NoGpu as error:
        raise MachineLacks("no_gpu", str(error), where="the GPU's clocks", fix="run where an NVIDIA GPU and its driver are") from error
    except switch.Refused as refused:
        raise MachineLacks("clocks_refused", refused.message, where="the GPU's clocks", fix=refused.fix) from refused


def _lock(binding: Any, gpu: VisibleGpu, args: argparse.Namespace, say: Say) -> Answer:
    sweep(binding, gpu.uuid)
    lock = ClockLock(binding, gpu, by_hand=True)
    load = torch_load(lambda: find_interpreter(args.python, None, "cuda", say), "auto")
    with device_lock("locking the clocks by hand", say):
        lock.take(args.mhz or "lock", load, say)
    text = f"{gpu.name}: locked at {lock.mhz} MHz until it is reset: reset-gpu-clock.sh (no watchdog undoes a lock by hand)"
    return Answer({"gpu": gpu.uuid, "mhz": lock.mhz, "record": str(leases.record_path(gpu.uuid))}, text)


def _reset(binding: Any, gpu: VisibleGpu, force: bool) -> Answer:
    record = leases.read(gpu.uuid)
    holders = [lease.pid for lease in leases.living(record) if not lease.by_hand] if record is not None else []
    if holders and not force:
        raise MachineLacks("clocks_in_use", f"a run of kernelwright holds them (process {holders[0]}), and resets them at its end",
                           where="the GPU's clocks", fix="end it, or add --force")
    if record is None and not force:
        return Answer({"gpu": gpu.uuid, "reset": False}, f"{gpu.name}: nothing to reset, kernelwright has locked nothing here "
                                                         "(--force resets what others locked)")
    with leases.guarded(gpu.uuid):
        switch.reset(binding, gpu.uuid, record.route if record is not None else ())
        leases.remove(gpu.uuid)
    return Answer({"gpu": gpu.uuid, "reset": True}, f"{gpu.name}: clocks reset")


def _show(binding: Any, gpu: VisibleGpu) -> Answer:
    record, choices = standing(gpu.uuid), supported_mhz(binding, gpu)
    locked = f"locked at {record.mhz} MHz by kernelwright since {record.since}" if record is not None else "not locked by kernelwright"
    known = known_mhz(gpu)
    now = int(binding.nvmlDeviceGetClockInfo(gpu.handle, binding.NVML_CLOCK_SM))
    data = {"gpu": gpu.uuid, "name": gpu.name, "sm_mhz": now, "locked_mhz": record.mhz if record is not None else None,
            "held_mhz": known, "highest_mhz": choices[0] if choices else None}
    held = f"; held under load: {known} MHz" if known else ""
    return Answer(data, f"{gpu.name}: SM {now} MHz now; {locked}{held}{f'; highest: {choices[0]} MHz' if choices else ''}")
