"""devlog as a user calls it."""

from __future__ import annotations

import json
import os

import pytest

import builders
from contract_format import check_devlog_entry
from kernelwright.cli import main
from kernelwright.report import write_profile


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A stored profile in an empty project."""
    monkeypatch.chdir(tmp_path)
    write_profile(builders.event(), tmp_path / "run", params_doc={"kernel": "mla", "workload": str(tmp_path / "mla.py")})
    return tmp_path / "run"


def test_add_prints_the_entry_and_show_the_log(folder, tmp_path, capsys):
    assert main(["devlog", "add", str(folder), "--issue", "slow", "--issue", "very", "--insight", "tiles of 64"]) == 0
    out, err = capsys.readouterr()
    assert check_devlog_entry(out) == [] and "- slow\n- very\n" in out and "- tiles of 64\n" in out
    assert str(tmp_path / "out" / "devlog" / "mla.devlog.md") in err
    for argv in (["show"], ["show", "mla"], ["show", "out/devlog/mla.devlog.md"], ["show", "out/devlog/mla.devlog.jsonl"],
                 ["show", "--log", "out/devlog/mla.devlog.md"]):
        assert main(["devlog", *argv]) == 0
        assert out.strip() in capsys.readouterr().out


def test_json(folder, tmp_path, capsys):
    for argv in (["--json", "devlog"], ["devlog", "--json", "add", str(folder)], ["devlog", "add", str(folder / "profile.json"), "--json"]):
        code = main(argv)
        answer = json.loads(capsys.readouterr().out)
        assert (code, answer["status"]) == ((2, "error") if argv[0] == "--json" else (0, "ok"))
    log = tmp_path / "out" / "devlog" / "mla.devlog.md"
    assert answer["devlog"] == str(log) and answer["entry"]["extra"] == {"profile": os.path.relpath(folder, log.parent)}
    assert main(["devlog", "show", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["entries"]) == 2


def test_the_project_file_says_where_the_log_is(folder, tmp_path, capsys):
    (tmp_path / "mla.py").write_text("VERSIONS = {}\n")
    (tmp_path / "kernelwright.yaml").write_text("kernels:\n  mla:\n    file: mla.py\n    devlog: docs/mla.md\n")
    assert main(["devlog", "add", str(folder)]) == 0
    assert (tmp_path / "docs" / "mla.md").is_file() and (tmp_path / "docs" / "mla.jsonl").is_file()
    for argv in (["show", "mla"], ["show"]):
        assert main(["devlog", *argv]) == 0
        assert "# Development log: mla" in capsys.readouterr().out


def test_the_log_is_that_of_the_profiles_own_project(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "mla.py").write_text("VERSIONS = {}\n")
    (tmp_path / "kernelwright.yaml").write_text("kernels: {mla: {file: mla.py, devlog: docs/mla.md}}")
    other = tmp_path / "other"
    other.mkdir()
    (other / "mla.py").write_text("VERSIONS = {}\n")
    (other / "kernelwright.yaml").write_text("kernels: {mla: {file: mla.py, devlog: mine.md}}")
    monkeypatch.chdir(other)
    assert main(["devlog", "add", str(folder)]) == 0
    assert (tmp_path / "docs" / "mla.md").is_file() and not (other / "mine.md").exists()
    capsys.readouterr()
    assert main(["devlog", "add", str(folder)]) == 0
    assert "note: the log had 1 entry of this profile already" in capsys.readouterr().err
    (other / "kernelwright.yaml").write_text("kernels: {mla: {file: ../mla.py, devlog: mine.md}}")
    (tmp_path / "kernelwright.yaml").unlink()
    assert main(["devlog", "add", str(folder)]) == 0 and (other / "mine.md").is_file()  # the project here names that file


@pytest.mark.parametrize(("argv", "words"), [
    ([], "add|show"), (["add"], "PROFILE_DIR"), (["add", "nowhere"], "no profile.json"), (["show"], "no development log"),
    (["show", "x"], "no such"),
    (["add", "run", "--issue", " \n"], "empty"), (["add", "run", "--b=3"], "--b"), (["add", "run", "--log", "x.txt"], ".md"),
    (["burn", "run"], "burn"),
])
def test_bad_usage_is_one_line_and_exit_2(folder, capsys, argv, words):
    assert main(["devlog", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err


def test_two_logs_need_a_name(folder, tmp_path, capsys):
    for log in ("out/devlog/a.devlog.md", "out/devlog/b.devlog.md"):
        assert main(["devlog", "add", str(folder), "--log", log]) == 0
    assert main(["devlog", "show"]) == 2
    assert "a.devlog" in capsys.readouterr().err


def test_a_line_cut_short_is_told(folder, tmp_path, capsys):
    assert main(["devlog", "add", str(folder)]) == 0
    with (tmp_path / "out" / "devlog" / "mla.devlog.jsonl").open("a") as file:
        file.write('{"schema_version": "1.0", "added')
    capsys.readouterr()
    assert main(["devlog", "show"]) == 0
    assert "line 2 of mla.devlog.jsonl is cut short" in capsys.readouterr().err
