"""The benchmark's own arithmetic: how far inherited counters are from measured ones, and what is left out of that."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from kernelwright.model.profile import Aggregated, Attribution, Kernel, Metrics, Operator

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("annotation_overhead", ROOT / "bench" / "annotation_overhead.py")
assert _SPEC is not None and _SPEC.loader is not None
bench = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(bench)


def operator(step, *kernels):
    rows = tuple(
        Kernel(kernel_id=name, kernel_name="k", stream_id=7, device_id=0, start_ns=0, end_ns=ns, duration_ns=ns,
               metrics=Metrics(raw=raw, origin=origin), attribution=Attribution(method="correlation", confidence="high"))
        for name, ns, origin, raw in kernels)
    return Operator(operator_id=f"aten::mm_{step}", operator_name="aten::mm", call_index=step, step=step, kernels=rows,
                    aggregated=Aggregated(total_duration_ns=1, kernel_count=len(rows), dominant_kernel_id=None))


def test_medians_over_heavy_launches_that_inherited():
    profiled = [operator(0, ("a", 1000, "propagated", {"bytes.sum": 110.0, "x_pct": 50.0, "small_pct": 0.5, "tiny.sum": 1.0}),
                         ("b", 1000, "propagated", {"bytes.sum": 100.0, "x_pct": 52.0, "tiny.sum": 1e6}),
                         ("c", 1000, "measured", {"bytes.sum": 101.0}), ("light", 1, "propagated", {"bytes.sum": 900.0})),
                operator(1, ("other step", 1000, "propagated", {"bytes.sum": 900.0}))]
    direct = [operator(0, ("a", 1000, "measured", {"bytes.sum": 100.0, "x_pct": 50.0, "small_pct": 0.1, "tiny.sum": 9.0}),
                       ("b", 1000, "measured", {"bytes.sum": 100.0, "x_pct": 50.0, "tiny.sum": 1e6}),
                       ("c", 1000, "measured", {"bytes.sum": 100.0}), ("light", 1, "measured", {"bytes.sum": 1.0})),
              operator(1, ("other step", 1000, "measured", {"bytes.sum": 1.0}))]
    found = bench.compared(profiled, direct)
    assert (found["compared_launches"], found["twice_measured_launches"]) == (2, 1)
    assert found["inherited_median_pct"] == {"bytes.sum": pytest.approx(5.0), "x_pct": pytest.approx(2.0), "tiny.sum": 0.0}
    assert found["inherited_over_2_pct"] == {"bytes.sum": pytest.approx(5.0)} and found["inherited_worst_median_pct"] == pytest.approx(5.0)
    assert found["twice_measured_median_pct"] == {"bytes.sum": pytest.approx(1.0)}


def test_caches_are_empty_and_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/warm")
    monkeypatch.setenv("XDG_DATA_HOME", "/warm")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environment = bench.fresh(tmp_path / "plain", {"PYTHONDONTWRITEBYTECODE": None, "PYTHONPYCACHEPREFIX": "/warmed"})
    assert environment["PYTHONPYCACHEPREFIX"] == "/warmed" and "PYTHONDONTWRITEBYTECODE" not in environment
    assert "/warm" not in environment.values()
    for name in ("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "KERNELWRIGHT_CACHE", "XDG_CACHE_HOME"):
        assert environment[name].startswith(str(tmp_path / "plain")), name
    assert not [path for path in (tmp_path / "plain").rglob("*") if path.is_file()]


def test_the_stages_add_up_to_the_whole(tmp_path):
    spent = {"prepare": 0.1, "capture": 8.0, "analysis": 0.4, "first_process": 4.0, "peaks": 0.5, "counters": 3.0, "loading": 0.0}
    (tmp_path / "params.json").write_text(json.dumps({"stages_s": spent, "analysed_at_unix_s": 1009.5}))
    found = bench.stages(tmp_path, 1000.0, 10.2)
    assert found["start"] == pytest.approx(1.0) and found["report"] == pytest.approx(0.7) and found["locks_and_clocks"] == 0.5
    assert sum(found.values()) == pytest.approx(10.2)
