"""What a rewrite must not lose sight of: writes in place, types, autocast, hooks, and what the caller changes between two calls."""

from __future__ import annotations

import copy
import gc
import operator
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graph_carrier import Passed
from kernelwright.probe.rewrites import fuse_conv_relu as conv_relu_file
from kernelwright.probe.rewrites import fuse_linear_activation as activation_file
from kernelwright.probe.rewrites import sdpa_backend as attention_file
from kernelwright.probe.rewrites.fold_conv_bn import fold_conv_bn
from kernelwright.probe.rewrites.fold_embedding import fold_embedding
from kernelwright.probe.rewrites.fold_linear_bn import fold_linear_bn
from kernelwright.probe.rewrites.fuse_parallel_linears import fuse_parallel_linears
from kernelwright.probe.rewrites.remove_redundant import remove_redundant
from kernelwright.probe.rewrites.remove_syncs import keep_scalars, remove_syncs
from kernelwright.probe.rewrites.sdpa_substitution import sdpa_substitution
from made_candidates import loaded, text_of

IDS = torch.tensor([[0, 1, 2], [3, 0, 5]])


def net(forward, **parts) -> nn.Module:
    """A module with this forward; plain tensors become buffers."""
    model = type("Net", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        model.register_buffer(name, part) if type(part) is torch.Tensor else setattr(model, name, part)
    return model.eval()


def rows(**parts) -> dict:
    return {"e": nn.Embedding(10, 8), "l": nn.Linear(8, 8), **parts}


def image_parts(**parts) -> dict:
    norm = nn.BatchNorm2d(4)
    norm.running_var.fill_(4.0)
    return {"c": nn.Conv2d(3, 4, 3), "bn": norm, **parts}


def zeroed(self, ids):
    h = self.e(ids)
    h[ids == 0] = 0.0
    return self.l(h)


def scaled(self, ids):
    h = self.e(ids)
    h.mul_(8**0.5)
    return self.l(h)


def later_ids(self, ids):
    h = self.e(ids)
    ids.clamp_(max=1)
    return torch.relu(h)


def reread(self, x):
    h = self.l(x)
    x = F.relu(x, inplace=True)
    return F.relu(h) * 2.0 + x


def renormed(self, x):
    h = self.l(x)
    x = F.relu(x, inplace=True)
    return self.bn(h) + x


def convolved(self, x):
    h = self.c(x)
    x = F.relu(x, inplace=True)
    return F.relu(h) + x


def drifting(self, q):
    half = q * 0.3
    q.mul_(2.0)
    return torch.softmax(half @ q.transpose(-2, -1), -1) @ q


def island(self, x):
    with torch.autocast("cpu", torch.bfloat16):
        q = self.q(x)
        with torch.autocast("cpu", enabled=False):
            gate = self.l(x)
    return q, gate


def cast(self, x):
    with torch.autocast("cpu", torch.bfloat16):
        h = self.l(x) * self.g
    return F.relu(h)


def cast_rows(self, ids):
    with torch.autocast("cpu", torch.bfloat16):
        return self.l(self.e(ids))


def cast_image(self, x):
    with torch.autocast("cpu", torch.bfloat16):
        return F.relu(self.c(x))


def halved(self, x):
    self.g.view(-1).mul_(0.5)
    return self.l(x) * self.g


def tied(self, ids):
    h = self.e(ids)
    return F.linear(h, self.e.weight), self.l(h)


def clamped(self, x):
    q, k = self.q(x), self.l(x)
    q.view(-1).clamp_(min=0.0)
    return q, k


X, IMAGE = (4, 8), (2, 3, 8, 8)
GRAPHS = [
    (fold_embedding, zeroed, rows(), IDS), (fold_embedding, scaled, rows(), IDS), (fold_embedding, later_ids, rows(), IDS),
    (fold_embedding, cast_rows, rows(), IDS),
    (fold_linear_bn, renormed, {"l": nn.Linear(8, 8), "bn": nn.BatchNorm1d(8)}, X),
    (fold_linear_bn, lambda self, x: self.l(x) * self.g, {"l": nn.Linear(8, 8), "g": torch.rand(8).double()}, X),
    (fold_linear_bn, cast, {"l": nn.Linear(8, 8), "g": torch.rand(8)}, X),
    (fold_linear_bn, halved, {"l": nn.Linear(8, 8), "g": torch.ones(8)}, X),
    (activation_file.fuse_linear_activation, reread, {"l": nn.Linear(8, 8)}, X),
    (activation_file.fuse_linear_activation, cast, {"l": nn.Linear(8, 8), "g": 1.0}, X),
    (conv_relu_file.fuse_conv_relu, convolved, {"c": nn.Conv2d(3, 3, 3, padding=1)}, IMAGE),
    (conv_relu_file.fuse_conv_relu, cast_image, {"c": nn.Conv2d(3, 3, 3)}, IMAGE),
    (sdpa_substitution, drifting, {}, (2, 2, 4, 8)),
    (fuse_parallel_linears, island, {"q": nn.Linear(8, 8), "l": nn.Linear(8, 8)}, X),
    (fuse_parallel_linears, clamped, {"q": nn.Linear(8, 8), "l": nn.Linear(8, 8)}, X),
    (fuse_parallel_linears, tied, {"e": nn.Embedding(10, 8, max_norm=1.0), "l": nn.Linear(8, 8)}, IDS),
    (remove_redundant, lambda self, x: x.clone().detach(), {}, X),
]


@pytest.mark.parametrize(("change", "forward", "parts", "given"), GRAPHS)
def test_what_is_written_or_cast_on_the_way_stays_as_it_is(monkeypatch: pytest.MonkeyPatch, change, forward, parts, given) -> None:
    for file, name in ((activation_file, "fused_is_faster"), (conv_relu_file, "one_call_is_faster")):
        monkeypatch.setattr(file, name, lambda *_: True)
    given = given.clone() if isinstance(given, torch.Tensor) else torch.randn(given)
    with pytest.raises(NotImplementedError, match="found nothing to change"):
        Passed(net(forward, **copy.deepcopy(parts)), change)(given)


def counted(self, x):
    self.t += 1
    return self.bn(self.c(x)) / self.t


def by_type(self, x, mask):
    h = self.bn(self.c(x))
    return h * mask if isinstance(mask, torch.Tensor) else h


@pytest.mark.parametrize(("one", "other", "stays"), [("cpu", "cpu", False), ("cpu", "meta", True)])
def test_a_number_stays_one_where_it_meets_another_devices_tensor(one, other, stays) -> None:
    """A number may meet a tensor anywhere, a tensor without dimensions not."""
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    item = graph.call_method("item", (x,))
    graph.output(graph.call_function(operator.mul, (y, item)))
    looks = {x: (torch.float32, (), one), y: (torch.float32, (3,), other)}
    assert keep_scalars(graph, looks) == (not stays)


@pytest.mark.parametrize(("forward", "parts", "reason"), [
    (lambda self, x: F.conv_transpose2d(self.bn(self.c(x)), self.c.weight), {}, "no convolution is directly followed"),
    (counted, {"t": 0}, "sets attributes of its own"),
    (lambda self, x: cast_bn(self, x), {}, "an autocast of the model's own would be left out"),
], ids=["a weight that is read elsewhere", "a counter", "autocast"])
def test_a_model_that_tracing_would_take_for_another_is_refused(forward, parts, reason) -> None:
    model = net(forward, **image_parts(**parts))
    before = {name: value for name, value in vars(model).items() if not name.startswith("_")}
    with pytest.raises(NotImplementedError, match=reason):
        fold_conv_bn(model, (torch.randn(IMAGE),), {})
    assert {name: value for name, value in vars(model).items() if not name.startswith("_")} == before


def cast_bn(self, x):
    with torch.autocast("cpu", torch.bfloat16):
        return self.bn(self.c(x))


def test_a_model_that_asks_for_types_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="gives something else than the model"):
        fold_conv_bn(net(by_type, **image_parts()), (torch.randn(IMAGE), torch.rand(2, 1, 6, 6)), {})


