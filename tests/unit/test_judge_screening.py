"""The static look at a candidate's source: what it finds where, what it leaves alone, and that no source can hold it up."""

import time

import pytest

from judge_exploits import EXPLOITS, FOLDER, GPU_EXPLOITS, GPU_FOLDER
from kernelwright.judge import screening

ACCUSING = ("cheat", "fraud", "malicious", "dishonest", "illegal", "attack")


def kinds(text):
    return {(finding.kind, finding.line) for finding in screening.screen(text.encode())}


@pytest.mark.parametrize(("text", "kind", "line"), [
    ("import torch\ntorch.allclose = lambda *a: True", "patched torch", 2),
    ("import torch as t\nsetattr(t.nn.functional, 'relu', id)", "patched torch", 2),
    ("import torch\ntorch.cuda.Event.elapsed_time = None", "patched timer", 2),
    ("from torch import cuda\ncuda.synchronize = print", "patched timer", 2),
    ("import time\ntime.perf_counter_ns = lambda: 0", "patched timer", 2),
    ("import inspect\n\nfor frame in inspect.stack(): pass", "call stack", 3),
    ("from sys import _getframe as f\nf(1)", "call stack", 2),
    ("import gc\ngc.get_objects()", "live objects", 2),
    ("exec(text)", "code from data", 1),
    ("import base64\nx = base64.b64decode('eA==')", "code from data", 2),
    ("import os\nos.write(4, b'{}')", "raw memory or descriptors", 2),
    ("import ctypes", "raw memory or descriptors", 1),
    ("import socket", "process or network", 1),
    ("import os\nos.fork()", "process or network", 2),
    ("open('x', 'w').write('y')", "files", 1),
    ("from pathlib import Path\nPath('x').open(mode='a')", "files", 2),
    ("from pathlib import Path\nPath('x').write_text('y')", "files", 2),
    ("import time\nbegin = time.time()\nif begin > 5: x = 1", "clock or chance", 3),
    ("import random\nx = 1 if random.random() < 0.5 else 2", "clock or chance", 2),
    ("n = 0\ndef call(x):\n    global n\n    n += 1\n    if n > 10: return x", "counted calls", 5),
    ("class A:\n    def f(self, x):\n        self.n += 1\n        return x if self.n > 3 else 2", "counted calls", 4),
    ("known = {}\ndef call(x):\n    return known[x.data_ptr()]", "identity", 3),
    ("def call(x):\n    key = id(x)\n    return known.get(key)", "identity", 3),
    ("def call(x, known):\n    if x._version in known: pass", "identity", 2),
    ("def call(x):\n    if x.std().item() > 1: return x", "values", 2),
    ("def call(x):\n    try:\n        return fast(x)\n    except Exception:\n        return model(x)", "fallback", 4),
    ("import torch\ntorch.backends.cuda.matmul.allow_tf32 = True", "precision", 2),
    ("import torch\ntorch.set_float32_matmul_precision('high')", "precision", 2),
    ("def call(x): return model.half()(x.to(torch.float16))\nimport torch", "precision", 1),
    ("from pathlib import Path\nPath(__file__)", "surroundings", 2),
    ("import os\nos.environ['X']", "surroundings", 2),
    ("from threading import Thread", "threads", 1),
    ("import torch\ns = torch.cuda.Stream()", "streams", 2),
    ("SOURCE = 'cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1)'", "device limits", 1),
    ("lib.cudaDeviceSetLimit(6, 1)", "device limits", 1),
    ("import kernelwright", "judge", 1),
    ("import torch\nclass Lazy(torch.Tensor): pass", "tensor class", 2),
    ("import atexit", "exit", 1),
])
def test_a_line_worth_a_look_is_found(text, kind, line):
    assert (kind, line) in kinds(text)


@pytest.mark.parametrize("text", [
    "import torch\ntorch.backends.cudnn.benchmark = True",
    "import torch\ntorch._inductor.config.max_autotune = True",
    "PRECISION = 'tf32'\nimport torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
    "import torch\ntorch.set_float32_matmul_precision('highest')",
    "kernel[(1,)](x.data_ptr(), y.data_ptr())",
    "import torch\nside = torch.cuda.Stream()\ntorch.cuda.current_stream().wait_stream(side)",
    "try:\n    import triton\nexcept ImportError:\n    triton = None",
    "for i in range(3):\n    total += i\nif total > 2: pass",
    "import re\nre.compile('x')\nmodel.eval()",
    "with open('weights.bin', 'rb') as file: file.read()",
    "self.size = x.shape[0]\nif self.size > 4: pass",
])
def test_ordinary_lines_are_left_alone(text):
    assert kinds(text) == set()


def test_rows_name_the_lines_and_accuse_nobody(tmp_path):
    candidate = tmp_path / "candidate.py"
    candidate.write_text("import gc\n" + "gc.get_objects()\n" * 9 + "import socket\n")
    rows = screening.audit(candidate)
    assert [(row.name, row.result) for row in rows] == [
        ("screening: live objects", "warned"), ("screening: process or network", "warned")]
    assert rows[0].detail.startswith("look at lines 2, 3, 4, 5, 6, 7 and 3 more: ")
    assert rows[1].detail.startswith("look at line 11: ")
    assert not any(word in reason.lower() for reason in screening.REASONS.values() for word in ACCUSING)


def test_a_source_with_nothing_to_see_passes(tmp_path):
    candidate = tmp_path / "candidate.py"
    candidate.write_text("def optimize(model, inputs):\n    return model\n")
    (row,) = screening.audit(candidate)
    assert (row.name, row.result) == ("screening", "passed")


@pytest.mark.parametrize("text", [
    b"x = " + b"(" * 5000, b"x = " + b"-" * 100000 + b"1", b"x = " + b"not " * 40000 + b"1", b"x = a" + b".b" * 60000,
    b"f" + b"(x)" * 60000, b"x = a" + b"[0]" * 12000, b"x = 1\n" * 45000, b"x = " + b"<".join([b"a"] * 15000),
    b"if a:\n x\n" + b"elif a:\n x\n" * 5000, b"\0" * 100,
    b"x = " + b"lambda: " * 20000 + b"1", b"k = id(x)\nif k == k: pass\n" * 3000, b"#" * 300_000, b"x = 1 +", b"\xff\xfe",
], ids=range(15))
def test_no_source_holds_it_up(text, tmp_path):
    candidate = tmp_path / "candidate.py"
    candidate.write_bytes(text)
    begin = time.process_time()
    rows = screening.audit(candidate)
    assert time.process_time() - begin < 3
    assert rows and all(row.result in ("passed", "warned") and len(row.detail) < 300 for row in rows)


def test_a_file_that_is_gone_or_no_file_is_said_to_be_unread(tmp_path):
    for candidate in (tmp_path / "gone.py", tmp_path):
        (row,) = screening.audit(candidate)
        assert row.result == "warned" and row.detail.startswith("not read")


def test_most_exploits_are_worth_a_look():
    """A second opinion: those that it misses (constants, rounding) are found by what they compute."""
    sources = [FOLDER / f"{exploit.name}.py" for exploit in EXPLOITS] + [GPU_FOLDER / f"{exploit.name}.py" for exploit in GPU_EXPLOITS]
    found = [path.stem for path in sources if screening.screen(path.read_bytes())]
    assert len(found) >= 0.6 * len(sources)


def test_an_ordinary_candidate_takes_a_few_milliseconds():
    source = (GPU_FOLDER / "falls_back_from_triton.py").read_bytes()
    begin = time.process_time()
    for _ in range(10):
        screening.screen(source)
    assert (time.process_time() - begin) / 10 < 0.05
