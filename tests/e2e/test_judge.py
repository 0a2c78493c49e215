"""The judge on the CPU, for real: two processes, tiny workloads, every verdict; and that nothing is left running."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from kernelwright.capture.lock import device_lock
from kernelwright.cli.main import main
from kernelwright.judge import JudgeOptions, OfReference, OutOfTime, ReferenceSession, judge, timing
from kernelwright.model.errors import BadInput, WorkloadFailed
from kernelwright.model.verdict import ACCEPTABLE, Verdict
from kernelwright.model.workload import WorkloadRef
from processes import gone, soon, status
from warm_start import warm_start

SRC = Path(__file__).resolve().parents[2] / "src"
DATA = Path(__file__).resolve().parents[1] / "data" / "judge"
WIDE = DATA / "wide"


@pytest.fixture(scope="module", autouse=True)
def quiet(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("KERNELWRIGHT_LOCK", str(tmp_path_factory.mktemp("lock") / "lock"))
        yield


@pytest.fixture(autouse=True)
def warm(request):
    """Only verdicts on time need processes like a user's: timings in forks are noisier."""
    with nullcontext() if "timed" in request.fixturenames else warm_start():
        yield


@pytest.fixture
def timed():
    """Marks a test whose verdict is on time."""


@pytest.fixture
def token(monkeypatch):
    """Words in the command line of what the hanging candidate of this test starts, and of nothing else on the machine."""
    words = f"judge-test-child-{secrets.token_hex(8)}"
    monkeypatch.setenv("JUDGE_TEST_TOKEN", words)
    return words


def options(**changes):
    plain = JudgeOptions(device="cpu", python=sys.executable, max_timing_s=1.0, timeout_s=40, confirm=False, conditions=())
    return plain.model_copy(update=changes)


def workload(name, version=None, **params):
    return WorkloadRef(path=DATA / f"{name}.py", name=name, version=version, params=params)


@pytest.fixture(scope="module")
def wide():
    with ReferenceSession(workload("wide"), options()) as session:
        yield session


