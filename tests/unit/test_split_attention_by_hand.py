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
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.plan import candidate, compatible
from kernelwright.probe.rewrites.attention import Attention
from kernelwright.probe.rewrites.attention_choice import AttentionCall
from kernelwright.probe.rewrites.attention_in_graph import attended_in_graph
from kernelwright.probe.rewrites.freeze_weights import freeze_weights
from kernelwright.probe.rewrites.scaled_fp16_attention_by_hand import scaled_fp16_attention_by_hand
from kernelwright.probe.rewrites.sdpa_substitution import sdpa_substitution
from kernelwright.probe.rewrites.split_attention_by_hand import split_attention_by_hand
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
        return attended_in_graph(graph, example_inputs, choose)
    return split


def model_and_input() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return CausalAttention().eval(), torch.randn(3, 9, 32)


@pytest.mark.parametrize("inductor", [[], [freeze_weights]], ids=["a mask", "a mask that is known"])
def test_attention_by_hand_is_measured_on_numbers_of_its_shapes_and_strides(inductor) -> None:
    model, x = model_and_input()
    seen: list[AttentionCall] = []
    state = torch.get_rng_state()
    fast = Passed(model, sdpa_substitution, put(lambda call: (seen.append(call), HOW)[1]), inductor=inductor)
    found = fast(x)
    assert torch.equal(torch.get_rng_state(), state), "nothing is drawn from the caller's generator"
    with torch.no_grad():
        exact, usual = model.double()(x.double()), model.float()(x)
        q = model.qkv(x)[:, :, :32].view(3, 9, 2, 16).transpose(1, 2)
    assert float((found - exact).abs().max()) <= 4 * float((usual - exact).abs().max()) + 1e-7
    (call,) = seen
    assert (call.query.shape, call.query.stride()) == (q.shape, q.stride()) and call.query.std() > 0.5
    assert (call.mask is None) == call.is_causal == bool(inductor) and call.scale == 0.25
    assert call.mask is None or call.mask.all(), "a row that sees nothing would err by nothing"
    assert sum("attend" in name for name in fast.targets) == 1
    assert not {"softmax", "scaled_dot_product_attention"} & set(fast.targets)
    assert found.stride() == usual.stride()


@pytest.mark.parametrize("case", ["nothing is faster", "float64", "gradients"])
def test_what_is_not_sure_or_not_faster_stays_torchs(case: str) -> None:
    model, x = model_and_input()
    if case == "float64":
        model, x = model.double(), x.double()
    asked: list[AttentionCall] = []
    choose = (lambda call: None) if case == "nothing is faster" else lambda call: (asked.append(call), HOW)[1]
    fast = Passed(model, sdpa_substitution, put(choose))
    with pytest.raises(NotImplementedError, match="found nothing to change in the compiled graphs: split"):
        fast.call(x) if case == "gradients" else fast(x)
    assert not asked and "scaled_dot_product_attention" in fast.targets


def test_sizes_that_are_not_fixed_stay_torchs() -> None:
    """A second size of the same code makes them symbols."""
    model, _x = model_and_input()
    asked: list[AttentionCall] = []
    fast = Passed(model, sdpa_substitution, put(lambda call: (asked.append(call), HOW)[1]))
    for rows in (9, 12, 14):
        given = torch.randn(3, rows, 32)
        with torch.no_grad():
            torch.testing.assert_close(fast(given), model(given))
    assert len(asked) == 1 and len(fast.graphs) == 2


def test_keys_that_heads_share_by_a_stride_of_zero_stay_torchs() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        q, k = x.view(3, 9, 2, 16).transpose(1, 2), x[:, None, :, :16].expand(3, 2, 9, 16)
        return F.softmax(q @ k.mT, dim=-1) @ k

    asked: list[AttentionCall] = []
    with pytest.raises(NotImplementedError, match="found nothing to change in the compiled graphs: split"):
        Passed(forward, sdpa_substitution, put(lambda call: (asked.append(call), HOW)[1]))(torch.randn(3, 9, 32))
    assert not asked


def test_an_expanded_mask_is_measured_as_it_is() -> None:
    mask = torch.rand(3, 1, 1, 9) > 0.3

    def forward(x: torch.Tensor) -> torch.Tensor:
        q = x.view(3, 9, 2, 16).transpose(1, 2)
        return F.softmax((q @ q.mT).masked_fill(~mask.expand(3, 1, 9, 9), -math.inf), dim=-1) @ q

    asked: list[AttentionCall] = []
    x = torch.randn(3, 9, 32)
    fast = Passed(forward, sdpa_substitution, put(lambda call: (asked.append(call), HOW)[1]))
    torch.testing.assert_close(fast(x), forward(x))
    assert [call.mask is not None and bool(call.mask.all()) for call in asked] == [True]


