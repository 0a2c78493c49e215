"""Graph-level passes: each finds its places, keeps the values, and leaves alone what it is not sure of."""

from __future__ import annotations

import copy
import itertools
import math
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import FakeTensorMode

from graph_carrier import Passed
from kernelwright.probe.rewrites import fuse_conv_relu as conv_relu_file
from kernelwright.probe.rewrites import fuse_linear_activation as activation_file
from kernelwright.probe.rewrites import pad_to_tiles as padding_file
from kernelwright.probe.rewrites import sdpa_backend as attention_file
from kernelwright.probe.rewrites.fold_embedding import fold_embedding
from kernelwright.probe.rewrites.fold_linear_bn import fold_linear_bn
from kernelwright.probe.rewrites.freeze_weights import freeze_weights
from kernelwright.probe.rewrites.fuse_parallel_linears import fuse_parallel_linears
from kernelwright.probe.rewrites.graphs import FakeRun
from kernelwright.probe.rewrites.remove_redundant import remove_redundant
from kernelwright.probe.rewrites.sdpa_substitution import attention_of, sdpa_substitution

NOTHING = "found nothing to change"


class Called(nn.Module):
    """A module whose forward is the given function of itself."""

    def __init__(self, forward, **parts) -> None:
        super().__init__()
        torch.manual_seed(0)
        for name, part in parts.items():
            part = part() if callable(part) and not isinstance(part, nn.Module) else part
            self.register_buffer(name, part) if isinstance(part, torch.Tensor) else setattr(self, name, part)
        self.run = forward

    def forward(self, *args):
        return self.run(self, *args)


def settled(norm: nn.Module) -> nn.Module:
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    nn.init.uniform_(norm.weight, -1, 2)
    nn.init.normal_(norm.bias)
    return norm


def assert_no_worse(model: nn.Module, fast: Passed, *args: torch.Tensor) -> None:
    """Equal precision: the error to float64 is within four times the original's own (plus an ulp)."""
    with torch.no_grad():
        given, found = model(*args), fast(*args)
        exact = model.double()(*(arg.double() if arg.is_floating_point() else arg for arg in args))
        model.float()
    pairs = zip(*(value if isinstance(value, tuple) else (value,) for value in (given, found, exact)), strict=True)
    for old, new, truth in pairs:
        assert new.shape == old.shape and new.dtype == old.dtype and new.stride() == old.stride()
        limit = 4 * float((old - truth).abs().max()) + 1e-7 * float(truth.abs().max())
        assert float((new - truth).abs().max()) <= limit


def refuses(change, model, *args) -> None:
    with pytest.raises(NotImplementedError, match=NOTHING):
        Passed(model, change)(*args)


