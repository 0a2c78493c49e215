"""The common issues on traces made by hand: each rule fires with the right figures and line, stays silent, and abstains."""

from __future__ import annotations

from pathlib import Path

import pytest

import builders
from kernelwright.attribute import Attributed, attribute
from kernelwright.diagnose import diagnose
from kernelwright.model.activity import Activity
from kernelwright.model.profile import Bottleneck, Finding, Profile
from kernelwright.readers.kineto import read_kineto
from kernelwright.roofline import stages
from kernelwright.roofline.knowledge import bottlenecks
from kernelwright.timeline import summarize
from trace_builder import TraceBuilder

US = 1_000
GPU_RULES = ("kernel_bottleneck", "synchronisation", "host_device_copies", "few_blocks", "one_stream")
RULES = (*GPU_RULES, "data_loader_stall", "first_use_compilation")


def profiled(folder: Path, trace: TraceBuilder, stacks: TraceBuilder | None = None) -> Profile:
    """Reader, attribution, timeline and rules; no timing, so the whole is the span of the steps."""
    recorded = read_kineto(stacks.write(folder / "stacks.json")) if stacks is not None else None
    timeline = read_kineto(trace.write(folder / "trace.json"))
    result: Attributed = attribute(timeline, stacks=recorded)
    summary = summarize(timeline, attributed_ns=result.attributed_ns, unattributed_ns=result.unattributed_ns)
    roof = builders.roofline("float32")
    return diagnose(Profile(
        capture_metadata=builders.metadata(dtype="float32", device="cuda" if timeline.is_cuda else "cpu"), roofline=roof,
        timeline=summary.model_copy(update={"activity": result.activity}), operators=result.operators,
        unattributed_kernels=result.unattributed, stages=stages(result.operators, result.unattributed, roof, summary.steps),
        bottleneck=Bottleneck(kind=None, root_cause="")))


def activity(profile: Profile) -> Activity:
    assert profile.timeline is not None and profile.timeline.activity is not None
    return profile.timeline.activity


def found(profile: Profile, rule: str) -> Finding | None:
    return next((finding for finding in profile.findings if finding.rule == rule), None)


def reason(profile: Profile, rule: str) -> str | None:
    return next((entry.reason for entry in profile.abstained if entry.name == rule), None)


def chain(**device: object) -> TraceBuilder:
    """One step: two kernels of one operator each, back to back, and nothing to mend."""
    trace = TraceBuilder(sms=132, **device)  # type: ignore[arg-type]
    trace.step(0, 100 * US)
    for index in range(2):
        trace.op("aten::mm", index * 10 * US, index * 10 * US + 8 * US)
        trace.launch(index + 1, index * 10 * US + 2 * US, index * 10 * US + 6 * US)
        trace.kernel(f"gemm_{index}", 8 * US + index * 400 * US, 408 * US + index * 400 * US, index + 1, grid=(512, 1, 1))
    return trace


def test_a_plain_chain_has_none_of_them(tmp_path: Path) -> None:
    profile = profiled(tmp_path, chain())
    assert [rule for rule in RULES if found(profile, rule)] == []
    assert activity(profile).streams == 1 and activity(profile).sm_count == 132
    assert "which kernels depend on each other" in str(reason(profile, "one_stream"))


def test_without_a_timeline_all_abstain_and_on_the_cpu_those_of_the_device(tmp_path: Path) -> None:
    blind = diagnose(Profile(capture_metadata=builders.metadata(), bottleneck=Bottleneck(kind=None, root_cause="")))
    assert {rule: reason(blind, rule) for rule in RULES} == dict.fromkeys(RULES, "no timeline in this capture")
    cpu = profiled(tmp_path, TraceBuilder(device="").step(0, 100 * US).op("aten::mm", 10 * US, 90 * US))
    assert {rule: reason(cpu, rule) for rule in RULES} == {**dict.fromkeys(GPU_RULES, "no GPU in this capture"),
                                                          "data_loader_stall": None, "first_use_compilation": None}


def test_documents_from_before_abstain(tmp_path: Path) -> None:
    profile = profiled(tmp_path, chain())
    assert profile.timeline is not None
    old = diagnose(profile.model_copy(update={"timeline": profile.timeline.model_copy(update={"activity": None}), "abstained": ()}))
    assert all("profile again" in str(reason(old, rule)) for rule in RULES if rule != "kernel_bottleneck")


