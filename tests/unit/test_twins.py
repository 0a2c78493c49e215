"""Copies of models: what the copy calls is the copy's."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")

from kernelwright.probe.rewrites.bf16 import bf16  # noqa: E402
from kernelwright.probe.rewrites.casts import sharing_twin  # noqa: E402
from kernelwright.probe.rewrites.twins import own_tensors, twin_of  # noqa: E402


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
    assert twin.named is not named and twin.named.note == "kept" and twin.named.__name__ == "named"
    assert torch.equal(twin.named(torch.ones(1, 8)), named(torch.ones(1, 8)))
    if model is None:
        later = named


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
