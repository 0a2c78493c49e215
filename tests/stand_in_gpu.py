"""A pretended GPU for tests of clocks: a stand-in NVML, nvidia-smi and sudo over one JSON file. No real clock can be meant: the
stand-in's UUID belongs to no GPU, its programs come first on the PATH, and its module is the one that is imported."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NVML = Path(__file__).resolve().parent / "stand_ins" / "nvml"
PROGRAMS = Path(__file__).resolve().parent / "stand_ins" / "bin"
UUID = "GPU-5a4d1000-0000-0000-0000-000000000000"


class StandIn:
    """One stand-in machine in a folder. `capable`: the clock that its GPU holds under load."""

    def __init__(self, folder: Path, *, capable: int = 1980, permit: bool = True, **more: Any) -> None:
        self.folder, self.file = folder, folder / "gpu.json"
        gpu = {"uuid": UUID, "name": "Stand-in GPU", "locked": None, "capable": capable}
        self.file.write_text(json.dumps({"gpus": [gpu], "permit": permit, **more}))

    def set(self, **values: Any) -> None:
        """Change the machine (not its GPU)."""
        self.file.write_text(json.dumps({**json.loads(self.file.read_text()), **values}))

    def gpu(self, **values: Any) -> dict[str, Any]:
        """The GPU's state, changed first."""
        state = json.loads(self.file.read_text())
        if values:
            state["gpus"][0].update(values)
            self.file.write_text(json.dumps(state))
        return dict(state["gpus"][0])

    def variables(self, **more: str) -> dict[str, str]:
        """What the stand-in needs in an environment."""
        return {
            "STAND_IN_GPU": str(self.file), "KERNELWRIGHT_STATE": str(self.folder / "state"),
            "KERNELWRIGHT_CACHE": str(self.folder / "cache"), "KERNELWRIGHT_LOCK": str(self.folder / "device.lock"),
            "KERNELWRIGHT_PYTHON": sys.executable, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{NVML}{os.pathsep}{ROOT / 'src'}", **more,
        }

    def environment(self, **more: str) -> dict[str, str]:
        """A child process's environment, in which clocks may be changed (the stand-in's are the only ones)."""
        hidden = ("KERNELWRIGHT_CLOCKS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
        return {**{name: value for name, value in os.environ.items() if name not in hidden}, **self.variables(**more)}

    def journal(self) -> list[dict[str, Any]]:
        """Every call that changed a clock or tried to."""
        file = Path(f"{self.file}.journal")
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def calls(self) -> list[str]:
        """Names of those calls."""
        return [row["call"] for row in self.journal()]

    def wait(self, locked: int | None, within_s: float = 60.0) -> float:
        """Wait until the GPU is locked at this clock (None: reset); the seconds that took. Fails after within_s."""
        start = time.monotonic()
        while self.gpu()["locked"] != locked:
            assert time.monotonic() - start < within_s, f"the clock is {self.gpu()['locked']}, not {locked}, after {within_s} s"
            time.sleep(0.02)
        return time.monotonic() - start
