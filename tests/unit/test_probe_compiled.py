"""What the probe gathers of Triton and Inductor, on stand-ins with the attributes of triton 3.x and torch 2.11's real objects."""

import gc
import json
import sys
import types
from collections import defaultdict, namedtuple

import pytest

from kernelwright.model.compiled import CompiledIndex
from kernelwright.probe import compiled, compiled_inductor, compiled_triton

Metadata = namedtuple("KernelMetadata", "name num_warps num_stages num_ctas shared target")


class AsmDict(dict):
    def __missing__(self, key):
        raise AssertionError(f"{key} would start a disassembler")


class CompiledKernel:
    """compiler/compiler.py: module is None until the first launch loads it."""

    def __init__(self, src, name, warps, stages, loaded=True):
        self.src, self.metadata, self.name = src, Metadata(name, warps, stages, 1, 2048, object()), name
        self.asm = AsmDict(ttir="module {}", ttgir="gpu", llir="llvm", ptx=".visible .entry", cubin=b"\x7fELF\x00")
        self.module = self.function = self._run = None
        if loaded:
            self.module, self.function, self.n_regs, self.n_spills, self.n_max_threads = 1, 2, 40, 0, 1024


class Source:
    """ASTSource: constants by argument path."""

    def __init__(self, function, constants):
        self.fn, self.constants = function, constants


class JITFunction:
    """runtime/jit.py: device -> (kernel cache, key cache, target, backend, binder), made on first access."""

    def __init__(self, fn, arg_names):
        self.fn, self.arg_names, self._src, self.__name__ = fn, arg_names, "@triton.jit\ndef kernel(): ...", fn.__name__
        self.device_caches = defaultdict(lambda: pytest.fail("reading made a cache entry"))

    def compiled(self, key, *args, **kwargs):
        if 0 not in self.device_caches:
            self.device_caches[0] = ({}, {}, None, None, None)
        self.device_caches[0][0][key] = CompiledKernel(*args, **kwargs)


class Config:
    """runtime/autotuner.py."""

    def __init__(self, kwargs, num_warps=4, num_stages=3):
        self.kwargs, self.num_warps, self.num_stages, self.num_ctas = kwargs, num_warps, num_stages, 1
        self.maxnreg = self.pre_hook = self.ir_override = None


class Heuristics:
    def __init__(self, fn):
        self.fn = fn


class Autotuner:
    def __init__(self, fn, configs):
        self.fn, self.configs, self.cache = fn, configs, {}
        self.base_fn = fn


class CachingAutotuner:
    """torch/_inductor/runtime/triton_heuristics.py after autotune_to_one_config()."""

    def __init__(self, fn, launcher, kernel, timings, name):
        self.fn, self.launchers, self.configs, self.inductor_meta = fn, [launcher], None, {"kernel_name": name}
        self.compile_results = [types.SimpleNamespace(kernel=kernel, config=launcher.config)]
        self.coordesc_tuner = types.SimpleNamespace(cached_benchmark_results=timings)


def tile_kernel(out, x, ROWS, BLOCK):
    """Stands for the Python function."""


@pytest.fixture
def libraries(monkeypatch):
    """The modules in which the probe looks for the classes; objects of earlier tests are gone."""
    gc.collect()
    for name, classes in {"triton": {}, "triton.runtime.jit": {"JITFunction": JITFunction},
                          "triton.runtime.autotuner": {"Autotuner": Autotuner}, "torch._inductor": {}, "torch._inductor.codecache": {},
                          "torch._inductor.runtime.triton_heuristics": {"CachingAutotuner": CachingAutotuner}}.items():
        module = types.ModuleType(name)
        vars(module).update(classes)
        monkeypatch.setitem(sys.modules, name, module)
    return sys.modules


def collected(tmp_path, choices=()):
    warnings = []
    name = compiled.collect(str(tmp_path), list(choices), warnings.append)
    return (CompiledIndex.model_validate_json((tmp_path / name).read_bytes()) if name else None), warnings


