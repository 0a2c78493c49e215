"""When is an output right? The judge's limits on outputs made by hand."""

import hmac
import itertools
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.judge.channel import WorkerFailed, _parse
from kernelwright.judge.correctness import Expected, check_elsewhere, check_round, comparable, decidable, is_evidence, is_of
from kernelwright.judge.degenerate import warnings_of
from kernelwright.judge.exchange import Exchange
from kernelwright.judge.memory import layout_notes, layout_problem
from kernelwright.judge.options import Deadline
from kernelwright.judge.reasons import verdict_of
from kernelwright.judge.replies import Called, Dependence, OutputLayout, Surveyed
from kernelwright.judge.reproducer import of_value, wrong_elements
from kernelwright.judge.tensors import Leaf, Malformed, read_leaves
from kernelwright.probe.judge_tensors import layout, overlaps_itself
from property_examples import examples

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


def test_a_round_counts_where_the_reference_is_right_on_some_output():
    exact, garbage = EXACT.astype(np.float32), (EXACT * (1 + 0.05 * RNG.normal(size=EXACT.size))).astype(np.float32)
    for references, counts in (([exact, garbage], True), ([garbage, garbage], False), ([exact], True), ([np.zeros(0, np.float32)], True)):
        leaves = [leaf(values, path=str(index)) for index, values in enumerate(references)]
        oracle = [leaf(EXACT[: values.size], "float64", path=str(index)) for index, values in enumerate(references)]
        errors, _ = check_round(leaves, Expected(leaves, oracle), round_number=0, level="equal")
        assert is_evidence(errors, leaves) is counts
    coarse = leaf(noisy(0.03), "bfloat16")
    errors, _ = check_round([coarse], Expected([coarse], [leaf(EXACT, "float64")]), round_number=0, level="equal")
    assert is_evidence(errors, [coarse])  # 3% is a few roundings of bfloat16


def on_other_inputs(got, *, reference=None, oracle=EXACT, perturbed=None, kind="large", level="equal", yardstick=()):
    reference = leaf(noisy(3 * EPS)) if reference is None else reference
    moved = leaf(oracle if perturbed is None else perturbed, "float64")
    expected = Expected([reference], [leaf(oracle, "float64")], False, [[run] for run in yardstick], [[moved]])
    return check_elsewhere(0, [got], expected, round_number=7, level=level, kind=kind)


def test_on_other_inputs_the_limit_follows_what_rounding_of_the_inputs_does():
    got = leaf(noisy(1e-4, seed=5))
    assert not on_other_inputs(got)[0].passed
    error, compared = on_other_inputs(got, perturbed=EXACT * (1 + 1e-4 * np.random.default_rng(9).normal(size=EXACT.size)))
    assert compared and error.passed and error.distribution == "large" and error.round == 7


def test_on_other_inputs_an_ill_conditioned_output_is_not_compared():
    error, compared = on_other_inputs(leaf(noisy(0.5, seed=5)), perturbed=EXACT * (1 + 0.05 * RNG.normal(size=EXACT.size)))
    assert not compared and error.passed and "not compared" in error.note


def test_on_other_inputs_only_finite_places_far_from_overflow_count():
    reference, got, oracle = noisy(3 * EPS), noisy(3 * EPS, seed=5), EXACT.copy()
    reference[:3], got[:3] = [np.inf, np.nan, 3.3e38], [1.0, -np.inf, np.inf]
    oracle[2] = 3.3e38
    assert on_other_inputs(leaf(got), reference=leaf(reference), oracle=oracle)[0].passed
    got[9] = np.nan
    assert not on_other_inputs(leaf(got), reference=leaf(reference), oracle=oracle)[0].passed
    nowhere = np.full(EXACT.size, np.nan, np.float32)
    assert on_other_inputs(leaf(got), reference=leaf(nowhere))[1] is False


def test_on_other_inputs_a_declared_precision_that_loses_everything_is_not_held_against_it():
    lost, fine = leaf(noisy(0.6, seed=2)), leaf(noisy(2**-9, seed=2))
    assert on_other_inputs(leaf(noisy(0.6, seed=5)), level="bf16", yardstick=[lost])[1] is False
    assert on_other_inputs(leaf(noisy(2**-9, seed=5)), level="bf16", yardstick=[fine])[0].passed
    assert not on_other_inputs(leaf(noisy(2**-4, seed=5)), level="bf16", yardstick=[fine])[0].passed


def test_the_order_of_nan_and_infinities_is_not_compared():
    order, other = leaf(np.arange(100), "int64"), leaf(np.arange(100)[::-1].copy(), "int64")
    expected = Expected([order], [order], False, (), [[order]])
    for kind, compared in (("nonfinite", False), ("large", True)):
        error, did = check_elsewhere(0, [other], expected, round_number=0, level="equal", kind=kind)
        assert did is compared and error.passed is not compared


def reproduced(got, reference, oracle):
    expected = Expected([reference], [oracle])
    (error,), _ = check_round([got], expected, round_number=2, level="equal")
    assert not error.passed
    return of_value(error, got, expected, 0, inputs_seed=41, changed={})


