"""The command line's own edge: parameters, durations, errors as one line or one object, exit codes."""

import argparse
import importlib
import json
import sys
import time

import pytest

import builders
from kernelwright.cli import common, main
from kernelwright.cli.main import VERBS, build_parser
from kernelwright.model.errors import BadInput
from kernelwright.model.measurement import Measurement
from kernelwright.report.figures import UNSTABLE

PROFILE = importlib.import_module("kernelwright.cli.profile_kernel")
EDGE = importlib.import_module("kernelwright.cli.main")  # the package's attribute `main` is the function


@pytest.mark.parametrize(("text", "value"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5m", 90), ("2h", 7200)])
def test_durations(text, value):
    assert common.seconds(text) == value


@pytest.mark.parametrize("text", ["", "m", "-5", "ten", "0", "5x", "1m2h"])
def test_bad_durations(text):
    with pytest.raises(argparse.ArgumentTypeError):
        common.seconds(text)


def test_unknown_options_of_the_right_form_are_workload_parameters():
    assert common.split_params(["--b=32", "--name=a=b", "--dtype=bfloat16"], verb="v") == {"b": "32", "name": "a=b", "dtype": "bfloat16"}
    for wrong in ("--b", "b=3", "-b=3", "--9=3", "x"):
        with pytest.raises(BadInput, match="unknown argument"):
            common.split_params([wrong], verb="v")


@pytest.mark.parametrize("argv", [["nope"], ["profile_kernel"], ["profile_kernel", "x.py", "--mode", "z"], ["profile_kernel", "gone.py"],
                                  ["judge", "only_one.py"], ["profile_kernel", "gone.py", "stray", "words"]])
def test_bad_usage_is_one_line_and_exit_2(argv, capsys):
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("kernelwright: ")
    assert main([*argv, "--json"]) == 2
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["status"] == "error" and set(answer["error"]) == {"code", "message", "where", "fix"} and answer["error"]["message"]


@pytest.mark.parametrize("words", ["w.py c.py d.py --b=3 --rounds 4", "w.py --b=3 c.py d.py --rounds 4", "--b=3 w.py c.py --rounds 4 d.py",
                                   "w.py c.py --rounds 4 --b=3 d.py"])
def test_parameters_and_options_may_stand_anywhere_among_the_files(words):
    args, unknown = EDGE._parse(build_parser("judge"), words.split())
    assert (args.workload, [str(path) for path in args.candidate], args.rounds, unknown) == ("w.py", ["c.py", "d.py"], 4, ["--b=3"])


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_names_its_options(verb, capsys):
    with pytest.raises(SystemExit) as done:
        main([verb, "--help"])
    assert done.value.code == 0
    out = capsys.readouterr().out
    words = " ".join(out.split())
    assert "--json" in out and "options:" in words
    module = importlib.import_module(f"kernelwright.cli.{verb}")
    assert getattr(module, "DESCRIPTION", module.HELP)[:20] in words
    assert build_parser(verb).prog.endswith(verb)


def test_an_interrupt_exits_130(monkeypatch, capsys):
    monkeypatch.setattr(EDGE, "_run", lambda argv: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["doctor", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "interrupted"


class Dropped:
    """Its end is interrupted, where Python drops every exception."""

    def __del__(self):
        raise KeyboardInterrupt


def test_an_interrupt_that_python_drops_exits_130_too(monkeypatch, capsys):
    monkeypatch.setattr(EDGE, "_run", lambda argv: [Dropped(), time.sleep(0.01)].clear() or time.sleep(10))
    before = sys.unraisablehook
    assert main(["doctor"]) == 130 and sys.unraisablehook is before
    assert capsys.readouterr().err.count("\n") == 1


def test_a_fault_of_our_own_is_still_one_line(monkeypatch, capsys):
    monkeypatch.setattr(EDGE, "_run", lambda argv: 1 / 0)
    assert main(["doctor"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "ZeroDivisionError" in err


# The time of the whole call, which the contract has no place for


def test_the_time_of_a_whole_call_is_told_with_its_noise():
    timing = Measurement.of([1e6, 1.1e6, 1.2e6, 1.9e6, 2.0e6], timer="cuda_events")
    profile = builders.gpu_annotation(timing=timing)
    line, data = PROFILE.call_line(profile), PROFILE.call_data(profile)
    assert line.startswith("one call: 1200.00 us median (95% 1000.00 to 2000.00 us), 5 samples, cuda_events; noisy: ")
    assert data["duration_us"] == 1200.0 and data["duration_interval_us"] == [1000.0, 2000.0]
    assert data["duration_warning"].startswith("noisy")
    quiet = builders.gpu_annotation(timing=builders.timing(500.0))
    assert PROFILE.call_data(quiet)["duration_warning"] is None and ";" not in PROFILE.call_line(quiet)
    assert PROFILE.call_line(quiet.model_copy(update={"warnings": (f"{UNSTABLE} when the warm-up ended",)})).endswith("warm-up ended")


def test_a_time_that_was_not_measured_is_not_told():
    single = builders.gpu_annotation(timing=Measurement.of([1e6], timer="cuda_events"))
    assert "(no interval: too few samples), 1 sample, cuda_events; only 1 sample" in PROFILE.call_line(single)
    assert PROFILE.call_data(single)["duration_interval_us"] is None
    untimed = builders.gpu_annotation(timing=None)
    assert PROFILE.call_line(untimed) == "one call: n/a (not timed as a whole)"
    assert set(PROFILE.call_data(untimed).values()) == {None}
    json.dumps(PROFILE.call_data(single), allow_nan=False)


def test_help_says_where_the_time_of_a_whole_call_is():
    assert "median time of one whole call" in " ".join(build_parser("profile_kernel").format_help().split())


@pytest.mark.parametrize(("started", "command"), [("/plugin/scripts/judge.py", ["python3", "/plugin/scripts/judge.py"]),
                                                  ("/env/bin/kernelwright", ["kernelwright", "judge"])])
def test_the_command_that_repeats_a_judgement_can_be_run_as_it_stands(started, command, monkeypatch):
    from kernelwright.cli.judge import _command

    monkeypatch.setattr("sys.argv", [started, "w.py", "c.py"])
    assert _command() == command