def tuned(keys=1):
    """An Autotuner over Heuristics over a JITFunction, tuned for some keys; every candidate is loaded, one was only compiled."""
    function = JITFunction(tile_kernel, ["out", "x", "ROWS", "BLOCK"])
    configs = [Config({"ROWS": 4}, 8), Config({"ROWS": 1}, 4), Config({"ROWS": 16}, 4)]
    for number, config in enumerate(configs):
        source = Source(function, {(2,): config.kwargs["ROWS"], (3,): 256})
        function.compiled(f"k{number}", source, "tile_kernel", config.num_warps, 3)
    function.compiled("unused", Source(function, {(2,): 99}), "tile_kernel", 4, 3, loaded=False)
    tuner = Autotuner(Heuristics(function), configs)
    for number in range(keys):
        tuner.cache[(4096, 256, number, "torch.float32")] = configs[0]
    tuner.configs_timings = {configs[1]: [0.020, 0.019, 0.021], configs[0]: [0.010, 0.009, 0.011], configs[2]: [float("inf")] * 3}
    return tuner


def test_an_autotuned_kernel_of_the_users(tmp_path, libraries):
    tuner = tuned()
    index, warnings = collected(tmp_path)
    (kernel,) = index.kernels
    assert warnings == [] and (kernel.name, kernel.python_name, kernel.origin) == ("tile_kernel", "tile_kernel", "triton")
    assert kernel.source == f"test_probe_compiled.py:{tile_kernel.__code__.co_firstlineno}"
    (variant,) = kernel.variants  # the candidates that lost keep no code
    assert variant.config == {"ROWS": 4, "num_warps": 8, "num_stages": 3}
    assert (variant.registers, variant.spills, variant.shared_bytes, variant.num_warps) == (40, 0, 2048, 8)
    assert [file.kind for file in variant.files] == ["ttir", "ttgir", "llir", "ptx", "cubin"]
    assert (tmp_path / "compiled" / variant.files[-1].file).read_bytes() == b"\x7fELF\x00"
    (tuning,) = kernel.tunings
    assert [row.time_ns for row in tuning.timings] == [10_000.0, 20_000.0, None] and kernel.configs_tried == 3
    assert tuning.timings[0].config == tuning.best and tuning.note == "" and tuner.cache


def test_timings_are_given_for_the_key_that_they_belong_to(tmp_path, libraries):
    tuner = tuned(keys=2)
    index, _ = collected(tmp_path)
    first, last = index.kernels[0].tunings
    assert first.timings == () and "last tuned key" in first.note and len(last.timings) == 3
    tuner.configs_timings = None  # read back from Triton's cache on disk: a decision without timings
    index, _ = collected(tmp_path)
    assert index.kernels[0].tunings[-1].timings == () and "cache" in index.kernels[0].tunings[-1].note
    assert index.kernels[0].configs_tried == 3


def test_plain_kernels_and_those_that_never_ran(tmp_path, libraries):
    ran, idle = JITFunction(tile_kernel, ["out", "x", "ROWS", "BLOCK"]), JITFunction(tile_kernel, [])
    ran.compiled("k", Source(ran, {(3,): 128, (1,): None}), "tile_kernel", 4, 2)
    index, _ = collected(tmp_path)
    (kernel,) = index.kernels
    assert kernel.configs_tried is None and kernel.tunings == () and kernel.variants[0].config == {"BLOCK": 128}
    assert idle.device_caches == {}


def test_kernels_of_triton_before_device_caches(tmp_path, libraries):
    function = JITFunction(tile_kernel, ["out", "x", "ROWS", "BLOCK"])
    del function.device_caches
    function.cache = defaultdict(dict, {0: {"key": CompiledKernel(Source(function, {3: 64}), "tile_kernel_0d1d2c", 4, 2)}})
    index, _ = collected(tmp_path)
    assert index.kernels[0].name == "tile_kernel_0d1d2c" and index.kernels[0].variants[0].config == {"BLOCK": 64}


def inductor_kernel(name="triton_poi_fused_relu_0", **launcher):
    def function():
        """Stands for the generated one."""

    function.__name__ = name
    jit = JITFunction(function, [])
    config = Config({"XBLOCK": 256}, 4, 1)
    values = {"config": config, "n_regs": 16, "n_spills": 2, "shared": 0, "cache_hash": "HASH", **launcher}
    timings = {(("XBLOCK", 128), ("num_warps", 4), ("num_stages", 1)): 0.004, (("XBLOCK", 256), ("num_warps", 4), ("num_stages", 1)): 0.003}
    return CachingAutotuner(jit, types.SimpleNamespace(**values), CompiledKernel(Source(jit, {}), name, 4, 1), timings, name)


