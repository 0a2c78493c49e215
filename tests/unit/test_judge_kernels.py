"""A candidate's own kernels: found in its source, found in a recording, withheld in its process (Triton's launch as a stand-in)."""

import sys
import types
from pathlib import Path

import pytest
import torch

from kernelwright.judge.kernels import Defined, defined_by, running, sequence
from kernelwright.probe import judge_kernels
from kernelwright.probe.judge_kernels import OwnKernels, Withholding
from kernelwright.readers.kineto import read_kineto
from trace_builder import TraceBuilder

TRITON = """
import triton
from triton import jit as compiled

@triton.autotune(configs=[], key=[])
@triton.jit
def tuned_kernel(x): pass

@compiled
def plain_kernel(x): pass

def helper(x): pass
"""
CUDA = '''
from torch.utils.cpp_extension import load_inline
SOURCE = r"""
template <typename T> __global__ void __launch_bounds__(256) scale_rows(T* x) {}
extern "C" __global__ __launch_bounds__(128, 2) void add_rows(float* x) {}
__device__ float not_a_kernel(float x);
"""
module = load_inline("mine", cpp_sources="", cuda_sources=SOURCE, functions=["scale"])
'''
OPERATORS = """
import torch
@torch.library.custom_op("mine::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor: return x
library = torch.library.Library("other", "DEF")
SOURCE = "TORCH_LIBRARY(third, m) {}"
"""


DSLS = """
import cuda.tile as ct
import cutlass.cute as cute
@ct.kernel
def tile_kernel(x): pass
@ct.kernel(num_ctas=2)
def tuned_tile(x): pass
class Product:
    @cute.kernel
    def device(self, x): pass
@cute.jit
def host(x): pass
"""


@pytest.mark.parametrize(("text", "expected"), [
    (DSLS, Defined(dsl=("tile_kernel", "tuned_tile", "device"))),
    (TRITON, Defined(triton=("tuned_kernel", "plain_kernel"))),
    (CUDA, Defined(cuda=("scale_rows", "add_rows"), builds=True)),
    (OPERATORS, Defined(operators=("mine::scale", "other::", "third::"))),
    ("def optimize(model, inputs):\n    return model\n", Defined()),
    ("x = (", Defined()),
    ("import triton", Defined()),
], ids=["dsls", "triton", "cuda", "operators", "none", "broken", "import_only"])
def test_kernels_are_found_in_a_source(text, expected):
    found = defined_by(text.encode())
    assert (found.triton, found.dsl, found.builds) == (expected.triton, expected.dsl, expected.builds)
    assert (set(found.cuda), set(found.operators), bool(found)) == (set(expected.cuda), set(expected.operators), bool(expected))


def recording(tmp_path, *kernels, operators=()):
    trace = TraceBuilder().step(0, 1000)
    for index, name in enumerate(operators):
        trace.op(name, 10 + 20 * index, 20 + 20 * index)
    for index, name in enumerate(kernels):
        trace.launch(index + 1, 500 + 20 * index, 505 + 20 * index).kernel(name, 510 + 20 * index, 520 + 20 * index, index + 1)
    return read_kineto(trace.write(tmp_path / "trace.json"))


def test_own_kernels_are_found_among_those_that_ran(tmp_path):
    trace = recording(tmp_path, "void scale_rows<float>(float*, int)", "tuned_kernel_0d1d2de", "ampere_sgemm_128x64", "my_add_rows_v2",
                      operators=("mine::scale", "other::twice", "aten::mul"))
    names = ("scale_rows", "tuned_kernel", "add_rows", "sgemm_128", "mine::scale", "other::", "mine::scales", "third::")
    assert running(names, trace) == ["scale_rows", "tuned_kernel", "mine::scale", "other::"]
    assert sequence(trace) == ["void scale_rows<float>(float*, int)", "tuned_kernel_0d1d2de", "ampere_sgemm_128x64", "my_add_rows_v2"]