def waiting_step(trace: TraceBuilder, base: int, *, names: tuple[str, ...], call: str) -> None:
    """A kernel of 100 us, a wait for it, then a second kernel that is launched 60 us after the first ended."""
    trace.step(base, base + 300 * US)
    trace.op("aten::mm", base + 1 * US, base + 9 * US).launch(base + 1, base + 2 * US, base + 6 * US)
    trace.kernel("gemm", base + 10 * US, base + 110 * US, base + 1)
    for depth, name in enumerate(names):
        trace.op(name, base + (20 + depth) * US, base + (130 - depth) * US)
    trace.launch(-1, base + 30 * US, base + 120 * US, name=call)
    trace.op("aten::add", base + 150 * US, base + 165 * US).launch(base + 2, base + 152 * US, base + 162 * US)
    trace.kernel("add", base + 170 * US, base + 270 * US, base + 2)


def test_item_is_counted_with_its_wait_and_what_it_costs(tmp_path: Path) -> None:
    trace, stacks = TraceBuilder(), TraceBuilder()
    waiting_step(trace, 0, names=("aten::item", "aten::_local_scalar_dense"), call="cudaStreamSynchronize")
    stacks.frame("train.py", 3, "step", -10, 300 * US)
    stacks.frame("train.py", 7, "read_loss", 15 * US, 140 * US)
    waiting_step(stacks, 0, names=("aten::item", "aten::_local_scalar_dense"), call="cudaStreamSynchronize")
    profile = profiled(tmp_path, trace, stacks)
    row, = activity(profile).synchronizations
    assert (row.count, row.wait_ns, row.idle_ns, row.where) == (1, 90 * US, 60 * US, "train.py:7")
    assert row.operators == ("aten::item", "aten::_local_scalar_dense") and row.call == "cudaStreamSynchronize"
    finding = found(profile, "synchronisation")
    assert finding is not None and finding.where == "train.py:7" and finding.trigger == "syncs_per_step=1"
    assert ".item()" in finding.name and "90.0 us" in finding.detail and "train.py:7" in finding.detail
    assert finding.estimated_gain_pct == pytest.approx(100 * 60 / 270) and "Keep the value on the device" in finding.hint


@pytest.mark.parametrize(("names", "call", "label"), [
    (("aten::index", "aten::nonzero"), "cudaStreamSynchronize", "mask"),
    (("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"), "cudaStreamSynchronize", ".item()"),
    (("aten::repeat_interleave",), "cudaStreamSynchronize", "repeat_interleave"),
    ((), "cudaDeviceSynchronize", "torch.cuda.synchronize()"), ((), "cudaEventSynchronize", "event.synchronize()"),
    ((), "cudaStreamSynchronize", "stream.synchronize()"), (("aten::odd",), "cudaMemcpy", "a synchronising call"),
])
def test_each_kind_of_wait_is_told_apart(tmp_path: Path, names: tuple[str, ...], call: str, label: str) -> None:
    trace = TraceBuilder()
    waiting_step(trace, 0, names=names, call=call)
    finding = found(profiled(tmp_path, trace), "synchronisation")
    assert finding is not None and label in finding.name and finding.where is None and "unknown line" in finding.detail


def test_an_explicit_synchronisation_finds_its_line_through_the_stacks(tmp_path: Path) -> None:
    trace, stacks = TraceBuilder(), TraceBuilder()
    waiting_step(trace, 0, names=(), call="cudaDeviceSynchronize")
    waiting_step(trace, 1000 * US, names=(), call="cudaDeviceSynchronize")
    stacks.frame("train.py", 11, "wait", 25 * US, 130 * US)
    stacks.frame("torch/cuda/__init__.py", 1040, "synchronize", 26 * US, 129 * US)
    waiting_step(stacks, 0, names=(), call="cudaDeviceSynchronize")
    row, = activity(profiled(tmp_path, trace, stacks)).synchronizations
    assert (row.where, row.count) == ("train.py:11", 2)
    waiting_step(trace, 2000 * US, names=(), call="cudaStreamSynchronize")
    known = {(row.call, row.where) for row in activity(profiled(tmp_path, trace, stacks)).synchronizations}
    assert known == {("cudaDeviceSynchronize", "train.py:11"), ("cudaStreamSynchronize", None)}, "another step, so no line is taken over"