def graph(libraries, tmp_path, **values):
    module = types.ModuleType("graph")
    module.__file__, module.call = str(tmp_path / "cgraph.py"), lambda args: args
    (tmp_path / "cgraph.py").write_text("def call(args): ...\n")
    vars(module).update(values)
    single = types.ModuleType("one_kernel_only")
    libraries["torch._inductor.codecache"].PyCodeCache = types.SimpleNamespace(modules=[single, module])


def test_generated_kernels_with_their_candidates_and_output_code(tmp_path, libraries):
    used, tried = inductor_kernel(), inductor_kernel("triton_mm_7")
    graph(libraries, tmp_path, triton_poi_fused_relu_0=used)
    index, _ = collected(tmp_path)
    (kernel,) = index.kernels  # not the candidate of max-autotune, and not as a kernel of the user's
    assert (kernel.name, kernel.origin, kernel.python_name, kernel.configs_tried) == ("triton_poi_fused_relu_0", "inductor", None, 2)
    assert kernel.variants[0].config == {"XBLOCK": 256, "num_warps": 4, "num_stages": 1}
    assert kernel.variants[0].registers == 40 and len(kernel.variants[0].files) == 5
    assert [row.time_ns for row in kernel.tunings[0].timings] == pytest.approx([3000.0, 4000.0])
    assert (tmp_path / "compiled" / index.graphs[0].file.file).read_text() == "def call(args): ...\n" and tried.launchers


def test_a_kernel_of_the_users_inside_a_compiled_graph_keeps_its_python_name(tmp_path, libraries):
    original, copied = JITFunction(tile_kernel, []), inductor_kernel("tile_kernel")
    copied.custom_kernel = True
    graph(libraries, tmp_path, tile_kernel_0=copied)
    (kernel,) = collected(tmp_path)[0].kernels
    assert (kernel.origin, kernel.python_name) == ("inductor", "tile_kernel") and kernel.source.startswith("test_probe_compiled.py:")
    assert original.device_caches == {}


def test_statically_launched_kernels_are_read_from_tritons_cache(tmp_path, libraries, monkeypatch):
    kernel = inductor_kernel()
    kernel.compile_results[0].kernel = types.SimpleNamespace(name="triton_poi_fused_relu_0", num_warps=4, shared=0, n_regs=18, n_spills=0)
    kernel.coordesc_tuner.cached_benchmark_results = {}
    folder = tmp_path / "triton" / "HASH"
    folder.mkdir(parents=True)
    (folder / "triton_poi_fused_relu_0.ptx").write_text("ptx")
    (folder / "triton_poi_fused_relu_0.cubin").write_bytes(b"\x00")
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    home = types.ModuleType("torch._inductor.runtime.cache_dir_utils")
    home.triton_cache_dir = lambda device: str(tmp_path / "triton")
    monkeypatch.setitem(sys.modules, home.__name__, home)
    index, _ = collected(tmp_path)
    assert [file.kind for file in index.kernels[0].variants[0].files] == ["ptx", "cubin"]
    assert index.kernels[0].variants[0].registers == 18 and "cache on disk" in index.kernels[0].tunings[0].note


def test_caps_are_kept_and_said(tmp_path, libraries, monkeypatch):
    tuner = tuned()
    monkeypatch.setattr(compiled, "MAX_FILE_BYTES", 8)
    index, warnings = collected(tmp_path)
    kept = {file.kind for file in index.kernels[0].variants[0].files}
    assert kept == {"ttgir", "llir", "cubin"} | ({"ttir"} & kept) and any("ptx of tile_kernel" in line for line in warnings)
    monkeypatch.setattr(compiled, "MAX_TOTAL_BYTES", 4)
    index, _ = collected(tmp_path)
    assert sum(file.bytes for file in index.kernels[0].variants[0].files) <= 4
    monkeypatch.setattr(compiled, "MAX_KERNELS", 0)
    index, warnings = collected(tmp_path, [{"operator": "mm", "inputs": [], "candidates": 0, "timings": []}])
    assert index.kernels == () and any("1 kernels beyond the first 0" in line for line in warnings) and tuner


