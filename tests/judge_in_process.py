"""A round of the judge in this process: the probe's inputs and runs, the parent's comparison, and nothing of processes or files."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from kernelwright.judge.correctness import UNIT_ROUNDOFF, Expected, check_elsewhere, check_round, distances
from kernelwright.judge.expectations import PERTURBED_RUNS
from kernelwright.judge.tensors import Leaf
from kernelwright.judge.tf32_luck import Drawn, Draws
from kernelwright.model.verdict import OutputError
from kernelwright.probe import judge_distributions, judge_reference, judge_tf32, tree
from kernelwright.probe.judge_program import Program
from kernelwright.probe.judge_tensors import clone_like
from kernelwright.probe.loaders import Inputs, LoadedWorkload, split_inputs


def workload_of(model: Callable[..., Any], get_inputs: Callable[[], Any], *, training: bool = False, device: str = "cpu") -> LoadedWorkload:
    """A workload in KernelBench's form, its module made up."""
    torch.manual_seed(0)
    raw = get_inputs()
    args, kwargs = split_inputs(raw)
    return LoadedWorkload(path="w.py", form="kernelbench", version=None, versions=(), params={},
                          module=SimpleNamespace(get_inputs=get_inputs, __name__="w"), model=model, raw_input=raw, args=args, kwargs=kwargs,
                          device=device, training=training)


def leaves_of(found: list[tuple[str, torch.Tensor]]) -> list[Leaf]:
    """As the parent reads them."""
    return [_leaf(path, tensor.detach()) for path, tensor in found]


def _leaf(path: str, tensor: torch.Tensor) -> Leaf:
    values = tensor.reshape(-1).contiguous().clone().cpu()
    array = values.float().numpy() if tensor.dtype == torch.bfloat16 else values.numpy()
    return Leaf(path, str(tensor.dtype).replace("torch.", ""), tuple(tensor.shape), "cpu", type(tensor).__name__, False, np.asarray(array))


def with_draws_of(expected: Expected, workload: LoadedWorkload, inputs: Inputs, seed: int) -> Expected:
    """What is expected, with more draws of TF32's roundings."""
    def drawn(draw: int) -> Drawn:
        try:
            names = judge_tf32.tf32_weights(workload, inputs, seed)
            return distances(leaves_of(judge_tf32.rounded_run(workload, inputs, seed, [], names, 1000 * seed + draw)), expected)
        except judge_reference.NotApplicable:
            return None

    return replace(expected, draws=Draws(drawn))


def own_round(workload: LoadedWorkload, candidate: Callable[..., Any], seed: int) -> tuple[list[OutputError], list[OutputError]]:
    """One round on the generator's inputs, with no more draws of TF32's roundings and with them: every leaf's error."""
    inputs = workload.fresh_inputs(seed)
    with torch.no_grad():
        got, found = (Program(workload, fn).call(tree.map_tensors(clone_like, inputs), seed)[0] for fn in (candidate, workload.model))

    plain = Expected(leaves_of(found), leaves_of(judge_reference.oracle(workload, inputs, seed, found, [])))
    without, with_draws = (check_round(leaves_of(got), expected, round_number=0, level="equal")
                           for expected in (plain, with_draws_of(plain, workload, inputs, seed)))
    assert without[1] is None and with_draws[1] is None
    return list(without[0]), list(with_draws[0])


def elsewhere(
    workload: LoadedWorkload, candidate: Callable[..., Any], kind: str, seed: int, level: str = "equal", free: bool = True,
) -> list[tuple[OutputError, bool]] | None:
    """One round on another distribution: every leaf's error and whether it could be compared. None where the reference is no evidence."""
    inputs, done = judge_distributions.transformed(workload.fresh_inputs(seed), kind, seed, free)
    if not done:
        return None
    model = copy.deepcopy(workload.model) if isinstance(workload.model, torch.nn.Module) else workload.model
    with torch.set_grad_enabled(workload.training):
        got, _ = Program(workload, candidate).call(tree.map_tensors(clone_like, inputs), seed)
        got = leaves_of(got)
        try:
            found, _ = Program(workload, model).call(tree.map_tensors(clone_like, inputs), seed)
        except Exception:  # noqa: BLE001 - whatever the workload raises on such inputs
            return None
    reference = leaves_of(found)
    try:
        oracle = leaves_of(judge_reference.oracle(workload, inputs, seed, found, []))
    except judge_reference.NotApplicable:
        oracle = None
    moved = [leaves_of(judge_reference.perturbed_run(workload, inputs, seed, found, [], 0.0, seed + draw))
             for draw in range(PERTURBED_RUNS)]
    yardsticks = []
    if level == "bf16":
        for how in ("autocast", "converted"):
            try:
                yardsticks.append(leaves_of(judge_reference.yardstick(workload, inputs, seed, level, how, [])))
            except judge_reference.NotApplicable:
                continue
        yardsticks.append(leaves_of(judge_reference.perturbed_run(workload, inputs, seed, found, [], UNIT_ROUNDOFF[level], seed)))
    if kind == "nonfinite" and not all(np.isfinite(leaf.values).all() for leaf in reference if leaf.floating):
        return None
    expected = with_draws_of(Expected(reference, oracle or reference, oracle is None, yardsticks, moved), workload, inputs, seed)
    return [check_elsewhere(index, got, expected, round_number=9, level=level, kind=kind)  # type: ignore[arg-type]
            for index in range(len(reference))]
