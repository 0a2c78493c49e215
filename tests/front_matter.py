"""Front matter of skills and agents, read as strictly as the pickiest client does."""

from __future__ import annotations

import re
from pathlib import Path

import yaml


class _Strict(yaml.SafeLoader):
    """YAML that refuses a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key is given twice: {keys}"
        return super().construct_mapping(node, deep)


def parts(document: Path) -> tuple[dict[str, object], str]:
    """Front matter and body."""
    match = re.fullmatch(r"---\n(.*?\n)---\n(.*)", document.read_text(encoding="utf-8"), re.DOTALL)
    assert match, "no front matter"
    matter = yaml.load(match[1], Loader=_Strict)
    assert isinstance(matter, dict)
    return matter, match[2]
