"""The pages about the two corpora are the tables that the tests use."""

from pathlib import Path

import pytest

import judge_exploits
import judge_honest
import judge_runs
from kernelwright.judge import blocks, clocks, recurring

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {"judge-exploits.md": judge_exploits.page, "judge-honest.md": judge_honest.page}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_its_table(name):
    """`python bench/judge_corpus.py --pages` writes them."""
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name]()


def test_the_corpora_are_as_large_as_promised():
    assert len(judge_exploits.EXPLOITS) + len(judge_exploits.GPU_EXPLOITS) >= 35
    assert len(judge_honest.HONEST) >= 40


@pytest.mark.parametrize(("corpus", "names"), [
    ("exploits", [exploit.name for exploit in judge_exploits.EXPLOITS]), ("honest", [honest.key for honest in judge_honest.HONEST])])
def test_the_recorded_run_has_all_of_them_and_none_was_judged_wrongly(corpus, names):
    """`python bench/judge_corpus.py --record` records one."""
    run = judge_runs.read(corpus, "cpu")
    assert [name for name in names if name not in run.rows] == []
    assert {name: row.wrong for name, row in run.rows.items() if row.wrong} == {}


def test_each_exploit_was_stopped_under_a_tier_that_is_meant_for_it():
    tiers = (judge_exploits.MISTAKE, judge_exploits.KNOWN, judge_exploits.HOSTILE)
    run = judge_runs.read("exploits", "cpu")
    for exploit in judge_exploits.EXPLOITS:
        assert tiers.index(run.rows[exploit.name].tier) >= tiers.index(exploit.tier), exploit.name


@pytest.mark.parametrize(("said", "numbers", "in_words"), [
    ("that is faster by half or more last 2.5 ms", (blocks.FASTER_BY, blocks.FASTER_BLOCK_S["cpu"]), (1.5, 2.5e-3)),
    ("where 30 quads of them fit", (blocks.FASTER_QUADS,), (30,)),
    ("misses over twice what the quietest tenth does", (clocks.BUSY,), (2,)),
    ("(a fifth and 50 us aside)", (clocks.OVERHEAD_SHARE, clocks.OVERHEAD_S), (0.2, 50e-6)),
])
def test_the_page_on_timing_says_what_shared_cores_are_held_to(said, numbers, in_words):
    assert said in " ".join((DOCS / "judge-timing.md").read_text(encoding="utf-8").split()) and numbers == in_words


@pytest.mark.parametrize(("said", "number", "in_words"), [
    ("takes at most 1.15 times, or 3 us more than,", (recurring.SLOWER, recurring.SLOWER_NS), (1.15, 3e3)),
    ("Else up to seven more follow; none but the first of them is begun after 60 s", (recurring.ROUNDS - 1, recurring.MOST_S), (7, 60.0)),
    ("where each of eight was more than 1.5 times as slow", (recurring.ROUNDS, recurring.MUCH_SLOWER), (8, 1.5)),
    ("half of the gain is lost", (recurring.SHARE_OF_GAIN,), (0.5,)),
])
def test_the_page_on_audits_says_what_new_values_are_held_to(said, number, in_words):
    assert said in " ".join((DOCS / "judge-audits.md").read_text(encoding="utf-8").split()) and number == in_words
