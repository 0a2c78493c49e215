"""float32 attention written by hand on tensor cores, in the compiler's graph: which places, on what they are measured, what stays."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graph_carrier import Passed
from kernelwright.model.workload import WorkloadRef
from kernelwright.optimize.generate import render_source, write_source
from kernelwright.optimize.passes import CATALOGUE, Context
from kernelwright.optimize.plan import candidate, compatible
from kernelwright.probe.rewrites.attention import Attention
from kernelwright.probe.rewrites.attention_choice import AttentionCall
from kernelwright.probe.rewrites.freeze_weights import freeze_weights
from kernelwright.probe.rewrites.sdpa_substitution import sdpa_substitution
from kernelwright.probe.rewrites.split_attention_by_hand import split_attention_by_hand, with_attention_in_graph
from optimizing import context, facts

HOW = Attention("fp16x3", [64, 32, 4, 2, 0])
BY_HAND = ("aten::bmm", "aten::_softmax", "aten::masked_fill", "aten::addmm")


class CausalAttention(nn.Module):
    """As minGPT has it: float heads, a mask in a buffer, scores in memory."""

    def __init__(self, width: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads
        self.register_buffer("seen", torch.tril(torch.ones(1, 1, 16, 16)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, width = x.size()
        q, k, v = (part.view(batch, rows, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(x).split(width, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.seen[:, :, :rows, :rows] == 0, float("-inf"))
        return self.out((F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(batch, rows, width))


def put(choose):
    def split(graph: torch.fx.GraphModule, example_inputs: Any) -> int:
        return with_attention_in_graph(graph, example_inputs, choose)
    return split


def model_and_input() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return CausalAttention().eval(), torch.randn(3, 9, 32)


@pytest.mark.parametrize("inductor", [[], [freeze_weights]], ids=["a mask", "a mask that is known"])
def test_attention_by_hand_is_measured_on_its_own_queries_keys_and_values(inductor) -> None:
    model, x = model_and_input()
    seen: list[AttentionCall] = []
    state = torch.get_rng_state()
    fast = Passed(model, sdpa_substitution, put(lambda call: (seen.append(call), HOW)[1]), inductor=inductor)
    found = fast(x)
    assert torch.equal(torch.get_rng_state(), state), "the run for it draws nothing from the caller's generator"
    with torch.no_grad():
        exact, usual = model.double()(x.double()), model.float()(x)
        q = model.qkv(x)[:, :, :32].view(3, 9, 2, 16).transpose(1, 2)
    assert float((found - exact).abs().max()) <= 4 * float((usual - exact).abs().max()) + 1e-7
    (call,) = seen
    torch.testing.assert_close(call.query, q)
    assert (call.mask is None) == call.is_causal == bool(inductor) and call.scale == 0.25
    assert sum("attend" in name for name in fast.targets) == 1
    assert not {"softmax", "scaled_dot_product_attention"} & set(fast.targets)
    assert found.stride() == usual.stride()


@pytest.mark.parametrize("case", ["nothing is faster", "a write", "float64", "gradients"])
def test_what_is_not_sure_or_not_faster_stays_torchs(case: str) -> None:
    model, x = model_and_input()
    if case == "float64":
        model, x = model.double(), x.double()

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.add_(1.0)
            return self.inner(x)

    asked: list[AttentionCall] = []
    choose = (lambda call: None) if case == "nothing is faster" else lambda call: (asked.append(call), HOW)[1]
    counting = Counting()
    fast = Passed(counting if case == "a write" else model, sdpa_substitution, put(choose))
    with pytest.raises(NotImplementedError, match="found nothing to change in the compiled graphs: split"):
        fast.call(x) if case == "gradients" else fast(x)
    assert not asked and "scaled_dot_product_attention" in fast.targets
    assert counting.calls == 0.0, "a graph that writes is not run beside the call"


def test_refused_without_a_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    model, x = model_and_input()
    with pytest.raises(NotImplementedError, match="needs Triton and a GPU"):
        Passed(model, sdpa_substitution, split_attention_by_hand)(x)


@pytest.mark.parametrize(("changes", "why"), [
    ({}, None),
    ({"operators": ("aten::_scaled_dot_product_efficient_attention", "aten::addmm")}, "no softmax between two products"),
    ({"dtype": "bfloat16"}, "bfloat16"),
    ({"device": "cpu"}, "CUDA"),
    ({"training": True}, "training"),
])
def test_the_pass_applies_to_strict_float32_attention_by_hand(changes: dict[str, Any], why: str | None) -> None:
    given = context(**{"operators": BY_HAND, "dtype": "float32", **changes})
    refusal = CATALOGUE["split_attention_by_hand"].refusal(given)
    assert (refusal is None) if why is None else why in (refusal or "")
    narrow = Context(given.facts, given.environment.model_copy(update={"matmul_tf32": True}), given.profile)
    assert CATALOGUE["split_attention_by_hand"].refusal(narrow) is not None


def test_it_comes_with_the_one_call_and_without_what_chooses_another_kernel() -> None:
    given = context(operators=BY_HAND, dtype="float32")
    item = candidate(["split_attention_by_hand"], given)
    assert item.name == "sdpa_substitution+split_attention_by_hand+compile_default" and item.precision == "equal"
    assert not compatible([*item.passes, "sdpa_backend"]) and not compatible([*item.passes, "bf16"])
    assert compatible([*item.passes, "split_products", "freeze_weights"])
    found = CATALOGUE["split_attention_by_hand"].predict(given)
    share = int(found.words.split("holds ")[1].split("%")[0]) / 100
    assert found.gain == (1.0, pytest.approx(1 / (1 - share * 2 / 3), rel=0.03))


def test_the_generated_file_holds_all_that_it_needs(tmp_path: Path) -> None:
    passes = [CATALOGUE[name] for name in candidate(["split_attention_by_hand", "freeze_weights"], context(operators=BY_HAND)).passes]
    text = render_source(WorkloadRef(path=Path("/w.py"), name="w"), facts(), passes, device="cpu")
    build = text[text.index("def build"):]
    assert 0 < build.index("sdpa_substitution") < build.index("split_attention_by_hand")
    path = write_source(tmp_path / "generated_by_hand.py", text)
    spec = importlib.util.spec_from_file_location("generated_by_hand", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model, x = model_and_input()
    how = module.Attention(HOW.mode, HOW.tile)

    class Eager(module.GraphBackend):
        def compiled(self, graph, example_inputs, options):
            return graph.forward

    def split(graph: torch.fx.GraphModule, example_inputs: Any) -> int:
        return module.with_attention_in_graph(graph, example_inputs, lambda call: how)

    torch._dynamo.reset()
    backend = Eager([module.sdpa_substitution, split], inductor=[module.freeze_weights])
    with torch.no_grad():
        torch.testing.assert_close(backend.checked(torch.compile(model, backend=backend))(x), model(x))
    assert backend.found == {"sdpa_substitution": 1, "split": 1}
