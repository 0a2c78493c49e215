"""The plugin's manifests: real files, equal, and no field that one client refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import kernelwright

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "plugin.json"
CLAUDE_MANIFEST = ROOT / ".claude-plugin" / "plugin.json"
MARKETPLACE = ROOT / ".claude-plugin" / "marketplace.json"
SHARED_FIELDS = {"$schema", "name", "version", "description", "author", "homepage", "repository", "license", "keywords"}


def test_both_manifests_are_real_and_equal() -> None:
    assert not MANIFEST.is_symlink() and not CLAUDE_MANIFEST.is_symlink()
    assert MANIFEST.read_bytes() == CLAUDE_MANIFEST.read_bytes()


def test_the_manifest_has_shared_fields_only() -> None:
    manifest = json.loads(MANIFEST.read_text())
    assert set(manifest) <= SHARED_FIELDS
    assert set(manifest) >= {"$schema", "name", "version", "description", "license"}
    assert re.fullmatch(r"[a-z][a-z0-9-]*", manifest["name"])
    assert manifest["version"] == kernelwright.__version__
    assert manifest["license"] == "Apache-2.0"
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")


def test_the_marketplace_offers_this_plugin_under_its_own_name() -> None:
    marketplace = json.loads(MARKETPLACE.read_text())
    (entry,) = marketplace["plugins"]
    assert entry["name"] == json.loads(MANIFEST.read_text())["name"]
    assert (MARKETPLACE.parents[1] / entry["source"]).resolve() == ROOT
    assert marketplace["owner"]["name"]


def test_the_locks_name_no_index_and_pin_everything_with_hashes() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text()
        assert "://" not in text, f"{name} names an index"
        assert not re.search(r"^\s*(-i|--index-url|--extra-index-url|--find-links)\b", text, re.MULTILINE)
        pins = re.findall(
            r"^([a-z0-9][a-z0-9._-]*)==\S+(?: ; [^\\\n]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE
        )
        lines = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert len(pins) == len(lines) > 5
        assert not {"torch", "triton"} & {pin for pin, _ in pins}


def test_the_lock_holds_every_dependency_of_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    section = project.split("\ndependencies = [", 1)[1].split("\n]", 1)[0]
    names = re.findall(r'"([a-z0-9-]+)>=', section)
    assert len(names) >= 5
    locked = re.findall(r"^([a-z0-9._-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert set(names) <= set(locked)
    decisions = (ROOT / "docs" / "adr" / "0002-dependencies.md").read_text()
    for name in names:
        assert f"| {name} |" in decisions, f"{name} has no reason in docs/adr/0002-dependencies.md"


def test_change_fragments_have_a_known_kind() -> None:
    kinds = re.findall(r'\[\[tool\.towncrier\.type\]\]\ndirectory = "(\w+)"', (ROOT / "pyproject.toml").read_text())
    fragments = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    assert len(kinds) >= 3
    for fragment in fragments:
        assert re.fullmatch(rf"(\d+|\+[a-z0-9-]+)\.({'|'.join(kinds)})(\.\d+)?\.md", fragment.name), fragment.name
        assert fragment.read_text().strip()
