"""Writes the documents of one profile of mode ncu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..model.errors import BadInput
from ..model.files import write_json_atomic, write_text_atomic
from ..model.profile import Profile
from ..pipeline.ncu_profile import all_launches
from ..readers.ncu_records import NcuDetails
from .baseline import baseline_refusal
from .contract import render_contract
from .ncu_documents import render_ncu_report, render_ncu_verbose
from .ncu_files import write_code


def write_ncu_profile(
    profile: Profile, reports: Sequence[NcuDetails], out_dir: Path, *, baseline: Profile | None = None, params_doc: Mapping[str, Any]
) -> dict[str, Path]:
    """Write params.json, profile.json, report.md, report-verbose.md, contract.md, annotated/, sass/ and ptx/, each file whole
    or not at all.

    Returns absolute paths by "profile", "report", "contract", "params", "report_verbose". A baseline that cannot be compared is refused
    with BadInput, after everything was written without it. Raises NotWritable where nothing can be written.
    """
    refusal = baseline_refusal(profile, baseline) if baseline is not None else None
    folder = out_dir.resolve()
    paths = {"profile": folder / "profile.json", "report": folder / "report.md", "contract": folder / "contract.md",
             "params": folder / "params.json", "report_verbose": folder / "report-verbose.md"}
    names = write_code(folder, all_launches(reports))
    write_json_atomic(paths["params"], dict(params_doc))
    write_text_atomic(paths["profile"], profile.model_dump_json(indent=1) + "\n")
    write_text_atomic(paths["report"], render_ncu_report(profile, reports, names))
    write_text_atomic(paths["report_verbose"], render_ncu_verbose(profile, reports))
    write_text_atomic(paths["contract"], render_contract(profile, None if refusal else baseline))
    if refusal:
        raise BadInput("baseline_refused", refusal, where="--baseline",
                       fix=f"capture the baseline again under the same settings; this profile is complete in {folder}")
    return paths
