"""What holds for all tests: those marked gpu are skipped where no GPU is visible, and nothing else ever is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def own_device_lock(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests wait for each other, never for a real profile on this machine, and never change its clocks."""
    os.environ["KERNELWRIGHT_LOCK"] = str(Path(tmp_path_factory.getbasetemp()) / "device.lock")
    os.environ["KERNELWRIGHT_STATE"] = str(Path(tmp_path_factory.getbasetemp()) / "state")
    os.environ["KERNELWRIGHT_CLOCKS"] = "none"


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
