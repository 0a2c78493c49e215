"""Honest candidates that need a GPU: CUDA graphs, Triton, lower precision declared, side streams that are joined."""

from pathlib import Path

import pytest

from judge_corpus import Sessions, said
from judge_honest import GPU_FOLDER, GPU_HONEST, problem

pytestmark = pytest.mark.gpu
WORKLOAD = Path(__file__).resolve().parents[2] / "examples" / "mlp_activations.py"


@pytest.fixture(scope="module")
def sessions():
    with Sessions(max_timing_s=2.0, device="cuda") as sessions:
        yield sessions


@pytest.mark.parametrize("honest", GPU_HONEST, ids=[honest.name for honest in GPU_HONEST])
def test_an_honest_candidate_is_judged_rightly(honest, sessions):
    verdict = sessions.judge(WORKLOAD, GPU_FOLDER / f"{honest.name}.py", precision=honest.precision)
    assert not problem(honest, verdict), said(verdict)
