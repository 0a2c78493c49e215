"""Writes the documents of one profile of mode nsys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..model.errors import BadInput, MachineLacks
from ..model.files import write_json_atomic, write_text_atomic
from ..model.profile import Profile
from ..model.trace import Trace
from ..timeline.gaps import device_gaps
from .baseline import baseline_refusal
from .contract import render_contract
from .figures import title
from .memory import CSV_FILE, memory_csv
from .nsys_csv import tables
from .nsys_documents import render_nsys_report
from .nsys_figures import write_pictures
from .perfetto import write_perfetto
from .text import plain
from .timeline_html import write_timeline_html

HTML, PERFETTO, TABLES = "timeline.html", "trace.perfetto.gz", "csv"


def write_nsys_profile(profile: Profile, trace: Trace, out_dir: Path, *, baseline: Profile | None = None,
                       params_doc: Mapping[str, Any]) -> dict[str, Path]:
    """Write params.json, profile.json, report.md, contract.md, csv/, timeline.html, trace.perfetto.gz, the pictures and, where memory was
    recorded, memory_timeline.csv; each file whole or not at all.

    Returns absolute paths by "profile", "report", "contract", "params", "timeline", "perfetto", "csv". A baseline that cannot be compared
    is refused with BadInput, after everything was written without it. Raises NotWritable where nothing can be written.
    """
    refusal = baseline_refusal(profile, baseline) if baseline is not None else None
    folder = out_dir.resolve()
    paths = {"profile": folder / "profile.json", "report": folder / "report.md", "contract": folder / "contract.md",
             "params": folder / "params.json", "timeline": folder / HTML, "perfetto": folder / PERFETTO, "csv": folder / TABLES}
    write_json_atomic(paths["params"], dict(params_doc))
    write_text_atomic(paths["profile"], profile.model_dump_json(indent=1) + "\n")
    for name, text in tables(profile, trace).items():
        write_text_atomic(paths["csv"] / name, text)
    if profile.memory:
        write_text_atomic(folder / CSV_FILE, memory_csv(profile))
    operators = profile.operators or None
    gaps = device_gaps(trace) if profile.flow is not None else None  # all of them: the profile holds the longest
    write_timeline_html(paths["timeline"], trace, operators=operators, flow=profile.flow, gaps=gaps, title=plain(title(profile), 120))
    write_perfetto(paths["perfetto"], trace, operators=operators, flow=profile.flow, gaps=gaps)
    pictures, no_pictures = _pictures(profile, trace, folder)
    shown = profile if no_pictures is None else profile.model_copy(update={"warnings": (*profile.warnings, no_pictures)})
    files = [f"{TABLES}/", HTML, PERFETTO, *(name for name in pictures if name.endswith(".svg"))]
    write_text_atomic(paths["report"], render_nsys_report(shown, files))
    write_text_atomic(paths["contract"], render_contract(profile, None if refusal else baseline))
    if refusal:
        raise BadInput("baseline_refused", refusal, where="--baseline",
                       fix=f"record the baseline again under the same settings; this profile is complete in {folder}")
    return paths


def _pictures(profile: Profile, trace: Trace, folder: Path) -> tuple[tuple[str, ...], str | None]:
    """(names, why there are none). A picture that fails costs the picture, not the profile."""
    try:
        return write_pictures(profile, trace, folder), None
    except MachineLacks as error:
        return (), f"no pictures: {error.line()}"
