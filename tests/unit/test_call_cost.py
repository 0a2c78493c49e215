"""bench/call_cost.py: a figure for each way, beside torch.compile's in the same run."""

from __future__ import annotations

import re

import torch

from bench_scripts import load

call_cost = load("call_cost")


def test_each_way_is_timed_beside_torch_compile(capsys, monkeypatch) -> None:
    monkeypatch.setattr(call_cost, "TURNS", 1)
    monkeypatch.setattr(call_cost.GraphBackend, "compiled", lambda self, graph, example_inputs, options: graph.forward)
    plain = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model, backend="eager", **options: plain(model, backend=backend, **options))
    assert call_cost.main(["--weights", "2,3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["2", "3"]
    for line in lines:
        assert re.findall(r"([a-z.]+) [0-9.]+ \([0-9.]+\)", line) == [
            "original", "torch.compile", "bare", "direct", *call_cost.WAYS]


def test_what_is_timed_has_the_guard_that_its_way_needs() -> None:
    model, x = call_cost.Idle(2).eval(), torch.zeros(64)
    live, fixed, copied = (call_cost.guarded(model, x, way) for way in call_cost.WAYS)
    seen = []
    for fast in (live, fixed, copied):
        built = fast.__globals__["build"]
        fast.__globals__["build"] = lambda *given, built=built: (seen.append(1), built(*given))[1]
    counts = []
    for change in (lambda: None, lambda: None, lambda: setattr(model.weights[0], "data", torch.ones(2)),
                   lambda: torch.nn.init.zeros_(model.weights[1])):
        change()
        for fast in (live, fixed, copied):
            seen.clear()
            assert torch.equal(fast(x), x + 1)
            counts.append(len(seen))
    assert counts == [1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1]