def test_kernels_of_cutile_and_the_cutlass_dsl_are_found_by_what_they_are_spelt(tmp_path):
    tile = "axpy_tile_Kt1_A1f32_1i16t1_p16_A1f32_1i16t1_p16"  # cuda-tile 1.7
    cute = "kernel_cutlass_axpy_cute_tensorptrf32gmemalign16o10241_tensorptrf32gmemalign16o10241_0"
    trace = recording(tmp_path, tile, cute)
    assert running(("axpy_tile", "axpy_cute", "cute", "tile"), trace) == ["axpy_tile", "axpy_cute"]


class JITFunction:
    """triton/runtime/jit.py: fn[grid](...) calls self.run(grid=grid, warmup=False, ...)."""

    def __init__(self, fn):
        self.fn = fn
        self.__name__ = fn.__name__

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args, grid, warmup, **kwargs):
        return self.fn(*args)


@pytest.fixture
def triton(monkeypatch):
    """A module in Triton's place whose kernels are Python functions."""
    runtime = types.ModuleType("triton.runtime.jit")
    runtime.JITFunction = type("JITFunction", (JITFunction,), {"run": JITFunction.run})
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", runtime)
    return runtime


def test_a_triton_launch_is_left_out_only_while_it_is_withheld(triton):
    own = OwnKernels()

    def double_kernel(x):
        x.mul_(2)

    def triple_kernel(x):
        x.mul_(3)

    double, triple = triton.JITFunction(double_kernel), triton.JITFunction(triple_kernel)
    assert {"double_kernel", "triple_kernel"} <= set(own.describe()["triton"])
    withholding, x = Withholding(own), torch.ones(1)
    withholding.start(["double_kernel"])
    double[(1,)](x)
    triple[(1,)](x)
    assert x.item() == 3 and dict(withholding.counts) == {"double_kernel": 1}
    withholding.start(["triple_kernel"])
    double[(1,)](x)
    triple[(1,)](x)
    assert x.item() == 6 and dict(withholding.counts) == {"triple_kernel": 1}
    double.run(x, grid=(1,), warmup=True)
    assert x.item() == 12


def test_kernels_that_triton_and_torch_ship_are_not_its_own(triton):
    def shipped(x):
        pass

    shipped.__module__ = "torch._inductor.runtime.compile_tasks.abc"
    keep = triton.JITFunction(shipped)
    assert "shipped" not in OwnKernels().triton() and keep


