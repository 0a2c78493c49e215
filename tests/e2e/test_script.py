"""Training scripts, unmodified, as a user runs them: what they leave behind, what is reported, and every way they end."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contract_format import check_contract
from kernelwright.cli.main import main
from processes import soon
from published_schemas import check_document
from stop_at_step import STOP_AT_STEP
from warm_start import starter, warm_start

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tests" / "data" / "scripts"
VERB = [sys.executable, str(ROOT / "scripts" / "profile_kernel.py")]


def profile(*argv, cwd, out, **options):
    done = subprocess.run([*VERB, *argv[:1], "--device", "cpu", "--out", str(out), *argv[1:]], capture_output=True, text=True, cwd=cwd,
                          timeout=300, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def quickly(monkeypatch, capfd):
    """`profile` without waiting for torch: the script's process is a fork to which torch looks not yet imported."""
    def run(*argv, cwd, out):
        monkeypatch.chdir(cwd)
        with warm_start(before_torch=True):
            status = main(["profile_kernel", *argv[:1], "--device", "cpu", "--out", str(out), "--python", sys.executable, *argv[1:]])
        return status, *capfd.readouterr()

    return run


def alone(script, *argv, cwd, stop):
    """The script by itself; with `stop`, ended by sys.exit(0) at the end of that optimizer step."""
    command = [sys.executable, "-c", STOP_AT_STEP, str(stop), str(script), *argv] if stop else [sys.executable, str(script), *argv]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def folders(tmp_path):
    for name in ("profiled", "alone"):
        (tmp_path / name).mkdir()
    return tmp_path / "profiled", tmp_path / "alone", tmp_path / "out"


def write(folder, text):
    (folder / "train.py").write_text(text)
    return "train.py"


LOOP = """
import torch
layer = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
def step():
    layer(torch.ones(2, 4)).pow(2).sum().backward()
    optimizer.step()
"""


def test_a_script_is_ended_as_sys_exit_would_end_it_and_the_table_adds_up(folders):
    mine, theirs, out = folders
    script = SCRIPTS / "lightning_like.py"
    status, stdout, err = profile(str(script), "--json", "--", "--steps", "20", cwd=mine, out=out)
    assert status == 0, err
    answer = json.loads(stdout)
    said = alone(script, "--steps", "20", cwd=theirs, stop=10)
    assert (out / "raw" / "script_stdout.txt").read_text() == said and "step 9" in said and "step 10" not in said
    assert all(line in err for line in said.splitlines())
    assert files(mine) == files(theirs) and set(files(mine)) == {"log.txt", "last.pt", "atexit.txt"}
    lines = err.splitlines()
    warning = next(number for number, line in enumerate(lines) if "final save" in line and "--sandbox" in line)
    assert warning < next(number for number, line in enumerate(lines) if line.startswith("step 0 "))

    document = json.loads((out / "profile.json").read_text())
    check_document(document)
    assert document["capture_metadata"]["training"] and document["parameters"] == {"steps": "20"}
    contract = (out / "contract.md").read_text()
    assert check_contract(contract) == [] and "| steps | dtype |" in contract and "| 20 | float32 |" in contract
    rows = [*(k for o in document["operators"] for k in o["kernels"]), *document["unattributed_kernels"]]
    assert sum(row["duration_ns"] for row in rows) == document["timeline"]["measured_ns"]
    assert any(o["module"] and "net" in o["module"] for o in document["operators"])
    assert any(o["source"] and "lightning_like.py" in o["source"] for o in document["operators"])
    assert document["script"]["profiled_steps"] == 5 and document["script"]["stacks_steps"] == 1 and document["timeline"]["steps"] == 5
    table = Path(answer["top"]).read_text()
    assert table in (out / "report.md").read_text()
    check_table(table, document)


