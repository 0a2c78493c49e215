"""Tensors that are compared on samples: what the judge says of them is what it says of small ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernelwright.judge import JudgeOptions, ReferenceSession, judge
from kernelwright.judge.exchange import MARK, OWN_ROUNDS, ROUGHLY, TIMED
from kernelwright.model.workload import WorkloadRef

WORKLOAD = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, cache):
        {body}
def get_model_and_input():
    return Model().eval(), (torch.randn({rows}, 1024), torch.zeros({rows}, 1024))
"""
PLAIN = "return x * 2.0 + cache"
WRITES = "cache.copy_(x + 1.0); return x.sum(-1)"
HEAD = "import threading, time, torch\ndef optimize(model, inputs):\n"
SAME = "    return lambda x, cache: model(x, cache)\n"
STALE = """    kept = []
    def call(x, cache):
        kept.append(model(x, cache) if not kept else kept[0])
        return kept[0].clone()
    return call
"""
ONE_ELEMENT = """    def call(x, cache):
        out = model(x, cache)
        x.view(-1)[12345] = 0.5
        return out
    return call
"""
LATE = """    def call(x, cache):
        def write():
            time.sleep(2.0)
            with torch.no_grad():
                cache.copy_(x + 1.0)
        threading.Thread(target=write, daemon=True).start()
        return x.sum(-1)
    return call
"""
ABOVE = OWN_ROUNDS.above // 1024 + 100
BETWEEN = ROUGHLY.above // 1024 + 100
"""Rows of 1024, above the limit of the generator's rounds and above that of the others alone."""


def verdict(folder: Path, body: str, rows: int, candidate: str, **options: object):
    workload, file = folder / "workload.py", folder / "candidate.py"
    workload.write_text(WORKLOAD.format(body=body, rows=rows))
    file.write_text(HEAD + candidate)
    asked = JudgeOptions(**{"device": "cpu", "python": sys.executable, "timing": False, "distributions": False, "degenerate": False,
                            **options})
    ref = WorkloadRef(path=workload, name="workload")
    with ReferenceSession(ref, asked) as session:
        return judge(ref, file, asked, session=session)


@pytest.mark.parametrize(("rows", "body", "candidate", "said", "why"), [
    (ABOVE, PLAIN, STALE, "CHEAT", "stale or cached result"),
    (ABOVE, PLAIN, ONE_ELEMENT, "WRONG", "it writes to its inputs"),
    (BETWEEN, PLAIN, ONE_ELEMENT, "WRONG", "it writes to its inputs"),
    (ABOVE, WRITES, SAME, "AMBIGUOUS", "timing was not asked for"),
    (ABOVE, WRITES, LATE, "WRONG", "round 1"),
], ids=["stale", "one element of an input", "one of a smaller input", "writes an input", "writes an input after its return"])
def test_what_is_sampled_is_judged_as_what_is_not(tmp_path, rows, body, candidate, said, why):
    found = verdict(tmp_path, body, rows, candidate)
    assert found.verdict == said and why in found.reasons[0], found.reasons


def test_other_inputs_and_timed_calls_are_sampled_alike_on_both_sides(tmp_path):
    found = verdict(tmp_path, PLAIN, BETWEEN, SAME, timing=True, distributions=True, max_timing_s=1.0, conditions=(), cross_check=False,
                    confirm=False)
    assert found.verdict in ("SAME", "AMBIGUOUS", "FASTER", "SLOWER"), found.reasons
    assert found.correctness.passed and found.correctness.distributions
    assert next(row for row in found.audits if row.name == "timed calls").result == "passed"


def test_timed_outputs_are_whole_where_the_rounds_are():
    assert TIMED.above == OWN_ROUNDS.above == MARK.above and MARK.elements < ROUGHLY.elements < OWN_ROUNDS.elements
