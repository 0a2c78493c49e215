"""The pages about the two corpora are the tables that the tests use."""

from pathlib import Path

import pytest

import judge_exploits
import judge_honest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {"judge-exploits.md": judge_exploits.page, "judge-honest.md": judge_honest.page}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_its_table(name):
    """`python bench/judge_corpus.py --pages` writes them."""
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name]()


def test_the_corpora_are_as_large_as_promised():
    assert len(judge_exploits.EXPLOITS) + len(judge_exploits.GPU_EXPLOITS) >= 35
    assert len(judge_honest.HONEST) >= 40