def qkv(self, x):
    b, t, d = x.shape
    q, k, v = self.q(x).view(b, t, 2, d // 2), self.k(x).view(b * t, d), torch.relu(self.v(x))
    return q.transpose(1, 2).contiguous(), k, v + self.other(k).view(b, t, d)


def test_linears_on_one_input_become_one_product() -> None:
    model = Called(qkv, q=nn.Linear(8, 8), k=nn.Linear(8, 8, bias=False), v=nn.Linear(8, 8), other=nn.Linear(8, 8)).eval()
    fast = Passed(model, fuse_parallel_linears)
    assert_no_worse(model, fast, torch.randn(2, 3, 8))
    assert fast.targets.count("linear") == 2 and fast.targets.count("cat") == 0


def test_parts_of_a_product_are_viewed_by_what_came_before_too() -> None:
    def viewed(self, x):
        q, k = self.q(x), self.k(x)
        return q[:2].view(-1), k.detach().view(2, -1, 4) + 1.0, q.view(2, 2, 2, 4).view(-1), self.drop(k).view(-1)

    model = Called(viewed, q=nn.Linear(8, 4), k=nn.Linear(8, 4), drop=nn.Dropout(0.1)).eval()
    fast = Passed(model, fuse_parallel_linears)
    assert_no_worse(model, fast, torch.randn(2, 2, 2, 8)[0].repeat(2, 1, 1))
    assert fast.backend.found["fuse_parallel_linears"] == 1


@pytest.mark.parametrize("reads", [
    lambda q: torch.as_strided(q, (4,), (2,)), lambda q: q.t().as_strided((4,), (2,)), lambda q: q.view(torch.int32),
    lambda q: torch.view_as_complex(q.unflatten(-1, (2, 2))).real, lambda q: q.view(size=(-1,)), lambda q: q[0].view_as(torch.ones(2, 2)),
])
def test_parts_whose_layout_is_asked_for_stay_apart(reads) -> None:
    model = Called(lambda self, x: (reads(self.q(x)), self.k(x)), q=nn.Linear(8, 4), k=nn.Linear(8, 4)).eval()
    refuses(fuse_parallel_linears, model, torch.randn(3, 8))


@pytest.mark.parametrize(("weight", "bias"), [((4,), None), ((3, 4), (1,))])
@pytest.mark.parametrize(("change", "file", "measure", "value"), [
    (fuse_parallel_linears, None, "", None), (activation_file.fuse_linear_activation, activation_file, "fused_is_faster", True),
    (padding_file.pad_to_tiles, padding_file, "best_padding", (1, 0))])
def test_weights_that_are_no_linear_layers_stay(monkeypatch: pytest.MonkeyPatch, weight, bias, change, file, measure, value) -> None:
    if file is not None:
        monkeypatch.setattr(file, measure, lambda *_: value)
    parts = {name: None if size is None else nn.Parameter(torch.ones(size)) for name, size in (("w", weight), ("b", bias))}
    refuses(change, Called(lambda self, x: (torch.relu(F.linear(x, self.w, self.b)), F.linear(x, self.w, self.b)), **parts).eval(),
            torch.randn(2, 4))


def test_linears_around_a_write_to_their_input_stay_apart() -> None:
    def written(self, x):
        x = x + 1
        first = self.q(x)
        x.mul_(2)
        return first + self.k(x)

    refuses(fuse_parallel_linears, Called(written, q=nn.Linear(8, 8), k=nn.Linear(8, 8)).eval(), torch.randn(2, 8))


def embed(self, ids):
    x = self.norm(self.table(ids) * 3)
    return self.head(x + self.down(F.gelu(self.up(x))))


def test_row_wise_layers_after_an_embedding_move_into_its_table() -> None:
    model = Called(embed, table=nn.Embedding(50, 8), norm=nn.LayerNorm(8), up=nn.Linear(8, 32), down=nn.Linear(32, 8),
                   head=nn.Linear(8, 100)).eval()
    fast = Passed(model, fold_embedding)
    assert_no_worse(model, fast, torch.randint(0, 50, (4, 6)))
    assert [name for name in fast.targets if name in ("embedding", "linear", "layer_norm", "gelu")] == ["embedding", "linear"]


@pytest.mark.parametrize("forward", [
    lambda self, ids: self.up(self.table(ids)),  # wider than the table
    lambda self, ids: self.table(ids) + self.positions,  # differs from row to row
    lambda self, ids: self.table(ids).softmax(0),  # mixes rows
])
def test_what_is_not_row_wise_or_no_smaller_stays_after_the_embedding(forward) -> None:
    model = Called(forward, table=nn.Embedding(50, 8), up=nn.Linear(8, 32), positions=torch.randn(6, 8)).eval()
    refuses(fold_embedding, model, torch.randint(0, 50, (4, 6)))


def causal(self, q, k, v):
    scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    scores = scores.masked_fill(self.seen[:, :, : q.size(2), : q.size(2)] == 0, float("-inf"))
    return self.drop(F.softmax(scores, dim=-1)) @ v


def added(self, q, k, v):
    return torch.matmul(torch.softmax(torch.matmul(q, k.permute(0, 1, 3, 2)) / 2.0 + self.bias, -1), v)


def filled(self, q, k, v):
    scores = (q * 0.5).matmul(k.mT)
    return torch.softmax(scores.masked_fill(self.seen == 0, -1e9).masked_fill(self.gone, float("-inf")), -1).matmul(v)


def flat(self, q, k, v):
    q, k, v = (item.flatten(0, 1) for item in (q, k, v))
    return torch.bmm(torch.bmm(q, k.transpose(1, 2)).mul(0.3).softmax(dim=2), v)


@pytest.mark.parametrize("forward", [causal, added, filled, flat])
def test_attention_by_hand_becomes_one_call(forward) -> None:
    gone = torch.zeros(6, 6, dtype=torch.bool)
    gone[2, 4] = True
    seen = torch.tril(torch.ones(6, 6)).view(1, 1, 6, 6)
    model = Called(forward, drop=nn.Dropout(0.1), seen=seen, bias=torch.randn(6, 6), gone=gone).eval()
    fast = Passed(model, sdpa_substitution)
    assert_no_worse(model, fast, *torch.randn(3, 2, 3, 6, 8))
    assert "scaled_dot_product_attention" in fast.targets and "softmax" not in fast.targets


def as_llama(self, q, k, v):
    scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(8)
    scores = scores + self.bias[:6, :6].to(q.dtype)
    return torch.matmul(F.softmax(scores.float(), dim=-1).type_as(q), v)


def as_transformers(self, q, k, v):
    weights = torch.matmul(q, k.transpose(2, 3)) * 0.4 + self.bias[:6, :6].to(q.dtype)
    weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(F.dropout(weights, p=0.0, training=self.training), v)


def as_masked(self, q, k, v):
    weights = F.softmax((q @ k.mT).float().masked_fill(self.bias < 0, -math.inf) / 3, dim=-1)
    return F.dropout(input=weights.to(q.dtype), p=0.0) @ v


@pytest.mark.parametrize(("forward", "dtype"), [
    *((forward, dtype) for forward in (as_llama, as_transformers) for dtype in (torch.float32, torch.bfloat16)),
    (as_masked, torch.bfloat16), (as_masked, torch.float16)])
def test_attention_by_hand_with_a_wide_softmax_becomes_one_call(forward, dtype) -> None:
    model = Called(forward, bias=torch.full((6, 6), -math.inf).triu(1)).eval()
    fast = Passed(model, sdpa_substitution)
    given = [part.to(dtype) for part in torch.randn(3, 2, 3, 6, 8)]
    assert_no_worse(model, fast, *given)
    assert "scaled_dot_product_attention" in fast.targets and "softmax" not in fast.targets


def wide_mask(self, q, k, v):
    return F.softmax((q @ k.mT).float() + self.bias, dim=-1).type_as(q) @ v


def wide_weak_fill(self, q, k, v):
    return F.softmax((q @ k.mT).float().masked_fill(self.seen == 0, -1e9), dim=-1).type_as(q) @ v


def wide_product(self, q, k, v):
    return F.softmax((q @ k.mT).float(), dim=-1) @ v.float()


def narrowed_first(self, q, k, v):
    return F.softmax((q.float() @ k.float().mT).to(q.dtype), dim=-1) @ v


def narrowed_further(self, q, k, v):
    return F.softmax((q @ k.mT).float(), dim=-1).to(torch.float8_e5m2).to(q.dtype) @ v


def narrow_softmax(self, q, k, v):
    return F.softmax((q @ k.mT).float() + self.bias, dim=-1, dtype=q.dtype) @ v


@pytest.mark.parametrize("forward", [wide_mask, wide_weak_fill, wide_product, narrowed_first, narrowed_further, narrow_softmax])
def test_attention_whose_casts_are_not_those_of_the_kernels_stays(forward) -> None:
    model = Called(forward, seen=torch.tril(torch.ones(6, 6)), bias=torch.randn(6, 6)).eval()
    refuses(sdpa_substitution, model, *torch.randn(3, 2, 3, 6, 8).bfloat16())


@pytest.mark.parametrize("forward", [as_llama, as_transformers, added])
def test_what_is_added_to_float16_scores_stays(forward) -> None:
    """Where all of a row is masked by the least float16, torch's scores are all the same, and the kernels' as they were."""
    refuses(sdpa_substitution, Called(forward, bias=torch.full((6, 6), -65504.0).half()).eval(), *torch.randn(3, 2, 3, 6, 8).half())


def test_a_number_for_a_mask_stays() -> None:
    refuses(sdpa_substitution, Called(added, bias=torch.tensor(-1.0)).eval(), *torch.randn(3, 2, 3, 6, 8))


def test_what_is_hidden_stays_hidden_beside_a_mask_that_is_added() -> None:
    def forward(self, q, k, v):
        return F.softmax((q @ k.mT + self.padding).masked_fill(self.later, -math.inf), dim=-1) @ v

    padding = torch.zeros(6, 6)
    padding[:, :2] = torch.finfo(torch.float32).min
    model = Called(forward, padding=padding, later=torch.ones(6, 6, dtype=torch.bool).triu(1)).eval()
    fast, given = Passed(model, sdpa_substitution), torch.randn(3, 2, 3, 6, 8)
    with torch.no_grad():
        torch.testing.assert_close(fast(*given), model(*given))
    assert "scaled_dot_product_attention" in fast.targets


HIDDEN = {
    "later": lambda self, scores: scores.masked_fill(self.later, -math.inf),
    "padded": lambda self, scores: scores.masked_fill(self.padded, -1e9),
    "far padded": lambda self, scores: scores.masked_fill(self.padded, torch.finfo(torch.float32).min),
    "added": lambda self, scores: scores + self.bias,
}


@pytest.mark.parametrize("steps", [steps for count in (1, 2, 3) for steps in itertools.permutations(HIDDEN, count)], ids=" ".join)
def test_masks_on_one_another_hide_what_the_last_one_leaves(steps) -> None:
    """Padding in front, as for generation: of the first rows nothing is seen but by what fills last."""
    def forward(self, q, k, v):
        scores = q @ k.mT
        for step in steps:
            scores = HIDDEN[step](self, scores)
        return F.softmax(scores, dim=-1) @ v

    padded = torch.zeros(2, 1, 1, 6, dtype=torch.bool)
    padded[0, ..., :3] = True
    bias = torch.randn(6, 6)
    bias[:, 4] = -math.inf
    model = Called(forward, padded=padded, bias=bias, later=torch.ones(6, 6, dtype=torch.bool).triu(1)).eval()
    fast, given = Passed(model, sdpa_substitution), torch.randn(3, 2, 3, 6, 8)
    with torch.no_grad():
        wanted = model(*given)
        torch.testing.assert_close(fast(*given).masked_fill(wanted.isnan(), math.nan), wanted, equal_nan=True)
    assert "scaled_dot_product_attention" in fast.targets and "softmax" not in fast.targets


def test_attention_under_cuda_autocast_is_found() -> None:
    """Autocast's softmax is float32's there. Values as they would look on a GPU."""
    found, dtypes = [], []

    def backend(graph: torch.fx.GraphModule, example_inputs: list) -> object:
        for autocast in (False, True):
            seen = torch.fx.GraphModule(graph, copy.deepcopy(graph.graph))
            for node in seen.graph.nodes:
                node.meta = {}
            try:  # torch.autocast turns itself off where there is no GPU
                torch.set_autocast_enabled("cuda", autocast)
                torch.set_autocast_dtype("cuda", torch.bfloat16)
                with FakeTensorMode():
                    FakeRun(seen).run(*(torch.empty(item.shape, device="cuda") for item in example_inputs))
            finally:
                torch.set_autocast_enabled("cuda", False)
            softmax = next(node for node in seen.graph.nodes if node.target is F.softmax)
            dtypes.append((softmax.args[0].meta["example_value"].dtype, softmax.meta["example_value"].dtype))
            found.append(sum(attention_of(node) is not None for node in seen.graph.nodes))
        return graph.forward

    def forward(self, x):
        q, k, v = (part.view(2, 6, 3, 8).transpose(1, 2) for part in self.qkv(x).split(24, dim=2))
        return F.softmax((q @ k.mT).masked_fill(self.seen == 0, -math.inf), dim=-1) @ v

    model = Called(forward, qkv=nn.Linear(8, 72), seen=torch.tril(torch.ones(6, 6))).eval()
    with torch.no_grad():
        torch.compile(model, backend=backend)(torch.randn(2, 6, 8))
    assert dtypes == [(torch.float32, torch.float32), (torch.bfloat16, torch.float32)] and found == [1, 1]


def weak_fill(self, q, k, v):
    return torch.softmax((q @ k.mT).masked_fill(self.seen == 0, -100.0), -1) @ v


def scores_kept(self, q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ v, weights


def other_dimension(self, q, k, v):
    return torch.softmax(q @ k.mT, -2) @ v


def scaled_mask(self, q, k, v):
    return torch.softmax((q @ k.mT + self.seen) * 0.5, -1) @ v


@pytest.mark.parametrize("forward", [weak_fill, scores_kept, other_dimension, scaled_mask])
def test_attention_that_is_not_quite_the_same_stays(forward) -> None:
    refuses(sdpa_substitution, Called(forward, seen=torch.tril(torch.ones(6, 6))).eval(), *torch.randn(3, 2, 3, 6, 8))


def hidden_by(make):
    """Attention whose mask is made in the call."""
    def forward(self, q, k, v):
        gone = make(self, q.size(-2))
        scores = (q @ k.transpose(-2, -1)) / 8**0.5
        return F.softmax(scores.masked_fill(gone, -math.inf), dim=-1) @ v
    return forward


@pytest.mark.parametrize("make", [
    lambda self, n: torch.triu(torch.ones(n, n), diagonal=1).bool(),
    lambda self, n: torch.ones(n, n, dtype=torch.bool).tril().logical_not(),
    lambda self, n: ~torch.ones(n, n, dtype=torch.bool).tril()[None, None],
    lambda self, n: torch.arange(n)[None, :] > torch.arange(n)[:, None],
    lambda self, n: torch.tril(torch.ones(n, n)).view(1, 1, n, n) == 0,
], ids=["triu", "tril", "four dimensions", "places", "numbers"])
def test_a_mask_that_the_call_makes_to_hide_what_is_to_come_is_none_to_the_kernels(make) -> None:
    model = Called(hidden_by(make)).eval()
    fast = Passed(model, sdpa_substitution)
    assert_no_worse(model, fast, *torch.randn(3, 2, 3, 6, 8))
    options = fast.options["scaled_dot_product_attention"]
    assert options["is_causal"] is True and "attn_mask" not in options


def assigned(change):
    """A mask that is changed by an assignment of Python's to a view of it."""
    def make(self, n):
        gone = torch.triu(torch.ones(n, n), diagonal=1).bool()
        change(gone[:, :])
        return gone
    return make


def changed_through(view):
    """A mask that hides what is to come when it is made, and is changed by a view of it before it is used."""
    def make(self, n):
        gone = torch.triu(torch.ones(n, n), diagonal=1).bool()
        view(gone)
        return gone
    return make


@pytest.mark.parametrize("make", [
    lambda self, n: self.seen[:, :, :n, :n] == 0,
    lambda self, n: torch.triu(torch.ones(n, n), diagonal=2).bool(),
    lambda self, n: torch.triu(torch.ones(2, 3, n, n), diagonal=1).bool() & (torch.arange(3) > 0)[None, :, None, None],
    changed_through(lambda gone: gone.t().fill_(False)),
    changed_through(lambda gone: gone.view(-1)[2:].zero_()),
    changed_through(lambda gone: gone[0][:2].fill_(False)),
    changed_through(lambda gone: gone.detach().fill_(False)),
    changed_through(lambda gone: gone.__setitem__((0, 1), False)),
    assigned(lambda gone: operator.iand(gone, torch.arange(6) != 1)),
    assigned(lambda gone: operator.ixor(gone, gone)),
], ids=["kept by the model", "a key more", "a head that sees all", "turned", "in a row", "a row", "detached", "set", "&=", "^="])
def test_any_other_mask_is_given_to_the_kernels(make) -> None:
    model = Called(hidden_by(make), seen=torch.tril(torch.ones(9, 9)).view(1, 1, 9, 9)).eval()
    fast = Passed(model, sdpa_substitution)
    assert_no_worse(model, fast, *torch.randn(3, 2, 3, 6, 8))
    options = fast.options["scaled_dot_product_attention"]
    assert "is_causal" not in options and "attn_mask" in options


def with_fill(fill):
    def forward(self, q, k, v):
        n = q.size(-2)
        return F.softmax((q @ k.mT / 8**0.5).masked_fill(self.seen[:, :, :n, :n] == 0, fill), dim=-1) @ v
    return forward


def with_added(self, q, k, v):
    n = q.size(-2)
    return F.softmax(q @ k.mT / 8**0.5 + self.bias[:n, :n], dim=-1) @ v


LATER = torch.full((9, 9), -math.inf).triu(1)


@pytest.mark.parametrize(("forward", "bias", "causal"), [
    (with_fill(-math.inf), LATER, True),
    (with_fill(-1e10), LATER, True),
    (with_added, LATER, True),
    (with_added, torch.full((9, 9), -math.inf).triu(2), False),
    (with_added, torch.full((9, 9), -math.inf).triu(1) + torch.eye(9), False),
], ids=["filled", "filled with a number", "added", "a key more", "more than a mask"])
def test_a_mask_that_is_frozen_with_the_weights_is_known(forward, bias, causal) -> None:
    """minGPT keeps its mask in a buffer."""
    model = Called(forward, seen=torch.tril(torch.ones(9, 9)).view(1, 1, 9, 9), bias=bias).eval()
    fast = Passed(model, sdpa_substitution, inductor=[freeze_weights])
    assert_no_worse(model, fast, *torch.randn(3, 2, 3, 6, 8))
    options = fast.options["scaled_dot_product_attention"]
    assert options.get("is_causal", False) is causal and ("attn_mask" in options) is not causal
    usual = Passed(model, sdpa_substitution)
    assert_no_worse(model, usual, *torch.randn(3, 2, 3, 6, 8))
    assert "is_causal" not in usual.options["scaled_dot_product_attention"], "another mask may be put into the buffer"


def test_a_frozen_mask_that_the_call_changes_is_not_known() -> None:
    def forward(self, q, k, v):
        self.seen[0, 0].view(-1)[1].fill_(1.0)
        return with_fill(-math.inf)(self, q, k, v)

    model = Called(forward, seen=torch.tril(torch.ones(9, 9)).view(1, 1, 9, 9)).eval()
    fast = Passed(model, sdpa_substitution, inductor=[freeze_weights])
    with pytest.raises(BackendCompilerFailed, match="view input mutations"):  # what is written to by a view can't be frozen
        fast(*torch.randn(3, 2, 3, 6, 8))
    assert "is_causal" not in fast.options["scaled_dot_product_attention"]


def test_dropout_of_nothing_is_none_in_training_too() -> None:
    model = Called(causal, drop=nn.Dropout(0.0), seen=torch.tril(torch.ones(1, 1, 6, 6))).train()
    fast = Passed(model, sdpa_substitution)
    assert_no_worse(model, fast, *torch.randn(3, 2, 3, 6, 8))
    assert "scaled_dot_product_attention" in fast.targets and "softmax" not in fast.targets


def test_dropout_in_training_keeps_its_attention() -> None:
    refuses(sdpa_substitution, Called(causal, drop=nn.Dropout(0.1), seen=torch.ones(1, 1, 6, 6)).train(), *torch.randn(3, 2, 3, 6, 8))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": "bool"}, {"attn_mask": "float"}])
def test_a_measured_attention_kernel_replaces_the_usual_one(monkeypatch: pytest.MonkeyPatch, options) -> None:
    usual = [2.0]
    monkeypatch.setattr(attention_file, "median_us", lambda call, device: usual.pop() if usual else 1.0)
    mask = {"bool": torch.ones(6, 6, dtype=torch.bool).tril(), "float": torch.randn(6, 6)}.get(options.get("attn_mask"))
    options = {name: value for name, value in options.items() if name != "attn_mask"}
    model = Called(lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v, self.mask, **options), mask=mask).eval()
    fast = Passed(model, attention_file.sdpa_backend)
    q, k, v = torch.randn(3, 2, 3, 6, 8)
    with torch.no_grad():
        assert torch.allclose(fast(q, k, v), model(q, k, v), atol=1e-6)
    assert "plain_attention" in fast.targets


def test_batch_norm_and_factors_fold_into_the_layer_before() -> None:
    model = Called(lambda self, x, image: (self.norm(self.linear(x) * self.scale - 2.0), self.norm2(self.conv(image))),
                   linear=nn.Linear(8, 4), norm=settled(nn.BatchNorm1d(4)), scale=torch.randn(4),
                   conv=nn.Conv2d(3, 4, 3, padding=1, bias=False), norm2=settled(nn.BatchNorm2d(4))).eval()
    fast = Passed(model, fold_linear_bn)
    assert_no_worse(model, fast, torch.randn(5, 8), torch.randn(2, 3, 6, 6))
    assert fast.targets == ["linear", "conv2d"] and fast.backend.found["fold_linear_bn"] == 4


@pytest.mark.parametrize("forward", [
    lambda self, x: self.norm(self.linear(x)) + self.linear(x)[:, :1] if self.training else self.linear(x) * self.rows,
    lambda self, x: (lambda y: self.norm(y) + y)(self.linear(x)),
])
def test_a_shared_result_or_a_factor_a_row_is_not_folded(forward) -> None:
    model = Called(forward, linear=nn.Linear(8, 4), norm=settled(nn.BatchNorm1d(4)), rows=torch.randn(5, 1)).eval()
    refuses(fold_linear_bn, model, torch.randn(5, 8))


def test_a_batch_norm_over_a_sequence_is_not_over_the_linears_columns() -> None:
    model = Called(lambda self, x: self.norm(self.linear(x)), linear=nn.Linear(8, 4), norm=settled(nn.BatchNorm1d(5))).eval()
    refuses(fold_linear_bn, model, torch.randn(3, 5, 8))


@pytest.mark.parametrize(("conv", "sizes", "factors"), [
    (nn.Conv2d(3, 4, 3, padding=1), (3, 4, 6), (4, 1, 1)), (nn.Conv1d(3, 4, 3, padding=1), (3, 4), (4, 1)),
    (nn.Conv3d(3, 4, 1), (3, 4, 4, 4), (4, 1, 1, 1)),
], ids=str)
def test_factors_a_channel_fold_into_a_convolution_without_a_batch(conv: nn.Module, sizes: tuple, factors: tuple) -> None:
    model = Called(lambda self, x: self.conv(x) * self.scale + 2.0, conv=conv, scale=torch.randn(factors)).eval()
    fast = Passed(model, fold_linear_bn)
    assert_no_worse(model, fast, torch.randn(sizes))
    assert fast.backend.found["fold_linear_bn"] == 2


@pytest.mark.parametrize("forward", [
    lambda self, x: self.conv(x) * self.rows, lambda self, x: self.conv(x) * self.rows[None, None],
    lambda self, x: F.batch_norm(self.conv(x), self.mean, self.variance),
], ids=["factors a row", "a dimension more", "batch norm"])
def test_rows_are_not_the_channels_of_a_convolution_without_a_batch(forward) -> None:
    model = Called(forward, conv=nn.Conv2d(3, 4, 3, padding=1), rows=torch.randn(4, 1), mean=torch.randn(4), variance=torch.rand(4) + 0.5)
    refuses(fold_linear_bn, model.eval(), torch.randn(3, 4, 6))


def test_convolution_and_relu_stay_two_calls_without_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_relu_file, "one_call_is_faster", lambda *args: True)
    model = Called(lambda self, x: torch.relu(self.a(x)), a=nn.Conv2d(3, 8, 3)).eval()
    refuses(conv_relu_file.fuse_conv_relu, model, torch.randn(3, 8, 8))


