"""The roofline as a picture: byte-identical, inert against hostile names, and never in the way of a profile."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import builders
from kernelwright.model.errors import MachineLacks
from kernelwright.model.profile import Profile
from kernelwright.model.roofline import Ceiling, RooflinePoint
from kernelwright.report import draw, roofline
from kernelwright.report.document import render_report
from kernelwright.report.write import write_profile

ROOT = Path(__file__).resolve().parents[2]


def drawable(names: tuple[str, ...] = ("qk", "softmax", "pv")) -> Profile:
    """Three stages at three levels below measured and printed roofs."""
    base = builders.gpu_annotation(stages=tuple(builders.stage(name, 300.0, 33.0, roof_pct=40.0, binding_roof="L2") for name in names))
    roof = base.roofline
    assert roof is not None and roof.peak_bandwidth is not None and roof.peak_compute is not None
    l2 = roof.peak_bandwidth.model_copy(update={"value": 6000.0})
    roofs = (Ceiling(kind="bandwidth", name="dram", measured=roof.peak_bandwidth, datasheet=roof.datasheet_bandwidth),
             Ceiling(kind="bandwidth", name="l2", measured=l2),
             Ceiling(kind="compute", name="tensor:bfloat16", measured=roof.peak_compute, datasheet=roof.datasheet_compute))
    points = tuple(RooflinePoint(
        scope="stage", name=name, level=level, flops=1e9, bytes=1e9 / intensity, duration_ns=1e5, share_pct=33.0, intensity=intensity,
        tflops=10.0 + place, pipe="tensor:bfloat16", roof_pct=40.0, evidence="counters" if place else "analytic")
        for place, name in enumerate(names) for level, intensity in (("dram", 40.0), ("l2", 8.0)))
    return base.model_copy(update={"roofline": roof.model_copy(update={"ceilings": roofs}), "roofline_points": points})


def test_equal_profiles_give_equal_pictures_and_other_ones_others() -> None:
    first, second = roofline.draw(drawable()), roofline.draw(drawable())
    assert set(first) == {"roofline.svg", "roofline.png"} and first == second
    assert first["roofline.png"].startswith(b"\x89PNG") and len(first["roofline.svg"]) < 80_000
    assert roofline.draw(drawable(("qk", "softmax", "other"))) != first
    text = first["roofline.svg"].decode()
    assert ">softmax</text>" in text, "text stays text"
    assert not re.search(r"<dc:date>|matplotlib version", text, re.IGNORECASE)


def test_user_settings_of_matplotlib_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nlines.linewidth: 9\naxes.facecolor: black\n")
    code = ("import sys; sys.path[:0] = ['tests', 'tests/unit']\n"
            "from test_roofline_figure import drawable\nfrom kernelwright.report import roofline\n"
            "sys.stdout.buffer.write(roofline.draw(drawable())['roofline.svg'])")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True,
                          env={"PYTHONPATH": str(ROOT / "src"), "MPLCONFIGDIR": str(tmp_path), "PATH": "/usr/bin", "HOME": str(tmp_path)})
    assert done.stdout == roofline.draw(drawable())["roofline.svg"]


def test_hostile_names_stay_text_in_svg_and_markdown() -> None:
    names = (builders.HOSTILE, "$\\frac{1}{0}$ & <b>", "核函数 \u202e $x$")
    pictures = roofline.draw(drawable(names))
    root = ElementTree.fromstring(pictures["roofline.svg"])  # well-formed
    kinds = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not kinds & {"script", "a", "image", "foreignObject"}, kinds
    words = "".join(root.itertext())
    assert "$\\frac{1}{0}$ & <b>" in words and "\u202e" not in words and "\x1b" not in words
    report = render_report(drawable(names), picture="roofline.svg")
    assert "![Roofline: the heaviest stages below the roofs of this device](roofline.svg)" in report
    assert "<script>" not in report.replace("\\<script>", "") and "\n### Bottleneck: Compute-bound" not in report


def test_the_heaviest_stages_alone_are_in_the_picture() -> None:
    many = drawable(tuple(f"stage {place}" for place in range(30)))
    assert len(roofline.shown(many)) == roofline.MOST_SHOWN
    words = roofline.draw(many)["roofline.svg"].decode()
    assert f"{30 - roofline.MOST_SHOWN} more: lighter" in words


@pytest.mark.parametrize("profile", [builders.event(), builders.no_peaks(), builders.gpu_annotation()], ids=["event", "nothing", "none"])
def test_no_picture_where_nothing_is_known(profile: Profile, tmp_path: Path) -> None:
    (tmp_path / "roofline.svg").write_text("of an earlier run")
    write_profile(profile, tmp_path, params_doc={})
    assert not (tmp_path / "roofline.svg").exists() and "![Roofline" not in (tmp_path / "report.md").read_text()


def test_a_profile_has_its_picture_and_a_failing_one_costs_the_picture_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_profile(drawable(), tmp_path / "whole", params_doc={})
    assert {"roofline.svg", "roofline.png"} <= {path.name for path in (tmp_path / "whole").iterdir()}
    assert "](roofline.svg)" in (tmp_path / "whole" / "report.md").read_text()

    def fail(_profile: Profile) -> dict[str, bytes]:
        raise MachineLacks("no_matplotlib", "matplotlib can't be loaded: gone", where="python", fix="install it")
    monkeypatch.setattr(roofline, "draw", fail)
    paths = write_profile(drawable(), tmp_path / "part", params_doc={})
    report = paths["report"].read_text()
    assert "No picture: python: matplotlib can't be loaded: gone. Fix: install it" in report and paths["contract"].is_file()


def test_the_command_draws_from_a_stored_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_profile(drawable(), tmp_path / "p", params_doc={})
    before = (tmp_path / "p" / "roofline.png").read_bytes()
    assert draw.main([str(tmp_path / "p"), str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out.split()
    assert [Path(line).name for line in printed] == ["roofline.svg", "roofline.png"] and Path(printed[1]).read_bytes() == before
    assert draw.main([]) == 2 and draw.main(["a", "b", "c"]) == 2 and draw.main(["--help"]) == 0
    assert draw.main([str(tmp_path / "gone")]) == 2 and "no profile.json" in capsys.readouterr().err
    write_profile(builders.event(), tmp_path / "e", params_doc={})
    assert draw.main([str(tmp_path / "e")]) == 2 and "nothing to draw" in capsys.readouterr().err


def test_matplotlib_is_imported_only_to_draw() -> None:
    code = "import sys, kernelwright.report, kernelwright.report.draw as _, kernelwright.cli; sys.exit('matplotlib' in sys.modules)"
    env = {"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin"}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0


def test_a_matplotlib_that_can_not_be_loaded_is_one_line(tmp_path: Path) -> None:
    write_profile(builders.event(), tmp_path, params_doc={})
    (tmp_path / "profile.json").write_text(drawable().model_dump_json())
    done = subprocess.run([sys.executable, "-m", "kernelwright.report.draw", str(tmp_path)], capture_output=True, text=True,
                          check=False, env={"PYTHONPATH": str(ROOT / "src"), "PATH": "/usr/bin", "HOME": str(tmp_path),
                                            "MPLBACKEND": "nonsense"})
    assert done.returncode == 3 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done.stderr
    assert "matplotlib can't be loaded" in done.stderr and "Fix: " in done.stderr
    assert not (tmp_path / "roofline.svg").exists()