def test_a_wait_that_leaves_the_device_busy_costs_nothing(tmp_path: Path) -> None:
    trace = chain().launch(-1, 30 * US, 60 * US, name="cudaStreamSynchronize")
    profile = profiled(tmp_path, trace)
    assert activity(profile).synchronization_count == 1 and activity(profile).synchronization_idle_ns == 0
    assert found(profile, "synchronisation") is None


def copying(memory: str, size: int | None, *, wait: bool) -> TraceBuilder:
    """A copy of 400 us, then a kernel of 100 us."""
    trace = TraceBuilder().step(0, 600 * US)
    trace.op("aten::to", 1 * US, 440 * US).op("aten::copy_", 2 * US, 430 * US).launch(1, 5 * US, 20 * US, name="cudaMemcpyAsync")
    trace.copy(f"Memcpy HtoD ({memory} -> Device)", 20 * US, 420 * US, 1, size)
    if wait:
        trace.launch(-1, 21 * US, 425 * US, name="cudaStreamSynchronize")
    trace.op("aten::mm", 450 * US, 460 * US).launch(2, 452 * US, 456 * US)
    return trace.kernel("gemm", 460 * US, 560 * US, 2)


@pytest.mark.parametrize(("memory", "wait", "advice"), [("Pageable", True, "pin it"), ("Pinned", False, "pinned already")])
def test_host_copies_with_size_memory_and_bandwidth(tmp_path: Path, memory: str, wait: bool, advice: str) -> None:
    profile = profiled(tmp_path, copying(memory, 4_000_000, wait=wait))
    row, = activity(profile).host_copies
    assert (row.direction, row.memory, row.operator) == ("HtoD", memory.lower(), "aten::to")
    assert (row.bytes, row.duration_ns) == (4_000_000, 400 * US)
    assert row.bandwidth_gbs == 10.0
    finding = found(profile, "host_device_copies")
    assert finding is not None and finding.trigger == "host_copy_share=71%" and finding.estimated_gain_pct == pytest.approx(100 * 400 / 560)
    assert f"4.00 MB a step to the device from {memory.lower()} memory in 1 copy at 10 GB/s" in finding.detail and advice in finding.hint
    assert (found(profile, "synchronisation") is not None) == wait, "only a copy that the host waits for is a synchronisation"
    assert found(profile, "heavy_copies") is None and found(profile, "one_stream") is None


def test_copies_behind_other_work_cost_nothing(tmp_path: Path) -> None:
    trace = copying("Pinned", 4_000_000, wait=False).op("aten::mm", 2 * US, 4 * US).launch(9, 2 * US, 4 * US)
    profile = profiled(tmp_path, trace.kernel("beside", 10 * US, 410 * US, 9, stream=20))
    assert activity(profile).host_copy_exposed_ns == 10 * US and found(profile, "host_device_copies") is None


def test_a_size_that_the_trace_lacks_is_not_guessed(tmp_path: Path) -> None:
    profile = profiled(tmp_path, copying("Pinned", None, wait=False))
    finding = found(profile, "host_device_copies")
    assert activity(profile).host_copies[0].bandwidth_gbs is None and finding is not None and "at n/a" in finding.detail


def test_few_blocks(tmp_path: Path) -> None:
    def one(blocks: int, sms: int | None, duration: int = 900 * US) -> Profile:
        trace = TraceBuilder(sms=sms).step(0, 50 * US).op("aten::softmax", 1 * US, 9 * US).launch(1, 2 * US, 6 * US)
        return profiled(tmp_path, trace.kernel("softmax", 10 * US, 10 * US + duration, 1, grid=(blocks, 1, 1)))

    finding = found(one(33, 132), "few_blocks")
    assert finding is not None and finding.trigger == "below_one_wave_share=99%"
    assert "33 blocks" in finding.detail and "0.25 waves" in finding.detail
    assert finding.estimated_gain_pct == pytest.approx(100 * 900 * 0.75 / 910, rel=1e-6)
    assert found(one(132, 132), "few_blocks") is None and found(one(33, 132, 4 * US), "few_blocks") is None
    assert "multiprocessors" in str(reason(one(33, None), "few_blocks"))


