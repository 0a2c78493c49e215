"""A mistyped path: the fix names what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.cli.named_profiles import find_profiles
from kernelwright.model.errors import BadInput
from kernelwright.model.nearest import did_you_mean
from kernelwright.model.profile import Profile
from kernelwright.model.saying import silent
from kernelwright.pipeline.ncu import read_reports
from kernelwright.pipeline.source import check_source
from kernelwright.pipeline.target import resolve_target


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("conv_block.py", "mlp.py", "mlp.txt", "runs/annotation/profile.json", "known.ncu-rep"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(("typed", "meant"), [
    ("conv_blok.py", "conv_block.py"), ("Conv_Block.py", "conv_block.py"), ("conv_block", "conv_block.py"), ("mpl.py", "mlp.py"),
])
def test_the_nearest_source_is_named_and_nothing_else(folder: Path, typed: str, meant: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_source(folder / typed, "workload")
    assert caught.value.code == "no_such_workload" and "\n" not in caught.value.line()
    assert caught.value.fix == f"did you mean {folder / meant}? Otherwise give the path of the workload's Python file"


def test_a_mistyped_folder_on_the_way_is_named(folder: Path) -> None:
    assert did_you_mean(folder / "rums" / "annotation" / "w.py", "mend it") == \
        f"did you mean {folder / 'runs' / 'annotation' / 'w.py'}? Otherwise mend it"


@pytest.mark.parametrize("typed", ["zzz.py", "x" * 3000, "a\0b.py", "no/such/place/at/all.py"])
def test_where_nothing_is_like_it_the_fix_is_as_it_was(folder: Path, typed: str) -> None:
    assert did_you_mean(folder / typed, "mend it", suffix=".py") == "mend it"


def test_a_link_to_nothing_is_not_its_own_suggestion(folder: Path) -> None:
    (folder / "only.py").symlink_to(folder / "gone")
    assert did_you_mean(folder / "only.py", "mend it", suffix=".py") == "mend it"


def test_profiles_reports_and_names_without_a_project_too(folder: Path) -> None:
    with pytest.raises(BadInput) as caught:
        Profile.load(folder / "runs" / "anotation")
    assert f"did you mean {folder / 'runs' / 'annotation'}?" in caught.value.fix
    with pytest.raises(BadInput) as caught:
        find_profiles([str(folder / "runs" / "anotation")], silent, [folder / "out"])
    assert "annotation?" in caught.value.fix
    with pytest.raises(BadInput) as caught:
        read_reports([folder / "knwon.ncu-rep"])
    assert f"did you mean {folder / 'known.ncu-rep'}?" in caught.value.fix
    with pytest.raises(BadInput) as caught:
        resolve_target("conv_blck", None, {}, None, start=folder)
    assert f"did you mean {folder / 'conv_block.py'}?" in caught.value.fix