def processes(words):
    """Ids of the processes whose command line holds these words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if words in command:
            found.append(int(folder.name))
    return found


def parent_of(process):
    found = status(process)
    return found and found[1]


def test_a_candidate_that_does_a_third_of_the_work_is_faster(wide, timed):
    verdict = judge(wide.workload, WIDE / "faster.py", session=wide)
    assert verdict.verdict == "FASTER", verdict.reasons
    low, high = verdict.interval
    assert 1 < low <= verdict.speedup <= high
    assert verdict.correctness.passed and verdict.correctness.oracle == "float64" and verdict.correctness.rounds == 3
    assert all(0 < error.candidate_error < error.limit < 1e-5 for error in verdict.correctness.errors if not error.distribution)
    assert verdict.comparison.pairs >= 6 and verdict.comparison.blocks == 2 * verdict.comparison.pairs and verdict.candidate_setup_s > 0
    assert len(verdict.workload_sha256) == len(verdict.candidate_sha256) == 64 and verdict.torch_version


def test_while_one_side_is_timed_the_other_is_stopped(wide, timed, monkeypatch):
    """A thread that it left, OpenMP's among them, takes nothing from the other's time."""
    seen, plain = {}, timing.one_block

    def block(who, *rest):
        others = [worker for role, worker in seen.items() if role != who.worker.role]
        seen[who.worker.role] = who.worker
        assert all(stopped(worker.pid) for worker in others), f"beside {who.worker.role}"
        return plain(who, *rest)

    monkeypatch.setattr(timing, "one_block", block)
    monkeypatch.setattr(timing, "_closing", lambda *rest: None)  # its blocks are not timed
    assert judge(wide.workload, WIDE / "same.py", session=wide).verdict in ACCEPTABLE
    assert seen.keys() == {"reference", "candidate"}
    assert not stopped(seen["reference"].pid, within_s=0.0), "it goes on afterwards"


def stopped(process, within_s=5.0):
    return soon(lambda: status(process)[0] == "T", within_s)  # a signal to a whole group takes its time


def test_a_candidate_that_works_twice_is_slower(wide, timed):
    verdict = judge(wide.workload, WIDE / "slower.py", session=wide)
    assert verdict.verdict == "SLOWER", verdict.reasons
    assert verdict.interval[0] <= verdict.speedup <= verdict.interval[1] < 1


def test_the_same_program_is_neither(wide, timed):
    verdict = judge(wide.workload, WIDE / "same.py", session=wide)
    # Two processes on a busy machine may differ by a few percent; no more may ever be made of it.
    assert verdict.verdict in ("SAME", "AMBIGUOUS") or 0.9 < verdict.speedup < 1.1, verdict.reasons
    if verdict.verdict == "AMBIGUOUS":
        assert any(words in verdict.reasons[0] for words in ("too noisy", "not confirmed"))


@pytest.mark.parametrize(("name", "expected", "words"), [
    ("mutates", "WRONG", "writes to its inputs"),
    ("tuple_output", "WRONG", "structure"),
    ("bf16_declared", "WRONG", '--precision equal does not allow that'),
    ("crashes", "FAILED", "killed by signal 11"),
    ("exits", "FAILED", "ended its process with status 0"),
    ("raises", "FAILED", "ValueError: no luck with this shape"),
    ("noisy", "FAILED", "printed more than 64 MiB"),
])
def test_wrong_and_failed_candidates_get_their_reason(name, expected, words, wide):
    verdict = judge(wide.workload, WIDE / f"{name}.py", session=wide)
    assert verdict.verdict == expected, verdict.reasons
    assert any(words in reason for reason in verdict.reasons), verdict.reasons
    assert verdict.speedup is None


def test_a_declared_precision_is_judged_by_its_own_yardstick(wide):
    verdict = judge(wide.workload, WIDE / "bf16_declared.py", options(precision="bf16", timing=False), session=wide)
    assert verdict.correctness.passed and verdict.declared_precision == "bf16", verdict.reasons
    assert all(1e-4 < error.candidate_error <= error.limit < 2e-2 for error in verdict.correctness.errors if not error.distribution)


UNLUCKY = """
import sys
sys.path.insert(0, {tests!r})
from emulated_tf32 import Pooled, torch
for name, module in list(sys.modules.items()):
    if name.endswith(".judge_tf32"):
        module.need_tf32 = lambda _workload: None

def get_model_and_input():
    inputs = torch.randn(2, 3, 12, 12)
    torch.manual_seed(152)  # few roundings, by which the folded model errs 2.2 times as much
    return Pooled(loss=False).eval(), inputs
"""
FOLDED = """
import sys
sys.path.insert(0, {tests!r})
from emulated_tf32 import folded

def optimize(model, inputs):
    return folded(model.requires_grad_(False))
