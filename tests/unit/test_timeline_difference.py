"""Two timelines: sums that add up whatever changed, states by the scatter of the steps, kernels that only changed names."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import builders
from kernelwright.attribute import attribute
from kernelwright.attribute.cpu import OUTSIDE
from kernelwright.attribute.uses import breakdown
from kernelwright.cli import main
from kernelwright.model.profile import Profile
from kernelwright.pipeline.nsys import analyse_recording
from kernelwright.readers.kineto import read_kineto
from kernelwright.report import write_profile
from kernelwright.report.baseline import baseline_rows
from kernelwright.report.compare_timelines import MOST_ROWS, compare_documents, render_changes
from kernelwright.timeline.difference import Breakdown, Use, difference, named_alike
from kernelwright.timeline.families import kernel_family, without_number
from kernelwright.timeline.pace import step_times
from nsys_builder import NsysBuilder
from property_examples import examples
from trace_builder import TraceBuilder

TRACES = Path(__file__).resolve().parents[1] / "data" / "traces"
NAMES = ("gemm_128", "gemm_64", "triton_poi_fused_add_3", "triton_poi_fused_add_4", "Memcpy HtoD", "softmax<4>", "reduce_kernel")
USES = st.lists(st.tuples(st.sampled_from(("aten::mm", "aten::add", "(no operator)", "cudaGraphLaunch")),
                          st.sampled_from(((), ((2, 3),), ((4,), (5, 6)))), st.sampled_from(NAMES)), max_size=12, unique=True)


@st.composite
def breakdowns(draw):
    keys, steps = draw(USES), draw(st.integers(1, 6))
    times = np.array([[draw(st.integers(0, 50)) for _ in range(steps)] for _ in keys], dtype=np.int64).reshape(len(keys), steps)
    return Breakdown(tuple(Use(*key, int(row.sum()), draw(st.integers(1, 9))) for key, row in zip(keys, times, strict=True)), steps,
                     times if draw(st.booleans()) else None, draw(st.booleans()))


@examples(80)
@given(breakdowns(), breakdowns())
def test_every_table_adds_up_to_the_whole_difference(before, after):
    found = difference(before, after)
    whole = found.after_ns - found.before_ns
    sums = [sum(use.total_ns for use in side.uses) / side.steps for side in (before, after)]
    assert whole == pytest.approx(sums[1] - sums[0])
    for rows in (found.operators, found.families):
        assert sum(row.change_ns for row in rows) == pytest.approx(whole)
    named = sum(row.change_ns for row in found.kernels) + sum(row.after_ns - row.before_ns for row in found.renamed)
    assert named == pytest.approx(whole)
    for row in found.operators:
        in_before, in_after = ({use.operator for use in side.uses} for side in (before, after))
        assert (row.state == "appeared") == (row.name not in in_before) and (row.state == "vanished") == (row.name not in in_after)
        assert row.sure or row.state in ("grew", "shrank", "same")
    for side, name in ((before, "before"), (after, "after")):
        keys = [(row.operator, row.shapes, getattr(row, name)) for row in found.renamed]
        assert len(set(keys)) == len(keys)
        assert all(any(use.operator == operator and use.kernel == kernel for use in side.uses) for operator, _, kernel in keys)


@examples(50)
@given(breakdowns())
def test_nothing_differs_from_itself(side):
    found = difference(side, side)
    rows = (*found.operators, *found.families, *found.kernels)
    assert not found.renamed and all(row.state == "same" and row.change_ns == 0 for row in rows)


def _one(times, operator="aten::mm", shapes=((8, 8),), kernel="gemm"):
    table = np.array([times], dtype=np.int64)
    return Breakdown((Use(operator, shapes, kernel, int(table.sum()), len(times)),), len(times), table, True)


@pytest.mark.parametrize(("times", "state", "sure"), [
    ([120, 121, 122, 123, 124], "grew", True), ([90, 90, 90, 91, 92], "shrank", True), ([101, 99, 100, 130, 90], "same", True),
    ([200], "grew", False), ([102], "same", False)])
def test_growth_is_told_by_the_scatter_of_the_steps(times, state, sure):
    row = difference(_one([100, 101, 102, 103, 104]), _one(times)).operators[0]
    assert (row.state, row.sure) == (state, sure)


def test_work_in_no_known_step_leaves_the_state_unsure():
    after = _one([200] * 5)
    unknown = Breakdown(after.uses, 5, np.full((1, 5), -1, dtype=np.int64), True)
    assert not difference(_one([100] * 5), unknown).operators[0].sure


def test_another_kernel_for_the_same_operator_and_shapes_is_a_rename():
    found = difference(_one([100] * 5, kernel="cutlass_gemm_128x64"), _one([80] * 5, kernel="nvjet_tst_64x8"))
    row, = found.renamed
    assert (row.before, row.after, row.matched_by, row.change_pct) == ("cutlass_gemm_128x64", "nvjet_tst_64x8", "operator and shapes",
                                                                       pytest.approx(-20))
    assert not found.kernels and found.operators[0].state == "shrank"


@pytest.mark.parametrize("after", [_one([80] * 5, kernel="other", shapes=((9, 9),)), _one([80] * 5, kernel="other", operator="aten::bmm")])
def test_other_shapes_or_operators_are_other_work(after):
    found = difference(_one([100] * 5), after)
    assert not found.renamed and {row.state for row in found.kernels} == {"appeared", "vanished"}


def test_generated_kernels_that_were_numbered_anew_are_the_same_work_even_without_an_operator():
    found = difference(*(_one([100] * 5, "(no operator)", (), f"triton_poi_fused_add_{number}") for number in (3, 7)))
    assert [row.matched_by for row in found.renamed] == ["name without its numbers"]
    assert not difference(_one([1], "(no operator)", (), "gemm"), _one([1], "(no operator)", (), "softmax")).renamed
    assert without_number("triton_poi_fused_add_3") == without_number("triton_poi_fused_add_11") != without_number("triton_poi_fused_mul_3")
    assert without_number("aten::conv_2") == "aten::conv_2"


@pytest.mark.parametrize(("name", "family"), [
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
    ("Memcpy HtoD (Pinned -> Device)", "copy"),
    ("Memset (Device)", "memset"), ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8", "matrix product"),
    ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", "matrix product"),
    ("cudnn::cnn::implicit_convolve_sgemm", "convolution"), ("pytorch_flash::flash_fwd_kernel", "attention"),
    ("triton_poi_fused_add_relu_0", "elementwise"),
    ("triton_red_fused_sum_5", "reduction"), ("void at::native::vectorized_elementwise_kernel<4>", "elementwise"),
    ("aten::addmm", "matrix product"),
    ("void (anonymous namespace)::softmax_warp_forward", "softmax and loss"),
    ("void at::native::(anonymous namespace)::GammaBetaBackward", "normalization"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel", "optimizer"), ("my_kernel", "other"), ("x" * 100_000, "other"),
    ("kernel_cutlass_softmax_rows_tensorptrf32gmem_0", "softmax and loss"), ("kernel_cutlass_axpy_tensorptrf32gmem_0", "other")])
def test_families_are_read_off_names(name, family):
    assert kernel_family(name) == family


def _trace(path, kernel="gemm_old", kernel_ns=1000, steps=6, step="kernelwright.step", extra=None):
    """Steps of 10 us with one aten::mm; each kernel a few ns longer than the one before."""
    built = TraceBuilder()
    for number in range(steps):
        at = number * 20_000
        if step:
            built.range(step.replace("#", f"#{number}"), at, at + 10_000)
        built.event("cpu_op", "aten::mm", at + 100, at + 900, Input_Dims=[[64, 64], [64, 64]], Input_type=["float", "float"])
        built.launch(number + 1, at + 200, at + 300).kernel(kernel, at + 400, at + 400 + kernel_ns + number, number + 1)
        if extra:
            built.launch(100 + number, at + 950, at + 980).kernel(extra, at + 40 * 100, at + 40 * 100 + 500, 100 + number)
    return built.write(path)


def test_a_step_lasts_until_its_work_has_ended(tmp_path):
    built = TraceBuilder().step(0, 100).step(200, 300).step(1000, 1100)
    built.launch(1, 10, 20).kernel("k", 30, 900, 1).launch(2, 210, 220).kernel("k", 900, 950, 2)
    built.launch(3, 1010, 1020).kernel("k", 1030, 1040, 3)
    assert step_times(read_kineto(built.write(tmp_path / "t.json"))).tolist() == [900, 50, 100]


def test_uses_hold_all_device_work(tmp_path):
    part = breakdown(read_kineto(_trace(tmp_path / "a.json", extra="Memset (Device)")))
    assert sorted((use.operator, use.shapes, use.kernel, use.total_ns, use.count) for use in part.uses) == [
        ("(no operator)", (), "Memset (Device)", 3000, 6), ("aten::mm", ((64, 64), (64, 64)), "gemm_old", 6015, 6)]
    assert part.by_step_ns is not None and part.by_step_ns.sum() == 9015


def test_recordings_are_compared_and_gated(tmp_path, capsys):
    before = _trace(tmp_path / "before.json.gz")
    after = _trace(tmp_path / "after.json", kernel="gemm_new", kernel_ns=12_000, extra="reduce_kernel")
    code = main(["compare", str(before), str(after), "--fail-above", "3%", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 5 and answer["gate"] == {"limit_pct": 3.0, "failed": ["B"]} and answer["rows"][1]["change"] == "slower"
    part, = answer["against"]
    assert [(row["name"], row["state"]) for row in part["operators"]] == [("aten::mm", "grew"), ("(no operator)", "appeared")]
    assert [(row["name"], row["state"]) for row in part["families"]] == [("matrix product", "grew"), ("reduction", "appeared")]
    row, = part["renamed"]
    assert (row["before"], row["after"], row["matched_by"]) == ("gemm_old", "gemm_new", "operator and shapes")
    assert main(["compare", str(before), str(before), "--fail-above", "0"]) == 0
    out = capsys.readouterr().out
    assert "Gate: passed" in out and "Nothing differs beyond the scatter of the steps" in out


def test_torch_profilers_own_steps_are_enough_for_the_gate(tmp_path, capsys):
    paths = [str(_trace(tmp_path / f"{ns}.json", kernel_ns=ns, step="ProfilerStep#")) for ns in (1000, 15_000)]
    assert main(["compare", *paths, "--fail-above", "3%"]) == 5
    assert "Gate: FAILED" in capsys.readouterr().out


def test_a_range_of_the_users_can_be_the_step(tmp_path, capsys):
    paths = [str(_trace(tmp_path / f"{ns}.json", kernel_ns=ns, step="train")) for ns in (1000, 15_000)]
    assert main(["compare", *paths, "--fail-above", "3%"]) == 2 and "has no steps" in capsys.readouterr().err
    assert main(["compare", *paths]) == 0 and "B has no steps" in capsys.readouterr().out
    assert main(["compare", *paths, "--fail-above", "3%", "--steps-from", "train"]) == 5


def test_recordings_and_profiles_do_not_mix(tmp_path, capsys):
    trace = str(_trace(tmp_path / "a.json"))
    write_profile(builders.event(), tmp_path / "p", params_doc={})
    profile = str(tmp_path / "p")
    for argv in ([trace, profile], [trace, str(tmp_path / "missing.json")], [profile, profile, "--steps-from", "x"]):
        assert main(["compare", *argv]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and "Fix: " in err


def test_a_report_that_was_not_exported_names_the_command(tmp_path, capsys):
    report = tmp_path / "r.nsys-rep"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1." + bytes(100))
    assert main(["compare", str(report), str(report)]) == 2
    assert "nsys export --type sqlite" in capsys.readouterr().err


def _steps(path, step_us, steps=12, mark="kernelwright.step"):
    """Equal kernels; only the host's part of a step differs."""
    built = TraceBuilder()
    for number in range(steps):
        at = number * (step_us + 10) * 1000
        if mark:
            built.range(mark, at, at + step_us * 1000)
        built.event("cpu_op", "aten::mm", at + 100, at + 900, Input_Dims=[[64, 64], [64, 64]], Input_type=["float", "float"])
        built.launch(number + 1, at + 200, at + 300).kernel("gemm", at + 400, at + 100_400, number + 1)
    return built.write(path)


