"""Each pass of the catalogue alone (with the compile mode that it needs) on an example that it applies to, through the real screen: none
is wrong and none fails on a GPU. What has no place in any of them has tests of its own (test_runtime_passes_gpu.py: training, copies).

`-k NAME` for one pass; `-n 6` where cores are free: each example is profiled once for all processes. It prints what each came to.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from kernelwright.judge.options import JudgeOptions
from kernelwright.model.capture import ProbeEnvironment
from kernelwright.model.profile import Profile
from kernelwright.model.workload import Device, WorkloadFacts, WorkloadRef
from kernelwright.optimize.generate import render_source, write_source
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.plan import candidate, carrier_of, measures, refusal
from kernelwright.optimize.screen import Ask, Screener
from kernelwright.optimize.stages import OptimizeOptions, RealStages

pytestmark = pytest.mark.gpu
DEVICE: Device = "cuda"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("mlp_activations", "sdpa_attention", "conv_block", "depthwise_separable_conv", "lstm_sequence_encoder", "embedding_projection",
         "gpt2")
"""What takes least to compile comes first."""
BUILD_S = 120.0
BEYOND_REACH = 1e6
"""A floor for the speed-up that ends the timing at once: a right result is all that is asked for."""


class Examples:
    """Each profiled, and loaded for the screen, when it is first asked for. The folder is that of all processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contexts: dict[str, Context] = {}
        self.name, self.screener = "", None

    def context(self, name: str) -> Context:
        if name not in self.contexts:
            files = [self.folder / f"{name}.{part}.json" for part in ("facts", "environment", "profile")]
            with FileLock(self.folder / f"{name}.lock"):
                if not all(file.exists() for file in files):
                    stages = RealStages(OptimizeOptions(budget_s=120.0, device=DEVICE, python=sys.executable), lambda _line: None)
                    run = stages.profile(self.workload(name), self.folder / name, None, 120.0)
                    for file, found in zip(files, (run.result.facts, run.result.environment, run.profile), strict=True):
                        file.write_text(found.model_dump_json())
            facts, environment, profile = (kind.model_validate_json(file.read_text()) for kind, file in zip(
                (WorkloadFacts, ProbeEnvironment, Profile), files, strict=True))
            self.contexts[name] = Context(facts=facts, environment=environment, profile=profile)
        return self.contexts[name]

    def workload(self, name: str) -> WorkloadRef:
        return WorkloadRef(path=EXAMPLES / f"{name}.py", name=name)

    def screen(self, name: str, passes: list[str]):
        if self.name != name:
            self.close()
            self.name, self.screener = name, Screener(self.workload(name), JudgeOptions(device=DEVICE, python=sys.executable))
            self.screener.__enter__()
        item, context = candidate(passes, self.context(name)), self.context(name)
        source = render_source(self.workload(name), context.facts, [CATALOGUE[one] for one in item.passes], device=DEVICE)
        file = write_source(self.folder / "candidates" / f"{name}_{passes[0]}.py", source)
        return self.screener.screen(Ask(file, item.precision, BUILD_S, compiles=carrier_of(item.passes) is not None,
                                        measures=measures(item.passes), hopeless=BEYOND_REACH))

    def close(self) -> None:
        if self.screener is not None:
            self.screener.close()


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "passes"
    folder.mkdir(exist_ok=True)
    found = Examples(folder)
    yield found
    found.close()


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_pass_is_wrong_or_fails(examples, name, capsys):
    refused = []
    for example in NAMES:
        context = examples.context(example)
        why = refusal(candidate([name], context), context)
        if why is None:
            seen = examples.screen(example, [name])
            late = ("out_of_budget",) if CATALOGUE[name].cost == "autotune" else ()
            assert seen.status in ("timed", "hopeless", "not_applicable", *late), (example, seen.status, seen.reason)
            if seen.status in late:
                say(capsys, f"{name}: {example}, {seen.reason}")
                return
            if seen.speedup is not None:
                assert seen.error is None or seen.error <= seen.limit, (example, seen.error, seen.limit)
                say(capsys, f"{name}: {example}, {seen.speedup:.2f}x, error {seen.error}, built in {seen.build_s:.1f} s")
                return
            why = seen.reason
        refused.append(f"{example}: {why}")
    say(capsys, f"{name}: found no place; {'; '.join(refused)}")


def say(capsys, words: str) -> None:
    """Past pytest's capture; of a process of xdist's only stderr is seen."""
    with capsys.disabled():
        print(words, file=sys.__stderr__, flush=True)