def check_table(table, document):
    heading, _, columns, _, *rows = table.splitlines()
    assert heading == "## Top 15 CPU operators (5 profiled steps)"
    assert columns == "| Rank | Operator | Self CPU (ms) | % of Total | Calls |"
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("| ")]
    kernels = [*(k for o in document["operators"] for k in o["kernels"]), *document["unattributed_kernels"]]
    assert [row[0] for row in rows] == [str(rank) for rank in range(1, 16)]
    for _, name, time_ms, share, calls in rows:
        own = [k["duration_ns"] for k in kernels if k["kernel_name"] == name.strip("`")]
        assert len(own) == int(calls) and float(time_ms) == pytest.approx(sum(own) / 1e6, rel=0.06)
        assert float(share.rstrip("%")) == pytest.approx(100 * sum(own) / document["timeline"]["measured_ns"], abs=0.06)
    total = re.fullmatch(r"_Total CPU time: ([\d.]+)(s|ms|us) over 5 steps_", table.splitlines()[-1])
    assert float(total[1]) * {"s": 1e9, "ms": 1e6, "us": 1e3}[total[2]] == pytest.approx(document["timeline"]["measured_ns"], rel=0.01)


def test_run_to_end_leaves_what_an_unprofiled_run_leaves(folders):
    mine, theirs, out = folders
    script = SCRIPTS / "trainer_like.py"
    status, stdout, err = profile(str(script), "--run-to-end", "--", "--workers", cwd=mine, out=out)
    assert status == 0, err
    said = alone(script, "--workers", cwd=theirs, stop=None)
    assert stdout.startswith(said) and "trained to the end" in said and "## Top 15 CPU operators (5 profiled steps)" in stdout
    assert files(mine) == files(theirs) and "final.pt" in files(mine) and "final save" not in err
    steps = json.loads((out / "profile.json").read_text())["script"]
    assert steps["run_to_end"] and steps["unprofiled_samples"] >= 4


def test_a_script_that_fails_after_the_recorded_steps_is_profiled(folders, quickly):
    mine, _, out = folders
    write(mine, LOOP + "for _ in range(9): step()\nraise ValueError('too late')\n")
    status, _, err = quickly("train.py", cwd=mine, out=out)
    assert status == 0 and "ValueError: too late" in err
    document = json.loads((out / "profile.json").read_text())
    assert any("raised ValueError after the recorded steps" in line for line in document["warnings"])
    assert document["script"]["unprofiled_samples"] == 2
    contract = (out / "contract.md").read_text()
    assert check_contract(contract) == [] and " 0.0% gain" not in contract


def test_what_inductor_compiled_for_a_script_is_kept(folders, quickly):
    mine, _, out = folders
    write(mine, LOOP + "seen = torch.no_grad()(torch.compile(torch.nn.GELU()))\nwhile True:\n    seen(torch.ones(4))\n    step()\n")
    status, _, err = quickly("train.py", "--mode", "event", "--warmup", "1", "--steps", "1", cwd=mine, out=out)
    assert status == 0, err
    kept = [path for path in (out / "compiled").rglob("*") if path.is_file()]
    assert kept and all(path.stat().st_size for path in kept)
    assert "| Arguments | none |" in (out / "report.md").read_text()


def test_sandbox_shows_the_folder_and_keeps_it_as_it_was(folders, quickly):
    mine, _, out = folders
    (mine / "data").mkdir()
    (mine / "data" / "x.txt").write_text("4")
    write(mine, LOOP + """
import os, pathlib
size = int(open("data/x.txt").read())
pathlib.Path(__file__).with_name("beside.txt").write_text("new")
open("data/x.txt", "w").write("5")
try:
    while True:
        step()
finally:
    torch.save(layer.state_dict(), "final.pt")
    print("in", os.getcwd(), os.listdir())
""")
    before = files(mine)
    status, stdout, err = quickly("train.py", "--sandbox", "--mode", "event", cwd=mine, out=out)
    assert status == 0, err
    assert files(mine) == before and "final.pt" in stdout and str(out / "sandbox") in stdout and not (out / "sandbox").exists()
    assert "final save" not in err
    document = json.loads((out / "profile.json").read_text())
    assert document["timing"]["samples"] == 5 and document["timeline"] is None and check_contract((out / "contract.md").read_text()) == []


