"""Fakes of the optimiser's stages, and a workload: for tests of its loop without torch."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import pytest

import builders
from kernelwright.devlog import DevlogFiles, add_entry, read_log
from kernelwright.judge.options import OutOfTime
from kernelwright.model.capture import ProbeEnvironment, ProbeResult
from kernelwright.model.errors import WorkloadFailed
from kernelwright.model.measurement import Measurement
from kernelwright.model.profile import Profile
from kernelwright.model.verdict import Comparison, Experiment, Verdict
from kernelwright.model.workload import TensorSpec, WorkloadFacts, WorkloadRef
from kernelwright.optimize import OptimizeOptions, optimize
from kernelwright.optimize.confirm import USUAL, Effort
from kernelwright.optimize.ledger import Ledger
from kernelwright.optimize.paired import restated
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.plan import LADDER
from kernelwright.optimize.stages import not_logged
from kernelwright.pipeline.profile import ProfileRun
from kernelwright.report import render_contract


def environment(device: str = "cuda", **changes: object) -> ProbeEnvironment:
    values = {"device": device, "device_name": "NVIDIA H200" if device == "cuda" else "CPU", "torch_version": "2.11.0",
              "cuda_version": None, "python_version": "3.12", "triton_version": None, "compute_capability": None, "sm_count": None,
              "l2_bytes": None, "device_memory_bytes": None,
              "cpu_threads": 2, "matmul_tf32": False, "cudnn_tf32": True, "cudnn_benchmark": False}
    return ProbeEnvironment.model_validate({**values, **changes})


def facts(**changes: object) -> WorkloadFacts:
    values: dict[str, object] = {
        "form": "model", "version": None, "params": {}, "inputs": (TensorSpec(path="", shape=(2, 3), dtype="float32", device="cuda"),),
        "outputs": (), "training": False, "dtype": "float32", "parameter_count": 1, "parameter_bytes": 4, "already_compiled": False}
    return WorkloadFacts.model_validate({**values, **changes})


def profile_of(device: str, operators: tuple[str, ...], **changes: object):
    return builders.gpu_annotation(capture_metadata=builders.metadata(dtype="float32", device=device, version=None), parameters={},
                                   operators=builders.operators(operators, 2, 300_000), **changes)


CONVOLUTIONAL = ("aten::cudnn_convolution", "aten::batch_norm")


def context(device: str = "cuda", operators: tuple[str, ...] = CONVOLUTIONAL, uncompiled: Profile | None = None,
            **changes: object) -> Context:
    return Context(facts=facts(**changes), environment=environment(device), profile=profile_of(device, operators), uncompiled=uncompiled)


def verdict(name: str, speedup: float | None = None, spread: float = 0.02, reason: str = "") -> Verdict:
    comparison, interval = None, None
    if speedup is not None:
        interval = (speedup - spread, speedup + spread)
        before, after = (Measurement.of([ns] * 9, timer="cuda_events") for ns in (1e6, 1e6 / speedup))
        comparison = Comparison(reference=before, candidate=after, speedup=speedup, interval=interval, pairs=20, blocks=40,
                                smallest_detectable_effect_pct=1.0, method="fake")
    return Verdict(verdict=name, precision="equal", speedup=speedup, interval=interval, reasons=(reason,) if reason else (),
                   comparison=comparison, workload="w", candidate="c")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class FakeStages:
    """Speed-ups by candidate name; each judgement takes its kind's seconds on a fake clock."""

    def __init__(self, speedups: dict[str, object], *, device: str = "cuda", seconds: dict[str, float] | None = None,
                 operators: tuple[str, ...] = CONVOLUTIONAL, profile_s: float = 5.0,
                 uncompiled: tuple[str, ...] = (), torch: str = "2.11.0", **changes: object) -> None:
        self.speedups, self.device, self.clock, self.profile_s = speedups, device, Clock(), profile_s
        self.seconds = {"cheap": 4.0, "compile": 20.0, "autotune": 60.0, **(seconds or {})}
        self.operators, self.uncompiled, self.changes = operators, uncompiled, changes
        self.judged: list[str] = []
        self.profiled: list[str] = []
        self.logged: list[tuple[str, ...]] = []
        self.open = 0
        self.sessions = 0
        self.confirmed = b""
        self.efforts: list[Effort] = []
        self.torch = torch
        self.screener = None
        self.screening_open = False
        self.confirming: list[tuple[bool, bool]] = []
        """Of each of the judge's sessions: whether it confirms, and whether the screen was open beside it."""
        self.profiled_beside_screen = False
        self.audited: list[bool] = []
        self.prepared_after: list[tuple[int, bool]] = []
        """How many profiles there were when the next processes were prepared, and whether the judge's were among them."""

    def where(self, workload: WorkloadRef) -> dict[str, str]:
        return {"device": self.device, "torch": self.torch}

    def profile(self, workload, folder, baseline, timeout_s, timing=None):
        self.profiled.append(folder.name)
        self.profiled_beside_screen |= self.screening_open
        self.stood_beside = baseline
        if self.profile_s > timeout_s:
            self.clock.now += timeout_s
            raise WorkloadFailed("timeout", "the workload did not finish")
        self.clock.now += self.profile_s
        (folder / "raw").mkdir(parents=True, exist_ok=True)
        # Minutes later the machine is slower; no profile's timing is the judge's.
        own = Measurement.of([1.05e6 if baseline is None else 1.25e6] * 9, timer="cuda_events")
        document = profile_of(self.device, self.operators, timing=own)
        if baseline is not None:
            metadata = document.capture_metadata.model_copy(update={"version": "optimized"})
            document = restated(document.model_copy(update={"capture_metadata": metadata}), timing)
        result = ProbeResult(status="ok", facts=facts(**self.changes), environment=environment(self.device))
        (folder / "raw" / "result.json").write_text(result.model_dump_json())
        (folder / "profile.json").write_text(document.model_dump_json())
        (folder / "contract.md").write_text(render_contract(document, baseline))
        plain = profile_of(self.device, self.uncompiled) if self.uncompiled and baseline is None else None
        if plain is not None:
            (folder / "uncompiled").mkdir()
            (folder / "uncompiled" / "profile.json").write_text(plain.model_dump_json())
        return ProfileRun(document, folder, result, uncompiled=plain)

    @contextlib.contextmanager
    def preparing(self, workload, *, judge):
        self.prepared_after.append((len(self.profiled), judge))
        yield

    @contextlib.contextmanager
    def judging(self, workload, *, confirms=False):
        self.open += 1
        self.sessions += 1
        self.confirming.append((confirms, self.screening_open))
        try:
            yield self.judge
        finally:
            self.open -= 1

    @contextlib.contextmanager
    def screening(self, workload):
        """None: every candidate is judged."""
        self.screening_open = True
        try:
            yield self.screener
        finally:
            self.screening_open = False

    def judge(self, file: Path, precision: str, seconds: float, effort: Effort = USUAL) -> Verdict:
        text = file.read_text()
        compile(text, str(file), "exec")
        if file.name == "optimized.py":
            self.confirmed = file.read_bytes()
            self.efforts.append(Effort(effort.alpha, effort.timing_s, ends_in_time=effort.ends_in_time))
            self.audited.append(effort.audits)
            name = "optimized:" + text.split(": ")[1].split(".")[0]
        else:
            assert effort.ends_in_time, "a candidate's judgement may be short of time, no confirmation's"
            name = file.stem.split("_", 1)[1].replace("__", "+")
        self.judged.append(name)
        needed = max(self.seconds[CATALOGUE[part].cost] for part in name.split("+")) if "optimized" not in name else 4.0
        needed += effort.timing_s - USUAL.timing_s
        self.clock.now += min(needed, seconds)
        if needed > seconds:
            raise OutOfTime("calling")
        answer = self.speedups.get(name, 1.3 if name.startswith("optimized") else 0.9)
        answer = answer.pop(0) if isinstance(answer, list) else answer
        if isinstance(answer, BaseException):
            raise answer
        if not isinstance(answer, Verdict):
            answer = verdict("FASTER" if answer > 1.05 else "SLOWER" if answer < 0.95 else "SAME", answer)
        return answer.model_copy(update={"candidate_sha256": hashlib.sha256(file.read_bytes()).hexdigest()})

    def log(self, workload, entries):
        log = workload.path.parent / "net.devlog.md"
        entries = not_logged(entries, read_log(DevlogFiles.of(log).jsonl)[0])
        self.logged += [tuple(insights) for _profile, insights, _extra in entries]
        for document, insights, extra in entries:
            add_entry(document, log, insights=insights, extra=extra)
        return Path("/log.md")


