"""When is an output right? The judge's limits on outputs made by hand."""

import json
import struct

import numpy as np
import pytest

from kernelwright.judge.correctness import Expected, check_round
from kernelwright.judge.tensors import Leaf, Malformed, read_leaves

RNG = np.random.default_rng(11)
EXACT = RNG.normal(size=4096)
EPS = 2.0**-23


def leaf(values, dtype="float32", path="", kind="Tensor", device="cpu"):
    values = np.asarray(values)
    return Leaf(path, dtype, values.shape, device, kind, False, values.ravel())


def noisy(scale, seed=0):
    return (EXACT * (1 + scale * np.random.default_rng(seed).normal(size=EXACT.size))).astype(np.float32)


def check(got, *, reference=None, level="equal", yardstick=(), no_oracle=False):
    reference = leaf(noisy(3 * EPS)) if reference is None else reference
    expected = Expected([reference], [leaf(EXACT, "float64")], no_oracle, [[run] for run in yardstick])
    errors, problem = check_round([got], expected, round_number=0, level=level)
    return problem or (errors[0] if errors else None)


def test_another_rounding_of_the_same_size_is_right():
    assert check(leaf(noisy(3 * EPS, seed=5))).passed
    assert check(leaf(noisy(5 * EPS, seed=5))).passed


@pytest.mark.parametrize("scale", [1e-5, 2**-11, 2**-8])
def test_a_lower_precision_is_wrong_at_equal(scale):
    error = check(leaf(noisy(scale, seed=5)))
    assert not error.passed and "limit" in error.note and "expected" in error.note


def test_a_declared_precision_widens_the_limit_to_its_yardstick_and_no_further():
    bf16 = leaf(noisy(2**-9, seed=2))
    assert check(leaf(noisy(2**-9, seed=5)), level="bf16", yardstick=[bf16]).passed
    assert not check(leaf(noisy(2**-6, seed=5)), level="bf16", yardstick=[bf16]).passed
    tf32_without_run = check(leaf(noisy(2**-12, seed=5)), level="tf32")
    assert tf32_without_run.passed and "unit roundoff" in tf32_without_run.note


def test_an_exact_reference_allows_one_rounding():
    rounded = EXACT.astype(np.float32)
    exact = Expected([leaf(rounded)], [leaf(rounded.astype(np.float64), "float64")])
    for factor, right in ((0.5, True), (8.0, False)):
        got = leaf((rounded * np.float32(1 + factor * EPS)).astype(np.float32) if factor >= 1 else np.nextafter(rounded, np.float32(9)))
        assert check_round([got], exact, round_number=0, level="equal")[0][0].passed is right


def test_one_wrong_element_is_seen_even_where_the_norm_hides_it():
    exact = np.tile(EXACT, 32)
    reference, values = (exact * (1 + 2**-8 * np.random.default_rng(seed).normal(size=exact.size)) for seed in (1, 2))
    values[17] += 1.0
    expected = Expected([leaf(reference, "bfloat16")], [leaf(exact, "float64")])
    (error,), _ = check_round([leaf(values, "bfloat16")], expected, round_number=0, level="equal")
    assert error.candidate_error < error.limit
    assert not error.passed and "[17]" in error.note


def test_nan_is_wrong_where_the_reference_is_finite_and_only_there():
    got, reference = noisy(3 * EPS, seed=5), noisy(3 * EPS)
    got[3] = np.nan
    assert "nan where the reference is" in check(leaf(got)).note
    reference[3] = np.inf
    assert check(leaf(got), reference=leaf(reference)).passed


def test_a_loss_that_the_reference_has_exactly_by_luck_may_still_round():
    exact = Expected([leaf(np.float32(0.25))], [leaf(0.25, "float64")])
    for value, right in ((0.25 * (1 + 8 * EPS), True), (0.25 * (1 + 1e-5), False)):
        assert check_round([leaf(np.float32(value))], exact, round_number=0, level="equal")[0][0].passed is right


