"""From what a capture left in its folder to a profile with its documents."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .. import __version__
from ..capture.run import read_result
from ..model.capture import ProbeRequest, ProbeScript, ProbeWorkload
from ..model.errors import KernelwrightError
from ..model.files import leave_error
from ..model.profile import ClockReading, Profile
from ..model.workload import ScriptRef, WorkloadRef
from ..pipeline.artifacts import write_artifacts
from ..pipeline.assemble import Run, assemble, with_recording
from ..pipeline.forms import hide_secrets
from ..pipeline.profile import SCRIPT_COUNTERS
from ..pipeline.script import with_parameters
from ..project.git import commit_of
from ..report import write_profile

UNWATCHED = "the clocks were not watched: the program ran by itself"


def profile_of_capture(folder: Path, name: str, mode: str, program: str) -> Profile:
    """Analyse folder/raw, write the documents beside it. Raises BadInput, WorkloadFailed; leaves error.json then."""
    raw = folder / "raw"
    workload = WorkloadRef(path=Path(program), name=name, script=ScriptRef(argv0=program))
    request = ProbeRequest(action="annotation" if mode == "annotation" else "event", workload=ProbeWorkload(path=program), device="auto",
                           out_dir=str(raw), script=ProbeScript(argv0=program, steps_from=name, run_to_end=True))
    try:
        result = with_parameters(read_result(raw / "result.json", 0, raw / "result.json", request), workload)
        run = with_recording(Run(
            workload=workload, mode=mode, raw=raw, result=result, peaks=(),
            clocks=ClockReading(requested="none", locked=False, note=UNWATCHED), compile_mode="as the program has it", device_name=None,
            version=__version__, counters=SCRIPT_COUNTERS if mode == "annotation" else None))
        document = assemble(run)
        write_artifacts(folder, result, document, name)
        environment = result.environment
        write_profile(document, folder, trace=run.recorded.trace_whole if run.recorded is not None else None, params_doc={
            "kernel": name, "version": None, "mode": mode, "workload": program, "parameters": document.parameters, "inputs": [],
            "out_dir": str(folder), "device": environment.model_dump() if environment is not None else None,
            "versions": {"kernelwright": __version__, "torch": document.capture_metadata.torch_version, "schema": document.schema_version},
            "interpreter": {"path": sys.executable, "source": "the program's own"}, "command": hide_secrets(tuple(sys.argv)),
            "commit": commit_of(Path(program).parent, (Path(program),)), "captured_by": "the program itself", "phases_s": result.phases_s,
            "analysed_at_unix_s": round(time.time(), 3)})
    except KernelwrightError as error:
        leave_error(folder, error)
        raise
    return document.at(folder)
