"""kernelwright.judge from Python: the package that can be called, its options, its errors."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import kernelwright
from kernelwright.judge import JudgeOptions, judge
from kernelwright.judge.api import with_changes
from kernelwright.model.errors import BadInput
from kernelwright.model.workload import WorkloadRef
from warm_start import warm_start

SRC = Path(__file__).resolve().parents[2] / "src"
DATA = Path(__file__).resolve().parents[1] / "data" / "judge"
FIRST = "from kernelwright import judge, rejudge, Verdict, JudgeOptions, ReferenceSession"
THEN = "import kernelwright.judge; from kernelwright.judge import JudgeOptions as Same, judge as function, run"
CHECK = """
import kernelwright
assert kernelwright.judge is judge and callable(judge) and judge.judge is function and Same is JudgeOptions
assert judge.run.judge and judge.__name__ == "kernelwright.judge" and kernelwright.judge.options.JudgeOptions is JudgeOptions
assert Verdict.__name__ == "Verdict" and "torch" not in __import__("sys").modules
"""


def in_a_process(code):
    return subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("order", [(FIRST, THEN), (THEN, FIRST), ("import kernelwright\nkernelwright.judge", THEN, FIRST)])
def test_the_function_and_the_package_are_one_in_any_order_of_imports(order):
    done = in_a_process("\n".join([*order, CHECK]))
    assert done.returncode == 0, done.stderr


def test_the_version_alone_loads_nothing():
    done = in_a_process("import sys, kernelwright\n"
                        "print(kernelwright.__version__, [name for name in sys.modules if name.startswith('kernelwright.')])")
    assert done.stdout.split(maxsplit=1)[1].strip() == "[]", done.stdout + done.stderr


def test_names_that_are_not_public_are_no_attributes():
    assert {"judge", "rejudge", "Verdict", "JudgeOptions", "ReferenceSession"} <= set(dir(kernelwright))
    with pytest.raises(AttributeError, match="polish"):
        _ = kernelwright.polish


def test_help_shows_the_real_signature():
    assert inspect.signature(kernelwright.judge) == inspect.signature(judge)
    assert {"workload", "candidate", "params", "version", "session", "bundle"} <= inspect.signature(judge).parameters.keys()


def test_every_option_can_be_given_by_name():
    given = {"precision": "bf16", "device": "cpu", "seed": 7, "rounds": 5, "max_timing_s": 2.0, "sanitize": ("memcheck",)}
    changed = with_changes(JudgeOptions(timing=False), given)
    assert {name: getattr(changed, name) for name in given} == given and not changed.timing


@pytest.mark.parametrize(("changes", "code", "words"), [
    ({"precison": "bf16"}, "unknown_argument", "did you mean precision"), ({"xyz": 1}, "unknown_argument", "one of: "),
    ({"rounds": 1}, "usage", "rounds: "), ({"precision": "fp8"}, "usage", "precision: "),
    ({"sanitize": ("valgrind",)}, "usage", "sanitize")])
def test_options_that_cannot_be_are_bad_input(changes, code, words):
    with pytest.raises(BadInput) as error:
        kernelwright.judge(DATA / "wide.py", DATA / "wide" / "same.py", **changes)
    assert error.value.code == code and words in error.value.line()


@pytest.mark.parametrize(("workload", "candidate", "code"), [
    ("gone.py", DATA / "wide" / "same.py", "no_such_workload"), (DATA / "wide.py", "gone.py", "no_such_candidate"),
    (DATA / "wide.py", DATA, "is_folder"), (DATA / "wide" / "no_entry.py", DATA / "wide" / "same.py", "script_not_taken")])
def test_files_that_cannot_be_used_are_bad_input(workload, candidate, code):
    with pytest.raises(BadInput) as error:
        kernelwright.judge(workload, candidate)
    assert error.value.code == code


def test_parameters_belong_to_the_workload_ref():
    with pytest.raises(BadInput, match="WorkloadRef"):
        kernelwright.judge(WorkloadRef(path=DATA / "wide.py", name="w"), DATA / "wide" / "same.py", params={"rows": 3})


def test_files_and_plain_values_give_a_verdict_and_a_bundle_that_is_judged_again(tmp_path):
    bundle = tmp_path / "b.tar.xz"
    with warm_start():
        verdict = kernelwright.judge(str(DATA / "wide.py"), DATA / "wide" / "tuple_output.py", params={"rows": 64}, device="cpu",
                                     python=sys.executable, seed=12, bundle=bundle)
        assert verdict.verdict == "WRONG" and verdict.seed == 12 and verdict.schema_version == "1.1"
        assert verdict.environment["device"] == "cpu" and verdict.environment["kernelwright_version"] == kernelwright.__version__
        said = []
        again, compared = kernelwright.rejudge(bundle, device="cpu", python=sys.executable, say=said.append)
    assert again.verdict == "WRONG" and again.seed == 12 and again.reasons == verdict.reasons
    assert compared.same_verdict and compared.same_device and "about to run code from b.tar.xz" in said[0]
    assert verdict.candidate_sha256 in said[0] and again.candidate_sha256 == verdict.candidate_sha256
