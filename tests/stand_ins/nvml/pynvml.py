"""A stand-in for nvidia-ml-py: one or more pretended GPUs in the JSON file that STAND_IN_GPU names, with a journal of every change.

State: {"gpus": [{uuid, name, locked: MHz or null, capable: the clock held under load, power cap above it}], "permit": bool,
"supported": [...], "processes": [[pid, bytes]]}. The journal is a file of its own beside it, one JSON line a call that changes or
tries to change clocks, with the time it came. No real driver is ever called.
"""

import json
import os
import time

NVML_CLOCK_SM = 1
NVML_TEMPERATURE_GPU = 0
NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION, NVML_ERROR_NOT_FOUND = 3, 4, 6


class NVMLError(Exception):
    def __init__(self, value):
        super().__init__({3: "Not Supported", 4: "Insufficient Permissions", 6: "Not Found"}[value])
        self.value = value


class _Row:
    def __init__(self, **values):
        self.__dict__.update(values)


def state():
    with open(os.environ["STAND_IN_GPU"], encoding="utf-8") as file:
        return json.load(file)


def _journal(call, handle, **more):
    with open(os.environ["STAND_IN_GPU"] + ".journal", "a", encoding="utf-8") as file:
        file.write(json.dumps({"call": call, "uuid": handle, "pid": os.getpid(), "time": time.time(), **more}) + "\n")


def _update(uuid, **values):
    """Replaces the state whole, so that a reader never sees half of it."""
    now = state()
    _find(now, uuid).update(values)
    path = os.environ["STAND_IN_GPU"]
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(now, file)
    os.replace(f"{path}.{os.getpid()}", path)


def _find(now, uuid):
    return next(gpu for gpu in now["gpus"] if gpu["uuid"] == uuid)


def nvmlInit():
    state()


def nvmlShutdown():
    pass


def nvmlSystemGetDriverVersion():
    return "580.00"


def nvmlDeviceGetCount():
    return len(state()["gpus"])


def nvmlDeviceGetHandleByIndex(index):
    return state()["gpus"][index]["uuid"]


def nvmlDeviceGetHandleByUUID(uuid):
    if uuid.startswith("MIG-") or any(gpu["uuid"] == uuid for gpu in state()["gpus"]):
        return uuid
    raise NVMLError(NVML_ERROR_NOT_FOUND)


def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle):
    return state()["gpus"][0]["uuid"]


def nvmlDeviceGetMigMode(handle):
    raise NVMLError(NVML_ERROR_NOT_SUPPORTED)


def nvmlDeviceGetUUID(handle):
    return handle


def nvmlDeviceGetName(handle):
    return _find(state(), handle)["name"]


def nvmlDeviceGetMemoryInfo(handle):
    return _Row(total=80 * 2**30)


def nvmlDeviceGetSupportedMemoryClocks(handle):
    return [3201, 1593]


def nvmlDeviceGetSupportedGraphicsClocks(handle, memory):
    return list(range(1980, 330, -15))


def nvmlDeviceGetUtilizationRates(handle):
    return _Row(gpu=80)


def _clock(handle):
    gpu = _find(state(), handle)
    return min(gpu["locked"] or 1980, gpu["capable"])


def nvmlDeviceGetClockInfo(handle, kind):
    return _clock(handle)


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    gpu = _find(state(), handle)
    return 0x4 if gpu["capable"] < (gpu["locked"] or 1980) and not gpu.get("quiet") else 0


def nvmlDeviceGetTemperature(handle, sensor):
    return 61


def nvmlDeviceGetPowerUsage(handle):
    return 512_000


def nvmlDeviceGetComputeRunningProcesses(handle):
    return [_Row(pid=pid, usedGpuMemory=size) for pid, size in state().get("processes", [])]


def nvmlSystemGetProcessName(pid):
    return "/usr/bin/elsewhere --secret"


def nvmlDeviceSetGpuLockedClocks(handle, low, high):
    permitted = state()["permit"]
    _journal("set", handle, mhz=[low, high], permitted=permitted)
    if not permitted:
        raise NVMLError(NVML_ERROR_NO_PERMISSION)
    _update(handle, locked=high)


def nvmlDeviceResetGpuLockedClocks(handle):
    permitted = state()["permit"]
    _journal("reset", handle, permitted=permitted)
    if not permitted:
        raise NVMLError(NVML_ERROR_NO_PERMISSION)
    _update(handle, locked=None)