@examples(50)
@given(place=st.integers(0, 4095), off=st.floats(0.1, 1e6) | st.sampled_from([np.inf, -np.inf, np.nan]))
def test_the_reproducer_finds_the_planted_element(place, off):
    values = noisy(3 * EPS).reshape(16, 8, 32).copy()
    reference = Leaf("a.b", "float32", (16, 8, 32), "cpu", "Tensor", False, values.ravel().copy())
    values.ravel()[place] += np.float32(off)
    got = Leaf("a.b", "float32", (16, 8, 32), "cpu", "Tensor", False, values.ravel())
    shown = reproduced(got, reference, leaf(EXACT, "float64"))
    assert shown.index == tuple(int(i) for i in np.unravel_index(place, (16, 8, 32))) and shown.shape == (16, 8, 32)
    assert shown.expected == EXACT[place] and shown.wrong_elements == 1 and shown.compared_elements == 4096
    assert (shown.path, shown.round, shown.inputs_seed, shown.kind) == ("a.b", 2, 41, "value") and shown.summary.startswith("output 'a.b'")
    assert isinstance(shown.got, str) is not np.isfinite(off)
    assert type(shown).model_validate_json(shown.model_dump_json()) == shown


def test_a_scalar_and_integers_have_reproducers_too():
    assert reproduced(leaf(np.float32(2.0)), leaf(np.float32(1.0)), leaf(1.0, "float64")).index == ()
    one, other = np.arange(50), np.arange(50)
    other[[4, 9]] = 0
    shown = reproduced(leaf(other, "int64"), leaf(one, "int64"), leaf(one, "int64"))
    assert shown.index == (4,) and (shown.expected, shown.got, shown.wrong_elements) == (4.0, 0.0, 2)


def test_elements_within_the_limit_are_not_counted_as_wrong():
    assert wrong_elements(leaf(noisy(1e-5, seed=5)), leaf(EXACT, "float64"), leaf(noisy(EPS)), 1e-3) == 0
    assert wrong_elements(leaf(noisy(1.0, seed=5)), leaf(EXACT, "float64"), leaf(noisy(EPS)), 1e-3) > 3500


def lies(path="", stride=(8, 1), overlaps=False, inputs=(), outputs=()):
    return OutputLayout(path=path, stride=list(stride), overlaps_itself=overlaps, inputs=list(inputs), outputs=list(outputs))


def test_memory_that_a_user_would_notice_is_a_problem_and_formats_are_notes():
    plain = lies()
    assert "expanded view" in layout_problem([lies(stride=(0, 1), overlaps=True)], [plain])
    assert "input '0.1'" in layout_problem([lies(inputs=["0.1"])], [plain])
    for same in (lies(inputs=["0.1"]), lies(stride=(0, 1), overlaps=True)):
        assert layout_problem([same], [same]) is None and layout_notes([same], [same]) == []
    assert layout_problem([lies(stride=(1, 8))], [plain]) is None
    assert "strides [1, 8]" in layout_notes([lies(stride=(1, 8))], [plain])[0]
    assert "shares memory with output '0'" in layout_notes([lies("1", outputs=["0"])], [lies("1")])[0]


@examples(60)
@given(shape=st.lists(st.integers(1, 4), max_size=4), data=st.data())
def test_strides_that_put_two_elements_at_one_address_are_found(shape, data):
    stride = data.draw(st.lists(st.integers(0, 20), min_size=len(shape), max_size=len(shape)))
    addresses = [sum(i * step for i, step in zip(index, stride, strict=True)) for index in itertools.product(*map(range, shape))]
    if len(set(addresses)) < len(addresses):
        assert overlaps_itself(torch.empty(400).as_strided(shape, stride))


@examples(50)
@given(shape=st.lists(st.integers(0, 4), max_size=4), data=st.data())
def test_dense_tensors_and_slices_in_any_order_of_dimensions_do_not_overlap(shape, data):
    order = data.draw(st.permutations(range(len(shape))))
    tensor = torch.empty(shape).permute(order)
    assert not overlaps_itself(tensor) and not overlaps_itself(tensor[..., ::2] if tensor.dim() else tensor)


def test_the_memory_of_outputs_is_described():
    x = torch.randn(6, 8)
    fresh = x + 1
    spread = fresh.mean(1, keepdim=True).expand(-1, 8)
    found = layout([("0", fresh), ("1", fresh[:, :4]), ("2", x[2:]), ("3", spread), ("4", x.clone().t())], [("x", x)])
    assert [(item["inputs"], item["outputs"], item["overlaps_itself"]) for item in found] == [
        ([], [], False), ([], ["0"], False), (["x"], [], False), ([], [], True), ([], [], False)]
    left, right = fresh.split(3)
    assert layout([("0", left), ("1", right)], [])[1]["outputs"] == []


def test_what_the_output_does_not_depend_on_is_a_warning():
    errors, _ = check_round([leaf(noisy(3 * EPS, seed=5))], Expected([leaf(noisy(3 * EPS))], [leaf(EXACT, "float64")]),
                            round_number=0, level="equal")
    told = {"all inputs": ("", 0.5), "input": ("0.1", 1e-9), "weight": ("gain", 0.2)}

    def warned(**changes):
        items = [Dependence(what=what, name=name, change=changes.get(what.partition(" ")[0], change))
                 for what, (name, change) in told.items()]
        return warnings_of(Surveyed(applicable=True, dependence=items, spread=changes.get("spread", 1.0)), errors)

    assert warned() == ("degenerate problem: the output does not depend on input 0.1: a candidate that ignores it would pass",)
    assert warned(input=1e-2) == ()
    assert "weight gain" in warned(weight=0.0)[1]
    (constant,) = warned(all=1e-10)
    assert "returns a constant" in constant
    assert "nearly one constant" in warned(spread=1e-9)[-1]
    assert warnings_of(Surveyed(applicable=False), errors) == ()


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
