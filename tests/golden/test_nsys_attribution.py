"""Recorded Nsight Systems captures through the same attribution as Kineto's: times add up, and causes have the user's lines."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from kernelwright.attribute import Attributed, attribute
from kernelwright.attribute.calls import Calls
from kernelwright.readers.lines import read_lines
from kernelwright.readers.nsys import read_nsys
from kernelwright.readers.nsys_names import EVALUATE
from nsys_recordings import NAMES, recording

SOURCES = Path(__file__).parents[1] / "gpu" / "nsys"


@cache
def attributed(name: str) -> Attributed:
    folder = recording(name)
    trace, stacks = read_nsys(folder / "report.sqlite")
    lines = folder / "lines.json.gz"
    return attribute(trace, stacks=stacks, lines=read_lines(lines) if lines.exists() else ())


def line_of(workload: str, code: str) -> str:
    """"hidden_sync.py:17", where that code stands."""
    lines = (SOURCES / f"{workload}.py").read_text().splitlines()
    number, = (number for number, line in enumerate(lines, 1) if code in line)
    return f"{workload}.py:{number}"


@pytest.mark.parametrize("name", NAMES)
def test_times_add_up_and_every_kernel_has_an_operator(name: str) -> None:
    found = attributed(name)
    assert found.attributed_ns + found.unattributed_ns == found.measured_ns > 0
    assert found.unattributed_ns == 0 and not found.warnings


@pytest.mark.parametrize("name", [name for name in NAMES if "-" not in name])
def test_operators_have_the_user_s_lines(name: str) -> None:
    found = attributed(name)
    without = [operator for operator in found.operators if operator.source_kind != "line"]
    # The probe itself calls backward() where a workload returns its loss; that begins with a tensor of ones, once a step.
    assert [operator.parents for operator in without] == [("aten::ones_like",)] * (2 if name == "train_mlp_step" else 0)
    assert found.stacks


def test_a_number_asked_of_the_device_in_a_loop() -> None:
    waits = {(wait.where, wait.operators[0]): wait for wait in attributed("hidden_sync").activity.synchronizations}
    item = waits[line_of("hidden_sync", ".item()"), "aten::item"]
    assert (item.count, item.copies, item.call) == (12, "DtoH", "cudaStreamSynchronize")
    assert item.idle_ns > item.wait_ns, "the device runs dry after each"
    assert waits[line_of("hidden_sync", "x.cpu()"), "aten::to"].copies == "DtoH"
    copies = {(copy.direction, copy.where): copy for copy in attributed("hidden_sync").activity.host_copies}
    back = copies["HtoD", line_of("hidden_sync", "host.to(x.device)")]
    assert (back.memory, back.count, back.bytes) == ("pageable", 2, 2 * 512 * 1024 * 4)


def test_a_slow_data_loader() -> None:
    activity = attributed("slow_loader").activity
    loading, = activity.data_loader
    assert loading.where == line_of("slow_loader", "next(self.batches)") and loading.count == 2
    assert activity.data_loader_idle_ns == loading.duration_ns > 2 * 10_000_000, "two batches of 10 ms, and the device has no work"


def test_two_streams() -> None:
    assert attributed("two_streams").activity.streams == 2


def test_modules() -> None:
    modules = [operator.module for operator in attributed("gpt2").operators if operator.operator_name == "aten::addmm"]
    assert modules[:4] == ["blocks.0.attention.qkv", "blocks.0.attention.out", "blocks.0.mlp.fc1", "blocks.0.mlp.fc2"]


def test_shapes_of_products() -> None:
    shapes = {operator.input_shapes for operator in attributed("mlp_activations").operators if operator.operator_name == "aten::addmm"}
    assert shapes == {((2048,), (256, 512), (512, 2048)), ((2048,), (256, 2048), (2048, 2048)), ((512,), (256, 2048), (2048, 512))}


def test_gradients_have_the_line_of_their_forward_call() -> None:
    trace, _ = read_nsys(recording("train_mlp_step") / "report.sqlite")
    calls = Calls(trace)
    seen = 0
    for row in range(len(trace.operators)):
        name = calls.name(row)
        if calls.step[row] >= 0 and name.startswith(EVALUATE) and "AccumulateGrad" not in name:
            forward = calls.forward_call(row)
            assert forward is not None and trace.operators.thread[forward] != trace.operators.thread[row]
            assert {"AddmmBackward0": "aten::addmm", "TBackward0": "aten::t", "GeluBackward0": "aten::gelu",
                    "LogSoftmaxBackward0": "aten::_log_softmax", "NllLossBackward0": "aten::nll_loss_forward"}[
                name.removeprefix(EVALUATE)] == calls.name(forward)
            assert forward == calls.forward_call(row + 1), "the node itself"
            seen += 1
    assert seen == 2 * 10


def test_compiled_code_and_graphs() -> None:
    compiled = attributed("gpt2-inductor")
    fused = [operator for operator in compiled.operators if operator.is_fused]
    assert fused and all(operator.fused_ops for operator in fused if operator.operator_name.startswith("triton_"))
    graphs = attributed("mlp_activations-cudagraphs")
    assert {kernel.attribution.confidence for operator in graphs.operators if operator.operator_name == "CompiledFunction"
            for kernel in operator.kernels} == {"low"}
