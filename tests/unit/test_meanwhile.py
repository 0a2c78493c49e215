"""What is made ready while the workload's process runs."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from kernelwright.model.errors import MachineLacks
from kernelwright.model.resources import resource
from kernelwright.model.yaml_file import read_yaml
from kernelwright.pipeline import meanwhile
from kernelwright.pipeline.meanwhile import Meanwhile

SRC = Path(__file__).resolve().parents[2] / "src"


def run(parts, limit_s=None):
    one = Meanwhile(parts, limit_s=limit_s)
    one.start()
    one.join()


def test_a_part_that_fails_stops_neither_the_others_nor_the_profile():
    done = []

    def broken():
        raise MachineLacks("no_matplotlib", "is not there", where="here", fix="install it")

    def missing():
        raise ImportError("no such module")

    run([broken, missing, lambda: done.append(threading.current_thread().name)])
    assert done == ["meanwhile"]


def test_beside_a_measurement_on_the_cpu_nothing_begins_late(monkeypatch):
    now = iter([100.0, 100.1, 101.2])
    monkeypatch.setattr(meanwhile.time, "monotonic", lambda: next(now))
    done = []
    run([lambda: done.append("first"), lambda: done.append("late")], limit_s=1.0)
    assert done == ["first"]


def test_without_a_start_there_is_nothing_to_join():
    Meanwhile((), limit_s=None).join()


def test_the_parts_load_what_the_documents_need():
    code = ("import sys\nfrom kernelwright.report.ready import PARTS\nassert 'matplotlib' not in sys.modules\n"
            "from kernelwright.report.templates import environment\n"
            "for part in PARTS: part()\n"
            "assert 'matplotlib.backends.backend_svg' in sys.modules and 'kernelwright.report.roofline_figure' in sys.modules\n"
            "assert len(environment().cache) >= 2\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SRC)}, timeout=120)
    assert done.returncode == 0, done.stderr


def test_our_yaml_reads_the_same_with_and_without_libyaml():
    import yaml

    for name in ("devices", "counters", "bottlenecks", "clocks"):
        file = resource(f"knowledge/{name}.yaml")
        assert read_yaml(file) == yaml.safe_load(file.read_text(encoding="utf-8"))
