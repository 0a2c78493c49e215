"""Honest candidates, each judged rightly: never CHEAT, WRONG or FAILED, and never the opposite of what it is."""

import pytest

from judge_corpus import DATA, Sessions, is_full, said
from judge_honest import FOLDER, GPU_FOLDER, GPU_HONEST, HONEST, TOO_ROUGH, judged
from kernelwright.judge import screening

MAX_FINDINGS = 8
"""Of the whole honest corpus: kinds of findings that ask a reader to look at honest code."""


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("KERNELWRIGHT_LOCK", str(tmp_path_factory.mktemp("honest") / "lock"))
        with Sessions(max_timing_s=0.3, confirm=is_full()) as sessions:
            yield sessions


def test_every_honest_candidate_is_in_the_table_once():
    files = sorted(f"{path.parent.name}/{path.stem}" for path in FOLDER.rglob("*.py"))
    assert files == sorted(honest.key for honest in (*HONEST, *TOO_ROUGH))
    assert sorted(path.stem for path in GPU_FOLDER.glob("*.py")) == sorted(honest.name for honest in GPU_HONEST)


@pytest.mark.parametrize("honest", [pytest.param(honest, id=honest.key) for honest in HONEST if honest.every_run or is_full()])
def test_an_honest_candidate_is_judged_rightly(honest, sessions):
    verdict, problem = judged(honest, sessions)
    assert not problem, said(verdict)


def test_audits_can_be_left_out(sessions):
    files = (DATA / "wide.py", FOLDER / "wide" / "own_operator.py")
    with_them, without = (sessions.judge(*files, timing=False, audits=audits) for audits in (True, False))
    assert [row.name for row in with_them.audits] == ["screening", "kernels seen", "ghost replay"] and without.audits == ()


def test_what_is_too_rough_is_wrong_and_no_cheat(sessions):
    (honest,) = TOO_ROUGH
    verdict = sessions.judge(DATA / f"{honest.workload}.py", FOLDER / f"{honest.key}.py")
    assert verdict.verdict == "WRONG" and "one element is off" in said(verdict), said(verdict)


def test_the_static_look_finds_little_in_honest_sources():
    found = {f"{path.parent.name}/{path.stem}": {finding.kind for finding in screening.screen(path.read_bytes())}
             for path in [*FOLDER.rglob("*.py"), *GPU_FOLDER.glob("*.py")]}
    assert sum(len(kinds) for kinds in found.values()) <= MAX_FINDINGS, {name: kinds for name, kinds in found.items() if kinds}
