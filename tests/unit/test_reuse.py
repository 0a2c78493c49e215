"""Which stored profile may stand for a point of a sweep: the same text, all parameters, settings and device, and nothing less."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

import builders
from kernelwright.cli import sweep as sweep_cli
from kernelwright.model.errors import WorkloadFailed
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline.profile import ProfileOptions
from kernelwright.pipeline.reuse import expected_parameters, present
from kernelwright.pipeline.stored import params_folder
from kernelwright.project.fingerprint import fingerprint
from kernelwright.report import write_profile

TEXT = """import torch
PARAMS = {"rows": 16384, "cols": 4096, "dtype": torch.float32, "causal": False}
def f(x): return x
def get_inputs(rows, cols, dtype, causal): return ()
VERSIONS = {"v1": f}
"""
USUAL = {"rows": 16384, "cols": 4096, "dtype": "float32", "causal": False}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mla.py").write_text(TEXT)
    return tmp_path / "mla.py"


def store(file: Path, parameters: dict[str, Any], *, flush_l2: bool = False, compile_mode: str = "eager", device: str = "cpu",
          device_name: str | None = None, clocks: str = "none", dtype: str = "float32", stamp: str = "20260101-000000-000000") -> Path:
    made = builders.event(parameters=parameters,
                          capture_metadata=builders.metadata(mode="event", model_name="mla", version="v1", dtype=dtype))
    place = file.parent / "out" / "profiles" / "event" / "mla" / params_folder(parameters) / stamp
    write_profile(made, place, params_doc={
        "kernel": "mla", "version": "v1", "parameters": parameters,
        "source_sha256": fingerprint(WorkloadRef(path=file, name="mla", version="v1")),
        "device": {"device": device, "device_name": device_name or present("cpu").device_name},
        "options": {"flush_l2": flush_l2, "compile_mode": compile_mode}, "clocks": {"requested": clocks}})
    return place


def taken(file: Path, monkeypatch: pytest.MonkeyPatch, **params: str) -> Path | None:
    """The folder that a point of `compare v1 --sweep --stored` takes; None where it is measured anew."""
    def anew(*_: object, **__: object) -> None:
        raise WorkloadFailed("anew", "measured anew", where="x", fix="x")

    assert ProfileOptions().compile_mode == "eager" and not ProfileOptions().flush_l2  # what a sweep measures with
    monkeypatch.setattr(sweep_cli, "profile", anew)
    args = argparse.Namespace(stored=True, device="cpu", clocks=None, python=None, timeout=None)
    try:
        return sweep_cli._measured(WorkloadRef(path=file, name="mla", version="v1", params=params), args, lambda text: None)[1].resolve()
    except WorkloadFailed:
        return None


def test_the_profile_of_the_same_point_is_taken_and_the_newest_of_several(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(file, USUAL)
    newer = store(file, USUAL, stamp="20260102-000000-000000")
    store(file, {**USUAL, "cols": 1024}, stamp="20260103-000000-000000")
    assert taken(file, monkeypatch, cols="4096") == newer.resolve()
    assert taken(file, monkeypatch, cols="4096", dtype="torch.float32", causal="no") == newer.resolve()


@pytest.mark.parametrize("unlike", [
    {"parameters": {**USUAL, "rows": 1024}}, {"parameters": {**USUAL, "dtype": "bfloat16"}}, {"parameters": {**USUAL, "causal": True}},
    {"flush_l2": True}, {"compile_mode": "inductor"}, {"device": "cuda"}, {"device_name": "another CPU"}, {"clocks": "lock"},
    {"dtype": "bfloat16"},
], ids=str)
def test_one_of_other_parameters_settings_or_device_is_measured_anew(
        file: Path, monkeypatch: pytest.MonkeyPatch, unlike: dict[str, Any]) -> None:
    store(file, **{"parameters": USUAL, **unlike})
    assert taken(file, monkeypatch, cols="4096") is None


@pytest.mark.parametrize(("text", "given", "expected"), [
    (TEXT, {"rows": "8"}, {**USUAL, "rows": 8}),
    ("def get_inputs(b=2, *, t=1.5, device='cuda'): ...", {"t": "3"}, {"b": 2, "t": 3.0}),
    ("def get_inputs(): ...", {}, {}), ("def get_inputs(b=2): ...", {"t": "3"}, None), ("def get_inputs(b=2): ...", {"b": "x"}, None),
    ("PARAMS = make()\ndef get_inputs(b): ...", {}, None), ("PARAMS = {'b': 1}\nPARAMS['b'] = 2", {}, None),
    ("PARAMS = {**OTHER, 'b': 1}", {}, None), ("PARAMS = {'b': N}", {}, None), ("from common import PARAMS, get_inputs", {}, None),
    ("def get_inputs(b=None): ...", {}, None), ("def (", {}, None),
])
def test_parameters_not_given_are_the_files_defaults_and_what_cant_be_told_is_none(
        file: Path, text: str, given: dict[str, str], expected: dict[str, Any] | None) -> None:
    file.write_text(text)
    assert expected_parameters(WorkloadRef(path=file, name="mla", version="v1", params=given)) == expected
