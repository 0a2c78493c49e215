"""docs/tokens.md is what bench/tokens.py writes today."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_tokens", ROOT / "bench" / "tokens.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_of_today(script: ModuleType) -> None:
    assert (ROOT / "docs" / "tokens.md").read_text(encoding="utf-8") == script.page(), "run: PYTHONPATH=src python bench/tokens.py"


def test_every_document_that_an_agent_reads_has_its_row(script: ModuleType) -> None:
    rows = script.page()
    documents = [path for pattern in ("skills/**/*.md", "agents/*.md", "knowledge/playbooks/*.md") for path in ROOT.glob(pattern)]
    assert len(documents) > 20
    assert all(f"| {path.relative_to(ROOT)} |" in rows for path in documents)
    assert "| report_" in rows and "| contract_" in rows and "| capture_" in rows


def test_nothing_to_count_fails(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="no files"):
        script.table("Nothing", [])
