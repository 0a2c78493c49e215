"""The command line's own edge: parameters, durations, errors as one line or one object, exit codes."""

import argparse
import importlib
import json

import pytest

from kernelwright.cli import common, main
from kernelwright.cli.main import VERBS, build_parser
from kernelwright.model.errors import BadInput

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


def test_a_fault_of_our_own_is_still_one_line(monkeypatch, capsys):
    monkeypatch.setattr(EDGE, "_run", lambda argv: 1 / 0)
    assert main(["doctor"]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "ZeroDivisionError" in err