def chunks(stream_of_copies: int) -> TraceBuilder:
    """Two chunks: a pinned copy of 200 us, then a kernel of 300 us."""
    trace = TraceBuilder().step(0, 60 * US)
    for index in range(2):
        host, device = index * 20 * US, index * 500 * US
        trace.op("aten::to", host + 1 * US, host + 8 * US).launch(2 * index + 1, host + 2 * US, host + 6 * US, name="cudaMemcpyAsync")
        trace.copy("Memcpy HtoD (Pinned -> Device)", device + 5 * US, device + 205 * US, 2 * index + 1, 10_000_000, stream_of_copies)
        trace.op("aten::mm", host + 10 * US, host + 18 * US).launch(2 * index + 2, host + 12 * US, host + 16 * US)
        trace.kernel("gemm", device + 205 * US, device + 505 * US, 2 * index + 2)
    return trace


def test_copies_between_kernels_of_one_stream(tmp_path: Path) -> None:
    profile = profiled(tmp_path, chunks(7))
    overlap = activity(profile).overlap
    assert overlap is not None and (overlap.copies, overlap.copy_ns) == (2, 400 * US)
    assert (overlap.serial_ns, overlap.overlapped_ns) == (1000 * US, 800 * US)
    finding = found(profile, "one_stream")
    assert finding is not None and finding.estimated_gain_pct == pytest.approx(100 * 200 / 1005)
    apart = profiled(tmp_path, chunks(20))
    assert found(apart, "one_stream") is None and activity(apart).overlap is None and activity(apart).streams == 2