def test_an_operator_leaves_nothing_of_what_it_computed():
    own = OwnKernels()
    library = torch.library.Library("judge_kernels_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.define("count(Tensor x) -> Tensor")
    library.define("add_one_(Tensor(a!) x) -> ()")
    library.impl("twice", lambda x: x * 2, "CPU")
    library.impl("count", lambda x: torch.tensor([x.numel()]), "CPU")
    library.impl("add_one_", lambda x: x.add_(1) is None or None, "CPU")
    assert own.operators() == []  # torch registers operators too, whenever one of its modules is imported
    own.namespaces = frozenset({"judge_kernels_test"})
    names = own.operators()
    assert names == ["judge_kernels_test::add_one_", "judge_kernels_test::count", "judge_kernels_test::twice"]
    ops, withholding, x = torch.ops.judge_kernels_test, Withholding(own), torch.ones(3)
    assert ops.twice(x).tolist() == [2, 2, 2]
    withholding.start(names)
    try:
        assert ops.twice(x).isnan().all() and ops.count(x).tolist() == [0]
        ops.add_one_(x)
        assert x.tolist() == [1, 1, 1] and (x + 1).tolist() == [2, 2, 2]
        assert dict(withholding.counts) == dict.fromkeys(names, 1)
        withholding.start([names[0]])
        assert ops.twice(x).tolist() == [2, 2, 2]
    finally:
        withholding._mode.__exit__(None, None, None)


def test_functions_of_an_extension_are_withheld(monkeypatch):
    own = OwnKernels()
    module = types.ModuleType("mine")
    module.__file__ = "/somewhere/torch_extensions/mine.so"

    def scale(x, out):
        out.copy_(x * 2)
        return x * 3

    module.scale, module.doc = scale, "text"
    monkeypatch.setitem(sys.modules, "mine", module)
    assert own.describe()["functions"] == ["mine.scale"]
    withholding, x, out = Withholding(own), torch.ones(2), torch.zeros(2)
    withholding.start(["mine.scale"])
    assert module.scale(x, out).isnan().all() and out.tolist() == [0, 0] and dict(withholding.counts) == {"mine.scale": 1}
    withholding.start([])
    assert module.scale(x, out).tolist() == [3, 3] and out.tolist() == [2, 2]


def test_a_function_that_writes_through_raw_pointers_is_left_out(monkeypatch):
    """The tensors that it writes can't be put back: called, the output would be right, and the candidate accused of a ghost."""
    own, module, called = OwnKernels(), types.ModuleType("mine"), []
    module.__file__ = "/somewhere/build/mine.so"
    module.launch = lambda *addresses: called.append(addresses)
    monkeypatch.setitem(sys.modules, "mine", module)
    withholding = Withholding(own)
    withholding.start(["mine.launch"])
    assert module.launch(torch.ones(2).data_ptr(), 2) is None and called == [] and withholding.counts["mine.launch"] == 1


def test_what_writes_nothing_that_is_seen_is_no_evidence(monkeypatch):
    own, module, hidden = OwnKernels(), types.ModuleType("mine"), torch.zeros(2)
    module.__file__ = "/somewhere/build/mine.so"
    module.through_plan = lambda x: hidden.copy_(x) is None or None
    module.in_lists = lambda tensors: tensors[0].copy_(tensors[1]) is None or None
    monkeypatch.setitem(sys.modules, "mine", module)
    withholding = Withholding(own)
    withholding.start(["mine.through_plan", "mine.in_lists"])
    module.through_plan(torch.ones(2))
    out = torch.full((2,), float("nan"))
    module.in_lists([out, torch.ones(2)])
    assert hidden.tolist() == [1, 1] and out.isnan().all()
    assert dict(withholding.counts) == {"mine.in_lists": 1} and withholding.unseen == {"mine.through_plan"}


def test_a_helper_that_returns_a_number_hides_no_ghost(monkeypatch):
    own, module = OwnKernels(), types.ModuleType("mine")
    module.__file__ = "/somewhere/build/mine.so"
    module.block, module.fused = lambda: 128, lambda x: x * 2
    monkeypatch.setitem(sys.modules, "mine", module)
    withholding = Withholding(own)
    withholding.start(["mine.block", "mine.fused"])
    assert module.block() == 128 and module.fused(torch.ones(1)).isnan().all()
    assert dict(withholding.counts) == {"mine.fused": 1} and withholding.unseen == {"mine.block"}


def test_what_a_compiler_left_is_not_its_own(monkeypatch, tmp_path):
    own = OwnKernels()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    for name, file in (("inductor", "/tmp/torchinductor_me/ab/cabc.main.so"), ("launcher", str(tmp_path / "triton" / "x" / "launcher.so"))):
        module = types.ModuleType(name)
        module.__file__, module.kernel = file, len
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(judge_kernels.tempfile, "gettempdir", lambda: "/tmp")
    assert own.describe()["functions"] == []


def test_what_the_judge_is_told_has_bounds(monkeypatch):
    own = OwnKernels()
    own.namespaces = frozenset({"mine"})
    monkeypatch.setattr(judge_kernels, "_operators", lambda: {f"mine::{'x' * 500}{index}" for index in range(1000)})
    told = own.describe()
    assert len(told["operators"]) == 64 and all(len(name) <= 200 for name in told["operators"])


def test_an_address_in_a_heap_that_lies_low_is_one(monkeypatch):
    maps = "00400000-00a00000 r-xp 00000000 08:01 1 /usr/bin/python3.11\n29900000-29a00000 rw-p 00000000 00:00 0          [heap]\n"
    monkeypatch.setattr(Path, "read_text", lambda *_args, **_kwargs: maps)
    assert judge_kernels._is_address(0x29930000) and judge_kernels._is_address(1 << 40)
    assert not judge_kernels._is_address(0x29A00000) and not judge_kernels._is_address(4096) and not judge_kernels._is_address(True)

    def gone(*_args, **_kwargs):
        raise OSError

    monkeypatch.setattr(Path, "read_text", gone)
    assert not judge_kernels._is_address(0x29930000), "a system without such a file"
