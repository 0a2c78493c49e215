"""FLOPs, least bytes and operator records."""

import sys
import types
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernelwright.probe import count, facts, loaders

WORKLOADS = Path(__file__).resolve().parents[1] / "data" / "workloads"


def recorded(fn, *args):
    return count.record(lambda: fn(*args))[0]


def workload(model, *args):
    return loaders.LoadedWorkload(path="w.py", form="model", version=None, versions=(), params={}, module=types.ModuleType("w"),
                                  model=model, raw_input=args, args=args, kwargs={}, device="cpu")


CASES = {
    "conv": lambda: (torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()), torch.randn(2, 3, 8, 8)),
    "matmul": lambda: (torch.matmul, torch.randn(2, 3, 4), torch.randn(4, 5)),
    "einsum": lambda: (lambda a, b: torch.einsum("bij,bkj->bik", a, b), torch.randn(2, 3, 4), torch.randn(2, 5, 4)),
    "backward": lambda: (lambda a: (a @ a).sum().backward(), torch.randn(4, 4, requires_grad=True)),
}


@pytest.mark.parametrize(("name", "inference"), [(name, False) for name in CASES] + [(name, True) for name in CASES if name != "backward"])
def test_flops_equal_torchs_counter(name, inference):
    fn, *args = CASES[name]()
    with torch.inference_mode(inference):
        with FlopCounterMode(display=False) as counter:
            fn(*args)
        recording = recorded(fn, *args)
    assert recording.flops == counter.get_total_flops() > 0
    assert not recording.own_formulas and not recording.uncounted


def test_recurrent_layers_have_a_formula():
    lstm = torch.nn.LSTM(8, 16, num_layers=2, batch_first=True)
    tokens = 3 * 5
    with torch.no_grad():
        recording = recorded(lstm, torch.randn(3, 5, 8))
    assert recording.flops == 2 * tokens * 4 * 16 * ((8 + 16) + (16 + 16))


def test_cpu_attention_has_a_formula():
    q = torch.randn(2, 4, 16, 8)
    recording = recorded(torch.nn.functional.scaled_dot_product_attention, q, q, q)
    assert recording.flops == 2 * (2 * 2 * 4 * 16 * 16 * 8)


def bytes_of(fn, *args):
    return {record["name"]: record["bytes"] for record in recorded(fn, *args).records}


def test_views_move_nothing_and_regions_count_once():
    x = torch.randn(8, 4)
    assert bytes_of(lambda: x.t()) == {"aten::t": 0.0}
    assert bytes_of(torch.add, x, x)["aten::add"] == 2 * 8 * 4 * 4
    assert bytes_of(torch.add, x, torch.ones(1, 4).expand(8, 4))["aten::add"] == 4 * (2 * 32 + 4)
    assert bytes_of(lambda a: a[:, :2].add(1), x)["aten::add"] == 2 * 16 * 4


def test_writes_in_place():
    x, y = torch.randn(10), torch.randn(10)
    assert bytes_of(lambda: x.add_(y))["aten::add_"] == 3 * 40
    assert bytes_of(lambda: x.copy_(y))["aten::copy_"] == 2 * 40
    assert bytes_of(lambda: x.zero_())["aten::zero_"] == 40
    assert bytes_of(lambda: torch.empty(1000))["aten::empty"] == 0


def test_an_embedding_reads_rows_not_its_table():
    table = torch.nn.Embedding(1000, 8)
    found, records = count.count(workload(table, torch.tensor([1, 2, 3])))
    rows, indices = 3 * 8 * 4, 3 * 8
    assert records[-1]["name"] == "aten::embedding" and records[-1]["bytes"] == 2 * rows + indices
    assert found["min_bytes"] == 2 * rows + indices
    assert found["flops"] is None