"""
NARROWER = FOLDED.replace("    return", "    model.layers[1].weight.data = model.layers[1].weight.data.bfloat16().float()\n    return")


def test_roundings_to_tf32_are_drawn_again_before_a_candidate_is_wrong_by_them(tmp_path):
    tests = str(Path(__file__).resolve().parents[1])
    ref = WorkloadRef(path=tmp_path / "unlucky.py", name="unlucky")
    ref.path.write_text(UNLUCKY.format(tests=tests))
    candidate = tmp_path / "candidate.py"
    with ReferenceSession(ref, options()) as session:
        candidate.write_text(FOLDED.format(tests=tests))
        for _ in range(4):  # fresh inputs each: in one of a hundred no round is beyond twice the reference's own error
            right = judge(ref, candidate, options(timing=False), session=session)
            assert right.correctness.passed, right.reasons
            drawn = [error for error in right.correctness.errors if "draws" in error.note and not error.distribution]
            if drawn:
                break
        candidate.write_text(NARROWER.format(tests=tests))
        for _ in range(4):  # in one of a hundred the reference itself errs by more than the draws do: they are no limit then
            wrong = judge(ref, candidate, options(timing=False), session=session)
            assert wrong.verdict == "WRONG", wrong.reasons
            failed = [error.note for error in wrong.correctness.errors if not error.passed]
            assert not any("draws" in note for note in failed[1:]), "nothing is drawn once it is wrong"
            if "more draws" in failed[0]:
                break
    assert drawn and all(error.note == "limit from 8 more draws of the reference's TF32 roundings" for error in drawn)
    assert all(2 * error.reference_error < error.candidate_error < error.limit for error in drawn)
    assert "more draws" in failed[0]


def test_a_hanging_candidate_is_ended_with_its_children(wide, token):
    start = time.monotonic()
    verdict = judge(wide.workload, WIDE / "hangs.py", options(timeout_s=2), session=wide)
    assert verdict.verdict == "FAILED" and "within 2 s" in verdict.reasons[0], verdict.reasons
    assert time.monotonic() - start < 60
    assert soon(lambda: not processes(token))


def test_a_deadline_ends_the_candidate_and_leaves_the_session_usable(wide, token):
    """The deadline is far enough for the load, and the candidate has started its child by then."""
    with pytest.raises(OutOfTime) as error:
        judge(wide.workload, WIDE / "hangs.py", session=wide, deadline_s=time.monotonic() + 7)
    assert "at its call" in error.value.message  # not while it was loading
    assert soon(lambda: not processes(token))
    assert judge(wide.workload, WIDE / "same.py", options(timing=False), session=wide).correctness.passed


@pytest.mark.parametrize("ends_in_time", [True, False])
def test_a_deadline_leaves_what_was_timed_by_then_where_that_is_asked_for(wide, ends_in_time):
    """With this level no number of pairs is clear."""
    asked = options(max_timing_s=60.0, alpha=1e-12, ends_in_time=ends_in_time)
    end_s = time.monotonic() + 9
    if not ends_in_time:
        with pytest.raises(OutOfTime, match="at its timed calls"):
            judge(wide.workload, WIDE / "same.py", asked, session=wide, deadline_s=end_s)
        return
    verdict = judge(wide.workload, WIDE / "same.py", asked, session=wide, deadline_s=end_s)
    assert time.monotonic() < end_s and verdict.verdict == "AMBIGUOUS" and verdict.comparison.pairs >= 3
    used = re.search(r"timing used up its ([\d.]+) s", verdict.reasons[0])
    assert used is not None and 0.5 <= float(used.group(1)) < 9.0, verdict.reasons


def test_a_held_lock_is_not_waited_for_past_the_deadline(wide):
    start = time.monotonic()
    with device_lock("another one"), pytest.raises(OutOfTime, match="another profile"):
        judge(wide.workload, WIDE / "same.py", session=wide, deadline_s=start + 2)
    assert time.monotonic() - start < 60


def test_a_file_without_an_entry_or_without_existence_is_bad_input(wide):
    with pytest.raises(BadInput) as error:
        judge(wide.workload, WIDE / "no_entry.py", session=wide)
    assert error.value.code == "no_entry_point" and "optimize(model, inputs)" in error.value.fix
    with pytest.raises(BadInput):
        judge(wide.workload, WIDE / "gone.py", session=wide)


def test_a_training_step_is_judged_by_loss_and_gradients():
    with ReferenceSession(workload("training"), options(timing=False)) as session:
        right = judge(session.workload, DATA / "training" / "right.py", session=session)
        wrong = judge(session.workload, DATA / "training" / "wrong_gradient.py", session=session)
    assert right.correctness.passed, right.reasons
    assert {error.path for error in right.correctness.errors} == {
        "loss", "grad.first.weight", "grad.first.bias", "grad.second.weight", "grad.second.bias"}
    assert wrong.verdict == "WRONG" and "grad.first.weight" in " ".join(wrong.reasons)


def test_inputs_whose_shapes_and_numbers_follow_the_seed_reach_the_candidate():
    with ReferenceSession(workload("varying"), options(max_timing_s=0.3)) as session:
        verdict = judge(session.workload, DATA / "varying" / "same.py", session=session)
    assert verdict.verdict in ("SAME", "AMBIGUOUS", "SLOWER", "FASTER") and verdict.comparison is not None, verdict.reasons


def test_what_a_workload_leaves_in_its_inputs_is_compared():
    with ReferenceSession(workload("inplace"), options(timing=False)) as session:
        right, leaves_it, other = (judge(session.workload, DATA / "inplace" / f"{name}.py", session=session)
                                   for name in ("right", "leaves_it", "writes_something"))
    assert right.correctness.passed and right.correctness.oracle == "float64", right.reasons
    assert {error.path for error in right.correctness.errors} == {"", "written input 0.0"}
    for wrong in (leaves_it, other):
        assert wrong.verdict == "WRONG" and any("written input" in reason for reason in wrong.reasons), wrong.reasons


def test_statistics_that_a_training_step_moves_are_compared():
    with ReferenceSession(workload("batchnorm"), options(timing=False)) as session:
        right = judge(session.workload, DATA / "batchnorm" / "warms_up.py", session=session)
        wrong = judge(session.workload, DATA / "batchnorm" / "forgets_statistics.py", session=session)
    assert right.correctness.passed and right.correctness.oracle == "float64", right.reasons
    assert "buffer norm.running_var" in {error.path for error in right.correctness.errors}
    assert wrong.verdict == "WRONG" and any("norm.running_mean" in reason for reason in wrong.reasons), wrong.reasons


def test_a_model_that_keeps_a_function_over_its_parts_has_a_float64_run_and_weights_that_count():
    with ReferenceSession(workload("keeps_function"), options(timing=False)) as session:
        right, wrong = (judge(session.workload, DATA / "keeps_function" / f"{name}.py", session=session) for name in ("same", "leaves_out"))
    assert right.correctness.passed and right.correctness.oracle == "float64", right.reasons
    assert not any("degenerate" in warning for warning in right.correctness.warnings)
    assert wrong.verdict == "WRONG", wrong.reasons


def test_an_output_without_a_finite_number_is_never_passed():
    with ReferenceSession(workload("nowhere_finite"), options(timing=False)) as session:
        verdict = judge(session.workload, DATA / "nowhere_finite" / "same.py", session=session)
    assert verdict.verdict == "FAILED" and "not decidable" in verdict.reasons[0] and not verdict.correctness.passed


def test_a_layernorm_in_another_order_is_right_and_with_rounded_inputs_wrong():
    with ReferenceSession(workload("layernorm"), options(timing=False)) as session:
        right = judge(session.workload, DATA / "layernorm" / "one_pass.py", session=session)
        wrong = judge(session.workload, DATA / "layernorm" / "rounds_inputs.py", session=session)
    assert right.correctness.passed, right.reasons
    assert wrong.verdict == "WRONG" and "undeclared precision drop: as inaccurate as bf16" in wrong.reasons[0], wrong.reasons


def test_kernelbenchs_model_new_gets_models_weights():
    with ReferenceSession(workload("kernelbench"), options(timing=False)) as session:
        right = judge(session.workload, DATA / "kernelbench" / "model_new.py", session=session)
        wrong = judge(session.workload, DATA / "kernelbench" / "wrong_shape.py", session=session)
    assert right.correctness.passed, right.reasons
    assert wrong.verdict == "WRONG" and "shape [32, 47]" in wrong.reasons[0]


def test_a_function_stands_in_for_a_version():
    with ReferenceSession(workload("versions", "v1", n="300"), options(timing=False)) as session:
        right = judge(session.workload, DATA / "versions" / "function.py", session=session)
        wrong = judge(session.workload, DATA / "versions" / "off_by_some.py", session=session)
    assert right.correctness.passed and right.correctness.oracle == "float64", right.reasons
    assert wrong.verdict == "WRONG" and any("at [17]" in reason for reason in wrong.reasons)


def test_weights_and_inputs_that_ignore_the_seed_are_dealt_with():
    with ReferenceSession(workload("unseeded"), options(timing=False)) as session:
        same = judge(session.workload, DATA / "unseeded" / "same.py", session=session)
        remembers = judge(session.workload, DATA / "unseeded" / "remembers.py", session=session)
    assert same.correctness.passed and any("reference's were copied" in reason for reason in same.reasons)
    assert remembers.verdict == "CHEAT" and any("ignores its seed" in reason for reason in remembers.reasons)


def test_a_workload_that_fails_is_no_verdict(tmp_path):
    (tmp_path / "broken.py").write_text("def get_model_and_input():\n    raise RuntimeError('no data set here')\n")
    broken = WorkloadRef(path=tmp_path / "broken.py", name="broken")
    with pytest.raises(WorkloadFailed, match="no data set here") as error:
        judge(broken, WIDE / "same.py", options())
    assert isinstance(error.value, OfReference)


def test_the_workers_die_with_a_judge_that_is_killed(tmp_path, token):
    script = (f"from pathlib import Path; from kernelwright.judge import *; from kernelwright.model.workload import WorkloadRef\n"
              f"judge(WorkloadRef(path=Path({str(DATA / 'wide.py')!r}), name='w'), Path({str(WIDE / 'hangs.py')!r}), "
              f"JudgeOptions(device='cpu', python={sys.executable!r}))")
    ours = {**os.environ, "PYTHONPATH": str(SRC)}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL, env=ours)
    try:
        assert soon(lambda: processes(token), 120)
        workers = {worker for worker in processes("start.py judge --role") if parent_of(worker) == process.pid}
        assert len(workers) == 2 and processes(token)
        process.kill()
        process.wait()
        assert gone(workers)
    finally:
        process.kill()
        for child in processes(token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def test_ctrl_c_ends_candidate_and_children(tmp_path, token):
    command = [sys.executable, "-m", "kernelwright", "judge", str(DATA / "wide.py"), str(WIDE / "hangs.py"), "--device", "cpu", "--json"]
    process = subprocess.Popen([*command, "--python", sys.executable], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env={**os.environ, "PYTHONPATH": str(SRC)})
    try:
        assert soon(lambda: processes(token), 120)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and json.loads(out)["error"]["code"] == "interrupted"
    assert soon(lambda: not processes(token))


def judged(tmp_path, capsys, candidate, *arguments):
    where = ["--device", "cpu", "--python", sys.executable, "--out", str(tmp_path / "v")]
    code = main(["judge", str(DATA / "wide.py"), str(candidate), *where, "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_the_verb_answers_in_json_and_leaves_a_page(tmp_path, capsys):
    code, answer = judged(tmp_path, capsys, WIDE / "faster.py", "--rows=64", "--max-timing", "0.5s", "--seed", "1234", "--rounds", "4")
    assert code == 0 and answer["status"] == "ok" and answer["verdict"] in ACCEPTABLE, answer
    folder = Path(answer["out_dir"])
    assert folder.is_absolute() and Verdict.model_validate_json((folder / "verdict.json").read_text()).seed == 1234
    page = Path(answer["report"]).read_text()
    assert page.startswith(f"# Verdict on faster.py: {answer['verdict']}") and "| Outputs, 4 rounds | float64 oracle" in page
    for words in ("--seed 1234", "--rows=64", "--rounds 4", "--max-timing 0.5s", "--device cpu", f"--python {sys.executable}"):
        assert words in page, words
    assert (folder / "raw" / "candidate.log").exists()


def test_a_wrong_candidate_is_exit_5_and_status_ok(tmp_path, capsys):
    code, answer = judged(tmp_path, capsys, WIDE / "bf16_declared.py")
    assert code == 5 and answer["status"] == "ok" and answer["verdict"] == "WRONG" and answer["speedup"] is None
    assert "outputs (not reached)" in Path(answer["report"]).read_text()


@pytest.mark.parametrize("arguments", [["gone.py"], [str(WIDE / "no_entry.py")], [str(WIDE / "same.py"), "--rounds", "2"],
                                       [str(WIDE / "same.py"), "--nonsense=1"]])
def test_bad_input_is_exit_2(tmp_path, capsys, arguments):
    code, answer = judged(tmp_path, capsys, *arguments)
    assert code == 2 and answer["status"] == "error" and answer["error"]["fix"]