def test_a_script_that_catches_every_exception_is_ended_after_a_few_tries(folders, quickly):
    mine, _, out = folders
    write(mine, LOOP + """
import atexit
atexit.register(lambda: open("left.txt", "w").write(f"{layer.weight.sum().item():.9f}"))
count = 0
while True:
    try:
        step()
        count += 1
    except BaseException as error:
        print("caught", type(error).__name__, isinstance(error, SystemExit))
        optimizer.zero_grad()
""")
    status, _, err = quickly("train.py", "--mode", "event", "--json", cwd=mine, out=out)
    assert status == 0, err
    assert (out / "raw" / "script_stdout.txt").read_text().splitlines() == ["caught StopScript True"] * 5
    assert (mine / "left.txt").exists()
    assert any("went on after 5 calls to end" in line for line in json.loads((out / "profile.json").read_text())["warnings"])


def test_steps_from_a_range_the_user_names(folders, quickly):
    mine, _, out = folders
    write(mine, """
import sys, torch
if __name__ == "__main__":
    for step in range(20):
        with torch.profiler.record_function("my step"), torch.profiler.record_function("my step"):
            x = torch.ones(64, 64, dtype=torch.float64) @ torch.ones(64, 64, dtype=torch.float64)
        print("did", step, sys.argv)
""")
    status, _, err = quickly("train.py", "--steps-from", "my step", "--warmup", "0", "--steps", "3", "--x=1", "--json", "--",
                                  "a b", "--api-key", "hush", cwd=mine, out=out)
    assert status == 0, err
    said = (out / "raw" / "script_stdout.txt").read_text().splitlines()
    assert said == [f"did {step} ['train.py', '--x=1', 'a b', '--api-key', 'hush']" for step in range(5)]
    document = json.loads((out / "profile.json").read_text())
    assert document["timeline"]["steps"] == 3 and document["capture_metadata"]["dtype"] == "float64"
    assert sum(o["operator_name"] == "aten::mm" for o in document["operators"]) == 3
    assert document["parameters"] == {"x": "1", "arg1": "a b", "api-key": "***"}
    written = [path.read_bytes() for path in out.iterdir() if path.is_file()]
    assert not any(b"hush" in text for text in written)
    assert document["script"]["unprofiled_samples"] == 2
    if document["timing"] is None:  # a busy machine held up both steps that ran without the profiler
        assert "still warming up" in document["script"]["overhead_note"]
    else:
        assert document["timing"]["samples"] == 2
        assert "| 95% interval of the median | n/a: too few samples | n/a |" in (out / "report.md").read_text()


def check_refusal(status, err, out, expected, says):
    last = err.strip().splitlines()[-1]
    assert status == expected and last.startswith("kernelwright: ") and says in last, err
    assert json.loads((out / "error.json").read_text())["code"] and not (out / "profile.json").exists()


@pytest.mark.parametrize(("code", "options", "status", "says"), [
    ("print('hello')\n", (), 2, "never imported torch"),
    (LOOP + "for _ in range(4): step()\n", (), 2, "after 4 optimizer steps; 2 warm-up and 5 profiled steps need 7"),
    (LOOP + "step()\nraise ValueError('no luck')\n", (), 4, "train.py:9: ValueError: no luck (after 1 optimizer step)"),
    (LOOP + "for _ in range(9): step()\nraise SystemExit(3)\n", ("--run-to-end",), 4, "exit status 3 after 9 optimizer steps"),
    ("import torch\ntorch.ones(3).sum()\n", (), 2, "0 optimizer steps"),
    (LOOP + "for _ in range(9): step()\n", ("--steps-from", "no such"), 2, "no range 'no such'"),
    ("import argparse\nargparse.ArgumentParser().parse_args()\n", ("--", "--what"), 4, "exit status 2"),
    (LOOP + "def f(:\n", (), 2, "SyntaxError"),
    ("import time\nwhile True: time.sleep(1)\n", ("--timeout", "1s"), 4, "within 1 s"),
    (LOOP + "import os\nstep()\nos._exit(7)\n", (), 4, "status 7"),
])
def test_every_other_end_is_one_clear_line(code, options, status, says, folders, quickly):
    mine, _, out = folders
    write(mine, code)
    got, _, err = quickly("train.py", "--mode", "event", *options, cwd=mine, out=out)
    check_refusal(got, err, out, status, says)


