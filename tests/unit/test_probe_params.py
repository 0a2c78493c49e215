"""Parameters: where they come from and what the command line's text becomes."""

import pytest
import torch

from kernelwright.probe import params
from kernelwright.probe.failures import ProbeFailure


@pytest.mark.parametrize(("text", "default", "value"), [
    ("32", 1, 32), ("0.5", 1.0, 0.5), ("1e-3", 1.0, 1e-3), ("no", True, False), ("On", False, True), ("7", "x", "7"),
    ("bfloat16", torch.float32, torch.bfloat16), ("torch.float16", torch.float32, torch.float16), ("3", None, 3), ("none", None, None),
    ("(1, 2)", (0,), (1, 2)), ("plain", None, "plain")])
def test_text_takes_the_type_of_the_default(text, default, value):
    found = params.coerce("p", text, default, "w.py")
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(("text", "default"), [("x", 1), ("1.5", 1), ("maybe", True), ("nn", torch.float32), ("floaty", torch.float32),
                                               ("[1]", (0,)), ("", 1.0)])
def test_text_of_another_type_is_refused(text, default):
    with pytest.raises(ProbeFailure, match="'p' must be") as caught:
        params.coerce("p", text, default, "w.py")
    assert caught.value.exit_code == 2 and caught.value.where == "w.py"


def test_order_of_the_workload_is_kept():
    assert list(params.override({"b": 1, "a": 2}, {"a": "3"}, "w.py").items()) == [("b", 1), ("a", 3)]


def test_signatures():
    def generator(b=1, *, device="cpu", **rest):
        return b, device, rest

    assert params.of_signature(generator, "w.py") == {"b": 1}
    assert params.accepted(generator, {"b": 2, "c": 3}, "cuda") == {"b": 2, "c": 3, "device": "cuda"}
    assert params.accepted(lambda b: b, {"b": 2, "c": 3}, "cuda") == {"b": 2}
    with pytest.raises(ProbeFailure, match="'size', which has no default"):
        params.of_signature(lambda size: size, "w.py")
