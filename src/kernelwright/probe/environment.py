"""Which device the workload runs on, and the facts of that environment."""

from __future__ import annotations

import glob
import os
import platform
import sys
from importlib import metadata
from typing import Any

import torch

from .failures import machine_lacks
from .rewrites.float32_flags import convolutions_are_tf32, float32_flags, products_are_narrow

MINIMUM_TORCH = (2, 4)


def resolve_device(asked: str) -> str:
    """"cuda" or "cpu" for "auto", "cuda" or "cpu". Raises no_cuda when CUDA was asked for (or a GPU is visible) and cannot be used."""
    if asked == "cpu":
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    if asked == "auto" and not visible_gpu():
        return "cpu"
    if torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        reason = f"torch {torch.__version__} of {sys.executable} is built without CUDA"
        fix = "install a CUDA build of torch there, name an interpreter that has one with --python, or use --device cpu"
    elif not visible_gpu():
        reason = "no NVIDIA GPU is visible to this process"
        fix = "use --device cpu, or run on a machine with a GPU (check CUDA_VISIBLE_DEVICES)"
    else:
        reason = f"a GPU is visible, but torch {torch.__version__} (CUDA {torch.version.cuda}) cannot use it"
        fix = "check the driver with nvidia-smi: it must be new enough for torch's CUDA version; or use --device cpu"
    raise machine_lacks("no_cuda", reason, where="--device", fix=fix)


def visible_gpu() -> bool:
    """True when the machine shows an NVIDIA GPU that CUDA_VISIBLE_DEVICES does not hide."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is not None and hidden.split(",")[0].strip().lower() in ("", "-1", "none", "nodevfiles"):
        return False
    return bool(glob.glob("/dev/nvidia[0-9]*") or glob.glob("/proc/driver/nvidia/gpus/*"))


def check_torch() -> None:
    """Raises torch_too_old below MINIMUM_TORCH."""
    numbers = str(torch.__version__).split("+")[0].split(".")[:2]
    if tuple(int(part) for part in numbers if part.isdigit()) < MINIMUM_TORCH:
        raise machine_lacks("torch_too_old", f"torch {torch.__version__} of {sys.executable} is too old", where="torch",
                            fix="install torch 2.4 or newer there, or name another interpreter with --python")


def describe(device: str) -> dict[str, Any]:
    """ProbeEnvironment as a plain dict."""
    properties = torch.cuda.get_device_properties(0) if device == "cuda" else None
    flags = float32_flags()
    return {
        "device": device,
        "device_name": torch.cuda.get_device_name(0) if device == "cuda" else cpu_name(),
        "torch_version": str(torch.__version__),
        "cuda_version": torch.version.cuda,
        "python_version": platform.python_version(),
        "triton_version": _package_version("triton", "pytorch-triton", "triton-windows"),
        "compute_capability": f"{properties.major}.{properties.minor}" if properties else None,
        "sm_count": properties.multi_processor_count if properties else None,
        "l2_bytes": l2_bytes(device) if properties else None,
        "device_memory_bytes": properties.total_memory if properties else None,
        "cpu_threads": torch.get_num_threads(),
        "matmul_tf32": products_are_narrow(flags),
        "cudnn_tf32": convolutions_are_tf32(flags),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
    }


def l2_bytes(device: str) -> int | None:
    """Size in bytes of the device's last shared cache: the GPU's L2, or the CPU's outermost level; None when unknown."""
    if device == "cuda":
        return getattr(torch.cuda.get_device_properties(0), "L2_cache_size", None)
    sizes: list[tuple[int, int]] = []
    for folder in glob.glob("/sys/devices/system/cpu/cpu0/cache/index[0-9]*"):
        level, size = _read(os.path.join(folder, "level")), _read(os.path.join(folder, "size"))
        if level.isdigit() and size[:-1].isdigit() and size[-1] in "KM":
            sizes.append((int(level), int(size[:-1]) * (1024 if size[-1] == "K" else 1024**2)))
    return max(sizes)[1] if sizes else None


def cpu_name() -> str:
    """The processor's model name."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.lower().startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine() or "CPU"


def _package_version(*names: str) -> str | None:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