def test_unused_parameters_do_not_count():
    class Part(torch.nn.Linear):
        def __init__(self):
            super().__init__(4, 4)
            self.unused = torch.nn.Parameter(torch.zeros(1000))

    found, _ = count.count(workload(Part(), torch.randn(2, 4)))
    assert found["min_bytes"] == 4 * (8 + 16 + 4 + 8) and found["flops"] == 2 * 2 * 4 * 4


def test_a_training_step_writes_gradients_too():
    found, _ = count.count(workload(torch.nn.Linear(4, 1), torch.randn(1, 4)))
    loaded = loaders.load(str(WORKLOADS / "training.py"), device="cpu")
    trained, _ = count.count(loaded)
    weights = 4 * (16 * 4 + 4)
    assert trained["min_bytes"] == 4 * 8 * 16 + 8 * 8 + 2 * weights + 4 + 4 * 8 * 4
    assert "gradients" in trained["bytes_source"] and "gradients" not in found["bytes_source"]


def test_triton_launches_are_noticed(monkeypatch):
    class JITFunction:
        def run(self, *args, **kwargs):
            return "launched"

    module = types.ModuleType("triton.runtime.jit")
    module.JITFunction = JITFunction
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", module)
    original = JITFunction.run

    def version(a):
        assert JITFunction().run() == "launched"
        return a @ a

    found, _ = count.count(workload(version, torch.randn(4, 4)))
    assert found["flops"] is None and "Triton" in found["flops_source"]
    assert JITFunction.run is original


def test_a_cuda_graph_is_noticed(monkeypatch):
    class CUDAGraph:
        def replay(self):
            return None

    monkeypatch.setattr(torch.cuda, "CUDAGraph", CUDAGraph)
    found, _ = count.count(workload(lambda a: (CUDAGraph().replay(), a @ a)[1], torch.randn(4, 4)))
    assert found["flops"] is None and "CUDA graphs" in found["flops_source"]


def test_parameters_that_share_one_storage_count_once_each():
    flat = torch.randn(3 * 16)
    module = torch.nn.Module()
    module.first, module.second = (torch.nn.Parameter(flat[start:start + 16].view(4, 4)) for start in (0, 16))
    module.tied = module.first
    module.forward = lambda x: x @ module.first @ module.second @ module.tied.t()
    found, records = count.count(workload(module, torch.randn(2, 4)))
    assert found["min_bytes"] == 4 * (8 + 2 * 16 + 8)
    assert count.covered([flat, module.first, module.second]) == 4 * 3 * 16
    assert [record["bytes"] for record in records if record["name"] == "aten::mm"] == [4 * (8 + 16 + 8)] * 3


def test_custom_operators_are_not_counted_as_nothing():
    library = torch.library.Library("kernelwright_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    found, _ = count.count(workload(lambda a: torch.ops.kernelwright_test.twice(a @ a), torch.randn(4, 4)))
    assert found["flops"] is None and "kernelwright_test::twice" in found["flops_source"]


def test_compiled_callables_are_recognised_and_counted_uncompiled():
    eager = torch.nn.Linear(4, 4)
    inner = torch.nn.Sequential(torch.compile(torch.nn.Linear(4, 4), backend="eager"))
    in_place = torch.nn.Linear(4, 4)
    in_place.compile(backend="eager")
    function = torch.compile(lambda a: a @ a, backend="eager")
    assert not facts.is_compiled(eager) and not facts.is_compiled(len)
    for model in (torch.compile(eager, backend="eager"), inner, in_place, function):
        assert facts.is_compiled(model)
        found, records = count.count(workload(model, torch.randn(4, 4)))
        assert found["flops"] == sum(found["counted"].values()) == 2 * 4 * 4 * 4 and records is None
        assert found["counted"].keys() <= {"aten::addmm", "aten::mm"}


def test_main_dtype_is_the_one_with_most_bytes():
    tensors = [torch.zeros(10, dtype=torch.bfloat16), torch.zeros(4), torch.zeros(100, dtype=torch.int64)]
    assert facts.main_dtype(tensors) == "bfloat16" and facts.main_dtype(tensors[2:]) == ""
