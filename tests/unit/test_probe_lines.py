"""Exact source lines: what the probe marks, and what the analysis makes of it, for real code on the CPU."""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernelwright.attribute import attribute
from kernelwright.model.errors import BadInput
from kernelwright.model.profile import Operator
from kernelwright.probe import annotation, lines
from kernelwright.probe.importing import import_file
from kernelwright.readers.kineto import read_kineto
from kernelwright.readers.lines import Frame, UserStack, read_lines

WORK = '''
import contextlib
import torch
from inner.layers import scaled


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x  # in a custom forward

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient.neg() * x  # in a custom backward


def pieces(x):
    for part in x.split(2):
        yield part.exp()


def step(x, weight):
    y = x @ weight  # matrix product
    y = y[:, :4]  # indexing
    flipped = y.T  # attribute
    y = scaled(
        y,
    ) - flipped.sum()  # after a helper
    total = [piece.cos() for piece in pieces(y)]  # generator and comprehension
    with contextlib.suppress(ValueError):
        raises(y)
    y = y.tanh()  # after an exception
    if y.sum().item() > 1e9:  # item
        y = y * 2
    return Square.apply(y).sum() + torch.stack([part.sum() for part in total]).sum()


def raises(x):
    x.sin()
    raise ValueError


def call(x, weight):
    loss = step(x, weight)
    loss.backward()  # backward
    return loss
'''
LAYERS = '''
def scaled(x):
    return x.mul(3)  # in a helper
'''


