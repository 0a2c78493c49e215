"""The doctor verb as a user starts it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from kernelwright.cli import main

ROOT = Path(__file__).resolve().parents[2]


def test_json_is_one_object_that_holds_to_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "ok" and set(document["modes"]) == {"event", "annotation", "ncu", "nsys"}
    assert {"name", "status", "detail", "fix", "advice"} == set(document["checks"][0])
    assert {check["status"] for check in document["checks"]} <= {"ok", "warn", "missing"}
    for mode in document["modes"].values():
        assert isinstance(mode["works"], bool) and mode["evidence"] and (mode["works"] or mode["fix"] or mode["advice"])
    jsonschema.validate(document, json.loads((ROOT / "docs" / "schema" / "doctor.schema.json").read_text()))


def test_text_names_every_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  {mode}" in text for mode in ("event", "annotation", "ncu", "nsys"))


@pytest.mark.parametrize("argument", ["stray", "--b=3", "--no-such-option"])
def test_bad_usage_is_exit_2_with_one_line(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", argument]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.strip().splitlines()) == 1
