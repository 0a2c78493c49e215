"""Writes the documents of one profile run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..model.errors import BadInput, MachineLacks
from ..model.files import write_json_atomic, write_text_atomic
from ..model.profile import Profile
from ..model.trace import Trace
from ..timeline.gaps import device_gaps
from .baseline import baseline_refusal
from .contract import render_contract
from .document import render_report
from .figures import title
from .memory import CSV_FILE, memory_csv
from .roofline import SVG, write_roofline
from .text import plain
from .timeline_html import write_timeline_html
from .top import render_top

HTML = "timeline.html"


def write_profile(profile: Profile, out_dir: Path, *, trace: Trace | None = None, baseline: Profile | None = None,
                  params_doc: dict[str, Any]) -> dict[str, Path]:
    """Write params.json, profile.json, report.md and contract.md, each whole or not at all; memory_timeline.csv where memory was
    recorded, roofline.svg and roofline.png where stages and roofs are known, timeline.html where a GPU's work was
    recorded, for a script top.md too. trace: the recording, if there is one.

    Returns their absolute paths by "profile", "report", "contract", "params", "timeline", "top". A baseline that cannot be compared is
    refused with BadInput, after everything was written without it. Raises NotWritable where nothing can be written.
    """
    refusal = baseline_refusal(profile, baseline) if baseline is not None else None
    folder = out_dir.resolve()
    paths = {"profile": folder / "profile.json", "report": folder / "report.md", "contract": folder / "contract.md",
             "params": folder / "params.json"}
    if profile.script is not None and profile.timeline is not None:
        paths["top"] = folder / "top.md"
    write_json_atomic(paths["params"], params_doc)
    write_text_atomic(paths["profile"], profile.model_dump_json(indent=1) + "\n")
    picture, no_picture = _roofline(profile, folder)
    write_text_atomic(paths["report"], render_report(profile, picture=picture, no_picture=no_picture))
    if profile.memory:
        write_text_atomic(folder / CSV_FILE, memory_csv(profile))
    if trace is not None and trace.is_cuda:
        paths["timeline"] = folder / HTML
        write_timeline_html(paths["timeline"], trace, operators=profile.operators or None, flow=profile.flow,
                            gaps=device_gaps(trace) if profile.flow is not None else None, title=plain(title(profile), 120))
    write_text_atomic(paths["contract"], render_contract(profile, None if refusal else baseline))
    if "top" in paths:
        write_text_atomic(paths["top"], render_top(profile))
    if refusal:
        raise BadInput("baseline_refused", refusal, where="--baseline",
                       fix=f"profile the baseline again under the same settings; this profile is complete in {folder}")
    return paths


def _roofline(profile: Profile, folder: Path) -> tuple[str | None, str | None]:
    """(name of the picture, why there is none). A picture that fails costs the picture, not the profile."""
    try:
        return (SVG, None) if write_roofline(profile, folder) else (None, None)
    except MachineLacks as error:
        return None, error.line()
