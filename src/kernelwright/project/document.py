"""A YAML document of a user's, its values and where each stands; hostile files end in one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ..model.errors import BadInput

MAX_BYTES = 250_000
"""About 5,000 kernels; PyYAML reads 0.1 to 0.3 MB a second."""
MAX_DEPTH = 50
MAX_KEYS = 10_000
MAX_TEXT_CHARACTERS = 10_000


class _Loader(yaml.SafeLoader):
    """SafeLoader for small documents: merge keys (`<<`) can't multiply a few lines into millions of entries, and no key stands twice
    in a mapping (the last would win in silence)."""

    _depth = 0

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:  # the scanner's time grows with the square of the depth
            raise yaml.composer.ComposerError(None, None, f"it is nested more than {MAX_DEPTH} deep", self.get_mark())

    def compose_sequence_node(self, anchor: Any) -> yaml.SequenceNode:
        """See yaml.composer.Composer; raises ComposerError for what is nested too deeply."""
        self._deeper()
        node: yaml.SequenceNode = super().compose_sequence_node(anchor)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """See yaml.composer.Composer; raises ComposerError for a key given twice."""
        self._deeper()
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        self._depth -= 1
        seen: set[str] = set()
        for key in (key for key, _value in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
            if key.value in seen:
                raise yaml.composer.ComposerError(None, None, f"{key.value[:200]!r} is given twice", key.start_mark)
            seen.add(key.value)
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        """See yaml.composer.Composer; raises ComposerError for text that no name and no path is."""
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if "\0" in node.value or len(node.value) > MAX_TEXT_CHARACTERS:
            fault = "holds a NUL character" if "\0" in node.value else f"is longer than {MAX_TEXT_CHARACTERS} characters"
            raise yaml.composer.ComposerError(None, None, f"{node.value[:40]!r} {fault}", node.start_mark)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """See yaml.constructor.SafeConstructor; raises ConstructorError for more than MAX_KEYS keys."""
        super().flatten_mapping(node)
        if len(node.value) > MAX_KEYS:
            raise yaml.constructor.ConstructorError(None, None, f"a mapping has more than {MAX_KEYS} keys", node.start_mark)


class Document:
    """The values of one YAML file, and the line of each."""

    def __init__(self, file: Path) -> None:
        """Reads the file. Raises BadInput naming file and line."""
        self.file = file
        try:
            if file.stat().st_size > MAX_BYTES:
                raise BadInput("project_too_large", f"is larger than {MAX_BYTES} bytes", where=str(file),
                               fix="keep kernels alone in it, or move it away")
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise BadInput("unreadable", f"can't be read: {error.strerror or error}", where=str(file), fix="make it readable") from error
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise BadInput("broken_yaml", f"is not valid YAML: it is not UTF-8 text (byte {error.object[error.start]:#04x})",
                           where=f"{file}:{line}", fix="save it as UTF-8") from error
        self.text = text
        self.root, self.value = self.parsed(text)

    def parsed(self, text: str) -> tuple[yaml.Node | None, Any]:
        """(nodes, values) of a text as that of this file. Raises BadInput broken_yaml."""
        loader: _Loader | None = None
        try:
            loader = _Loader(text)
            root: yaml.Node | None = loader.get_single_node()
            return root, loader.construct_document(root) if root is not None else None
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:  # ValueError: a date such as 2024-13-45
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark is not None else loader.get_mark().line + 1 if loader is not None else _bad_character(text, error)
            problem = "it is nested too deeply" if isinstance(error, RecursionError) else getattr(error, "problem", None) or error
            raise BadInput("broken_yaml", f"is not valid YAML: {problem}", where=f"{self.file}:{line}", fix="correct that line") from error
        finally:
            if loader is not None:
                loader.dispose()

    def line(self, path: Sequence[str | int]) -> int:
        """The line, from 1, of the value at `path` (of its key, in a mapping), or of the deepest part of the path that is there."""
        node, line = self.root, 1
        if node is not None:
            line = node.start_mark.line + 1
        for part in path:
            if isinstance(node, yaml.MappingNode):
                found = next((pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode) and pair[0].value == str(part)), None)
                if found is None:
                    break
                line, node = found[0].start_mark.line + 1, found[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                line = node.start_mark.line + 1
            else:
                break
        return line

    def fault(self, code: str, path: Sequence[str | int], message: str, fix: str) -> BadInput:
        """An error about the value at `path`."""
        place = ".".join(str(part) for part in path)
        return BadInput(code, message, where=f"{self.file}:{self.line(path)}" + (f": {place}" if place else ""), fix=fix)


def _bad_character(text: str, error: Exception) -> int:
    """The line of a character that YAML does not take: its reader says how far into the text it was."""
    return text.count("\n", 0, getattr(error, "position", 0)) + 1
