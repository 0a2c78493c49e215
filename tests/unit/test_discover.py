"""What init finds in a folder, and the file it writes."""

from pathlib import Path

import pytest

from kernelwright.cli.main import main
from kernelwright.pipeline.discover import discover
from kernelwright.project import read_project

VERSIONS = "def f(x): return x\ndef get_inputs(): return ()\nVERSIONS = {'v1': f, 'v2': f}\n"
MODEL = "import torch\nclass Model: pass\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"


def made(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_versions_files_problems_and_workloads_are_found(tmp_path: Path) -> None:
    folder = made(tmp_path, {
        "softmax.py": VERSIONS, "norm.py": MODEL, "norm_new.py": "class ModelNew: pass\n", "train.py": "print('hello')\n",
        "mla.py": "def get_inputs(): return ()\n", "kernels/mla_v1.py": "def forward(x): return x\n",
        "kernels/mla_v2.py": "def forward(x): return x\ndef helper(): pass\n",
        "gemm/gemm_v2.py": VERSIONS.replace("VERSIONS", "OTHER") + MODEL,
        "gemm/gemm_v10.py": MODEL, ".hidden/x.py": VERSIONS, "venv/pyvenv.cfg": "", "venv/lib/y.py": VERSIONS, "test_softmax.py": VERSIONS,
        "broken.py": "def (", "other/softmax.py": VERSIONS,
    })
    found = {one.name: one for one in discover(folder)}
    assert set(found) == {"softmax", "other_softmax", "norm", "mla", "gemm"}
    assert found["mla"].file == "mla.py" and found["mla"].versions == "kernels/mla_v*.py:forward"
    assert found["norm"].versions == {"base": "norm.py:Model", "new": "norm_new.py:ModelNew"}
    assert found["gemm"].file is None and found["gemm"].versions == "gemm/gemm_v*.py"


def test_init_writes_what_it_found_and_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(tmp_path, {"softmax.py": VERSIONS, "we ird_v1.py": MODEL, "yes.py": MODEL, "123.py": MODEL,
                              "train.py": "print('hello')\n"})
    assert main(["init", str(folder)]) == 0
    assert "left out, as no workload or version of one: train.py\n" in capsys.readouterr().err
    project = read_project(folder / "kernelwright.yaml")
    assert project.clocks == "lock" and project.kernels["softmax"].version_names == ("v1", "v2")
    assert project.kernels["softmax"].baseline.kind == "previous" and {"yes", "123", "we_ird"} <= set(project.kernels)
    before = (folder / "kernelwright.yaml").read_text()
    (folder / "softmax.py").write_text(VERSIONS.replace("'v2'", "'v3'"))
    assert main(["init", str(folder)]) == 2
    assert "is there already" in capsys.readouterr().err and (folder / "kernelwright.yaml").read_text() == before
    assert main(["init", str(folder), "--force"]) == 0
    assert read_project(folder / "kernelwright.yaml").kernels["softmax"].version_names == ("v1", "v3")


def test_an_empty_folder_and_no_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path)]) == 2
    assert "holds no workload" in capsys.readouterr().err
    assert main(["init", str(tmp_path / "gone")]) == 2
    assert not list(tmp_path.iterdir())
