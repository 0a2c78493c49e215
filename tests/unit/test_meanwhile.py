"""What is made ready while the workload's process runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import matplotlib
import matplotlib.font_manager

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


def test_after_a_failure_only_what_is_being_loaded_is_waited_for():
    begun, done = threading.Event(), []

    def slow():
        begun.set()
        time.sleep(0.2)
        done.append("slow")

    one = Meanwhile([slow, lambda: done.append("rest")], limit_s=None)
    one.start()
    begun.wait(20)
    one.join(rest=False)
    assert done == ["slow"]


def test_without_a_start_there_is_nothing_to_join():
    Meanwhile((), limit_s=None).join()


def loading(code, env):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SRC), **env}, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_first_run_lists_no_fonts_beside_a_workload(tmp_path):
    code = ("import sys\nfrom kernelwright.report.ready import load_drawing\nload_drawing()\n"
            "assert ('matplotlib.backends.backend_svg' in sys.modules) is {loaded}\n")
    loading(code.format(loaded=False), {"MPLCONFIGDIR": str(tmp_path)})
    listed = next(Path(matplotlib.get_cachedir()).glob("fontlist-*.json"))
    shutil.copy(listed, tmp_path)
    loading(code.format(loaded=True), {"MPLCONFIGDIR": str(tmp_path)})


def test_the_templates_are_compiled():
    loading("from kernelwright.report.ready import load_templates\nfrom kernelwright.report.templates import environment\n"
            "load_templates()\nassert len(environment().cache) >= 2\n", {})


def test_our_yaml_reads_the_same_with_and_without_libyaml():
    import yaml

    for name in ("devices", "counters", "bottlenecks", "clocks"):
        file = resource(f"knowledge/{name}.yaml")
        assert read_yaml(file) == yaml.safe_load(file.read_text(encoding="utf-8"))