def test_objects_of_another_shape_cost_themselves_only(tmp_path, libraries):
    good, odd = tuned(), JITFunction(tile_kernel, [])
    odd.compiled("k", None, "odd", 4, 2)
    odd.device_caches[0][0]["k"].metadata = None
    odd.device_caches[0][0]["k"].asm = property()
    del libraries["torch._inductor.runtime.triton_heuristics"].CachingAutotuner
    index, _ = collected(tmp_path)
    assert "tile_kernel" in {kernel.name for kernel in index.kernels} and good


def test_nothing_compiled_leaves_nothing(tmp_path, monkeypatch, libraries):
    assert collected(tmp_path) == (None, []) and list(tmp_path.iterdir()) == []
    for name in ("triton", "torch._inductor"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(gc, "get_objects", lambda: pytest.fail("walked all objects for nothing"))
    assert collected(tmp_path) == (None, [])


def test_an_earlier_run_leaves_no_files_behind(tmp_path, libraries):
    tuner = tuned()
    collected(tmp_path)
    (tmp_path / "compiled" / "mine.txt").write_text("not ours")
    del tuner
    gc.collect()
    assert collected(tmp_path)[0] is None
    assert [path.name for path in (tmp_path / "compiled").iterdir()] == ["mine.txt"]


class Choice:
    """ChoiceCaller."""

    def __init__(self, name, description=""):
        self.name, self.description = name, description


class Node:
    def __init__(self, *size):
        self.size = size

    def get_size(self):
        return self.size

    def get_dtype(self):
        return "torch.float32"


@pytest.mark.parametrize("rest", [(), (dict,), (dict, {})])  # torch 2.4, 2.6, 2.11
def test_choices_of_max_autotune(rest):
    warnings = []
    listener = compiled_inductor.Choices(warnings.append)
    template, failed, library = Choice("triton_mm_3", "BLOCK_M=64, num_warps=4"), Choice("triton_mm_4"), Choice("addmm")
    listener.feedback({library: 0.05, failed: float("inf"), template: 0.04}, "addmm", [Node(4, 8), object()], [], *rest)
    (found,) = CompiledIndex.model_validate({"choices": listener.found}).choices
    assert found.inputs == ("float32[4, 8]", "") and found.candidates == 3
    assert [(row.name, row.time_ns) for row in found.timings] == [
        ("triton_mm_3", pytest.approx(40_000.0)), ("addmm", pytest.approx(50_000.0)), ("triton_mm_4", None)]
    listener.feedback({library: 0.06}, "addmm", [Node(4, 8), object()], [], *rest)
    listener.feedback({library: 0.06}, "addmm", [Node(4, 9)], [], *rest)
    assert [choice["uses"] for choice in listener.found] == [2, 1]
    listener.feedback(None, "mm", None, None)
    assert len(listener.found) == 2 and "could not be read" in warnings[0]


def test_the_listener_waits_for_the_import_and_leaves_no_trace(tmp_path, monkeypatch):
    (tmp_path / "late_selector.py").write_text(
        "class Cache: feedback_saver_fns = []\n_ALGORITHM_SELECTOR_CACHE = Cache()\n"
        "def add_feedback_saver(fn): _ALGORITHM_SELECTOR_CACHE.feedback_saver_fns.append(fn)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(compiled_inductor, "SELECTOR", "late_selector")
    before = list(sys.meta_path)
    with compiled_inductor.listening(pytest.fail) as choices:
        import late_selector

        savers = late_selector._ALGORITHM_SELECTOR_CACHE.feedback_saver_fns
        assert savers == [choices.feedback]
        savers.append("the user's")
    assert savers == ["the user's"] and sys.meta_path == before
    del sys.modules["late_selector"]


def test_a_selector_without_feedback_is_a_warning(monkeypatch):
    monkeypatch.setitem(sys.modules, compiled_inductor.SELECTOR, types.ModuleType("old"))
    warnings = []
    with compiled_inductor.listening(warnings.append):
        pass
    assert len(warnings) == 1 and "not recorded" in warnings[0]


def test_values_that_json_cannot_hold():
    assert compiled_triton.time_ns(float("nan")) is None and compiled_triton.time_ns([]) is None
    assert json.dumps([compiled_triton.plain(value) for value in (float("inf"), object, 1, True, "x" * 500)])
