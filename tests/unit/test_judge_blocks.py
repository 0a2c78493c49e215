"""Large outputs are compared block by block: nothing may depend on where a block begins."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.judge.correctness import Expected, check_elsewhere
from kernelwright.judge.distance import BLOCK, errors_of, same_values
from kernelwright.judge.exchange import Seeds
from kernelwright.judge.results import RoundResult
from kernelwright.judge.rounds import Rounds
from kernelwright.judge.tensors import Leaf
from property_examples import examples

SIZE = 2 * BLOCK + 3
WHERE = (0, BLOCK - 1, BLOCK, 2 * BLOCK - 1, 2 * BLOCK, SIZE - 1)


def leaf(values, kind="Tensor"):
    return Leaf("", str(values.dtype), values.shape, "cpu", kind, False, values)


def values(seed=3):
    return np.random.default_rng(seed).normal(size=SIZE)


def whole(got, oracle):
    """The definition, in one piece."""
    return np.linalg.norm(got.astype(np.float64) - oracle) / np.linalg.norm(oracle)


@pytest.mark.parametrize("place", WHERE)
def test_the_worst_element_is_found_in_every_block(place):
    oracle = values()
    got = oracle.astype(np.float32)
    got[place] += 1.0
    found = errors_of(leaf(got), leaf(oracle), leaf(oracle.astype(np.float32)))
    assert found.worst_index == place and found.largest == pytest.approx(1.0, rel=1e-6)
    assert found.norm == pytest.approx(whole(got, oracle), rel=1e-12)
    got[place] = np.nan
    assert errors_of(leaf(got), leaf(oracle), leaf(oracle.astype(np.float32))) == errors_of(leaf(got), leaf(oracle), leaf(oracle))
    assert errors_of(leaf(got), leaf(oracle), leaf(oracle)).worst_index == place


@pytest.mark.parametrize("place", WHERE)
def test_places_where_the_reference_is_not_finite_do_not_count(place):
    oracle, reference = values(), values().astype(np.float32)
    reference[place] = np.inf
    got = oracle.astype(np.float32)
    got[place] = 1e30
    found = errors_of(leaf(got), leaf(oracle), leaf(reference))
    assert found.largest < 1e-6 and math.isfinite(found.norm)
    expected = Expected([leaf(reference)], [leaf(oracle)], perturbed=[[leaf(oracle * (1 + 1e-9))]])
    assert check_elsewhere(0, [leaf(got)], expected, round_number=9, level="equal", kind="large")[0].passed
    got[(place + 1) % SIZE] += 1.0
    assert not check_elsewhere(0, [leaf(got)], expected, round_number=9, level="equal", kind="large")[0].passed


@examples(10)
@given(power=st.integers(-300, 300), seed=st.integers(0, 99))
def test_a_norm_does_not_overflow_or_vanish(power, seed):
    oracle = values(seed)
    got = oracle * (1 + 1e-6)
    scaled = errors_of(*(leaf(one * 10.0**power) for one in (got, oracle, oracle)))
    assert scaled.norm == pytest.approx(1e-6, rel=1e-3)


@pytest.mark.parametrize("place", WHERE)
def test_one_bit_in_any_block_is_another_value(place):
    one = values()
    two = one.copy()
    assert same_values([leaf(one)], [leaf(two)]) and not same_values([leaf(one)], [leaf(one[:-1])])
    two.view(np.uint64)[place] ^= 1
    assert not same_values([leaf(one)], [leaf(two)])


def test_a_timed_output_is_compared_again_unless_it_has_the_bits_of_a_right_one(monkeypatch):
    oracle = values()
    right = leaf(oracle.astype(np.float32))
    expected = Expected([right], [leaf(oracle)])
    rounds = Rounds(None, None, Seeds(1), 3, "equal", Path())
    rounds.timed_expected |= {0: expected, 1: Expected([leaf(values(4).astype(np.float32))], [leaf(values(4))])}
    again, reference = [], SimpleNamespace(ask=lambda *args, **kwargs: again.append(kwargs["round"]), export=lambda *_: [right])
    rounds.reference, rounds.results = reference, [RoundResult(0, (), None, [right], expected)]
    compared = []
    compare = Rounds.compare
    monkeypatch.setattr(Rounds, "compare", lambda *args: compared.append(args[1]) or compare(*args))
    assert rounds.check_timed(0, [right]) is None and rounds.check_timed(0, [leaf(right.values.copy())]) is None
    assert compared == [0] and again == []
    assert "not" in rounds.check_timed(1, [right])  # right for other inputs: a remembered output
    late = right.values.copy()
    late[-1] += 1.0
    assert f"at [{SIZE - 1}]" in rounds.check_timed(0, [leaf(late)])
    assert rounds.check_timed(0, [leaf(right.values, kind="Lazy")]) is not None  # the same bits in another class
    assert rounds.check_timed(0, [right]) is None and compared == [0, 1, 0, 0]
    assert again == [0, 0, 0]  # the reference, before each of the three is blamed
