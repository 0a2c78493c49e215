"""Which stored profile a project file's `baseline:` means, and why another is refused."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

import builders
from kernelwright.api import profiling
from kernelwright.cli.baseline import baseline_of
from kernelwright.model.errors import BadInput
from kernelwright.model.profile import Profile
from kernelwright.model.workload import WorkloadRef
from kernelwright.pipeline.profile import ProfileRun
from kernelwright.pipeline.stored import check_baseline, find_baseline, is_place, params_folder
from kernelwright.project.fingerprint import fingerprint
from kernelwright.report import write_profile

KERNELS = "{file: mla.py, versions: [v1, v2, v3], accepted: v1"


def profile(version: str, **changes: object) -> Profile:
    return builders.event(capture_metadata=builders.metadata(mode="event", model_name="mla", version=version, **changes))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in whose out/ lie two profiles of v1 and one of v2; commands run from a folder in it."""
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    for stamp, version, changes in (("20260101", "v1", {}), ("20260102", "v1", {}), ("20260103", "v2", {}),
                                    ("20260104", "v1", {"device_name": "NVIDIA A100"})):
        made = profile(version, capture_timestamp_utc=stamp, **changes)
        place = tmp_path / "out" / "profiles" / "event" / "mla" / params_folder(made.parameters) / f"{stamp}-000000-000000"
        write_profile(made, place, params_doc={})
    return tmp_path


def asked(folder: Path, policy: str, now: Profile, said: list[str], baseline: str | None = None) -> Profile | None:
    (folder / "kernelwright.yaml").write_text(f"kernels: {{mla: {KERNELS}{policy}}}}}")
    workload = WorkloadRef(path=folder / "mla.py", name="mla", kernel="mla", project=folder / "kernelwright.yaml")
    own, found = baseline_of(argparse.Namespace(baseline=baseline), workload, now, folder, None, said.append, lambda: said.append("kept"))
    assert own.warnings == (*now.warnings, *(line.removeprefix("warning: ") for line in said if line.startswith("warning: ")))
    return found


@pytest.mark.parametrize(("policy", "version", "expected"), [
    (", baseline: previous", "v3", ("v2", "20260103")), (", baseline: previous", "v2", ("v1", "20260102")),
    (", baseline: accepted", "v3", ("v1", "20260102")), (", baseline: v2", "v1", ("v2", "20260103")),
])
def test_the_projects_baseline_is_the_newest_profile_of_its_version(
        folder: Path, policy: str, version: str, expected: tuple[str, str]) -> None:
    said: list[str] = []
    found = asked(folder, policy, profile(version), said)
    assert found is not None and (found.capture_metadata.version, found.capture_metadata.capture_timestamp_utc) == expected and not said


@pytest.mark.parametrize(("policy", "version", "words"), [
    ("", "v3", ""), (", baseline: none", "v3", ""), (", baseline: previous", "v1", ""),
    (", baseline: v3", "v2", "no stored profile of mla v3"),
])
def test_without_one_the_profile_stands_alone(folder: Path, policy: str, version: str, words: str) -> None:
    said: list[str] = []
    assert asked(folder, policy, profile(version), said) is None
    assert (words in said[0] and "kernels.mla.baseline" in said[0]) if words else not said


def test_another_device_is_refused_with_the_reason(folder: Path) -> None:
    said: list[str] = []
    now = profile("v3", device_name="NVIDIA B200")
    assert asked(folder, ", baseline: accepted", now, said) is None
    assert "its device is NVIDIA A100, this one's NVIDIA B200" in said[0]
    with pytest.raises(BadInput, match="can't be compared"):
        find_baseline("v2", now, WorkloadRef(path=folder / "mla.py", name="mla", kernel="mla", project=folder / "kernelwright.yaml"))


@pytest.mark.parametrize(("changes", "timer", "says"), [
    ({"compile_mode": "inductor"}, "cuda_events", "its --compile-mode is inductor, this one's eager"),
    ({}, "cuda_events, L2 flushed", "its timing was with --flush-l2, this one's was without"),
])
def test_a_profile_made_with_other_settings_is_no_baseline(folder: Path, changes: dict[str, str], timer: str, says: str) -> None:
    other = profile("v2", **changes)
    other = other.model_copy(update={"timing": builders.timing(400.0).model_copy(update={"timer": timer})})
    place = folder / "out" / "profiles" / "event" / "mla" / params_folder(other.parameters)
    write_profile(other, place / "20260109-000000-000000", params_doc={})
    said: list[str] = []
    found = asked(folder, ", baseline: v2", profile("v3"), said)  # the older one, made as this one was
    assert found is not None and found.capture_metadata.capture_timestamp_utc == "20260103" and not said
    (place / "20260103-000000-000000" / "profile.json").unlink()
    assert asked(folder, ", baseline: v2", profile("v3"), said) is None and says in said[0]


def test_a_version_of_the_project_wins_over_a_folder_of_its_name(folder: Path) -> None:
    (folder / "sub" / "v2").mkdir()
    (folder / "sub" / "other").mkdir()
    (folder / "kernelwright.yaml").write_text(f"kernels: {{mla: {KERNELS}}}}}")
    workload = WorkloadRef(path=folder / "mla.py", name="mla", kernel="mla", project=folder / "kernelwright.yaml")
    assert not is_place("v2", workload) and is_place("other", workload) and not is_place("v9", workload)
    assert find_baseline("v2", profile("v3"), workload).profile.capture_metadata.capture_timestamp_utc == "20260103"
    assert is_place("v2", WorkloadRef(path=folder / "mla.py", name="mla"))  # no project: the folder


