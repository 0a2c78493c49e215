"""What a file is, how a script's arguments read, the scratch folder, and the bounded copy of output."""

import os

import pytest

from builders import cpu_annotation, gpu_annotation, hostile
from kernelwright.capture import output, sandbox
from kernelwright.capture.output import Tee
from kernelwright.capture.sandbox import Sandbox
from kernelwright.pipeline.forms import hide_secrets, is_script, script_argv, script_parameters
from kernelwright.report import render_top


@pytest.mark.parametrize(("source", "script"), [
    ("def get_model_and_input():\n    ...", False),
    ("class Model: ...\ndef get_inputs(): ...", False),
    ("if True:\n    VERSIONS = {}\nelse:\n    VERSIONS: dict = {}\nfrom x import get_inputs", False),
    ("try:\n    from fast import get_model_and_input\nexcept ImportError:\n    pass", False),
    ("from beside import *", False),
    ("def get_model_and_input(:", False),
    ("class Model: ...\nModel().fit()", True),
    ("def main():\n    get_model_and_input = 1\nmain()", True),
    ("from nowhere import *", True),
    ("", True),
    ("print('\udcff')", True),
    ("(" * 5000, True),
])
def test_a_file_without_an_entry_point_is_a_script(source, script, tmp_path):
    (tmp_path / "beside.py").write_text("from beside import *\ndef get_model_and_input(): ...")
    file = tmp_path / "train.py"
    file.write_bytes(source.encode("utf-8", "surrogateescape"))
    assert is_script(file) is script


def test_arguments_read_as_parameters_and_secrets_do_not():
    argv = script_argv({"lr": "1e-3"}, [
        "data | x", "--steps", "-1", "--amp", "--tag", "a", "--tag=b", "-v", "--", "--hf-token", "abc", "--key=\n"])
    assert argv[0] == "--lr=1e-3"
    assert script_parameters(argv) == {"lr": "1e-3", "arg1": "data | x", "steps": "-1", "amp": True, "tag": "a b", "v": True, "arg2": "--",
                                       "hf-token": "***", "key": "\n"}
    assert hide_secrets(["x", "--api_key", "abc", "--password=abc", "--n", "2"]) == ["x", "--api_key", "***", "--password=***", "--n", "2"]


def test_sandbox_copies_what_is_small_links_what_is_large_and_leaves_the_originals(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "LARGEST_BYTES", 10)
    monkeypatch.setattr(sandbox, "_clone", lambda here, there: False)
    origin = tmp_path / "work"
    for folder in ("src", "out", ".git"):
        (origin / folder).mkdir(parents=True)
    (origin / "src" / "small.txt").write_text("small")
    (origin / "large.bin").write_bytes(b"x" * 11)
    os.mkfifo(origin / "pipe")
    made = Sandbox.make(origin, origin / "out" / "run" / "sandbox", without=origin / "out")
    assert sorted(path.name for path in made.folder.iterdir()) == [".git", "large.bin", "src"]
    assert sorted(made.linked) == [".git", "large.bin"] and (made.folder / "large.bin").is_symlink()
    (made.folder / "src" / "small.txt").write_text("changed")
    assert (origin / "src" / "small.txt").read_text() == "small"
    assert made.translate(origin / "src" / "small.txt") == made.folder / "src" / "small.txt" and made.translate(tmp_path) == tmp_path
    made.remove()
    assert not made.folder.exists() and (origin / "large.bin").stat().st_size == 11


def test_output_is_shown_whole_and_kept_within_bounds(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "HEAD_BYTES", 10)
    monkeypatch.setattr(output, "TAIL_BYTES", 5)
    for live_is_open in (True, False):
        read, write = os.pipe()
        reader, shown = os.pipe()
        if not live_is_open:
            os.close(reader)
        tee = Tee(os.fdopen(read, "rb"), tmp_path / "copy", shown)
        os.write(write, b"0123456789" * 3)
        os.close(write)
        tee.close()
        assert (tmp_path / "copy").read_bytes() == b"0123456789\n[... 15 bytes left out ...]\n56789"
        os.close(shown)
        if live_is_open:
            assert os.read(reader, 100) == b"0123456789" * 3
            os.close(reader)


def test_hostile_names_stay_inside_the_table():
    assert render_top(cpu_annotation()).startswith("## Top 15 CPU operators (")
    assert render_top(gpu_annotation()).startswith("## Top 15 CUDA kernels (")
    text = render_top(hostile())
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| Rank")]
    assert rows and all(line.count("|") - line.count("\\|") == 6 for line in rows)
