"""What the client tests share: the plugin as a user gets it, and a user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from claude_code import CLIENTS, ROOT, Client


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy made by `git archive`, of what is committed and of changes to tracked files, in a folder whose name has a space."""
    assert (CLIENTS / "claude").exists(), "run `make test-clients`: it installs the clients first"
    folder = tmp_path_factory.mktemp("archive") / "the plugin"
    folder.mkdir()
    changed = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", "stash", "create"], cwd=ROOT, capture_output=True, text=True
    )
    tree = changed.stdout.strip() or "HEAD"
    archive = subprocess.run(["git", "archive", tree], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return folder


@pytest.fixture
def user(tmp_path: Path) -> Client:
    return Client(tmp_path)
