"""Honest candidates, each judged rightly: never CHEAT, WRONG or FAILED, and never the opposite of what it is."""

import pytest

from judge_corpus import Sessions, is_full, said
from judge_honest import FOLDER, GPU_FOLDER, GPU_HONEST, HONEST, judged
from kernelwright.judge import screening

MAX_FINDINGS = 8
"""Of the whole honest corpus: kinds of findings that ask a reader to look at honest code."""


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("KERNELWRIGHT_LOCK", str(tmp_path_factory.mktemp("honest") / "lock"))
        with Sessions(max_timing_s=0.3) as sessions:
            yield sessions


def test_every_honest_candidate_is_in_the_table_once():
    assert sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.rglob("*.py")) == sorted(honest.key for honest in HONEST)
    assert sorted(path.stem for path in GPU_FOLDER.glob("*.py")) == sorted(honest.name for honest in GPU_HONEST)


@pytest.mark.parametrize("honest", [pytest.param(honest, id=honest.key) for honest in HONEST if honest.every_run or is_full()])
def test_an_honest_candidate_is_judged_rightly(honest, sessions):
    verdict, problem = judged(honest, sessions)
    assert not problem, said(verdict)


def test_the_static_look_finds_little_in_honest_sources():
    found = {f"{path.parent.name}/{path.stem}": {finding.kind for finding in screening.screen(path.read_bytes())}
             for path in [*FOLDER.rglob("*.py"), *GPU_FOLDER.glob("*.py")]}
    assert sum(len(kinds) for kinds in found.values()) <= MAX_FINDINGS, {name: kinds for name, kinds in found.items() if kinds}
