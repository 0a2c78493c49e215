"""KernelBench's fields from verdicts, and how fast_p is counted."""

import pytest

from kernelwright.judge.kernelbench import HOW_COUNTED, candidates_of, error_of, result_of, summary_of
from kernelwright.model.errors import BadInput
from kernelwright.model.measurement import Measurement
from kernelwright.model.verdict import Comparison, Correctness, OutputError, Verdict

KERNELBENCHS = {"compiled", "correctness", "metadata", "runtime", "runtime_stats", "ref_runtime", "ref_runtime_stats"}
"""Of KernelExecResult (KernelBench, src/kernelbench/eval.py)."""


def verdict(name="FASTER", speedup=2.5, low=2.4, passed=True, built=1.0, reasons=("why",)):
    side = {side: Measurement.of([ns] * 9, timer="cuda_events") for side, ns in (("reference", 2_500_000.0), ("candidate", 1_000_000.0))}
    error = OutputError(path="", round=1, reference_error=0, candidate_error=1, limit=2, passed=passed)
    return Verdict(
        verdict=name, precision="equal", workload="w.py", candidate="/x/c.py", speedup=speedup, interval=(low, low + 1) if low else None,
        candidate_setup_s=built, reasons=reasons, device_name="NVIDIA H200", environment={"device": "cuda"},
        correctness=Correctness(passed=passed, oracle="float64", rounds=3, errors=(error,)) if built else None,
        comparison=Comparison(**side, speedup=2.5, interval=(2.4, 2.6), smallest_detectable_effect_pct=1, pairs=8, blocks=16, method="m"))


def test_a_right_candidate_has_kernelbenchs_fields_in_ms():
    result = result_of(verdict(), 4, "/r/verdict.md")
    document = result.model_dump()
    assert document.keys() >= KERNELBENCHS and (result.compiled, result.correctness, result.sample_id) == (True, True, 4)
    assert result.runtime == 1.0 and result.ref_runtime == 2.5 and result.runtime_stats["num_trials"] == 9
    assert result.metadata == {"hardware": "NVIDIA H200", "device": "cuda", "correctness_trials": "(3 / 3)"}
    assert result.speedup == 2.5 and result.verdict == "FASTER" and result.report == "/r/verdict.md"


@pytest.mark.parametrize(("made", "compiled", "key"), [
    (verdict("WRONG", None, None, passed=False), True, "correctness_issue"), (verdict("CHEAT", None, None), True, "cheat"),
    (verdict("FAILED", None, None), True, "runtime_error"), (verdict("FAILED", None, None, built=None), False, "compilation_error")])
def test_what_is_not_right_has_no_time_and_says_why(made, compiled, key):
    result = result_of(made, 0)
    assert result.compiled is compiled and not result.correctness and result.metadata[key] == "why"
    assert result.runtime == result.ref_runtime == -1.0 and result.runtime_stats == {}


def test_fast_p_counts_the_right_ones_of_all_that_were_named(tmp_path):
    rows = [result_of(one, index) for index, one in enumerate((
        verdict(speedup=2.5, low=2.4), verdict(speedup=2.1, low=1.9), verdict("SLOWER", 0.8, 0.7), verdict("AMBIGUOUS", None, None),
        verdict("CHEAT", 9.0, 8.0), verdict("WRONG", None, None, passed=False)))]
    rows.append(error_of(BadInput("no_entry_point", "none", fix="define one"), tmp_path / "c.py", 6))
    summary = summary_of(rows, 8)  # one was not reached
    assert (summary.n, summary.judged, summary.compiled, summary.correct) == (8, 6, 6, 4)
    assert summary.fast_p == {"0.0": 4 / 8, "1.0": 2 / 8, "2.0": 2 / 8}
    assert summary.fast_p_certain == {"0.0": 4 / 8, "1.0": 2 / 8, "2.0": 1 / 8}
    assert "medians" in HOW_COUNTED and rows[-1].verdict is None and rows[-1].metadata["error"]["code"] == "no_entry_point"


def test_folders_are_their_python_files(tmp_path):
    for name in ("b.py", "a.py", "notes.txt"):
        (tmp_path / name).write_text("")
    (tmp_path / "empty").mkdir()
    assert [path.name for path in candidates_of([tmp_path, tmp_path / "a.py"])] == ["a.py", "b.py"]
    with pytest.raises(BadInput, match="no Python file"):
        candidates_of([tmp_path / "empty"])