def test_attention_under_autocast_stays_torchs() -> None:
    """Its result is of another type than its float32 queries."""
    asked: list[AttentionCall] = []
    choose = lambda call: (asked.append(call), HOW)[1]  # noqa: E731
    q = torch.randn(1, 2, 9, 16)

    def backend(graph: torch.fx.GraphModule, example_inputs: list) -> Any:
        node = next(node for node in graph.graph.nodes if node.target is F.scaled_dot_product_attention)
        assert attended_in_graph(graph, example_inputs, choose) == (0 if q.dtype != node.meta["example_value"].dtype else 1)
        return graph.forward

    def forward(q: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.scaled_dot_product_attention(q, q, q)

    with torch.no_grad():
        assert torch.compile(forward, backend=backend)(q).dtype == torch.bfloat16
    assert not asked


def test_a_model_that_changes_its_buffers_does_so_once_a_call() -> None:
    model, x = model_and_input()

    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model
            self.register_buffer("calls", torch.tensor(64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls.floor_divide_(2)
            return self.inner(x)

    counting = Counting()
    fast = Passed(counting, sdpa_substitution, put(lambda call: HOW))
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
    assert counting.calls == 32


def test_refused_without_a_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    model, x = model_and_input()
    for attention in (split_attention_by_hand, scaled_fp16_attention_by_hand):
        with pytest.raises(NotImplementedError, match="needs Triton and a GPU"):
            Passed(model, sdpa_substitution, attention)(x)


def test_one_product_is_of_the_precision_of_tf32() -> None:
    given = context(operators=BY_HAND, dtype="float32")
    item = candidate(["scaled_fp16_attention_by_hand"], given)
    assert item.name == "sdpa_substitution+scaled_fp16_attention_by_hand+compile_default" and item.precision == "tf32"
    assert compatible([*item.passes, "tf32", "scaled_fp16", "freeze_weights"])
    for other in ("split_attention_by_hand", "sdpa_backend", "bf16"):
        assert not compatible([*item.passes, other])
    one, three = (CATALOGUE[name].predict(given).gain for name in ("scaled_fp16_attention_by_hand", "split_attention_by_hand"))
    assert 1.0 - 1.0 / one[1] == pytest.approx((1.0 - 1.0 / three[1]) * (5 / 6) / (2 / 3))


@pytest.mark.parametrize(("changes", "why"), [
    ({}, None),
    ({"operators": ("aten::_scaled_dot_product_efficient_attention", "aten::addmm")}, "no softmax between two products"),
    ({"dtype": "bfloat16"}, "bfloat16"),
    ({"device": "cpu"}, "CUDA"),
    ({"training": True}, "training"),
])
def test_the_pass_applies_to_strict_float32_attention_by_hand(changes: dict[str, Any], why: str | None) -> None:
    given = context(**{"operators": BY_HAND, "dtype": "float32", **changes})
    for name in ("split_attention_by_hand", "scaled_fp16_attention_by_hand"):
        refusal = CATALOGUE[name].refusal(given)
        assert (refusal is None) if why is None else why in (refusal or "")


def test_it_comes_with_the_one_call_and_without_what_chooses_another_kernel() -> None:
    given = context(operators=BY_HAND, dtype="float32")
    item = candidate(["split_attention_by_hand"], given)
    assert item.name == "sdpa_substitution+split_attention_by_hand+compile_default" and item.precision == "equal"
    assert not compatible([*item.passes, "sdpa_backend"]) and not compatible([*item.passes, "bf16"])
    assert compatible([*item.passes, "split_products", "freeze_weights"])
    found, one_call = (CATALOGUE[name].predict(given) for name in ("split_attention_by_hand", "sdpa_substitution"))
    share = int(found.words.split("holds ")[1].split("%")[0]) / 100
    assert found.gain == (1.0, pytest.approx(1 / (1 - (1 - math.sqrt(1 - share)) * 2 / 3), rel=0.03))
    together = math.sqrt(one_call.gain[1]) * math.sqrt(found.gain[1])
    assert math.sqrt(one_call.gain[1]) < together < one_call.gain[1], "no more than all of it goes"


@pytest.mark.parametrize("name", ["split_attention_by_hand", "scaled_fp16_attention_by_hand"])
def test_the_generated_file_holds_all_that_it_needs(tmp_path: Path, name: str) -> None:
    passes = [CATALOGUE[one] for one in candidate([name, "freeze_weights"], context(operators=BY_HAND)).passes]
    text = render_source(WorkloadRef(path=Path("/w.py"), name="w"), facts(), passes, device="cpu")
    build = text[text.index("def build"):]
    assert 0 < build.index("sdpa_substitution") < build.index(name)
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
        return module.attended_in_graph(graph, example_inputs, lambda call: how)

    torch._dynamo.reset()
    assert callable(getattr(module, name))
    backend = Eager([module.sdpa_substitution, split], inductor=[module.freeze_weights])
    with torch.no_grad():
        torch.testing.assert_close(backend.checked(torch.compile(model, backend=backend))(x), model(x))
    assert backend.found == {"sdpa_substitution": 1, "split": 1}