def test_convolution_and_relu_become_one_call_in_nhwc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_relu_file, "one_call_is_faster", lambda *args: True)
    model = Called(lambda self, x: F.max_pool2d(torch.relu(self.b(F.relu(self.a(x)))), 2).flatten(1), a=nn.Conv2d(3, 8, 3, padding=1),
                   b=nn.Conv2d(8, 8, 3, stride=2, groups=2, bias=False)).eval()
    fast = Passed(model, conv_relu_file.fuse_conv_relu)
    assert_no_worse(model, fast, torch.randn(2, 3, 12, 12))
    assert fast.backend.found["fuse_conv_relu"] == 2 and "conv2d" not in fast.targets
    assert fast.targets.count("contiguous") == 2, "the first result goes to the second call as it is"


def test_where_one_call_measures_slower_two_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([2.0, 3.0, 1.0])
    monkeypatch.setattr(conv_relu_file, "median_us", lambda call, device: (call(), next(times))[1])
    model = Called(lambda self, x: torch.relu(self.a(x)), a=nn.Conv2d(3, 8, 3)).eval()
    refuses(conv_relu_file.fuse_conv_relu, model, torch.randn(2, 3, 8, 8))


def test_linear_and_relu_become_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1.0, 2.0] * 2)
    monkeypatch.setattr(activation_file, "median_us", lambda call, device: (call(), next(times))[1])
    model = Called(lambda self, x: self.c(F.gelu(self.b(F.relu(self.a(x))), approximate="tanh")), a=nn.Linear(8, 16),
                   b=nn.Linear(16, 8), c=nn.Linear(8, 3)).eval()
    fast = Passed(model, activation_file.fuse_linear_activation)
    assert_no_worse(model, fast, torch.randn(2, 5, 8))
    assert fast.backend.found["fuse_linear_activation"] == 1 and "gelu" in fast.targets, "a CPU's fused GELU is not the tanh form"


