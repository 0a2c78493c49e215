"""The order of generated files: to be read from the top, loadable as they stand, whatever is evaluated on loading."""

from __future__ import annotations

import pytest

from kernelwright.optimize.layout import laid_out
from kernelwright.optimize.needed import read


def loaded(files: dict[str, list[str]], order: list[str]) -> tuple[dict[str, str], dict[str, object]]:
    """The text by section, and what is there when it has been loaded in that order."""
    texts, names = laid_out(files, order), {}
    exec("from __future__ import annotations\n" + "\n".join(texts.values()), names)
    return texts, names


def test_functions_stand_where_they_are_read_and_what_is_evaluated_waits_for_the_end() -> None:
    files = {"low": ["SIZE = 2", '"""Of a block."""', "def size():\n    return SIZE", "class Kept:\n    x = SIZE"],
             "high": ["LIMIT = 3", "CHOICE = (size(), LIMIT)", "def top():\n    return size() + CHOICE[0]"]}
    texts, names = loaded(files, ["high", "low"])
    assert texts["high"] == "LIMIT = 3\n\n\ndef top():\n    return size() + CHOICE[0]"
    assert texts["low"].startswith('SIZE = 2\n"""Of a block."""\n\n\ndef size') and texts[""] == "CHOICE = (size(), LIMIT)"
    assert names["CHOICE"] == (2, 3) and names["top"]() == 4


@pytest.mark.parametrize("definition", [
    "def top(x=BASE):\n    return x", "def top(*, x=make()):\n    return x", "@wrap\ndef top():\n    return 7",
    "class top(Base):\n    pass", "class top:\n    y: int = BASE", "class top:\n    def f(self, y=BASE): ...",
    "class top(metaclass=Meta): ...",
    "@wrap\nasync def top(): ...", "def top(x=[one for one in (BASE,)]):\n    return x",
])
def test_what_a_definition_evaluates_is_moved_ahead_of_it_and_no_more(definition: str) -> None:
    low = ["def inner():\n    return BASE", "def make():\n    return inner()", "def wrap(f):\n    make()\n    return f", "class Base: ...",
           "class Meta(type): ...", "def unrelated():\n    return top"]
    texts, _names = loaded({"lowest": ["BASE = 7"], "low": low, "high": ["def first(): ...", definition]}, ["high", "low", "lowest"])
    ahead = texts["high"]
    assert ahead.startswith("def first()") and ahead.endswith(definition) and "unrelated" not in ahead
    assert ("def inner" in ahead) == any(word in definition for word in ("make", "wrap")), "what is called leads to more"


def test_a_conditional_definition_follows_the_one_that_it_replaces() -> None:
    kernels = ["try:\n    import missing_language as language\nexcept ImportError:\n    language = kernel = None",
               "if language is not None:\n    def kernel(): ..."]
    other = ["try:\n    import math as language\nexcept ImportError:\n    language = None", "if language is not None:\n    def root(): ..."]
    texts, names = loaded({"kernels": kernels, "other": other, "top": ["USED = kernel"]}, ["top", "other", "kernels"])
    assert texts["top"] == "" and texts[""] == "USED = kernel" and names["USED"] is None and callable(names["root"])
    assert "missing" not in texts["other"], "each file has its own import"


def test_what_names_an_operator_follows_what_registers_it() -> None:
    files = {"low": ["def run(): ...", 'NAME = "mine::run"', "register(NAME, run)"],
             "high": ["RUN = torch.ops.mine.run.default", "A = torch.ops.aten.mm"]}
    texts = laid_out({"lowest": ["def register(name, fn): ..."], **files}, ["high", "low", "lowest"])
    assert texts["high"] == "A = torch.ops.aten.mm" and texts[""] == "register(NAME, run)\nRUN = torch.ops.mine.run.default"


def test_the_given_order_stands_where_nothing_else_can() -> None:
    """Each calls what may lead to the other: nothing that came later when the files were written is moved ahead."""
    files = {"a": ["def f():\n    return globals().get('Y', 1) or Y", "X = f()"], "b": ["def g():\n    return X", "Y = g()"]}
    texts, names = loaded(files, ["b", "a"])
    assert names["Y"] == 1 and texts[""].endswith("Y = g()")


def test_annotations_and_bodies_are_not_evaluated() -> None:
    said = read("def f(x: Later, y: int = FIRST) -> Later:\n    return Inner(x)")
    assert said.at_once == {"FIRST"} and not said.run_at_once and {"Later", "Inner"} <= said.mentions
    assert read("X: Later = FIRST").at_once == {"FIRST"} and read("@seen\ndef f(x: Later): ...").at_once == {"seen", "Later"}
