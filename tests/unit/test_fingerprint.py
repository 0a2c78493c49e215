"""An edit of anything that a version is made of changes its hash; an edit of anything else does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelwright.model.workload import VersionSource, WorkloadRef
from kernelwright.project import fingerprint as module
from kernelwright.project.fingerprint import fingerprint
from kernelwright.project.named import named_files

FILES = {
    "mla.py": "PARAMS = {'b': 1}\nSEED = 1\ndef get_inputs(b): return (SEED,)\ndef reference(x): return x\n",
    "kernels/a.py": """import os
from pathlib import Path
from torch.utils.cpp_extension import load
import direct
from pkg import part
from spread.inner import value
HERE = Path(__file__).parent
EXTENSION = load(name="scan", sources=[str(HERE / "csrc" / "scan.cu"), str(HERE.parent / "common" / "more.cpp")])
def forward(x): return built(direct.f(part.g(EXTENSION.run(x) + value)))
def built(x):
    from extension import entry
    return entry(x)
def other(x): return x
""",
    "kernels/direct.py": "import second\ndef f(x): return second.f(x)\n", "kernels/second.py": "def f(x): return x\n",
    "kernels/pkg/__init__.py": "", "kernels/pkg/part.py": "from . import leaf\ndef g(x): return leaf.h(x)\n",
    "kernels/pkg/leaf.py": "def h(x): return x\n", "kernels/spread/inner.py": "value = 1\n", "kernels/unused.py": "x = 1\n",
    "kernels/csrc/scan.cu": '#include "tile.cuh"\n#include <cuda.h>\n', "kernels/csrc/tile.cuh": '#include "deep.h"\n',
    "kernels/csrc/deep.h": "1\n",
    "kernels/csrc/unused.cu": "1\n", "common/more.cpp": "1\n", "build/extension.py": "def entry(x): return x\n", "kernelwright.yaml": "",
}


@pytest.fixture
def ref(tmp_path: Path) -> WorkloadRef:
    folder = tmp_path / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return WorkloadRef(path=folder / "mla.py", name="mla", version="v1", project=folder / "kernelwright.yaml",
                       source=VersionSource(path=folder / "kernels/a.py", function="forward"), import_from=(folder / "build",))


def edited(ref: WorkloadRef, name: str, old: str, new: str) -> bool:
    before = fingerprint(ref)
    assert before is not None
    file = ref.path.parent / name
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return fingerprint(ref) != before


@pytest.mark.parametrize(("name", "old", "new"), [
    ("kernels/a.py", "built(direct", "-built(direct"), ("kernels/direct.py", "second.f(x)", "-second.f(x)"),
    ("kernels/second.py", "return x", "return -x"), ("kernels/pkg/part.py", "leaf.h(x)", "-leaf.h(x)"),
    ("kernels/pkg/leaf.py", "return x", "return -x"), ("kernels/spread/inner.py", "1", "2"),
    ("build/extension.py", "return x", "return -x"),
    ("kernels/csrc/scan.cu", "#include <cuda.h>", "// tile 64"), ("kernels/csrc/tile.cuh", "deep", "// deep"),
    ("kernels/csrc/deep.h", "1", "2"), ("common/more.cpp", "1", "2"), ("mla.py", "SEED = 1", "SEED = 2"), ("mla.py", "'b': 1", "'b': 2"),
], ids=lambda value: value if isinstance(value, str) and "/" in value else "")
def test_an_edit_of_what_it_leads_to_is_an_edit(ref: WorkloadRef, name: str, old: str, new: str) -> None:
    assert edited(ref, name, old, new)


@pytest.mark.parametrize(("name", "old", "new"), [
    ("kernels/a.py", "other(x): return x", "other(x): return -x"), ("kernels/unused.py", "1", "2"), ("kernels/csrc/unused.cu", "1", "2"),
    ("mla.py", "return x", "return -x"), ("kernels/second.py", "return x", "return x  # a comment"),
])
def test_an_edit_of_anything_else_is_none(ref: WorkloadRef, name: str, old: str, new: str) -> None:
    assert not edited(ref, name, old, new)


def test_the_inputs_of_versions_in_one_file_count_too(tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    file.write_text("def size(): return 1\ndef get_inputs(): return (size(),)\ndef f(x): return x\ndef g(x): return x\n"
                    "VERSIONS = {'v1': f, 'v2': g}\n")
    ref = WorkloadRef(path=file, name="w", version="v1")
    assert edited(ref, "w.py", "size(): return 1", "size(): return 2") and not edited(ref, "w.py", "g(x): return x", "g(x): return -x")


def test_a_source_outside_the_project_is_not_read(ref: WorkloadRef, tmp_path: Path) -> None:
    (tmp_path / "outside.cu").write_text("1")
    source = ref.path.parent / "kernels/a.py"
    names = ["../../outside.cu", "../common/more.cpp", str(tmp_path / "outside.cu")]
    source.write_text(f"{source.read_text()}\ndef forward(x, names={names}): ...\n")
    assert not edited(ref, "../outside.cu", "1", "2") and edited(ref, "common/more.cpp", "1", "2")


def test_more_than_the_limit_can_not_be_told(ref: WorkloadRef, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fingerprint(ref) is not None
    monkeypatch.setattr(module, "MAX_FILES", 3)
    assert fingerprint(ref) is None
    monkeypatch.setattr(module, "MAX_FILES", 500)
    monkeypatch.setattr(module, "MAX_TOTAL_BYTES", 100)
    assert fingerprint(ref) is None


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import two\ndef f(x): return two.g(x)\nVERSIONS = {'v1': f, 'v2': None}\n")
    (tmp_path / "two.py").write_text("import one\ndef g(x): return x\n")
    ref = WorkloadRef(path=tmp_path / "one.py", name="one", version="v1")
    assert fingerprint(ref) is not None and edited(ref, "two.py", "return x", "return -x")
    assert list(named_files([], tmp_path / "one.py", [tmp_path])) == []
