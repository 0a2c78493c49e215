"""What an optimisation leaves for use: optimized.py and its tests."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..model.verdict import Experiment
from ..model.workload import WorkloadRef
from .checks import TESTS, write_tests
from .generate import render_source, write_source
from .passes import CATALOGUE, Context
from .stages import OPTIMIZED
from .state import State


@dataclass(frozen=True)
class Shipped:
    """The files of one optimisation's folder that are made of the candidate to keep."""

    workload: WorkloadRef
    context: Context
    state: State
    folder: Path

    def text(self, row: Experiment) -> str:
        """optimized.py for a candidate: the same bytes each time, so that the file that was confirmed is the file that is shipped."""
        environment = self.context.environment
        headline = [
            f"Made {self.state.started_utc[:10]} for {environment.device_name}, torch {environment.torch_version}; what it gains is in"
            " report.md beside this file.",
            "Needs torch alone (and a C++ compiler where it uses torch.compile); WORKLOAD is read only by get_model_and_input() and by"
            " `python optimized.py`.",
        ]
        passes = [CATALOGUE[name] for name in row.passes]
        return render_source(self.workload, self.context.facts, passes, device=environment.device, file_name=OPTIMIZED,
                             headline=headline, standalone=True)

    def digest(self, row: Experiment) -> str:
        """Hex digest of that text."""
        return hashlib.sha256(self.text(row).encode("utf-8")).hexdigest()

    def write(self, row: Experiment) -> None:
        """Write both files. Raises NotWritable."""
        write_tests(self.folder, row, self.context.facts)
        write_source(self.folder / OPTIMIZED, self.text(row))

    def remove(self) -> None:
        """What was written of a candidate that is not kept goes, its closing profile too."""
        for name in (OPTIMIZED, TESTS):
            (self.folder / name).unlink(missing_ok=True)
        shutil.rmtree(self.folder / "after", ignore_errors=True)
