"""compare as a user calls it: names, folders, the gate's exit code, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import builders
from kernelwright.cli import main
from kernelwright.model.measurement import PAIRED
from kernelwright.model.profile import Profile
from kernelwright.model.workload import WorkloadRef
from kernelwright.project.fingerprint import fingerprint
from kernelwright.report import write_profile


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """Two runs of v4, one of v5 and one of another kernel, as profile_kernel stores them."""
    monkeypatch.chdir(tmp_path)

    def store(stamp, median_us, kernel="mla", version="v4", **changes):
        profile = builders.event(capture_metadata=builders.metadata(mode="event", model_name=kernel, version=version, **changes),
                                 timing=builders.timing(median_us))
        folder = tmp_path / "out" / "profiles" / "event" / kernel / "default" / stamp
        write_profile(profile, folder, params_doc={"kernel": kernel, "version": version})
        return folder

    return {"old": store("20260101-000000-000000", 2000.0), "v4": store("20260102-000000-000000", 1000.0),
            "v5": store("20260103-000000-000000", 1050.0, version="v5"),
            "other": store("20260104-000000-000000", 1000.0, kernel="other", version="v5", device_name="NVIDIA A100")}


def _json(argv, capsys):
    code = main([*argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_names_mean_the_newest_stored_profile(stored, capsys):
    code, answer = _json(["compare", "v4", "mla:v5"], capsys)
    assert code == 0 and answer["status"] == "ok" and answer["profiles"] == [str(stored["v4"]), str(stored["v5"])]
    assert [row["change"] for row in answer["rows"]] == ["first", "slower"] and answer["gate"] is None


def test_folders_and_files_are_taken_as_they_are(stored, capsys):
    code, answer = _json(["compare", str(stored["old"]), str(stored["v5"] / "profile.json"), "out/profiles/event/other"], capsys)
    assert code == 0 and [row["duration_us"] for row in answer["rows"]] == [2000.0, 1050.0, 1000.0]
    assert any("NVIDIA A100" in warning for warning in answer["warnings"])


@pytest.mark.parametrize(("limit", "code"), [("3%", 5), ("3", 5), ("6", 0), ("0", 5)])
def test_gate(stored, capsys, limit, code):
    assert main(["compare", "v4", "mla:v5", "--fail-above", limit]) == code
    assert ("Gate: FAILED" in capsys.readouterr().out) == (code == 5)


def test_gate_in_json_names_what_failed(stored, capsys):
    code, answer = _json(["compare", "v4", "mla:v5", "--fail-above", "3%"], capsys)
    assert code == 5 and answer["status"] == "ok" and answer["gate"] == {"limit_pct": 3.0, "failed": ["B"]}


@pytest.mark.parametrize(("argv", "words"), [
    (["v4"], "at least two"), (["v4", "v9"], "mla:v4, mla:v5, other:v5"), (["v4", "v5"], "mla:v5, other:v5"), (["v4", "."], "profile.json"),
    (["v4", "mla:v5", "--fail-above", "x"], "percentage"), (["v4", "mla:v5", "--fail-above", "-1"], "percentage"),
    (["v4", "mla:v5", "--fail-above", "nan"], "percentage"), (["v4", "other", "--fail-above", "3"], "NVIDIA A100"),
    (["v4", "mla:v5", "--b=3"], "--b"),
])
def test_bad_usage_is_one_line_and_exit_2(stored, capsys, argv, words, tmp_path, monkeypatch):
    if "." in argv:
        (tmp_path / "empty").mkdir()
        monkeypatch.chdir(tmp_path / "empty")
        argv = [str(stored["v4"]), "."]
    assert main(["compare", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and words in err


def test_a_broken_profile_is_one_line(stored, capsys):
    (stored["v5"] / "profile.json").write_text('{"schema_version": ')
    assert main(["compare", "v4", str(stored["v5"])]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Profiles of v1 and v2 in the project's folder, v3's in that of a folder below it, where the command runs."""
    (tmp_path / "kernelwright.yaml").write_text("kernels: {mla: {file: mla.py}}")
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")

    def store(day, version, mode, t, below="", **more):
        parameters = {"t": t}
        profile = builders.event(capture_metadata=builders.metadata(mode=mode, model_name="mla", version=version), parameters=parameters)
        folder = tmp_path / below / "out" / "profiles" / mode / "mla" / f"t={t}" / f"202601{day:02}-000000-000000"
        write_profile(profile, folder, params_doc={"kernel": "mla", "version": version, "mode": mode, "parameters": parameters, **more})
        return str(folder)

    return store


