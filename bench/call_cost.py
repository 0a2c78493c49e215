"""What a generated file does on the host at each call before and after its passes' own work, beside what torch.compile does there.

The model adds 1 to 64 numbers and has weights that it does not use: a call is nearly all host. The generated file's guard looks at the
inputs, and at the weights where a pass copied them or fixed their places; its passes are left out but for `no_grad`, which most have. Bare:
without the module that torch.compile puts around a module; direct: past its guards (`direct_calls`).

    python3 bench/call_cost.py [--weights 36,148] [--device cpu]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from kernelwright.model.workload import TensorSpec, WorkloadFacts, WorkloadRef  # noqa: E402
from kernelwright.optimize.generate import render_source  # noqa: E402
from kernelwright.optimize.passes import CATALOGUE  # noqa: E402
from kernelwright.probe.rewrites.compiled_calls import bare  # noqa: E402
from kernelwright.probe.rewrites.direct_calls import direct_calls  # noqa: E402
from kernelwright.probe.rewrites.graphs import GraphBackend  # noqa: E402

WAYS = {"live": ("no_grad",), "fixed": ("no_grad", "cuda_graph"), "copied": ("no_grad", "bf16")}
"""How a result depends on the weights, and passes with which it does."""
TURNS, CALLS = 9, 200


class Idle(torch.nn.Module):  # type: ignore[misc]
    """As many weights as one likes, and next to no work."""

    def __init__(self, weights: int) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(2) for _ in range(weights))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def guarded(model: torch.nn.Module, x: torch.Tensor, way: str) -> Callable[..., Any]:
    """What the generated file's optimize() gives, with no_grad alone behind its guard."""
    inputs = (TensorSpec(path="", shape=tuple(x.shape), dtype="float32", device=x.device.type),)
    facts = WorkloadFacts(form="model", version=None, params={}, inputs=inputs, outputs=(), training=False, dtype="float32",
                          parameter_count=1, parameter_bytes=4, already_compiled=False)
    text = render_source(WorkloadRef(path=ROOT / "idle.py", name="idle"), facts, [CATALOGUE[name] for name in WAYS[way]],
                         device=x.device.type)
    names: dict[str, Any] = {"__name__": f"guarded_{way}"}
    exec(compile(text, f"{way}.py", "exec"), names)
    names["build"] = lambda model, args, kwargs: names["no_grad"](model, args, kwargs)
    return names["optimize"](model, x)  # type: ignore[no-any-return]


def call_us(ways: dict[str, Callable[..., Any]], x: torch.Tensor) -> dict[str, float]:
    """Microseconds of host time a call: medians over batches in turns."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for function in ways.values():
        for _ in range(3):
            function(x)
    for _ in range(TURNS):
        for name, function in ways.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                function(x)
            found[name].append((time.perf_counter() - start) / CALLS * 1e6)
            if x.is_cuda:
                torch.cuda.synchronize()
    return {name: statistics.median(times) for name, times in found.items()}


def main(argv: list[str] | None = None) -> int:
    """A line for each number of weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", default="36,148", help="how many the model has, as numbers with commas (default: 36,148)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    own = parser.parse_args(argv)
    for count in map(int, own.weights.split(",")):
        model = Idle(count).to(own.device).eval()
        x = torch.zeros(64, device=own.device)
        compiled, backend = torch.compile(model), GraphBackend(calls=(direct_calls,))
        direct = backend.checked(bare(torch.compile(model, backend=backend)), model)
        ways: dict[str, Callable[..., Any]] = {"original": model, "torch.compile": compiled, "bare": bare(compiled), "direct": direct}
        found = call_us({**ways, **{way: guarded(model, x, way) for way in WAYS}}, x)
        most = found["torch.compile"]
        print(f"{count} weights, us a call: " + ", ".join(f"{name} {took:.1f} ({took / most:.2f})" for name, took in found.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
