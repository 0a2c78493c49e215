"""When is an output right? The judge's limits on outputs made by hand."""

import hmac
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from kernelwright.judge.channel import WorkerFailed, _parse
from kernelwright.judge.correctness import Expected, check_round, comparable, decidable, is_of
from kernelwright.judge.exchange import Exchange
from kernelwright.judge.options import Deadline
from kernelwright.judge.reasons import verdict_of
from kernelwright.judge.replies import Called
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
    for factor, right in ((0.5, True), (32.0, False)):
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


def test_nan_and_infinity_must_stand_where_the_reference_has_them():
    got, reference = noisy(3 * EPS, seed=5), noisy(3 * EPS)
    got[3] = np.nan
    assert "nan where the reference is" in check(leaf(got)).note
    for theirs, ours, right in ((np.inf, np.inf, True), (np.inf, -np.inf, False), (np.inf, np.nan, False), (np.nan, np.nan, True),
                                (np.nan, 0.0, False), (-np.inf, 7.0, False)):
        reference[3], got[3] = theirs, ours
        assert check(leaf(got), reference=leaf(reference)).passed is right, (theirs, ours)


def test_where_float64_has_no_number_the_reference_is_the_oracle():
    rounded = EXACT.astype(np.float32)
    expected = Expected([leaf(rounded)], [leaf(np.full(EXACT.size, np.nan), "float64")])
    for factor, right in ((1 + 4 * EPS, True), (1.1, False)):
        got = leaf(rounded * np.float32(factor))
        assert check_round([got], expected, round_number=0, level="equal")[0][0].passed is right


def test_nothing_finite_cannot_be_decided():
    nothing, something = leaf(np.full(9, np.nan, np.float32)), leaf(np.arange(9), "int64")
    assert not decidable(Expected([nothing], [nothing]))
    assert decidable(Expected([nothing, something], [nothing, something]))


def test_a_yardstick_of_another_shape_is_dropped():
    reference = [leaf(EXACT)]
    kept = comparable([[leaf(EXACT[:7])], [], [leaf(EXACT + 1)]], reference)
    assert len(kept) == 1 and kept[0][0].values[0] == EXACT[0] + 1


def layernorm(x, dtype, one_pass=False):
    x = x.astype(dtype)
    mean = x.mean(axis=-1, keepdims=True, dtype=dtype)
    if one_pass:
        variance = (x * x).mean(axis=-1, keepdims=True, dtype=dtype) - mean * mean
    else:
        variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True, dtype=dtype)
    return (x - mean) / np.sqrt(variance + dtype(1e-5))


def rounded_to(x, bits):
    """To a float with this many stored bits of mantissa."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2 ** (bits + 1)) / 2 ** (bits + 1), exponent)


def test_another_order_of_a_layernorm_is_right_and_rounded_inputs_are_not():
    x = np.random.default_rng(4).normal(0.7, 1, size=(64, 1024)).astype(np.float32)
    expected = Expected([leaf(layernorm(x, np.float32))], [leaf(layernorm(x, np.float64), "float64")])
    moved = layernorm(x, np.float32) * np.float32(1 + 4.3 * EPS)  # a row's scale a few eps off: what a fused kernel on the CPU showed
    for honest in (layernorm(x, np.float32, one_pass=True), moved):
        assert check_round([leaf(honest)], expected, round_number=0, level="equal")[0][0].passed
    for bits in (7, 10):
        lowered = leaf(layernorm(rounded_to(x, bits).astype(np.float32), np.float32))
        assert not check_round([lowered], expected, round_number=0, level="equal")[0][0].passed


def test_a_precision_drop_is_named_only_at_that_precisions_order():
    reference, oracle = leaf(noisy(EPS)), leaf(EXACT, "float64")
    tf32, lowers_nothing = leaf(noisy(3e-4, seed=2)), leaf(noisy(EPS, seed=2))
    for error, yardstick, named in ((3e-4, tf32, True), (1e-4, tf32, True), (3e-6, tf32, False), (3e-4, lowers_nothing, False)):
        expected = Expected([reference], [oracle], yardstick=[[yardstick]])
        assert is_of("tf32", 0, [leaf(noisy(error, seed=5))], expected) is named, error


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


@pytest.mark.parametrize("broken", [{"shape": [3]}, {"nbytes": 400}, {"offset": -2}, {"stored": "object"}, {"nbytes": "many"},
                                    {"shape": [2**80]}, {"shape": [2**61, 2**61]}, {"offset": float("inf")},
                                    {"sampled": True, "shape": [1]}, {"shape": -1},
                                    {"path": "x" * 5000}, {"shape": [[2]]}])
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


def test_a_deeply_nested_header_is_refused(tmp_path):
    text = b'{"leaves": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(text)) + text)
    with pytest.raises(Malformed):
        read_leaves(tmp_path / "x")


def test_only_a_regular_file_of_bounded_size_is_read(tmp_path):
    good = written(tmp_path / "good", {"leaves": [entry()]}, b"\0" * 4)
    assert len(read_leaves(good)) == 1
    (tmp_path / "link").symlink_to(good)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    for name in ("link", "fifo", "folder", "huge"):
        with pytest.raises(Malformed):
            read_leaves(tmp_path / name)


def test_a_leaf_with_values_of_another_kind_or_number_is_a_structural_problem():
    reference = leaf(EXACT.astype(np.float32))
    fewer = Leaf("", "float32", reference.shape, "cpu", "Tensor", True, reference.values[:5])
    wider = Leaf("", "float32", reference.shape, "cpu", "Tensor", False, reference.values.astype(np.complex64))
    for got in (fewer, wider):
        assert "came as" in check(got, reference=reference)


@pytest.mark.parametrize("fields", [{"call_s": "soon"}, {"call_s": float("nan")}, {"call_s": float("inf")}, {"call_s": -1.0},
                                    {"call_s": None}, {}, {"call_s": 1.0, "written": "x"},
                                    {"call_s": 10**400}])
def test_replies_with_impossible_fields_are_a_failure_of_their_worker(fields):
    class Fake:
        role = "candidate"

        def send(self, op, **_):
            pass

        def receive(self, **_):
            return {"id": "x", "ok": True, **fields}

    exchange = Exchange(Fake(), Path("/nowhere"), 1.0, Deadline(None))
    with pytest.raises(WorkerFailed) as failure:
        exchange.ask("call", Called)
    assert verdict_of(failure.value)[0] == "FAILED" and failure.value.role == "candidate"


def sealed(text, key=b"key"):
    return hmac.new(key, text, "sha256").hexdigest().encode() + b" " + text


@pytest.mark.parametrize("line", [
    *map(sealed, [b"[" * 200_000, b"{", b"[]", b'{"id": "other"}', b"1" * 10_000]), b'{"id": "mine", "ok": true}', b"",
    sealed(b'{"id": "mine", "ok": true}', b"another key"), sealed(b'{"id": "mine"}')[:-1]])
def test_lines_that_are_no_reply_or_bear_no_seal_are_forged(line):
    with pytest.raises(WorkerFailed) as failure:
        _parse(line, "mine", b"key")
    assert failure.value.code == "forged"
    assert _parse(sealed(b'{"id": "mine", "ok": true}'), "mine", b"key") == {"id": "mine", "ok": True}