def test_from_python_the_projects_baseline_is_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "kernelwright.yaml").write_text(f"kernels: {{mla: {KERNELS}, baseline: previous}}}}")
    (folder / "mla.py").write_text("VERSIONS = {'v1': 1, 'v2': 2, 'v3': 3}\n")
    done = [profile("v3"), profile("v3", device_name="NVIDIA B200")]
    monkeypatch.setattr(profiling.runs, "profile", lambda *given, **options: ProfileRun(done.pop(0), folder, result=None))  # type: ignore[arg-type]
    said: list[str] = []
    assert profiling.profile("mla", "event", version="v3", say=said.append).folder == folder
    assert "### vs Baseline" in (folder / "contract.md").read_text() and not said
    profiling.profile("mla", "event", version="v3", say=said.append)
    assert "vs Baseline" not in (folder / "contract.md").read_text() and "no baseline: " in said[0]


def test_a_version_without_any_profile_is_told_before_anything_is_measured(folder: Path) -> None:
    workload = WorkloadRef(path=folder / "mla.py", name="mla", kernel="mla", project=folder / "kernelwright.yaml")
    check_baseline("v2", "event", workload)
    for named, mode in (("v9", "event"), ("v2", "annotation")):
        with pytest.raises(BadInput, match=f"no stored profile of mla {named} in mode {mode}"):
            check_baseline(named, mode, workload)


def test_a_baseline_that_is_asked_for_and_missing_is_an_error_and_the_run_is_kept(folder: Path) -> None:
    said: list[str] = []
    with pytest.raises(BadInput, match="no stored profile of mla v9"):
        asked(folder, "", profile("v3"), said, baseline="v9")
    assert said == ["kept"] and (folder / "error.json").exists()


@pytest.mark.parametrize("baseline", [None, "v2"])
def test_a_baseline_that_was_edited_since_its_profile_is_a_warning(folder: Path, baseline: str | None) -> None:
    text = "def f(x): return x\ndef g(x): return x\ndef get_inputs(): return ()\nVERSIONS = {'v1': f, 'v2': g, 'v3': f}\n"
    (folder / "mla.py").write_text(text)
    (folder / "kernelwright.yaml").write_text(f"kernels: {{mla: {KERNELS}}}}}")
    hashed = fingerprint(WorkloadRef(path=folder / "mla.py", name="mla", version="v2", project=folder / "kernelwright.yaml"))
    now, said = profile("v3"), list[str]()
    place = folder / "out" / "profiles" / "event" / "mla" / params_folder(now.parameters) / "20260105-000000-000000"
    write_profile(profile("v2"), place, params_doc={"source_sha256": hashed})
    policy = ", baseline: previous"
    assert asked(folder, policy, now, said, baseline) is not None and not said
    (folder / "mla.py").write_text(text.replace("f(x): return x", "f(x): return -x"))
    assert asked(folder, policy, now, said, baseline) is not None and not said  # another version's
    (folder / "mla.py").write_text(text.replace("g(x): return x", "g(x): return -x"))
    assert asked(folder, policy, now, said, baseline) is not None
    assert len(said) == 1 and said[0].startswith("warning: the baseline v2 was edited since its profile") and str(place) in said[0]
    workload = WorkloadRef(path=folder / "mla.py", name="mla", kernel="mla", project=folder / "kernelwright.yaml")
    own, found = baseline_of(argparse.Namespace(baseline="v2"), workload, now, folder, None, said.append, said.clear)
    files = write_profile(own, folder / "now", baseline=found, params_doc={})
    assert "the baseline v2 was edited since its profile" in files["report"].read_text()
    (folder / "mla.py").write_text("VERSIONS = {'v3': f}")
    assert asked(folder, policy, now, [], baseline) is not None  # v2 is gone: nothing to tell


@pytest.mark.parametrize("baseline", [None, "v2"])
def test_where_an_edit_was_undone_the_baseline_is_the_profile_of_what_is_there_again(folder: Path, baseline: str | None) -> None:
    text = "def f(x): return x\ndef g(x): return x\ndef get_inputs(): return ()\nVERSIONS = {'v1': f, 'v2': g, 'v3': f}\n"
    edited = text.replace("g(x): return x", "g(x): return -x")
    (folder / "kernelwright.yaml").write_text(f"kernels: {{mla: {KERNELS}}}}}")
    now, policy = profile("v3"), ", baseline: previous"
    place = folder / "out" / "profiles" / "event" / "mla" / params_folder(now.parameters)
    for day, source in (("20260105", text), ("20260106", text), ("20260107", edited)):
        (folder / "mla.py").write_text(source)
        hashed = fingerprint(WorkloadRef(path=folder / "mla.py", name="mla", version="v2", project=folder / "kernelwright.yaml"))
        write_profile(profile("v2", capture_timestamp_utc=day), place / f"{day}-000000-000000", params_doc={"source_sha256": hashed})
    never = text.replace("g(x): return x", "g(x): return 2 * x")
    for source, day, doubted in ((edited, "20260107", False), (text, "20260106", False), (never, "20260107", True)):
        (folder / "mla.py").write_text(source)
        said = list[str]()
        found = asked(folder, policy, now, said, baseline)
        assert found is not None and found.capture_metadata.capture_timestamp_utc == day and bool(said) is doubted