def test_hooks_and_forwards_of_ones_own_are_refused() -> None:
    hooked, own, part = (net(lambda self, x: self.bn(self.c(x)), **image_parts()) for _ in range(3))
    hooked.register_forward_hook(lambda _module, _args, output: output * 2)
    own.forward = lambda x: x
    for model in (hooked, own):
        with pytest.raises(NotImplementedError, match="a hook or a forward of its own"):
            fold_conv_bn(model, (torch.randn(IMAGE),), {})
    usual = part.c.forward
    part.c.forward = lambda x: usual(x) * 3
    with pytest.raises(NotImplementedError, match="no convolution is directly followed"):
        fold_conv_bn(part, (torch.randn(IMAGE),), {})


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_fused_optimizers_step_is_seen_and_another_models_is_not(tmp_path, monkeypatch, kind) -> None:
    model = net(lambda self, x: self.bn(self.c(x)), **image_parts())
    other, x = nn.Linear(2, 2), torch.randn(IMAGE)
    file = loaded(tmp_path, text_of(tmp_path / "net.py", ["no_grad", "fold_conv_bn"], IMAGE))
    made, build = [], file.build
    monkeypatch.setattr(file, "build", lambda *given: made.append(1) or build(*given))
    fast = file.optimize(model, x)
    fast(x)
    model(x).square().mean().backward()
    kind(model.parameters(), lr=0.1, fused=True).step()
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
    assert len(made) == 2
    other(torch.ones(2)).sum().backward()
    kind(other.parameters(), lr=0.1, fused=True).step()
    fast(x)
    assert len(made) == 2
    hooks = sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks
    before = len(hooks)
    del fast
    gc.collect()
    assert len(hooks) == before - 1