@pytest.fixture
def work(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    (tmp_path / "code" / "inner").mkdir(parents=True)
    (tmp_path / "code" / "inner" / "layers.py").write_text(LAYERS, encoding="utf-8")
    file = tmp_path / "code" / "marked_work.py"
    file.write_text(WORK, encoding="utf-8")
    before, path = set(sys.modules), list(sys.path)
    yield import_file(str(file))
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith(("marked_work", "inner")):
            del sys.modules[name]


def recorded(work: ModuleType, call: Any, out: Path) -> list[Operator]:
    """Operators of the one recorded step, joined with themselves."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        name, warnings = annotation.record_stacks(call, None, "cpu", str(out), os.path.dirname(str(work.__file__)))
    finally:
        sys.settrace(tracer)
    assert name == "lines.json.gz" and warnings == []
    trace = read_kineto(out / "trace_stacks.json.gz")
    result = attribute(trace, stacks=trace, lines=read_lines(out / name))
    recorded.stacks = result.stacks  # type: ignore[attr-defined]
    return list(result.operators)


def line_of(comment: str, text: str = WORK) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {comment}"))


def sources(operators: list[Operator], name: str) -> list[str | None]:
    return [operator.source for operator in operators if operator.operator_name == name and not operator.parents]


def test_each_operator_has_the_line_that_called_it(work: Any, tmp_path: Path) -> None:
    import torch

    x, weight = torch.ones(4, 8), torch.ones(8, 8, requires_grad=True)
    found = recorded(work, lambda: work.call(x, weight), tmp_path)

    def at(comment: str) -> str:
        return f"marked_work.py:{line_of(comment)}"

    assert sources(found, "aten::matmul") == [at("matrix product")]
    assert sources(found, "aten::slice") [-1:] == [at("indexing")]
    assert sources(found, "aten::numpy_T") == [at("attribute")]
    assert sources(found, "aten::mul")[:1] == [f"inner/layers.py:{line_of('in a helper', LAYERS)}"]
    assert sources(found, "aten::cos") == [at("generator and comprehension")] * 2
    assert len(set(sources(found, "aten::exp"))) == 1 and sources(found, "aten::exp") != sources(found, "aten::cos")
    assert sources(found, "aten::tanh") == [at("after an exception")]
    assert sources(found, "aten::item") == [at("item")]
    inside = [operator.source for operator in found if operator.operator_name == "aten::_local_scalar_dense"]
    assert inside == [at("item")], "what synchronises inside item() has its line"
    assert {operator.source_kind for operator in found if operator.source} == {"line"}


def test_backward_calls_have_the_forward_line_unless_the_users_own_backward_runs(work: Any, tmp_path: Path) -> None:
    import torch

    x, weight = torch.ones(4, 8), torch.ones(8, 8, requires_grad=True)
    found = recorded(work, lambda: work.call(x, weight), tmp_path)
    backward = {operator.operator_name.split(": ")[-1]: operator.source for operator in found
                if "evaluate_function" in operator.operator_name}
    assert backward["MmBackward0"] == f"marked_work.py:{line_of('matrix product')}"
    assert backward["TanhBackward0"] == f"marked_work.py:{line_of('after an exception')}"
    neg = next(operator for operator in found if operator.operator_name == "aten::neg" and "SquareBackward" in str(operator.parents))
    assert neg.source == f"marked_work.py:{line_of('in a custom backward')}"


def test_stacks_hold_the_users_frames_and_fold_the_libraries(work: Any, tmp_path: Path) -> None:
    import torch

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return work.scaled(x)

    net, x = torch.nn.Sequential(Net()), torch.ones(3)
    here = Path(__file__).name
    found = recorded(work, lambda: net(x), tmp_path)
    stack = recorded.stacks[next(operator for operator in found if operator.operator_name == "aten::mul").stack]  # type: ignore[attr-defined]
    assert [entry.split("/")[-1].split(":")[0] for entry in stack if not entry.startswith("(")][-2:] == [here, "layers.py"]
    assert stack[-1] == f"inner/layers.py:{line_of('in a helper', LAYERS)} scaled"
    assert any(entry.endswith("library frames)") for entry in stack), "torch.nn.Module's own frames are one entry"
    assert not any("torch/nn" in entry or "annotation.py" in entry for entry in stack)


def test_a_step_with_too_many_lines_gets_no_wrong_ones(work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(lines, "MOST_MARKERS", 4)
    x, weight = torch.ones(4, 8), torch.ones(8, 8)
    markers = lines.LineMarkers(str(Path(work.__file__).parent))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profiler:
        tracer = sys.gettrace()
        sys.settrace(None)
        markers.start()
        with torch.autograd.profiler.record_function("kernelwright.step"):
            work.step(x, weight)
        markers.stop()
        sys.settrace(tracer)
    profiler.export_chrome_trace(str(tmp_path / "t.json"))
    assert markers.write(str(tmp_path)) == lines.LINES_FILE and "too many lines" in markers.note
    trace = read_kineto(tmp_path / "t.json")
    found = list(attribute(trace, stacks=trace, lines=read_lines(tmp_path / lines.LINES_FILE)).operators)
    assert sources(found, "aten::matmul") == [f"marked_work.py:{line_of('matrix product')}"]
    kinds = {operator.source_kind for operator in found if operator.operator_name == "aten::tanh"}
    assert "line" not in kinds


def test_a_debugger_is_left_alone(tmp_path: Path) -> None:
    before, threads = sys.gettrace(), threading.gettrace()
    seen: list[str] = []

    def debugger(_frame: Any, event: str, _arg: Any) -> None:
        seen.append(event)

    sys.settrace(debugger)
    try:
        markers = lines.LineMarkers(str(tmp_path))
        markers.start()
        kept = sys.gettrace()
        markers.stop()
        assert sys.gettrace() is debugger
    finally:
        sys.settrace(before)
    assert kept is debugger and "debugger" in markers.note and markers.write(str(tmp_path)) is None
    assert threading.gettrace() is threads


def table(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "lines.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def test_reading_the_table(tmp_path: Path) -> None:
    document = {"version": 1, "stacks": [[["a.py", 3, "main", 0], 2, ["b.py", 9, "f", 0]], [],
                                         [["a.py", 4, "main", 0], ["b.py", 8, "f", 1]],
                                         [["b.py", 8, "f", 1]], [["b.py", 8, "f", 1], ["b.py", 11, "f", 2]]]}
    read = read_lines(table(tmp_path, document))
    assert [stack.source for stack in read] == ["b.py:9", None, "a.py:4", None, "b.py:11"], "a compiled part has its caller's line"
    assert read[3].definition == "b.py:8"
    assert read[0].words() == ("a.py:3 main", "(2 library frames)", "b.py:9 f")
    assert read[2] == UserStack((Frame("a.py", 4, "main", 0), Frame("b.py", 8, "f", 1)))


@pytest.mark.parametrize("document", [
    [], {"version": 1}, {"version": 1, "stacks": [[["a.py", "3", "f", 0]]]}, {"version": 1, "stacks": [[-1]]},
    {"version": 1, "stacks": [[["a.py", 3, "f", 7]]]}, {"version": 1, "stacks": [[None]]}, {"version": 1, "stacks": [[True]]},
])
def test_a_broken_table_is_refused(tmp_path: Path, document: Any) -> None:
    with pytest.raises(BadInput, match="stacks"):
        read_lines(table(tmp_path, document))


def test_what_is_no_gzip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines.json.gz").write_bytes(b"not gzip")
    with pytest.raises(BadInput):
        read_lines(tmp_path / "lines.json.gz")
    with pytest.raises(BadInput):
        read_lines(tmp_path / "none.json.gz")