FEW = ("no_grad", "unwrap_compiled", "cuda_graph", "cudnn_benchmark", "channels_last", "fold_conv_bn", "tf32", "bf16", "bf16_autocast",
       *LADDER)


@pytest.fixture(autouse=True)
def few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search over a small catalogue: what it tries in a test does not change with every new pass."""
    for name in CATALOGUE.keys() - set(FEW):
        monkeypatch.delitem(CATALOGUE, name)


@pytest.fixture(name="workload")
def a_workload(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kernelwright.optimize.pictures.draw", lambda _end: [])  # test_optimize_reports draws
    monkeypatch.setenv("KERNELWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("kernelwright.optimize.pictures.draw", lambda _end: [])  # test_optimize_reports draws
    path = tmp_path / "net.py"
    path.write_text("# the workload")
    return WorkloadRef(path=path, name="net")


def run(workload, stages, said=None, **options):
    return optimize(workload, OptimizeOptions(**{"budget_s": 1000.0, **options}), stages=stages, clock=stages.clock,
                    say=(said.append if said is not None else lambda _line: None))


def rows(outcome) -> dict[str, Experiment]:
    return {row.name: row for row in Ledger(outcome.out_dir / "ledger.jsonl").latest()}


def judged_candidates(stages) -> list[str]:
    return [name for name in stages.judged if not name.startswith("optimized")]


def judged_row(index: int, name: str) -> Experiment:
    return Experiment(index=index, name=name, passes=(name,), precision="equal", candidate_file="c", status="judged")


NOISY = verdict("AMBIGUOUS", 1.3, spread=0.5)
