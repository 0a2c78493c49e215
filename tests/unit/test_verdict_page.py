"""verdict.md: short, what failed first, nothing of a candidate's that is not inert, and what was not checked is said."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import Field

from kernelwright.cli.judge import page_of
from kernelwright.model.measurement import Measurement
from kernelwright.model.profile import ClockReading
from kernelwright.model.verdict import Audit, Comparison, Correctness, OutputError, Verdict
from kernelwright.model.workload import WorkloadRef

CHARACTERS_A_TOKEN = 4
MOST_TOKENS = 900
AGAIN = "python3 /plugins/kernelwright/scripts/judge.py /project/work/w.py /project/work/c.py --seed 281474976710655 --precision equal"


class Whole(Correctness):
    distributions: Any = ()
    steadiness: Any = None
    dropped_rounds: Any = ()
    warnings: Any = ()


class Full(Verdict):
    """With every part that a judgement may have."""

    correctness: Any = None
    separation: Any = None
    timings: Any = ()
    phases_s: Any = Field(default_factory=dict)
    reproducer: Any = None


def measured(ns):
    return Measurement.of([ns * (1 + index / 1000) for index in range(20)], timer="cuda_events")


def compared(speedup=1.52):
    return Comparison(reference=measured(152_000.0), candidate=measured(100_000.0), speedup=speedup, interval=(1.5, 1.54),
                      smallest_detectable_effect_pct=1.3, pairs=16, blocks=32, method="Hodges-Lehmann; 10 samples a block, cuda_events")


def errors(passed=True, count=3):
    return tuple(OutputError(path="", round=index, reference_error=1.2e-7, candidate_error=2.5e-7, limit=1.2e-6, passed=passed,
                             note="" if passed else f"at [1, {index}] it gives 0, the reference 3") for index in range(count))


def condition(name, **values):
    return SimpleNamespace(**{"condition": name, "speedup": 1.4, "interval": (1.3, 1.5), "pairs": 8, "not_applicable": "", "note": "",
                              **values})


def full(**changes):
    mechanism = [SimpleNamespace(name=name, held=True, detail="applied") for name in
                 ("two processes", "sealed replies", "no network", "seccomp", "landlock", "limits", "no new privileges")]
    values = {
        "verdict": "FASTER", "precision": "equal", "workload": "/project/work/w.py", "candidate": "/project/work/c.py",
        "reasons": ("speed-up 1.520x, 95% interval 1.500 to 1.540 over 16 pairs; a difference of 1.3% would have been seen",),
        "speedup": 1.52, "interval": (1.5, 1.54), "comparison": compared(), "seed": 281474976710655, "elapsed_s": 14.2,
        "candidate_setup_s": 2.5, "device_name": "NVIDIA H200", "torch_version": "2.11.0+cu130", "workload_sha256": "a" * 64,
        "candidate_sha256": "b" * 64,
        "correctness": Whole(
            passed=True, oracle="float64", rounds=3, errors=errors(),
            distributions=[SimpleNamespace(kind=kind, status="passed", note="") for kind in
                           ("small", "large", "shifted", "constant_rows", "mixed", "special")]
            + [SimpleNamespace(kind="nonfinite", status="dropped", note="the reference is finite nowhere")],
            steadiness=SimpleNamespace(repeatable=True, difference=None, reference_repeatable=True, calls=64)),
        "separation": SimpleNamespace(tier="hostile", held=mechanism, missing=[
            SimpleNamespace(name="user namespace", detail="unshare: not permitted")]),
        "timings": (condition("warm"), condition("cold L2"), condition("end to end"), condition("graph", not_applicable="capture failed")),
        "phases_s": {"start": 3.1, "load": 0.5, "build": 2.2, "correctness": 0.6, "timing": 6.0, "conditions": 1.1, "further pairs": 4.0},
        "audits": tuple(Audit(name=name, result=result, detail=detail) for name, result, detail in (
            ("screening", "passed", "nothing in the source asks for a look"), ("kernels seen", "passed", "the profiler saw fused_add run"),
            ("ghost replay", "passed", "outputs change when fused_add does nothing"), ("independent timer", "passed", "within 2%"),
            ("impossible speed", "passed", "41% of the roof of its bytes"), ("sanitizer: memcheck", "passed", "0 errors in one call (9 s)"),
            ("sanitizer: racecheck", "not_applicable", "not finished within 600 s"))),
    }
    return Full(**{**values, **changes})


def page(verdict, clocks=None):
    clocks = clocks or ClockReading(requested="lock", locked=True, locked_mhz=1500, sm_mhz_min=1495, sm_mhz_max=1500, sm_mhz_median=1500,
                                    samples=80, temperature_c_max=51, power_w_max=420.0)
    verdict = verdict.model_copy(update={"clocks": clocks})
    return page_of(verdict, WorkloadRef(path=Path(verdict.workload), name="w"), AGAIN)


def rows(text):
    """Name of the check -> its other cells."""
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| ")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells if len(row) == 4}


def test_a_passing_verdict_with_everything_checked_is_short():
    text = page(full())
    assert len(text) / CHARACTERS_A_TOKEN < MOST_TOKENS, len(text) / CHARACTERS_A_TOKEN
    assert "Not checked" not in text and "What failed" not in text
    found = rows(text)
    assert found["Separation"][1] == "hostile" and "3 more" in found["Separation"][0] and "no user namespace" in found["Separation"][2]
    assert found["Outputs, 3 rounds"][1] == "passed" and found["Other distributions"][1] == "passed"
    assert "dropped: nonfinite (the reference is finite nowhere)" in found["Other distributions"][2]
    assert found["Determinism"][1] == "same bits" and found["Drift"][:2] == ["round 1 again after 64 calls", "passed"]
    assert found["Timing, warm"][1] == "1.520x" and found["Timing, cold L2"][1] == "1.400x"
    assert found["Timing, graph"][1:] == ["n/a", "capture failed"]
    own = rows(page(full(timings=(condition("warm"), condition("graph", note="candidate: as it is, with CUDA graphs of its own")))))
    assert own["Timing, graph"][1:] == ["1.400x", "95% 1.300 to 1.500; candidate: as it is, with CUDA graphs of its own"]
    assert found["Further pairs of processes"][1] == "made" and found["Clocks"][1] == "locked" and "1495 to 1500 MHz" in found["Clocks"][2]
    assert found["sanitizer: racecheck"] == ["compute-sanitizer", "n/a", "not finished within 600 s"]
    assert found["impossible speed"][1] == "passed" and found["Files"][1] == "unchanged"
    assert text.rstrip().endswith(f"Again: `{AGAIN}`")


def test_what_was_not_checked_is_said_with_the_reason():
    bare = Verdict(verdict="FAILED", precision="equal", workload="w.py", candidate="c.py", reasons=("it raised",))
    found = rows(page(bare))["Not checked"][2]
    assert found.startswith("the judgement had ended: ")
    for words in ("separation tier", "outputs (not reached)", "timing (not reached)", "cold L2, graph, end to end", "ghost replay",
                  "kernels seen", "independent timer", "impossible speed", "compute-sanitizer"):
        assert words in found, words
    right = full(audits=(), timings=(), phases_s={}, verdict="SAME")
    found = rows(page(right))["Not checked"][2]
    assert "compute-sanitizer (ask with --sanitize)" in found and "further pairs of processes" in found


def test_what_failed_comes_first_with_the_smallest_reproducer_and_the_command():
    minimal = SimpleNamespace(
        kind="value", summary="one element is 0 where 3.5 belongs", round=1, distribution="large", changed={}, inputs_seed=77, path="out.0",
        shape=(4, 8), index=(1, 7), expected=0.0, reference=0.25, got=0.0, error=0.4, limit=1e-6)
    wrong = Whole(passed=False, oracle="float64", rounds=3, errors=(*errors(), *errors(False, 12)))
    text = page(full(verdict="WRONG", speedup=None, interval=None, comparison=None, correctness=wrong, reproducer=minimal,
                               reasons=("round 2: off",)))
    order = [text.index(words) for words in ("# Verdict on c.py: WRONG", "- round 2: off", "## What failed", AGAIN, "## Checks")]
    assert order == sorted(order) and text.count(AGAIN) == 1
    row = next(line for line in text.splitlines() if line.startswith("| 281474976710655"))
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "281474976710655 (inputs 77)", "2", "large", "out.0", "[4, 8]", "[1, 7]", "0.0", "0.25", "0.0", "0.4", "1e-06"]
    assert text.count("it gives 0, the reference 3") == 8 and "4 more are in verdict.json" in text
    assert rows(text)["Outputs, 3 rounds"][1] == "FAILED"


def test_a_drift_and_a_difference_between_calls_are_named():
    unsteady = Whole(passed=False, oracle="float64", rounds=3, errors=errors(), steadiness=SimpleNamespace(
        repeatable=False, difference=0.003, reference_repeatable=False, calls=64))
    text = page(full(verdict="WRONG", correctness=unsteady, reproducer=SimpleNamespace(
        kind="state", summary="right at first", round=0, distribution="", inputs_seed=1, path="", shape=(2,), index=None, expected=None,
        reference=None, got="nan", error=None, limit=None)))
    assert rows(text)["Drift"][1] == "FAILED"
    assert rows(text)["Determinism"][1:] == ["differs by 0.003", "the reference differs too"]
    assert "| (the output) | [2] | n/a | n/a | n/a | nan | n/a | n/a |" in text


@pytest.mark.parametrize("hostile", ["a | b | c", "`code`", "# heading\n## more\n- bullet", "<script>alert(1)</script>", "[x](http://x)",
                                     "\x1b[31mred\u202e", "{{ 1234 * 7 }}"])
def test_what_a_candidate_says_stays_inert(hostile):
    verdict = full(reasons=(hostile,), candidate='/tmp/' + hostile.replace('/', '') + '.py', device_name=hostile,
                   audits=(Audit(name=hostile, result="warned", detail=hostile * 50),),
                   correctness=Whole(passed=True, oracle=hostile, rounds=3, errors=errors()))
    text = page(verdict)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert all(len(re.split(r"(?<!\\)\|", line)) == 6 for line in table), table
    assert not re.search(r"(?<!\\)<script|\x1b|\u202e|\]\(http|8638", text.replace(AGAIN, ""))
    assert [line for line in text.splitlines() if line.startswith("#")] == [next(iter(text.splitlines())), "## Checks"]
