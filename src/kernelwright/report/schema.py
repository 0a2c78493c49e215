"""The published JSON Schemas, made from the models. `python -m kernelwright.report.schema DIR` writes them to DIR."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from ..capture.doctor.report import Examination
from ..model.base import Record
from ..model.files import write_json_atomic
from ..model.profile import Profile
from ..model.ranks import Ranks
from ..model.verdict import Verdict

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_PUBLISHED: dict[str, tuple[type[Record], str, str]] = {
    "profile.schema.json": (Profile, "urn:kernelwright:schema:profile", "kernelwright profile.json"),
    "ranks.schema.json": (Ranks, "urn:kernelwright:schema:ranks", "kernelwright ranks.json"),
    "doctor.schema.json": (Examination, "urn:kernelwright:schema:doctor", "what kernelwright doctor --json prints"),
    "verdict.schema.json": (Verdict, "urn:kernelwright:schema:verdict", "kernelwright verdict.json"),
}


class _AsWritten(GenerateJsonSchema):
    """We write every field, also those that have a default when a document is read."""

    def field_is_required(self, field: Any, total: bool) -> bool:
        return True


def schemas() -> dict[str, dict[str, Any]]:
    """File name -> schema of the document as it is written (draft 2020-12)."""
    return {name: _schema(*entry) for name, entry in _PUBLISHED.items()}


def _schema(model: type[Record], identity: str, title: str) -> dict[str, Any]:
    body = model.model_json_schema(mode="serialization", schema_generator=_AsWritten)
    version = model.model_fields["schema_version"].default
    head = {"$schema": DIALECT, "$id": f"{identity}:{version}", "title": title}
    return {**head, **{key: value for key, value in body.items() if key != "title"}}


def write_schemas(folder: Path) -> list[Path]:
    """Write every schema into `folder`; returns the paths. Raises OSError."""
    return [write_json_atomic(folder / name, document) for name, document in schemas().items()]


def main(argv: Sequence[str]) -> int:
    """DIR -> writes the schemas there (docs/schema in the repository)."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m kernelwright.report.schema DIR\n")
        return 2
    for path in write_schemas(Path(argv[0])):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
