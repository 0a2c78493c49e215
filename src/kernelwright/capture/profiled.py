"""The environment of a process under a profiler: an allow-list, since a profiler's report holds the variables of what it recorded.

A report can't be scrubbed afterwards, and is passed on. Kept is what decides where caches lie (so that the second process finds what the
first compiled), which libraries and devices are used, and how torch and its compilers behave.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAMES = frozenset((
    "PATH", "HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR", "TMP", "TEMP",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH", "CC", "CXX", "MAX_JOBS", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE",
    "HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "SYSTEMROOT", "KERNELWRIGHT_CLOCKS",
))
"""Inductor's cache lies below the temporary folder, in one named after the user (getpass: LOGNAME, USER, LNAME, USERNAME)."""
PREFIXES = ("CUDA", "TORCH", "TRITON_", "PYTORCH_", "NVIDIA_", "CUBLAS", "CUDNN_", "NCCL_", "PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_",
            "OPENBLAS_", "XDG_", "LC_", "AOT", "ATEN_", "NV_COMPUTE_PROFILER_")
MORE = "KERNELWRIGHT_NCU_ENV"
"""Names of further variables, separated by commas, that the user knows to hold no secret."""
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|COOKIE|SESSION|(^|_)(API_?)?KEYS?(_|$)", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"://[^/@\s]+@")
"""A user's name or password in a URL, e.g. of a remote cache or a package index."""


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a profiled process gets: those named above and in MORE; of the families by prefix none that looks like a
    secret. No value with a password in a URL, unless it is named in MORE."""
    named = {name.strip() for name in environment.get(MORE, "").split(",")} - {""}
    return {name: value for name, value in environment.items() if name in named or (_known(name) and not _SECRET_VALUE.search(value))}


def _known(name: str) -> bool:
    return name in NAMES or (name.startswith(PREFIXES) and not SECRET_NAME.search(name))
