"""Builds build/axpy_extension.so with the CUDA compiler and torch's copy of pybind11."""

import subprocess
import sysconfig
from pathlib import Path

import torch
from torch.utils.cpp_extension import CUDA_HOME, include_paths

HERE = Path(__file__).resolve().parent
(HERE / "build").mkdir(exist_ok=True)
major, minor = torch.cuda.get_device_capability()
includes = [f"-I{path}" for path in (*include_paths(), sysconfig.get_path("include"))]
subprocess.run([f"{CUDA_HOME}/bin/nvcc", "-O3", "-shared", "-std=c++17", "-Xcompiler", "-fPIC", f"-arch=sm_{major}{minor}", *includes,
                str(HERE / "csrc" / "axpy_extension.cu"), "-o",
                str(HERE / "build" / f"axpy_extension{sysconfig.get_config_var('EXT_SUFFIX')}")], check=True)