def test_gradients_that_are_only_rounding_noise_may_differ_but_not_grow():
    zero, noise = leaf(np.full(256, 1e-17), "float64"), RNG.normal(size=(3, 256)).astype(np.float32) * 1e-9
    expected = Expected([leaf(noise[0])], [zero])
    assert check_round([leaf(noise[1])], expected, round_number=0, level="equal")[0][0].passed
    assert not check_round([leaf(noise[2] * 1e3)], expected, round_number=0, level="equal")[0][0].passed


def test_integers_must_be_equal_unless_float64_disagrees_with_the_reference_too():
    one = np.arange(1000)
    other = one.copy()
    other[:3] += 1
    alone = Expected([leaf(one, "int64")], [leaf(one, "int64")])
    assert not check_round([leaf(other, "int64")], alone, round_number=0, level="equal")[0][0].passed
    near_ties = Expected([leaf(one, "int64")], [leaf(np.where(one < 2, one + 1, one), "int64")])
    assert check_round([leaf(other, "int64")], near_ties, round_number=0, level="equal")[0][0].passed


def test_without_float64_the_limit_still_tells_precisions_apart():
    reference = leaf(EXACT.astype(np.float32))
    for scale, right in ((8 * EPS, True), (2**-11, False)):
        expected = Expected([reference], [reference], True)
        assert check_round([leaf(noisy(scale, seed=1))], expected, round_number=0, level="equal")[0][0].passed is right


@pytest.mark.parametrize(("changes", "words"), [
    ({"dtype": "float16"}, "dtype float16"), ({"device": "cuda"}, "device cuda"), ({"kind": "Lazy"}, "subclass"),
    ({"path": "0"}, "structure")])
def test_structure_must_agree(changes, words):
    assert words in check(leaf(noisy(0), **changes))


def test_shapes_and_counts_must_agree():
    assert "shape [4095]" in check(leaf(noisy(0)[:-1]))
    expected = Expected([leaf(EXACT)], [leaf(EXACT, "float64")])
    assert "2 tensors" in check_round([leaf(EXACT, path="0"), leaf(EXACT, path="1")], expected, round_number=0, level="equal")[1]


def test_huge_values_do_not_overflow_the_norm():
    huge = EXACT * 1e300
    expected = Expected([leaf(huge, "float64")], [leaf(huge, "float64")])
    assert check_round([leaf(huge * (1 + 1e-16), "float64")], expected, round_number=0, level="equal")[0][0].passed
    assert not check_round([leaf(huge * 1.1, "float64")], expected, round_number=0, level="equal")[0][0].passed


def written(path, header, body=b""):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def entry(**changes):
    return {"path": "", "dtype": "bfloat16", "shape": [2], "device": "cpu", "type": "Tensor", "offset": 0, "nbytes": 4,
            "stored": "bfloat16", "sampled": False, **changes}


def test_bfloat16_is_widened_exactly(tmp_path):
    body = np.array([0x3F80, 0xC0A0], dtype="<u2").tobytes()
    (found,) = read_leaves(written(tmp_path / "x", {"leaves": [entry()]}, body))
    assert found.values.tolist() == [1.0, -5.0] and found.eps == 2**-7


@pytest.mark.parametrize("broken", [{"shape": [3]}, {"nbytes": 400}, {"offset": -2}, {"stored": "object"}, {"nbytes": "many"}])
def test_lying_headers_are_refused(tmp_path, broken):
    with pytest.raises(Malformed):
        read_leaves(written(tmp_path / "x", {"leaves": [entry(**broken)]}, b"\0" * 4))


@pytest.mark.parametrize("data", [b"", b"123", struct.pack("<Q", 2**60) + b"{}", struct.pack("<Q", 2) + b"[]"])
def test_files_that_are_no_tensor_files_are_refused(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(Malformed):
        read_leaves(tmp_path / "x")
    with pytest.raises(Malformed):
        read_leaves(tmp_path / "gone")
