"""The slow questions (driver, interpreter, profilers), asked beside each other, and what several checks share of the answers."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ...model.errors import KernelwrightError, one_line
from ..gpu_processes import GpuProcess, short_name
from ..gpus import cuda_hidden
from ..interpreter import Interpreter
from ..nsight import Tool, find_ncu, find_nsys
from ..system_view import Gpu, Ran, SystemView

_ASK_INTERPRETER = """
import importlib.metadata as m, os, sysconfig
try: print(m.version("triton"))
except m.PackageNotFoundError: print("none")
print(os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))
"""
_SMI_FIELDS = "name,driver_version,memory.total,memory.free,compute_cap"


@dataclass(frozen=True)
class Seen:
    """gpu_source: "NVML", "nvidia-smi", "driver files"; "" without a GPU."""

    gpus: tuple[Gpu, ...]
    gpu_source: str
    smi_problem: str
    """Why nvidia-smi, which is there, lists no GPU; "" where it was not asked or does."""
    processes: tuple[GpuProcess, ...] | None
    hidden: bool
    """CUDA_VISIBLE_DEVICES hides every GPU."""
    interpreter: Interpreter | KernelwrightError
    triton: str | None
    python_headers: bool | None
    ncu: Tool
    nsys: Tool
    compiler: Ran | None
    """What the C++ compiler says of its version; None without one."""

    @property
    def gpu_usable(self) -> bool:
        """The driver lists a GPU and nothing hides it."""
        return bool(self.gpus) and not self.hidden


def look(view: SystemView, *, ncu: str | None = None, nsys: str | None = None) -> Seen:
    """Ask everything. ncu, nsys: named by the user."""
    with ThreadPoolExecutor(max_workers=6) as pool:
        gpus = pool.submit(find_gpus, view)
        users = pool.submit(view.nvml_processes)
        torch = pool.submit(find_torch, view)
        ncu_tool = pool.submit(find_ncu, view, ncu)
        nsys_tool = pool.submit(find_nsys, view, nsys)
        compiler = pool.submit(ask_compiler, view)
        found, source, problem = gpus.result()
        interpreter, triton, headers = torch.result()
        processes = users.result() if found else ()
        if processes is None and source == "nvidia-smi":
            processes = smi_processes(view)
        return Seen(gpus=found, gpu_source=source, smi_problem=problem, processes=processes, hidden=cuda_hidden(view.env),
                    interpreter=interpreter, triton=triton, python_headers=headers, ncu=ncu_tool.result(), nsys=nsys_tool.result(),
                    compiler=compiler.result())


def find_gpus(view: SystemView) -> tuple[tuple[Gpu, ...], str, str]:
    """(the GPUs, who listed them, why nvidia-smi does not): NVML, else nvidia-smi, else the driver's files."""
    listed = view.nvml_gpus()
    if listed:
        return listed, "NVML", ""
    rows, problem = _smi(view, f"--query-gpu={_SMI_FIELDS}")
    gpus = tuple(_smi_gpu(row) for row in rows if len(row) >= 3)
    if gpus:
        return gpus, "nvidia-smi", ""
    version = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", view.read("/proc/driver/nvidia/version") or "")
    models = [_driver_model(path) for path in view.glob("/proc/driver/nvidia/gpus/*/information")]
    return tuple(Gpu(model, version[1] if version else None) for model in models), "driver files" if models else "", problem


def smi_processes(view: SystemView) -> tuple[GpuProcess, ...] | None:
    """Who uses the GPUs, by nvidia-smi; None where it does not tell."""
    order = {row[0]: index for index, row in enumerate(_smi(view, "--query-gpu=uuid")[0])}
    if not order:
        return None
    users, _ = _smi(view, "--query-compute-apps=gpu_uuid,pid,process_name,used_memory")
    rows = [row for row in users if len(row) == 4 and row[1].isdigit()]
    return tuple(GpuProcess(order.get(row[0], 0), int(row[1]), short_name([row[2]]), _mib(row[3])) for row in rows)


def find_torch(view: SystemView) -> tuple[Interpreter | KernelwrightError, str | None, bool | None]:
    """The workload's interpreter (or why there is none), its Triton, and whether it has Python.h."""
    try:
        interpreter = view.interpreter()
    except KernelwrightError as error:
        return error, None, None
    ran = view.run([str(interpreter.path), "-c", _ASK_INTERPRETER])
    words = ran.stdout.split()
    if ran.exit_code != 0 or not words:
        return interpreter, None, None
    return interpreter, words[0] if words[0] != "none" else None, words[1] == "True" if len(words) > 1 else None


def ask_compiler(view: SystemView) -> Ran | None:
    """The compiler that Inductor would take ($CXX, else g++), asked for its version; None when it is not there."""
    path = view.which(view.env.get("CXX") or "g++")
    return view.run([str(path), "--version"]) if path is not None else None


def _smi(view: SystemView, query: str) -> tuple[list[list[str]], str]:
    """(rows of cells, why there are none)."""
    tool = view.which("nvidia-smi")
    if tool is None:
        return [], ""
    ran = view.run([str(tool), query, "--format=csv,noheader,nounits"])
    if ran.exit_code != 0:
        return [], one_line(ran.stdout.strip() or ran.stderr.strip() or f"exit status {ran.exit_code}")
    return [[cell.strip() for cell in line.split(",")] for line in ran.stdout.splitlines() if line.strip()], ""


def _smi_gpu(row: list[str]) -> Gpu:
    capability = re.fullmatch(r"(\d+)\.(\d+)", row[4]) if len(row) > 4 else None
    return Gpu(row[0], row[1], _mib(row[2]), _mib(row[3]) if len(row) > 3 else None,
               (int(capability[1]), int(capability[2])) if capability else None)


def _mib(text: str) -> int | None:
    return int(text) * 2**20 if text.isdigit() else None


def _driver_model(path: Path) -> str:
    try:
        match = re.search(r"^Model:\s*(.+)$", path.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else "NVIDIA GPU"