def _profiled(trace, folder):
    run = analyse_recording(trace, folder, name="toy")
    write_profile(run.profile, run.out_dir, params_doc=dict(run.params))
    return str(run.out_dir)


def test_profiles_of_recordings_are_gated_by_the_time_of_a_step(tmp_path, capsys):
    fast, slow = (_profiled(_steps(tmp_path / f"{us}.json", us), tmp_path / f"p{us}") for us in (200, 2200))
    assert main(["compare", fast, slow, "--fail-above", "3", "--json"]) == 5
    answer = json.loads(capsys.readouterr().out)
    assert [row["duration_us"] for row in answer["rows"]] == [200.0, 2200.0] and answer["rows"][1]["change"] == "slower"
    assert [row["kernel_us"] for row in answer["rows"]] == [100.0, 100.0] and answer["rows"][1]["interval_us"] == [2200.0, 2200.0]
    assert main(["compare", fast, slow, "--fail-above", "3"]) == 5
    out = capsys.readouterr().out
    assert "Gate: FAILED" in out and "and beyond noise: B" in out and "to the end of its work on host and device" in out
    assert main(["compare", fast, fast, "--fail-above", "3"]) == 0
    duration = baseline_rows(Profile.load(Path(slow)), Profile.load(Path(fast)))[0]
    assert (duration.previous, duration.current) == ("200.00", "2200.00")


