"""What holds for all tests: those marked gpu are skipped where no GPU is visible, and nothing else ever is."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """torch is asked, and imported, only if a test needs the answer."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in marked:
        item.add_marker(pytest.mark.skip(reason="no GPU is visible"))