def loading(wait_us: int) -> TraceBuilder:
    """A kernel of 100 us, and a batch that is asked for as soon as it is launched."""
    trace = TraceBuilder().step(0, (wait_us + 60) * US)
    trace.op("aten::mm", 1 * US, 9 * US).launch(1, 2 * US, 6 * US).kernel("gemm", 10 * US, 110 * US, 1)
    trace.range("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10 * US, (10 + wait_us) * US)
    at = 20 + wait_us
    trace.op("aten::mm", at * US, (at + 9) * US).launch(2, (at + 1) * US, (at + 5) * US)
    return trace.kernel("gemm2", max(at + 10, 110) * US, (max(at + 10, 110) + 100) * US, 2)


def test_data_loader_stall_counts_idle_time_only(tmp_path: Path) -> None:
    profile = profiled(tmp_path, loading(1000), loading(1000).frame("train.py", 5, "batches", 9 * US, 1015 * US))
    assert (activity(profile).data_loader_wait_ns, activity(profile).data_loader_idle_ns) == (1000 * US, 900 * US)
    finding = found(profile, "data_loader_stall")
    assert finding is not None and finding.where == "train.py:5" and finding.estimated_gain_pct == pytest.approx(100 * 900 / 1130)
    gaps = found(profile, "launch_gaps")
    assert gaps is None, "what the loader explains is not the launches' fault"
    assert found(profiled(tmp_path, loading(80)), "data_loader_stall") is None, "loading behind device work costs nothing"


def test_compilation_in_a_step(tmp_path: Path) -> None:
    def compiled() -> TraceBuilder:
        trace = chain().op("entire_frame_compile (dynamo_timed)", 20 * US, 60 * US)
        return trace.op("backend_compile (dynamo_timed)", 30 * US, 50 * US)

    profile = profiled(tmp_path, compiled(), compiled().frame("train.py", 9, "step", 19 * US, 61 * US))
    finding = found(profile, "first_use_compilation")
    assert activity(profile).compile_ns == 40 * US and finding is not None and finding.where == "train.py:9"
    assert finding.trigger == "compile_share=40%" and "mark_dynamic" in finding.hint


def test_module_loading_in_a_step(tmp_path: Path) -> None:
    trace = chain().event("overhead", "Lazy Function Loading", 3 * US, 8 * US, pid=-1, tid=0)
    trace.event("overhead", "Activity Buffer Request", 10 * US, 90 * US, pid=-1, tid=0)
    finding = found(profiled(tmp_path, trace), "first_use_compilation")
    assert finding is not None and finding.trigger == "compile_share=5%" and "CUDA_MODULE_LOADING" in finding.hint


SHAPES = {"q": [8, 128, 64], "k": [8, 64, 128], "scores": [8, 128, 128], "v": [8, 128, 64]}


def attention(parent: str | None = None) -> TraceBuilder:
    """Product, scaling, softmax, product of 100 us each beside a kernel of 100 us."""
    trace = TraceBuilder(sms=132).step(0, 200 * US)
    calls = [("aten::mm", [[64, 64], [64, 64]]), ("aten::bmm", [SHAPES["q"], SHAPES["k"]]), ("aten::mul", [SHAPES["scores"]]),
             ("aten::_softmax", [SHAPES["scores"]]), ("aten::bmm", [SHAPES["scores"], SHAPES["v"]])]
    if parent:
        trace.op(parent, 15 * US, 195 * US)
    for index, (name, dims) in enumerate(calls):
        at = (index * 20 + 1) * US + (10 * US if index else 0)
        trace.op(name, at, at + 9 * US, Input_Dims=dims, Input_type=["float"] * len(dims))
        trace.launch(index + 1, at + 1 * US, at + 5 * US)
        trace.kernel(f"kernel_{index}", (index * 100 + 10) * US, (index * 100 + 110) * US, index + 1, grid=(512, 1, 1))
    return trace


def test_attention_written_out(tmp_path: Path) -> None:
    profile = profiled(tmp_path, attention())
    finding = found(profile, "kernel_bottleneck")
    assert finding is not None and finding.trigger == "unfused_attention_share=80%" and "scaled_dot_product_attention(" in finding.hint
    flops = 2 * 2 * 8 * 128 * 128 * 64
    roof = builders.roofline("float32").peak_compute
    assert roof is not None
    assert finding.estimated_gain_pct == pytest.approx(100 * (400 * US - flops / roof.value * 1e-3) / (510 * US))
    fallback = found(profiled(tmp_path, attention("aten::_scaled_dot_product_attention_math")), "kernel_bottleneck")
    assert fallback is not None and "fell back" in fallback.hint


def dominated(folder: Path, min_bytes: float | None) -> Profile:
    """A scan of 700 us that must move min_bytes, beside a product of 100 us."""
    trace = TraceBuilder(sms=132).step(0, 60 * US)
    for index, (name, kernel, length) in enumerate((("aten::cumsum", "tensor_kernel_scan_innermost_dim", 700), ("aten::mm", "gemm", 100))):
        trace.op(name, (20 * index + 1) * US, (20 * index + 9) * US).launch(index + 1, (20 * index + 2) * US, (20 * index + 6) * US)
        trace.kernel(kernel, (10 + 700 * index) * US, (10 + 700 * index + length) * US, index + 1, grid=(512, 1, 1))
    profile = profiled(folder, trace, TraceBuilder().frame("model.py", 8, "scan", 0, 15 * US).step(0, 60 * US)
                       .op("aten::cumsum", 1 * US, 9 * US).op("aten::mm", 21 * US, 29 * US))
    scan = profile.operators[0].model_copy(update={"min_bytes": min_bytes})
    operators = (scan, *profile.operators[1:])
    assert profile.roofline is not None
    return diagnose(profile.model_copy(update={
        "operators": operators, "stages": stages(operators, (), profile.roofline, 1), "findings": (), "abstained": ()}))


def test_one_kernel_dominates_and_is_named_with_a_hint_of_its_kind(tmp_path: Path) -> None:
    profile = dominated(tmp_path, 1e6)
    finding = found(profile, "kernel_bottleneck")
    assert finding is not None and finding.where == "model.py:8" and finding.trigger == "kernel_share=88%" and "Scan along" in finding.hint
    assert "tensor_kernel_scan_innermost_dim" in finding.detail and "aten::cumsum" in finding.detail
    assert found(profile, "stage_far_from_roof") is None, "one finding about one kernel is enough"


def test_a_dominant_kernel_near_its_roof_is_healthy_and_one_of_unknown_work_is_not_judged(tmp_path: Path) -> None:
    bandwidth = builders.roofline("float32").peak_bandwidth
    assert bandwidth is not None
    near = dominated(tmp_path, 0.7 * bandwidth.value * 700 * US)
    assert found(near, "kernel_bottleneck") is None and reason(near, "kernel_bottleneck") is None
    assert "tensor_kernel_scan_innermost_dim takes 88%" in str(reason(dominated(tmp_path, None), "kernel_bottleneck"))


def test_every_kind_has_its_wording_and_every_hint_fits_a_report() -> None:
    rules = bottlenecks().rules
    assert {*rules["kernel_bottleneck"].patterns, "other"} <= set(rules["kernel_bottleneck"].texts)
    for kind in (*rules["synchronisation"].patterns, "other"):
        assert {kind, f"{kind}_label"} <= set(rules["synchronisation"].texts)
    long = [(name, key) for name, rule in rules.items() for key, text in {**rule.texts, "hint": rule.hint}.items() if len(text) > 200]
    assert long == []