def test_profiles_of_the_project_are_found_from_a_folder_in_it(project, capsys):
    first, second = project(1, "v1", "event", 64), project(2, "v3", "event", 64, below="sub")
    code, answer = _json(["compare", "v1", "v3"], capsys)
    assert code == 0 and answer["profiles"] == [first, second]


def test_a_mode_and_parameters_that_all_have_are_preferred_to_the_newest(project, capsys):
    first, second = project(1, "v1", "event", 64), project(2, "v2", "event", 64)
    older = project(1, "v1", "event", 16), project(1, "v2", "event", 16)
    project(3, "v1", "annotation", 64), project(4, "v2", "event", 256)
    assert main(["compare", "v1", "mla:v2", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["profiles"] == [first, second] and "common" not in said.err
    assert _json(["compare", older[0], "v2"], capsys)[1]["profiles"] == list(older)  # a folder is taken as it is, and what goes with it


def test_without_any_in_common_the_newest_are_taken_and_a_line_says_so(project, capsys):
    project(1, "v1", "event", 64), project(1, "v2", "event", 16)
    first, second = project(2, "v1", "event", 256), project(3, "v2", "annotation", 256)
    assert main(["compare", "v1", "v2", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["profiles"] == [first, second]
    lines = [line for line in said.err.splitlines() if "common" in line]
    assert len(lines) == 1 and "v1 (event t=256); v2 (annotation t=256)" in lines[0]


@pytest.mark.parametrize("options", [{"compile_mode": "inductor", "flush_l2": False}, {"compile_mode": "eager", "flush_l2": True}])
def test_a_word_means_profiles_that_were_made_with_the_same_settings(project, capsys, options):
    eager = {"compile_mode": "eager", "flush_l2": False}
    first, second = project(1, "v1", "event", 64, options=eager), project(2, "v2", "event", 64, options=eager)
    project(3, "v2", "event", 64, options=options)
    assert _json(["compare", "v1", "v2"], capsys)[1]["profiles"] == [first, second]
    project(4, "v4", "event", 64, options=options)
    assert main(["compare", "v1", "v4"]) == 0
    assert f"v4 (event t=64 --{'flush-l2' if options['flush_l2'] else 'compile-mode inductor'})" in capsys.readouterr().err


VERSIONS = "def f(x): return x\ndef g(x): return x\ndef get_inputs(): return ()\nVERSIONS = {'v1': f, 'v2': g}\n"


@pytest.mark.parametrize("in_project", [True, False])
def test_a_version_that_was_edited_since_its_profile_is_told_and_holds_no_gate(project, capsys, tmp_path, monkeypatch, in_project):
    file = tmp_path / "mla.py"
    file.write_text(VERSIONS)
    if not in_project:
        (tmp_path / "kernelwright.yaml").unlink()
        monkeypatch.chdir(tmp_path)
    own = tmp_path / "kernelwright.yaml" if in_project else None
    text = {name: fingerprint(WorkloadRef(path=file, name="mla", version=name, project=own)) for name in ("v1", "v2")}
    project(1, "v1", "event", 64, source_sha256=text["v1"], workload=str(file))
    second = project(2, "v2", "event", 64, source_sha256=text["v2"], workload=str(file))
    code, answer = _json(["compare", "v1", "v2", "--fail-above", "3"], capsys)
    assert code == 0 and not any("edited" in line for line in answer["warnings"])
    file.write_text(VERSIONS.replace("g(x): return x", "g(x): return -x"))
    code, answer = _json(["compare", "v1", "v2"], capsys)
    words = f"mla v2 was edited since its profile ({second})"
    assert code == 0 and [line for line in answer["warnings"] if "edited" in line] == [f"{words}: profile it again"]
    assert main(["compare", "v1", "v2", "--fail-above", "3"]) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("profile it again") == 1
    assert _json(["compare", "v1", second, "--fail-above", "3"], capsys)[0] == 0  # a folder is meant as it is
    edited = fingerprint(WorkloadRef(path=file, name="mla", version="v2", project=own))
    third = project(3, "v2", "event", 64, source_sha256=edited, workload=str(file))
    assert _json(["compare", "v1", "v2"], capsys)[1]["profiles"][1] == third
    file.write_text(VERSIONS)
    code, answer = _json(["compare", "v1", "v2", "--fail-above", "3"], capsys)
    assert code == 0 and answer["profiles"][1] == second, "the edit was undone, and there is a profile of what is there again"
    file.write_text(VERSIONS.replace(", 'v2': g", ""))
    assert not any("edited" in line for line in _json(["compare", "v1", "v2"], capsys)[1]["warnings"])  # gone


@pytest.mark.parametrize("word", ["folder", "version"])
def test_profiles_under_other_compile_modes_hold_no_gate(project, capsys, word):
    first = project(1, "v1", "event", 64, options={"compile_mode": "eager", "flush_l2": False})
    second = project(2, "v2", "event", 64, options={"compile_mode": "inductor", "flush_l2": False})
    named = [first, second] if word == "folder" else ["v1", "v2"]
    assert main(["compare", *named]) == 0
    assert main(["compare", *named, "--fail-above", "3"]) == 2
    assert "its --compile-mode is inductor, A's is none" in capsys.readouterr().err
    assert main(["compare", first, first, "--fail-above", "3"]) == 0


def test_a_profile_without_its_params_still_tells_its_compile_mode(tmp_path, capsys):
    places = []
    for name, mode in (("a", "eager"), ("b", "inductor"), ("c", "cudagraphs")):
        profile = builders.event(capture_metadata=builders.metadata(mode="event", compile_mode=mode))
        write_profile(profile, tmp_path / name, params_doc={})
        (tmp_path / name / "params.json").unlink()
        places.append(str(tmp_path / name / "profile.json"))
    assert main(["compare", places[0], places[1], "--fail-above", "3"]) == 2
    assert "B can't be held against A: its --compile-mode is inductor, A's is none" in capsys.readouterr().err
    assert main(["compare", places[1], places[2], "--fail-above", "3"]) == 2
    assert main(["compare", places[1], places[1], "--fail-above", "3"]) == 0


@pytest.mark.parametrize("flush", [True, False])
def test_a_profile_from_before_its_timer_told_it_was_flushed_if_its_params_say_so(project, capsys, flush):
    first = project(1, "v1", "event", 64, options={"compile_mode": "eager", "flush_l2": False})
    second = project(2, "v2", "event", 64, options={"compile_mode": "eager", "flush_l2": flush})
    assert Profile.load(Path(second)).timing.cold is flush
    assert main(["compare", first, second, "--fail-above", "3"]) == (2 if flush else 0)
    assert ("timed with --flush-l2, the other without" in capsys.readouterr().err) is flush
    assert main(["compare", second, second, "--fail-above", "3"]) == 0


@pytest.mark.parametrize("params", ["", "[]", '{"options": 3}', '{"options": {"flush_l2": 1}}', '{"options": ' + "[" * 100_000])
def test_params_that_tell_nothing_change_no_profile(tmp_path, params):
    write_profile(builders.event(), tmp_path, params_doc={})
    (tmp_path / "params.json").write_text(params)
    assert Profile.load(tmp_path) == builders.event()


def test_the_judges_timing_is_not_called_flushed(tmp_path):
    judged = builders.event(timing=builders.timing(9.0).model_copy(update={"timer": f"cuda_events, {PAIRED}"}))
    write_profile(judged, tmp_path, params_doc={"options": {"flush_l2": True}})
    assert Profile.load(tmp_path) == judged


@pytest.mark.parametrize(("words", "says"), [
    (["plain"], "plain: has no versions. Fix: leave --all out"), (["made"], "VERSIONS is no literal dict"),
    (["folder"], "--all takes the versions of kernels, and this is a folder. Fix: name kernels or their files"),
])
def test_what_has_no_versions_to_tell_of_is_one_line(tmp_path, monkeypatch, capsys, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "plain.py").write_text("def f(x): return x\ndef get_inputs(): return ()\n")
    (tmp_path / "made.py").write_text("VERSIONS = dict(v1=1)\n")
    (tmp_path / "kernelwright.yaml").write_text("kernels: {plain: {file: plain.py}, made: {file: made.py}}")
    assert main(["compare", *words, "--all"]) == 2
    assert says in capsys.readouterr().err


def test_all_versions_of_a_kernel_are_compared_those_without_a_profile_named(project, capsys, tmp_path):
    (tmp_path / "mla.py").write_text(VERSIONS.replace("'v2': g", "'v2': g, 'v3': g"))
    first, second = project(2, "v1", "event", 64), project(1, "v2", "event", 64)
    assert main(["compare", "mla", "--all", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["profiles"] == [first, second] and "left out, for they have no stored profile: mla:v3" in said.err
    assert main(["compare", "mla", "v1", "--all"]) == 2
    assert "--all takes every version, and one is named" in capsys.readouterr().err


def test_one_stored_version_alone_is_not_told_to_name_all(project, capsys, tmp_path):
    (tmp_path / "mla.py").write_text(VERSIONS)
    project(1, "v1", "event", 64)
    assert main(["compare", "mla", "--all"]) == 2
    assert "needs at least two profiles. Fix: profile another version first" in capsys.readouterr().err
