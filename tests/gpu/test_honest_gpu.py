"""Honest candidates that need a GPU: CUDA graphs, Triton, lower precision declared, side streams that are joined."""

import pytest

from judge_corpus import Sessions, said
from judge_honest import GPU_HONEST, judged

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def sessions():
    with Sessions(max_timing_s=2.0, device="cuda") as sessions:
        yield sessions


@pytest.mark.parametrize("honest", GPU_HONEST, ids=[honest.name for honest in GPU_HONEST])
def test_an_honest_candidate_is_judged_rightly(honest, sessions):
    verdict, wrong = judged(honest, sessions)
    assert not wrong, said(verdict)