def test_options_that_mean_nothing_here_are_refused_before_anything_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script = str(ROOT / "examples" / "train.py")
    workload = str(ROOT / "examples" / "mlp_activations.py")
    for argv, says in (
        ((script, "--compile-mode", "inductor"), "--compile-mode does not apply"), ((script, "v2"), "version 'v2'"),
        ((script, "--warmup", "0"), "--warmup 1"), ((workload, "--sandbox"), "--sandbox is for scripts"),
    ):
        status, err = main(["profile_kernel", *argv, "--device", "cpu"]), capsys.readouterr().err
        assert status == 2 and says in err and len(err.strip().splitlines()) == 1, err
    status, err = main(["optimize", script]), capsys.readouterr().err
    assert status == 2 and "takes no scripts" in err and "get_model_and_input()" in err
    assert not list(tmp_path.iterdir())


def test_ctrl_c_reaches_the_script_and_nothing_is_left_half_written(folders):
    mine, _, out = folders
    write(mine, LOOP + """
import time
try:
    step()
    open("ready", "w").close()
    time.sleep(60)
except KeyboardInterrupt:
    print("saved on ctrl-c", flush=True)
    raise
""")
    process = subprocess.Popen([*VERB, "train.py", "--device", "cpu", "--out", str(out)], cwd=mine, stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.PIPE)
    assert soon((mine / "ready").exists, 120)
    process.send_signal(signal.SIGINT)
    stdout, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "saved on ctrl-c" in stdout and "interrupted" in err.splitlines()[-1]
    assert json.loads((out / "error.json").read_text())["code"] == "interrupted"
    assert not (out / "profile.json").exists() and not list(out.rglob(".*"))


def test_what_counts_as_a_step():
    argv = [sys.executable, str(SCRIPTS / "count_steps.py"), str(ROOT / "src" / "kernelwright" / "probe")]
    process = starter(before_torch=True)(argv, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(out) == {
        "gan_two_critic_steps_a_generator_step": 5, "one_optimizer_never_steps": 5, "a_second_stage_with_an_optimizer_of_its_own": 10,
        "a_second_stage_beside_a_silent_optimizer": 10, "successions": 1, "accumulation_and_schedule": 3, "fused": 3,
        "scaler_skips_one": 4, "skipped": 1, "subclass_that_calls_super": 3, "lbfgs_with_closure": 3, "inside_backward": 3,
        "compiled_train_step": 5, "compiled_optimizer_step": 4, "own_optimizer_in_one_graph": 4, "compiled_model_eager_step": 4}


def test_the_example_runs_as_it_is_with_workers(tmp_path):
    shutil.copy(ROOT / "examples" / "train.py", tmp_path / "train.py")
    env = {**os.environ, "OMP_NUM_THREADS": "2"}
    status, stdout, err = profile("train.py", "--steps", "2", "--", "--batch-size", "2", "--width", "16", "--workers", "1", cwd=tmp_path,
                                  out=tmp_path / "out", env=env)
    assert status == 0, err
    assert "step 6 loss" in err and "step 7 loss" not in err and (tmp_path / "checkpoints" / "last.pt").exists()
    assert "## Top 15 CPU operators (2 profiled steps)" in stdout and "| 2 | 16 | 1 | float32 |" in stdout
