"""The seven examples through profile_kernel in both modes, as a user runs it: exact contract, valid document, time adds up."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contract_format import check_contract
from kernelwright.cli.main import main
from kernelwright.model.capture import ProbeResult
from kernelwright.model.profile import Profile
from kernelwright.optimize.passes import Context
from kernelwright.optimize.passes.lookups import after_lookups_pct
from published_schemas import check_document
from warm_start import warm_start

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ("gpt2", "conv_block", "embedding_projection", "mlp_activations", "sdpa_attention", "depthwise_separable_conv",
            "lstm_sequence_encoder")
AS_A_USER = ("mlp_activations", "annotation")
SECRET = "hunter2-do-not-tell"


def verb(*argv: str, cwd: Path) -> tuple[int, str, str]:
    command = [sys.executable, str(ROOT / "scripts" / argv[0]), *argv[1:]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)
    return done.returncode, done.stdout, done.stderr


def holding(text: str, folder: Path) -> list[str]:
    """The files, unpacked where they are packed, that hold a text."""
    found = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found
    return [str(path) for path, data in found.items() if text.encode() in (gzip.decompress(data) if path.suffix == ".gz" else data)]


@pytest.mark.parametrize("mode", ["event", "annotation"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_contract_document_and_sums_of_every_example(example, mode, tmp_path, monkeypatch, capsys):
    argv = [str(ROOT / "examples" / f"{example}.py"), "--mode", mode, "--device", "cpu", "--python", sys.executable, "--json"]
    monkeypatch.setenv("MY_DB_PASSWORD", SECRET)
    if (example, mode) == AS_A_USER:  # the others without waiting for torch each time, and shorter
        status, out, err = verb("profile_kernel.py", *argv, cwd=tmp_path)
    else:
        monkeypatch.chdir(tmp_path)
        with warm_start():
            status = main(["profile_kernel", *argv, "--steps", "5" if mode == "annotation" else "20"])
        out, err = capsys.readouterr()
    assert status == 0, err
    answer = json.loads(out)
    folder = Path(answer["out_dir"])
    assert answer["status"] == "ok" and folder.parts[-4:-2] == (mode, example) and tmp_path in folder.parents
    for name in ("params.json", "profile.json", "report.md", "contract.md", "raw"):
        assert (folder / name).exists(), name
    assert check_contract((folder / "contract.md").read_text()) == []
    profile = json.loads((folder / "profile.json").read_text())
    check_document(profile)
    assert profile["timing"]["median_ns"] > 0 and answer["duration_us"] == profile["timing"]["median_ns"] / 1000
    if not profile["findings"]:  # where the machine was busy, a call can beat the peaks that were measured: no roof is known then
        roof = next(one["reason"] for one in profile["abstained"] if one["name"] == "roof_distance")
        assert roof.startswith("How far one call is from its roof is not known")
        assert "roof_share=n/a" in (folder / "contract.md").read_text()
    assert holding(SECRET, folder) == [], "nothing of the environment is kept"
    if mode == "event":
        return
    timeline = profile["timeline"]
    attributed = sum(k["duration_ns"] for op in profile["operators"] for k in op["kernels"])
    unattributed = sum(k["duration_ns"] for k in profile["unattributed_kernels"])
    assert attributed == timeline["attributed_ns"] and unattributed == timeline["unattributed_ns"]
    # Inference runs its operators on one thread: what was measured is the steps' wall time, taken from other events.
    assert attributed + unattributed == timeline["measured_ns"] == sum(timeline["step_wall_ns"])
    outside = [k["duration_ns"] / (k["end_ns"] - k["start_ns"]) for k in profile["unattributed_kernels"]]
    assert len(outside) == len(timeline["step_wall_ns"]) and min(outside) < 0.5, "of the step that the machine disturbed least"
    assert any(op["source"] and f"{example}.py:" in op["source"] for op in profile["operators"])
    assert any(op["module"] for op in profile["operators"])
    result = ProbeResult.model_validate_json((folder / "raw" / "result.json").read_bytes())
    known = Context(facts=result.facts, environment=result.environment, profile=Profile.load(folder))
    assert ((after_lookups_pct(known) or 0) > 10) == (example == "embedding_projection"), "what a computed table would take away"
    exact = [op for op in profile["operators"] if op["source_kind"] == "line"]
    text = (ROOT / "examples" / f"{example}.py").read_text().splitlines()
    assert sum(op["aggregated"]["total_duration_ns"] for op in exact) > 0.9 * attributed, "on lines that were executed"
    assert not any(text[int(op["source"].split(":")[1]) - 1].lstrip().startswith(("def ", "class ")) for op in exact)
    assert all(profile["stacks"][op["stack"]][-1].startswith(op["source"]) for op in exact)
    assert profile["memory"][0]["peak_bytes"] > 0 and (folder / "memory_timeline.csv").read_text().startswith("device,time_ns,")


def test_without_json_the_contract_is_all_that_stdout_holds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    workload = str(ROOT / "examples" / "mlp_activations.py")
    with warm_start():
        status = main(["profile_kernel", workload, "--mode", "event", "--device", "cpu", "--steps", "20", "--python", sys.executable])
    out, err = capsys.readouterr()
    assert status == 0 and check_contract(out) == []
    told = r"\nreport: .*report\.md\none call: [\d.]+ us median \(95% [\d.]+ to [\d.]+ us\), \d+ samples, perf_counter.*\n\Z"
    assert re.search(told, err), err


def test_parameters_versions_and_baseline(tmp_path, monkeypatch, capsys):
    def verb(*argv):
        with warm_start():
            return main(["profile_kernel", *argv, "--python", sys.executable]), *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    script = str(ROOT / "examples" / "triton_softmax.py")
    common = ["--mode", "event", "--device", "cpu", "--rows=64", "--cols=128", "--json"]
    status, out, err = verb(script, "v1", *common)
    assert status == 0, err
    first = Path(json.loads(out)["out_dir"])
    assert "rows=64_cols=128" in first.parent.name
    status, out, err = verb(script, "v1", *common, "--baseline", str(first))
    contract = (Path(json.loads(out)["out_dir"]) / "contract.md").read_text()
    assert status == 0 and "### vs Baseline" in contract and check_contract(contract) == []
    assert "| 64 | 128 |" in contract


@pytest.mark.parametrize("mode", ["ncu", "nsys"])
def test_modes_that_need_a_gpu_say_so(mode, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["profile_kernel", str(ROOT / "examples" / "mlp_activations.py"), "--mode", mode, "--json"]) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["fix"] and mode in error["where"] and not (tmp_path / "out").exists()