def test_other_arguments_are_known_by_value_or_as_the_very_same_object(tmp_path) -> None:
    model = net(lambda self, x, w: self.bn(self.c(x)) * float(w[0]), **image_parts())
    x, weights = torch.randn(IMAGE), np.array([2.0])
    fast = loaded(tmp_path, text_of(tmp_path / "net.py", ["no_grad", "fold_conv_bn"], IMAGE)).optimize(model, (x, weights))
    with torch.no_grad():
        fast(x, weights)
        weights[0] = 5.0
        torch.testing.assert_close(fast(x, weights), model(x, weights))
        for number in range(20):  # an address that is free again may be another's
            torch.testing.assert_close(fast(x, [np.float64(number)]), model(x, [np.float64(number)]))
            torch.testing.assert_close(fast(x, np.array([number])), model(x, np.array([number])))


def test_weights_that_a_bare_function_holds_are_not_copied(tmp_path) -> None:
    layer, scale, x = nn.Linear(8, 8), torch.rand(8), torch.randn(X)
    file = loaded(tmp_path, text_of(tmp_path / "net.py", ["no_grad", "compile_default", "fold_linear_bn"], X))
    with pytest.raises(NotImplementedError, match="that a bare function holds"):
        file.optimize(lambda x: layer(x) * scale, x)


def test_what_a_trace_makes_of_buffers_follows_them(tmp_path) -> None:
    model, x = net(lambda self, x: x * x.sum().item() * self.t.exp(), t=torch.zeros(1)), torch.randn(X)
    fast = loaded(tmp_path, text_of(tmp_path / "net.py", ["no_grad", "remove_syncs"], X)).optimize(model, x)
    fast(x)
    model.t.add_(1.0)
    torch.testing.assert_close(fast(x), model(x))


@pytest.mark.parametrize(("dtype", "value"), [(torch.float16, 100.0), (torch.bfloat16, 3.0), (torch.float32, 3.0)])
def test_the_mean_of_what_a_mask_picks_does_not_overflow(dtype, value) -> None:
    model = net(lambda self, x, mask: x[mask].mean() + x[mask].sum() * 0.0)
    x, mask = torch.full((8, 64), value, dtype=dtype), torch.ones(8, 64, dtype=torch.bool)
    found = remove_syncs(model, (x, mask), {})(x, mask)
    torch.testing.assert_close(found, model(x, mask))
    large = net(lambda self, x, mask: x[mask].mean())
    x, mask = torch.full((64, 64), value, dtype=dtype), torch.ones(64, 64, dtype=torch.bool)
    torch.testing.assert_close(remove_syncs(large, (x, mask), {})(x, mask), large(x, mask))


def test_plain_attention_is_what_the_operator_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that sees no key gives 0, and float16's scores stay with the kernels that hold them in float32."""
    usual: list[float] = []
    monkeypatch.setattr(attention_file, "median_us", lambda call, device: usual.pop() if usual else 1.0)
    seen = torch.ones(2, 1, 4, 4, dtype=torch.bool)
    seen[1, :, 2:] = False
    q = torch.randn(2, 2, 4, 8)
    for mask in (seen, torch.zeros(2, 1, 4, 4).masked_fill(~seen, float("-inf"))):
        usual.append(2.0)
        model = net(lambda self, q, mask: F.scaled_dot_product_attention(q, q, q, attn_mask=mask, dropout_p=0.0))
        fast = Passed(model, attention_file.sdpa_backend)
        torch.testing.assert_close(fast(q, mask), model(q, mask))
        assert "plain_attention" in fast.targets
    usual.append(2.0)
    with pytest.raises(NotImplementedError, match="found nothing to change"):
        Passed(net(lambda self, q: F.scaled_dot_product_attention(q, q, q)), attention_file.sdpa_backend)(q.half())
