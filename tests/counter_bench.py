"""Annotation with counters, without a GPU: the timeline's process is a recording of an H200, ncu a stand-in."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import pytest

from kernelwright.capture.interpreter import Interpreter
from kernelwright.capture.system_view import real_system
from kernelwright.model.capture import ProbeResult
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline import counters as counter_module
from kernelwright.pipeline import profile as profile_module
from kernelwright.pipeline.counters import CounterOptions
from kernelwright.pipeline.profile import ProfileOptions, profile
from kernelwright.report import write_profile
from ncu_reports import DATA, recorded

ROOT = Path(__file__).resolve().parents[1]
CAPTURES = ROOT / "tests" / "data" / "captures" / "h200"
ADMINS_ONLY = "RmProfilingAdminOnly: 1\n"


class Bench:
    """One machine with a pretended GPU: `said` has the progress lines, `asked` the requests of the plain process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.said, self.asked = folder, [], []
        self.report = recorded("conv", folder)
        self.machine = folder / "machine"
        self.machine.mkdir()
        self.uid, self.capability = 1000, "9.0"
        monkeypatch.setenv("KERNELWRIGHT_CACHE", str(folder / "cache"))
        monkeypatch.setattr(profile_module, "find_interpreter",
                            lambda *_a, **_k: Interpreter(Path(sys.executable), "2.11.0", "13.0", "--python"))
        monkeypatch.setattr(profile_module, "run_probe", self._probe)
        monkeypatch.setattr(profile_module, "gpu_visible", lambda: True)
        monkeypatch.setattr(counter_module, "real_system", self.view)
        # The picture of the roofline takes longer than all the rest together, and has tests of its own.
        monkeypatch.setattr("kernelwright.report.write.write_roofline", lambda *_: ())

    def view(self):
        return dataclasses.replace(real_system(), root=self.machine, uid=self.uid, env={"PATH": ""})

    def admins_only(self) -> None:
        for name, text in {"proc/driver/nvidia/params": ADMINS_ONLY, "proc/self/status": "CapEff:\t0000000000000000\n"}.items():
            (self.machine / name).parent.mkdir(parents=True, exist_ok=True)
            (self.machine / name).write_text(text)

    def _probe(self, request, *_a, while_running=lambda: None, **_k):
        self.asked.append(request)
        shutil.copy(DATA / "ncu" / "conv.json.gz", Path(request.out_dir) / "trace.json.gz")
        while_running()
        document = json.loads((CAPTURES / "conv_block" / "result.json").read_bytes())
        environment = {**document["environment"], "compute_capability": self.capability}
        without = {"stacks_file": None, "lines_file": None, "ops_file": None}
        return ProbeResult.model_validate({**document, **without, "environment": environment})

    def run(self, ncu: Path | str, **counters):
        asked = CounterOptions(executable=str(ncu), **counters)
        workload = WorkloadRef(path=ROOT / "examples" / "conv_block.py", name="conv_block")
        done = profile(workload, "annotation", self.folder / "out", ProfileOptions(counters=asked, variation=True), say=self.said.append)
        return done, write_profile(done.profile, done.out_dir, trace=done.trace, params_doc=done.params)
