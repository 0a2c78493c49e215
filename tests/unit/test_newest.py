"""Which version is meant by no words at all, and what several words mean."""

import argparse
import json
import os
import subprocess
from pathlib import Path

import pytest

from kernelwright.cli.targets import Group, groups_of, workloads
from kernelwright.model.errors import BadInput
from kernelwright.model.saying import silent
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline.newest import newest_changed
from kernelwright.pipeline.target import workload_of
from kernelwright.project import Meant, find, read_project
from kernelwright.project.fingerprint import fingerprint, versions_of_file
from kernelwright.project.git import _git as REAL_GIT
from kernelwright.project.git import changed_at, commit_of

SOFTMAX = """
import torch
SCALE = 1.0
def get_inputs(): return ()
def helper(x): return x
def one(x): return helper(x) * SCALE
def two(x):  # a comment
    return x
VERSIONS = {"v1": one, "v2": two}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "softmax.py").write_text(SOFTMAX)
    (tmp_path / "gemm_v1.py").write_text("def get_model_and_input(): ...\n")
    (tmp_path / "kernelwright.yaml").write_text("kernels: {softmax: {file: softmax.py}, gemm: {versions: gemm_v*.py}}")
    for name in ("softmax.py", "gemm_v1.py"):
        os.utime(tmp_path / name, (1_700_000_000, 1_700_000_000 + (name == "softmax.py")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored(folder: Path, kernel: str, version: str, at: str = "20260101-000000-000000", **params: object) -> None:
    file = folder / "out" / "profiles" / "event" / kernel / "default" / at / "params.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"kernel": kernel, "version": version, **params}))


def hash_of(file: Path, version: str) -> str | None:
    return fingerprint(WorkloadRef(path=file, name="softmax", version=version, project=file.parent / "kernelwright.yaml"))


def newest(folder: Path) -> tuple[str, str]:
    project = find(folder)
    assert project is not None
    chosen, why = newest_changed(project, [folder / "out" / "profiles"])
    return chosen.meant.words, why


def test_an_edit_changes_the_versions_that_reach_it_alone(folder: Path) -> None:
    file = folder / "softmax.py"
    before = {name: hash_of(file, name) for name in ("v1", "v2")}
    assert None not in before.values() and before["v1"] != before["v2"] and versions_of_file(file) == ["v1", "v2"]
    file.write_text(SOFTMAX.replace("# a comment", "# another"))
    assert {name: hash_of(file, name) for name in before} == before
    file.write_text(SOFTMAX.replace("SCALE = 1.0", "SCALE = 2.0"))
    assert hash_of(file, "v1") != before["v1"] and hash_of(file, "v2") == before["v2"]
    file.write_text(SOFTMAX.replace("helper(x): return x", "helper(x): return -x"))
    assert hash_of(file, "v1") != before["v1"] and hash_of(file, "v2") == before["v2"]
    file.write_text("def (")
    assert hash_of(file, "v1") is None


def test_versions_that_are_no_literal_dict_have_the_text_of_their_file(folder: Path) -> None:
    (folder / "kernelwright.yaml").write_text("kernels: {softmax: {file: softmax.py}}")
    file = folder / "softmax.py"
    file.write_text(SOFTMAX.replace('{"v1": one, "v2": two}', 'dict(v1=one, v2=two)'))
    assert newest(folder) == ("softmax", "the newest version that was never profiled")
    stored(folder, "softmax", "v1", "20260101-000000-000000", source_sha256="of another text")
    stored(folder, "softmax", "v2", "20260102-000000-000000", source_sha256=hash_of(file, "v2"))
    assert newest(folder)[1].startswith("no version changed")
    file.write_text(file.read_text() + "SCALE = 3.0\n")
    assert newest(folder)[1] == "edited since its newest profile"


def test_the_newest_changed_version_is_meant(folder: Path) -> None:
    assert newest(folder) == ("softmax v2", "the newest version that was never profiled")
    file = folder / "softmax.py"
    stored(folder, "softmax", "v2", source_sha256=hash_of(file, "v2"))
    assert newest(folder)[0] == "softmax v1"
    stored(folder, "softmax", "v1", "20260101-000000-000001", source_sha256=hash_of(file, "v1"))
    assert newest(folder)[0] == "gemm v1"
    stored(folder, "gemm", "v1", analysed_at_unix_s=1_800_000_000)  # of before hashes were kept: by time
    assert newest(folder) == ("softmax v2", "no version changed since its newest profile, and this one changed last")
    file.write_text(SOFTMAX.replace("helper(x): return x", "helper(x): return -x"))
    assert newest(folder) == ("softmax v1", "edited since its newest profile")
    stored(folder, "softmax", "v1", "20260101-000000-000002", source_sha256=hash_of(file, "v1"))
    assert newest(folder)[0] == "softmax v2"


def test_an_edited_helper_edits_the_version_by_the_hash_that_profiles_keep(folder: Path) -> None:
    (folder / "lib").mkdir()
    (folder / "lib" / "scaling.py").write_text("def scale(x): return x\n")
    (folder / "fast.py").write_text("from scaling import scale\ndef forward(x): return scale(x)\n")
    (folder / "kernelwright.yaml").write_text(
        "import_from: [lib]\nkernels: {softmax: {file: softmax.py, versions: {v1: 'fast.py:forward'}}}")
    project = read_project(folder / "kernelwright.yaml")
    stored(folder, "softmax", "v1", source_sha256=fingerprint(workload_of(project, Meant(project.kernel("softmax"), "v1"))))
    assert newest(folder)[1].startswith("no version changed")
    (folder / "lib" / "scaling.py").write_text("def scale(x): return -x\n")
    assert newest(folder) == ("softmax v1", "edited since its newest profile")


def test_what_changed_last_may_be_two_things(folder: Path) -> None:
    os.utime(folder / "gemm_v1.py", (1_700_000_000, 1_700_000_001))
    with pytest.raises(BadInput, match="more than one version changed last") as caught:
        newest(folder)
    assert "softmax v2 (never profiled)" in caught.value.fix and "gemm v1 (never profiled)" in caught.value.fix


def test_git_tells_when_a_file_was_changed(folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@x", *words], cwd=folder, check=True, capture_output=True,
                       env={**os.environ, "GIT_COMMITTER_DATE": "2020-01-02T00:00:00Z", "GIT_AUTHOR_DATE": "2020-01-02T00:00:00Z"})

    file, other = folder / "softmax.py", folder / "gemm_v1.py"
    assert commit_of(folder) is None and changed_at([file], folder)[file] == 1_700_000_001
    git("init", "-q")
    git("add", "softmax.py")
    git("commit", "-qm", "x")
    found = changed_at([file, other, folder / "gone.py"], folder)
    assert found[file] == 1577923200 and found[other] == 1_700_000_000 and found[folder / "gone.py"] == 0
    assert (commit := commit_of(folder)) is not None and len(commit) == 12
    assert commit_of(folder, (file,)) == commit and commit_of(folder, (file, other)) == f"{commit}+changes"  # other is not tracked
    outside = tmp_path_factory.mktemp("elsewhere") / "helper.py"
    outside.write_text("")
    assert commit_of(folder, (file, outside)) == commit, "what lies elsewhere is no change of this work tree"
    monkeypatch.setattr("kernelwright.project.git._git", lambda at, *words: None if words[0] == "ls-files" else REAL_GIT(at, *words))
    assert commit_of(folder, (file, other)) == commit, "git's silence says nothing"
    monkeypatch.undo()
    file.write_text("x = 1\n")
    os.utime(file, (5, 1_800_000_000))
    assert changed_at([file], folder)[file] == 1_800_000_000 and (commit_of(folder) or "").endswith("+changes")


def test_words_are_grouped_into_targets_and_versions(folder: Path) -> None:
    (folder / "kernelwright.yaml").write_text("kernels: {softmax: {file: softmax.py, versions: [v1, v2]}, gemm: {versions: gemm_v*.py}}")
    project = read_project(folder / "kernelwright.yaml")
    assert groups_of(["softmax", "v1", "v2", "gemm"], project, folder) == [Group("softmax", ("v1", "v2")), Group("gemm")]
    assert groups_of(["softmax.py", "v1", "gemm_v1.py"], project, folder) == [Group("softmax.py", ("v1",)), Group("gemm_v1.py")]
    assert groups_of(["v2", "softmax", "v1"], project, folder) == [Group("v2"), Group("softmax", ("v1",))]
    assert groups_of(["nothing", "v1"], project, folder) == [Group("nothing", ("v1",))]
    args = argparse.Namespace(targets=["softmax", "v1", "gemm"], all=False, model_name=None)
    assert [(one.name, one.version) for one in workloads(args, {}, silent, verb="x")] == [("softmax", "v1"), ("gemm", "v1")]
    args.targets, args.all = ["softmax"], True
    assert [one.version for one in workloads(args, {}, silent, verb="x")] == ["v1", "v2"]
    args.targets = ["softmax.py"]
    assert [one.version for one in workloads(args, {}, silent, verb="x")] == ["v1", "v2"]
    args.targets = []
    with pytest.raises(BadInput, match="more than one kernel"):
        workloads(args, {}, silent, verb="x")
    (folder / "kernelwright.yaml").unlink()
    args.all = False
    with pytest.raises(BadInput, match="TARGET is missing"):
        workloads(args, {}, silent, verb="x")
