"""The published schemas are those of the code, and real documents hold to them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import builders
from kernelwright.model.profile import Profile
from kernelwright.model.verdict import Verdict
from kernelwright.report.schema import schemas

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "schema"
CASES = {name: getattr(builders, name)() for name in ("gpu_annotation", "with_counters", "cpu_annotation", "event", "no_peaks", "hostile")}


def _published(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((PUBLISHED / name).read_text(encoding="utf-8"))
    return schema


@pytest.mark.parametrize("name", schemas())
def test_published_schema_is_that_of_the_code(name: str) -> None:
    assert _published(name) == schemas()[name], "run: python -m kernelwright.report.schema docs/schema"


@pytest.mark.parametrize("name", schemas())
def test_published_schema_is_a_schema(name: str) -> None:
    schema = _published(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$id"].startswith("urn:kernelwright:schema:") and schema["title"] and schema["type"] == "object"


def test_schema_is_made_by_one_command(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "kernelwright.report.schema", str(tmp_path)], cwd=tmp_path, capture_output=True, text=True,
                          env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""}, timeout=120, check=True)
    assert sorted(Path(line).name for line in done.stdout.splitlines()) == sorted(schemas())
    for name in schemas():
        assert (tmp_path / name).read_bytes() == (PUBLISHED / name).read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_profiles_hold_to_the_published_schema(name: str) -> None:
    document = json.loads(CASES[name].model_dump_json())
    jsonschema.Draft202012Validator(_published("profile.schema.json")).validate(document)
    assert Profile.model_validate(document) == CASES[name]


def test_verdicts_hold_to_the_published_schema() -> None:
    verdict = Verdict(verdict="WRONG", precision="equal", workload="w.py", candidate="c.py", reasons=("output 0 differs",))
    jsonschema.Draft202012Validator(_published("verdict.schema.json")).validate(json.loads(verdict.model_dump_json()))


@pytest.mark.parametrize("fault", [
    lambda d: d.pop("schema_version"), lambda d: d["capture_metadata"].pop("torch_version"), lambda d: d.update(surprise=1),
    lambda d: d["operators"][0]["kernels"][0].update(duration_ns="long"), lambda d: d["operators"][0]["aggregated"].pop("l2_hit_rate"),
    lambda d: d["operators"][0]["kernels"][0]["attribution"].update(method="guess"),
])
def test_a_broken_profile_does_not_hold(fault: Any) -> None:
    document = json.loads(CASES["gpu_annotation"].model_dump_json())
    fault(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(_published("profile.schema.json")).validate(document)


def test_profile_has_the_documented_fields() -> None:
    """The fields that readers of other tools' profiles rely on."""
    schema = _published("profile.schema.json")
    parts = {name: set(part.get("required", ())) for name, part in schema["$defs"].items()}
    assert {"schema_version", "capture_metadata", "operators", "unattributed_kernels", "warnings", "stages", "roofline", "findings",
            "evidence"} <= set(schema["required"])
    assert {"model_name", "torch_version", "compile_mode", "device_name", "capture_timestamp_utc"} <= parts["CaptureMetadata"]
    assert {"operator_id", "operator_name", "call_index", "is_fused", "fused_ops", "kernels", "aggregated"} <= parts["Operator"]
    assert {"kernel_id", "kernel_name", "stream_id", "device_id", "start_ns", "end_ns", "duration_ns", "metrics",
            "attribution"} <= parts["Kernel"]
    assert {"total_duration_ns", "kernel_count", "dominant_kernel_id", "total_dram_bytes_read", "total_dram_bytes_written",
            "achieved_occupancy", "tensor_core_active_pct", "l1_hit_rate", "l2_hit_rate"} == parts["Aggregated"]