def test_odd_sizes_are_padded_where_that_measures_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([3.0, 1.0, 2.0, 1.0, 5.0, 5.0])
    monkeypatch.setattr(padding_file, "median_us", lambda call, device: (call(), next(times))[1])
    model = Called(lambda self, x: (self.a(x), self.b(x)), a=nn.Linear(10, 13), b=nn.Linear(10, 7)).eval()
    fast = Passed(model, padding_file.pad_to_tiles)
    assert_no_worse(model, fast, torch.randn(3, 10))
    assert fast.backend.found["pad_to_tiles"] == 1


def noisy(x, weight):
    y = x.float().contiguous() * 1
    y = y.transpose(0, 1).transpose(0, 1) - 0.0
    return (y @ weight).double().float() + 1, y.half().float() @ weight


def test_calls_that_change_nothing_go_and_those_that_round_stay() -> None:
    x, weight = torch.randn(4, 4), torch.randn(4, 4)
    fast = Passed(noisy, remove_redundant)
    assert all(torch.equal(a, b) for a, b in zip(fast(x, weight), noisy(x, weight), strict=True))
    assert fast.backend.found["remove_redundant"] >= 6 and "half" in fast.targets and "double" not in fast.targets


@pytest.mark.parametrize(("weight", "bias"), [((4, 8), (3, 4)), ((8,), None), ((4, 8), (2, 1, 4))])
def test_a_shift_a_row_is_not_folded_into_a_table(weight, bias) -> None:
    parts = {name: None if size is None else nn.Parameter(torch.randn(size)) for name, size in (("w", weight), ("b", bias))}
    refuses(fold_embedding, Called(lambda self, ids: F.linear(self.e(ids), self.w, self.b), e=nn.Embedding(3, 8), **parts).eval(),
            torch.tensor([[0, 1, 2], [2, 2, 0]]))


def test_arguments_by_name_are_read_too() -> None:
    model = Called(lambda self, ids: F.linear(input=self.e(ids), weight=self.l.weight), e=nn.Embedding(10, 8), l=nn.Linear(8, 8)).eval()
    assert_no_worse(model, Passed(model, fold_embedding), torch.tensor([[1, 2]]))
    refuses(remove_redundant, lambda x: torch.transpose(input=x, dim0=0, dim1=1).transpose(0, 1) + 1, torch.randn(2, 3))


@pytest.mark.parametrize("forward", [
    lambda x: (x.transpose(0, 1).clone(), x.clone()),
    lambda x: x.contiguous().add_(1),
    lambda x: (x + 1) + 0.0,
])
def test_copies_that_can_be_seen_stay(forward) -> None:
    refuses(remove_redundant, forward, torch.randn(4, 4))
