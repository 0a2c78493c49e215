"""Copies of models: what the copy calls is the copy's."""

from __future__ import annotations

import functools
import re
import threading

import pytest

torch = pytest.importorskip("torch")

from kernelwright.optimize.generate import REWRITES  # noqa: E402
from kernelwright.probe.rewrites.bf16 import bf16  # noqa: E402
from kernelwright.probe.rewrites.casts import NarrowLayer, narrow_layers, sharing_twin  # noqa: E402
from kernelwright.probe.rewrites.twins import LARGEST_NEST, own_tensors, parts_of, twin_of, with_parts  # noqa: E402


class Block(torch.nn.Module):
    """As minGPT's: a function kept on the module calls its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = torch.nn.ModuleDict({"up": torch.nn.Linear(8, 16), "down": torch.nn.Linear(16, 8)})
        parts, scale, layers = self.mlp, 0.5, [self.mlp["up"]]
        self.body = lambda x: scale * parts["down"](torch.relu(layers[0](x)))
        self.by_default = lambda x, part=self.mlp["down"]: part(x)
        self.partial = functools.partial(lambda part, x: part(x), self.mlp["up"])
        self.plain = torch.relu

    def forward(self, x):
        return self.body(x) + self.by_default(self.partial(x)) + self.plain(x)


def test_a_function_that_a_module_keeps_calls_the_copys_parts():
    torch.manual_seed(0)
    model, x = Block(), torch.randn(4, 8)
    before, twin = model(x), twin_of(model)
    assert torch.equal(twin(x), before)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(twin(x), torch.relu(x)), "all of what it calls is its own"
    assert torch.equal(model(x), before), "and nothing of the model's is"
    assert model.body.__closure__ is not None and twin.plain is torch.relu
    double = twin_of(model).double()
    assert double(x.double()).dtype == torch.float64


def test_a_function_of_nothing_that_was_copied_stays():
    def outside(x, given=None):
        return x if given is None else given

    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    other = torch.nn.Linear(2, 2)
    model.outside, model.others = outside, lambda x: other(x)
    twin = twin_of(model)
    assert twin.outside is outside and twin.others is model.others, "another model's part is no part of the copy"


def test_what_a_function_says_of_itself_goes_with_it_and_empty_cells_do_no_harm():
    model = Block()

    def named(x, *, more=1):
        return later(x) if more > 5 else model.mlp["up"](x) * more  # bound below, or never

    named.note = "kept"
    model.named = named
    twin = twin_of(model)
    assert twin.named is not named and twin.named.note == "kept" and twin.named.__qualname__ == named.__qualname__
    assert torch.equal(twin.named(torch.ones(1, 8)), named(torch.ones(1, 8)))
    if model is None:
        later = named


def by_keyword(model):
    def call(x, *, part=model.lin):
        return part(x)
    return call


def by_another(model):
    def inner(x):
        return model.lin(x)
    return lambda x: inner(x)


def wrapped(model):
    def inner(x):
        return model.lin(x)

    @functools.wraps(inner)
    def outer(x):
        return outer.__wrapped__(x)
    return outer


def by_itself(model):
    def call(x, depth=1):
        return call(model.lin(x), depth - 1) if depth else model.lin(x)
    return call


def by_a_method(model):
    old = model.plain
    return lambda x: old(x)


def by_a_tensor(model):
    weight, bias = model.lin.weight, model.lin.bias
    return lambda x: torch.nn.functional.linear(x, weight, bias)


def by_a_partial(model):
    return functools.partial(lambda part, x: part(x), model.lin)


def by_a_nest(model):
    parts = {"first": [(model.lin, None)], "lock": threading.Lock(), "seen": torch.ones(3, requires_grad=True) * 2}
    return lambda x: parts["first"][0][0](x)


class One(torch.nn.Module):
    def __init__(self, make):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
        self.call, self.kept = make(self), [make(self)]

    def plain(self, x):
        return self.lin(x)

    def forward(self, x):
        return self.call(x) + self.kept[0](x)


@pytest.mark.parametrize("make", [by_keyword, by_another, wrapped, by_itself, by_a_method, by_a_tensor, by_a_partial, by_a_nest])
def test_the_copy_calls_its_own_parts_however_a_function_refers_to_them(make):
    torch.manual_seed(0)
    model, x = One(make), torch.randn(2, 4)
    before, twin = model(x), twin_of(model).double()
    assert torch.allclose(twin(x.double()).float(), before, atol=1e-6), "all in float64"
    with torch.no_grad():
        twin.lin.weight.zero_()
        twin.lin.bias.zero_()
    assert not twin(x.double()).any() and torch.equal(model(x), before)


def test_functions_that_share_a_variable_go_on_sharing_it_and_hooks_follow():
    model, calls = torch.nn.Sequential(torch.nn.Linear(2, 2)), []
    count = 0

    def add():
        nonlocal count
        count += 1
        calls.append(model[0])

    model.add, model.read = add, lambda: (count, model[0])
    model.register_forward_hook(lambda _module, _given, found: found + model[0].bias.sum())
    twin = twin_of(model)
    twin.add()
    assert twin.read() == (1, twin[0]) and model.read() == (1, model[0]) and calls == [twin[0]]
    with torch.no_grad():
        twin[0].weight.zero_()
        twin[0].bias.fill_(3.0)
    assert torch.equal(twin(torch.ones(1, 2)), torch.full((1, 2), 9.0))


def test_a_replaced_part_is_replaced_where_a_function_calls_it():
    class Kept(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)
            up, down = self.up, self.down
            self.body = lambda x: down(torch.relu(up(x)))

        def forward(self, x):
            return self.body(x)

    torch.manual_seed(0)
    model, x = Kept(), torch.randn(3, 4)
    found = narrow_layers(model, (x,), {}, torch.bfloat16, lambda *_: True)
    assert all(type(child) is NarrowLayer for child in found.children())
    with torch.no_grad():
        assert not torch.equal(found(x), model(x)) and torch.allclose(found(x), model(x), atol=0.05)
    whole = torch.nn.Linear(2, 2)
    assert with_parts(whole, {whole: model}) is model


def test_nests_that_refer_to_themselves_or_are_shared_stay_so():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    ring, state = {"layer": model[0]}, {"n": 0, "layer": model[0]}
    ring["me"], ring["methods"] = ring, (model[0].forward, [model[0].forward])
    model.ring, model.state, model.seen = (lambda: ring), state, lambda: state
    twin = twin_of(model)
    assert twin.ring()["me"] is twin.ring() and twin.ring()["layer"] is twin[0] and twin.ring()["methods"][1][0].__self__ is twin[0]
    assert twin.seen() is twin.state is not state and twin.state["layer"] is twin[0] and model.seen() is state


def test_a_bound_method_of_a_replaced_part_goes_on_as_it_is():
    layer, other = torch.nn.Linear(2, 2), torch.nn.Identity()
    model = torch.nn.Sequential(layer)
    forward = layer.forward
    model.call = lambda x: forward(x)
    x = torch.ones(1, 2)
    assert torch.equal(with_parts(model, {layer: other}).call(x), layer(x)) and model[0] is other


def test_a_large_vocabulary_is_not_looked_into():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    words = [[word] for word in range(LARGEST_NEST + 1)]
    model.call = lambda: words
    assert twin_of(model).call is model.call
    assert list(parts_of(words[:2])) == words[:2] and parts_of(words) == ()


def test_copies_that_share_weights_share_them():
    model = Block()
    twin = sharing_twin(model)
    assert all(one is other for one, other in zip(twin.parameters(), model.parameters(), strict=True))
    assert twin.body.__closure__[1].cell_contents is twin.mlp and own_tensors(model).keys() >= {id(model.mlp["up"].weight)}


def test_such_a_model_can_be_cast():
    torch.manual_seed(0)
    model, x = Block().eval(), torch.randn(4, 8)
    with torch.no_grad():
        low = bf16(model, (x,), {})
        assert low(x).dtype == torch.float32
        torch.testing.assert_close(low(x), model(x), rtol=5e-2, atol=5e-2)


def test_no_rewrite_copies_a_model_in_another_way():
    files = [*REWRITES.glob("*.py"), REWRITES.parent / "judge_reference.py"]
    assert [file.name for file in files if re.search(r"deepcopy\((model|inner)\b", file.read_text())] == ["twins.py"]
