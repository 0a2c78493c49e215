"""Judging from the command line what is more than one candidate: bundles, and several candidates with KernelBench's fields."""

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.cli.main import main
from kernelwright.model.verdict import Verdict
from processes import soon
from warm_start import warm_start

SRC = Path(__file__).resolve().parents[2] / "src"
DATA = Path(__file__).resolve().parents[1] / "data" / "judge"
WHERE = ["--device", "cpu", "--python", sys.executable]


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("KERNELWRIGHT_LOCK", str(tmp_path / "lock"))
    with warm_start():
        yield


def said(capsys, *arguments):
    code = main(["judge", *map(str, arguments), *WHERE])
    captured = capsys.readouterr()
    return code, json.loads(captured.out), captured.err


def test_a_bundle_is_written_and_judged_again_with_its_seed_and_options(tmp_path, capsys):
    bundle = tmp_path / "b.tar.xz"
    code, first, _ = said(capsys, DATA / "wide.py", DATA / "wide" / "tuple_output.py", "--rows=64", "--rounds", 4, "--bundle", bundle,
                          "--out", tmp_path / "first", "--json")
    assert code == 5 and first["bundle"] == str(bundle)
    code, again, err = said(capsys, bundle, "--out", tmp_path / "again", "--json")
    assert code == 5 and again["verdict"] == first["verdict"] == "WRONG" and again["reasons"] == first["reasons"]
    assert again["against"]["same_verdict"] and again["against"]["same_device"]
    announced = err.index("about to run code from b.tar.xz (2 files): workload/wide.py sha256")
    assert announced < err.index("judging tuple_output.py: 4 rounds")
    new, old = (Verdict.model_validate_json((tmp_path / name / "verdict.json").read_text()) for name in ("again", "first"))
    assert new.seed == old.seed and new.candidate_sha256 == old.candidate_sha256
    page = Path(again["report"]).read_text()
    assert "- against the bundle: bundled WRONG, now WRONG" in page and f"{bundle}" in page


def test_a_candidate_of_several_files_is_judged_from_its_bundle_alone(tmp_path, capsys):
    """The workload, a module and a package beside it, and a candidate in `candidates` that imports from all of them."""
    place = tmp_path / "work"
    (place / "candidates").mkdir(parents=True)
    (place / "pack").mkdir()
    (place / "w.py").write_text("import torch\nfrom scale import by\n\n\ndef get_model_and_input():\n"
                                "    return lambda x: by(x, 3), torch.randn(16, 8)\n")
    (place / "scale.py").write_text("def by(x, factor):\n    return x * factor\n")
    (place / "pack" / "__init__.py").write_text("from .inner import scaled\n")
    (place / "pack" / "inner.py").write_text("def scaled(x):\n    return (x * 3)[:, :-1]\n")
    (place / "candidates" / "c.py").write_text("import w, scale\nfrom pack import scaled\n\n\ndef optimize(model, inputs):\n"
                                               "    assert scale.by(1, 2) == 2 and w.by is scale.by\n    return scaled\n")
    bundle = tmp_path / "b.tar.xz"
    code, first, _ = said(capsys, place / "w.py", place / "candidates" / "c.py", "--bundle", bundle, "--out", tmp_path / "1", "--json")
    assert code == 5 and first["reasons"] == ["the output has shape [16, 7], the reference gives [16, 8]"]
    place.rename(tmp_path / "gone")
    code, again, _ = said(capsys, bundle, "--out", tmp_path / "2", "--json")
    assert code == 5 and again["reasons"] == first["reasons"], again


def test_candidates_are_judged_against_one_reference_and_the_errors_of_one_stop_no_other(tmp_path, capsys):
    folder = tmp_path / "new"
    folder.mkdir()
    (folder / "1_right.py").write_text((DATA / "kernelbench" / "model_new.py").read_text())
    (folder / "2_broken.py").write_text("import torch\ndef (:\n")
    (folder / "3_none.py").write_text("x = 1\n")
    (folder / "4_wrong.py").write_text((DATA / "kernelbench" / "wrong_shape.py").read_text())
    code, answer, _ = said(capsys, DATA / "kernelbench.py", folder, DATA / "kernelbench" / "gone.py", "--kernelbench", "--max-timing",
                           "0.3s", "--out", tmp_path / "o")
    assert code == 5
    rows = answer["results"]
    assert [Path(row["candidate"]).name for row in rows] == ["1_right.py", "2_broken.py", "3_none.py", "4_wrong.py", "gone.py"]
    assert [row["correctness"] for row in rows] == [True, False, False, False, False]
    assert [row["compiled"] for row in rows] == [True, False, False, True, False]
    assert rows[0]["runtime"] > 0 and rows[0]["ref_runtime"] > 0 and "compilation_error" in rows[1]["metadata"]
    assert "(0 / 1)" in rows[3]["metadata"]["correctness_trials"] and rows[4]["metadata"]["error"]["code"] == "no_such_candidate"
    assert answer["summary"]["n"] == 5 and answer["summary"]["fast_p"]["0.0"] == 0.2
    stored = json.loads((tmp_path / "o" / "kernelbench.json").read_text())
    assert stored["results"] == rows and stored["summary"] == answer["summary"]
    assert Path(rows[0]["report"]).is_file() and "--seed" in Path(rows[0]["report"]).read_text()


def test_one_candidate_has_kernelbenchs_fields_at_the_top(tmp_path, capsys):
    code, answer, _ = said(capsys, DATA / "kernelbench.py", DATA / "kernelbench" / "wrong_shape.py", "--kernelbench", "--json",
                           "--out", tmp_path / "o")
    assert code == 5 and answer["status"] == "ok" and answer["compiled"] and not answer["correctness"] and answer["runtime"] == -1.0


def test_a_stop_leaves_what_was_judged(tmp_path):
    token = f"judge-test-child-{secrets.token_hex(8)}"
    command = [sys.executable, "-m", "kernelwright", "judge", str(DATA / "wide.py"), str(DATA / "wide" / "tuple_output.py"),
               str(DATA / "wide" / "hangs.py"), str(DATA / "wide" / "same.py"), "--kernelbench", "--out", str(tmp_path / "o"), *WHERE]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": str(SRC), "JUDGE_TEST_TOKEN": token})
    try:
        file = tmp_path / "o" / "kernelbench.json"
        assert soon(file.exists, 120)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    found = json.loads(file.read_text())
    assert [row["verdict"] for row in found["results"]] == ["WRONG"] and found["summary"]["n"] == 3 and found["summary"]["judged"] == 1
    assert (tmp_path / "o" / "error.json").exists() and (tmp_path / "o" / "000-tuple_output" / "verdict.md").exists()
