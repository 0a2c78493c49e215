"""Documents held to docs/schema. jsonschema.validate checks the schema itself anew each time, which takes longer than the document."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schema"


@cache
def _validator(name: str) -> Draft202012Validator:
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check_document(document: object, name: str = "profile") -> None:
    """Raises jsonschema.ValidationError where a document is not as docs/schema/NAME.schema.json says."""
    _validator(name).validate(document)
