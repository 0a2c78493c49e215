"""Roofs measured on a real GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROBE = Path(__file__).resolve().parents[2] / "src" / "kernelwright" / "probe"
CODE = """
import json, sys
sys.path.insert(0, {folder!r})
from probe import calibrate, environment
print(json.dumps([calibrate.peaks("cuda"), environment.describe("cuda")]))
"""


@pytest.mark.gpu
def test_l2_is_faster_than_memory_and_slower_than_l1() -> None:
    import json

    from kernelwright.model.capture import ProbeEnvironment, ProbePeak
    from kernelwright.roofline.ceilings import ceilings, value_of

    done = subprocess.run([sys.executable, "-c", CODE.format(folder=str(PROBE.parent))], capture_output=True, text=True, check=True,
                          timeout=120)
    (raw, warnings), where = json.loads(done.stdout)
    assert not warnings
    peaks = [ProbePeak.model_validate(peak) for peak in raw]
    print([(peak.name, round(peak.value, 1), peak.method) for peak in peaks])
    found = {ceiling.name: value_of(ceiling).value for ceiling in ceilings(peaks, ProbeEnvironment.model_validate(where), "float32")}
    assert found["l2"] > 1.05 * found["dram"], "the buffers did not stay in L2"
    assert "l1" not in found or found["l2"] < found["l1"], "more than L1 can give: the copies were not real"