def test_a_step_of_a_profile_lasts_as_long_as_that_of_its_recording(tmp_path):
    trace = _steps(tmp_path / "t.json", 50)  # the host runs ahead: each step ends with its kernel
    folder = Path(_profiled(trace, tmp_path / "p"))
    structure = Profile.load(folder).structure
    assert structure is not None and [row.time_ns for row in structure.iterations] == step_times(read_kineto(trace)).tolist()
    assert structure.iterations[0].wall_ns == 50_000 and structure.iterations[0].time_ns == 100_400


@pytest.mark.parametrize("mark", [None, "old"])
def test_the_gate_is_refused_where_no_steps_are_marked_or_timed(tmp_path, capsys, mark):
    folder = _profiled(_steps(tmp_path / "t.json", 200, mark="kernelwright.step" if mark else None), tmp_path / "p")
    if mark:  # a document of before steps were timed
        place = Path(folder) / "profile.json"
        document = json.loads(place.read_text())
        for row in document["structure"]["iterations"]:
            del row["time_ns"]
        place.write_text(json.dumps(document))
        assert main(["compare", folder, folder, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"][0]["duration_us"] is None
    assert main(["compare", folder, folder, "--fail-above", "3"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and ("marked steps" if mark is None else "no timing of calls or steps") in err


def test_the_gate_says_where_the_noise_is_not_known(tmp_path, capsys):
    few = [_steps(tmp_path / f"few{us}.json", us, steps=3) for us in (200, 2200)]
    many = _steps(tmp_path / "many.json", 2200)
    places = [str(few[0]), str(few[1]), str(few[0])]
    folders = [_profiled(few[0], tmp_path / "pa"), _profiled(few[1], tmp_path / "pb"), _profiled(few[0], tmp_path / "pc")]
    for names in (places, folders):
        assert main(["compare", *names, "--fail-above", "3"]) == 5
        gate = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("Gate: "))
        assert "beyond noise" not in gate and gate.endswith("noise not known: B")
        assert main(["compare", names[0], names[2], "--fail-above", "3"]) == 0
        assert "(noise not known: B)" in capsys.readouterr().out
    known = str(_steps(tmp_path / "known.json", 200))
    assert main(["compare", known, str(many), str(few[1]), "--fail-above", "3"]) == 5
    assert "beyond noise: B; noise not known: C" in capsys.readouterr().out


def test_an_export_older_than_its_report_is_not_taken(tmp_path, capsys):
    report, beside = tmp_path / "r.nsys-rep", tmp_path / "r.sqlite"
    report.write_bytes(b"NVIDIA Tegra Profiler Report 1." + bytes(100))
    NsysBuilder().gpu().step(0, 100).call(1, 50, 60).kernel("gemm", 70, 90, 1).write(beside)
    os.utime(beside, (1_000_000_000, 1_000_000_000))
    assert main(["compare", str(report), str(report)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "older than the report" in err and "nsys export --type sqlite" in err
    os.utime(report, (1_000_000_000, 1_000_000_000))
    assert main(["compare", str(report), str(report)]) == 0


def test_profiles_tell_what_changed_in_their_timelines():
    first = builders.gpu_annotation(operators=builders.operators(("aten::mm", "aten::softmax"), 6, 1000),
                                    timeline=builders.timeline(12000, 12000).model_copy(update={"steps": 6}))
    second = first.model_copy(update={"operators": builders.operators(("aten::mm", "aten::relu"), 6, 1500)})
    part, = compare_documents([first, second])
    assert {row["name"]: row["state"] for row in part.operators} == {
        "aten::mm": "grew", "aten::softmax": "vanished", "aten::relu": "appeared", "(no operator)": "same"}
    assert "B against A" in render_changes([part])
    assert compare_documents([builders.event(), second]) == () and compare_documents([first, builders.event()]) == ()


def test_hostile_names_and_many_rows_stay_bounded():
    profile = builders.hostile()
    many = profile.model_copy(update={"operators": builders.operators(tuple(f"op{n} {builders.HOSTILE}" for n in range(300)), 2, 1000)})
    part, = compare_documents([profile, many])
    text = render_changes([part])
    assert len(part.operators) == MOST_ROWS and part.counts["operators"] > MOST_ROWS
    assert "<script" not in text.replace("\\<script", "") and len(text) < 20_000 and "\x1b" not in text


@pytest.mark.parametrize("name", sorted(path.parent.name for path in TRACES.glob("*/trace.json.gz")))
def test_a_recording_taken_apart_holds_what_attribution_finds(name):
    """Two ways through the same file: call by call with all details, and in columns."""
    trace = read_kineto(TRACES / name / "trace.json.gz")
    expected: Counter[tuple] = Counter()
    found = attribute(trace)
    for operator in found.operators:
        for kernel in operator.kernels:
            expected[named_alike(operator.operator_name), operator.input_shapes, kernel.kernel_name] += kernel.duration_ns
    for kernel in found.unattributed:
        if kernel.kernel_name != OUTSIDE:
            expected[named_alike(""), (), kernel.kernel_name] += kernel.duration_ns
    part, uses = breakdown(trace), Counter()
    for use in part.uses:
        uses[use.operator, use.shapes, use.kernel] += use.total_ns
    assert uses == expected and part.by_step_ns is not None and int(part.by_step_ns.sum()) == sum(expected.values())
    assert part.steps == len(trace.steps)
