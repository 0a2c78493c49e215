"""test_optimized.py: the tests that travel with optimized.py. They need torch and the two files' own folder, nothing of kernelwright."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import jinja2

from ..model.resources import resource
from ..model.verdict import Experiment
from ..model.workload import WorkloadFacts
from .generate import SMOKE_LIMITS, lowest_precision, write_source
from .passes import CATALOGUE

TESTS = "test_optimized.py"


def write_tests(folder: Path, row: Experiment, facts: WorkloadFacts) -> Path:
    """Write them beside the optimized.py of this candidate. Raises NotWritable."""
    return write_source(folder / TESTS, render_tests(row.passes, facts))


def render_tests(names: tuple[str, ...], facts: WorkloadFacts) -> str:
    """Their source. names: passes of the candidate."""
    passes = [CATALOGUE[name] for name in names]
    precision = lowest_precision(passes)
    return _template().render(precision=precision, tolerance=SMOKE_LIMITS[precision], training=facts.training)


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(str(resource("templates")))
    environment = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True,
                                     lstrip_blocks=True, keep_trailing_newline=True)
    return environment.get_template("test_optimized.py.j2")
