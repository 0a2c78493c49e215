"""Which GPU a CUDA program would use, without CUDA: CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER against the driver's list (NVML)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

HIDES_ALL = ("", "-1", "none", "nodevfiles")
"""First entries of CUDA_VISIBLE_DEVICES that leave no GPU: CUDA ends its list at the first entry that is no device."""


class NoGpu(Exception):
    """No GPU, no NVML, or none that can be told for sure; the text says which."""


@dataclass(frozen=True)
class VisibleGpu:
    """The GPU that is CUDA device 0 here."""

    handle: Any
    uuid: str
    name: str
    driver: str
    mig: bool
    """It is cut into MIG slices: clocks belong to all of them together."""

    @property
    def key(self) -> str:
        """Names this GPU under this driver: what was learnt of its clocks holds for both."""
        return f"{self.uuid}|{self.name}|{self.driver}"


def cuda_hidden(env: Mapping[str, str] | None = None) -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides every GPU."""
    value = (os.environ if env is None else env).get("CUDA_VISIBLE_DEVICES")
    return value is not None and value.split(",")[0].strip().lower() in HIDES_ALL


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """NVML's Python binding, initialised. Raises NoGpu."""
    try:
        import pynvml
    except ImportError as error:
        raise NoGpu("NVML's Python binding is not installed") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoGpu("NVML not available") from error
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def first_visible(binding: Any, env: Mapping[str, str] | None = None) -> VisibleGpu:
    """CUDA device 0. Raises NoGpu when it is hidden, missing, or can't be told without CUDA."""
    env = os.environ if env is None else env
    if cuda_hidden(env):
        raise NoGpu("CUDA_VISIBLE_DEVICES hides every GPU")
    try:
        return _described(binding, *_chosen(binding, env))
    except binding.NVMLError as error:
        raise NoGpu(f"NVML: {error}") from error


def text(value: str | bytes) -> str:
    """A string of NVML's: nvidia-ml-py before 11.5 gives bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _chosen(binding: Any, env: Mapping[str, str]) -> tuple[Any, bool]:
    """(handle, whether a MIG slice was named)."""
    first = env.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if first.upper().startswith("MIG-"):
        return binding.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(binding.nvmlDeviceGetHandleByUUID(first)), True
    handles = [binding.nvmlDeviceGetHandleByIndex(index) for index in range(binding.nvmlDeviceGetCount())]
    if first.upper().startswith("GPU-"):  # CUDA takes the beginning of a UUID too, where only one GPU has it
        named = [one for one in handles if text(binding.nvmlDeviceGetUUID(one)).lower().startswith(first.lower())]
        if len(named) != 1:
            raise NoGpu(f"CUDA_VISIBLE_DEVICES={first} names {'no' if not named else 'more than one'} GPU")
        return named[0], False
    if not first.isascii() or not first.isdigit() or int(first) >= len(handles):
        raise NoGpu(f"CUDA_VISIBLE_DEVICES={first} names no GPU" if handles else "NVML lists no GPU")
    # NVML counts in PCI order, CUDA by default with the fastest first: the same where all GPUs are of one model.
    if env.get("CUDA_DEVICE_ORDER", "").strip() != "PCI_BUS_ID" and len({text(binding.nvmlDeviceGetName(one)) for one in handles}) > 1:
        raise NoGpu("the GPUs differ, so CUDA's order can't be told: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPU's UUID in "
                    "CUDA_VISIBLE_DEVICES")
    return handles[int(first)], False


def _described(binding: Any, handle: Any, mig: bool) -> VisibleGpu:
    with contextlib.suppress(binding.NVMLError):  # raised by a GPU without MIG
        mig = mig or binding.nvmlDeviceGetMigMode(handle)[0] == 1
    return VisibleGpu(handle, text(binding.nvmlDeviceGetUUID(handle)), text(binding.nvmlDeviceGetName(handle)),
                      text(binding.nvmlSystemGetDriverVersion()), mig)
