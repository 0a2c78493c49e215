"""What a budget buys: the whole catalogue on seven simulated workloads, with times of the size that an H200 showed for them. No torch.

The machine is a table: a call's time by what decides it (products split, compiled, one launch), and what screens and judgements take.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from kernelwright.judge.options import OutOfTime
from kernelwright.model.activity import Activity
from kernelwright.model.trial import Screen
from kernelwright.model.verdict import Experiment
from kernelwright.model.workload import TensorSpec
from kernelwright.optimize import captures, explain, lower_precision, ruled_out, strategy
from kernelwright.optimize.audits import CLOSING_S
from kernelwright.optimize.budget import JUDGEMENT, costs_of, screens_s
from kernelwright.optimize.confirm import USUAL, is_audit
from kernelwright.optimize.expected import as_screened, evidence, hope, hoped, modelled
from kernelwright.optimize.ledger import NOT_BEGUN, Ledger
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.optimize.passes.conditions import call_ns, copies_share, graph_words, idle_share
from kernelwright.optimize.plan import candidate
from kernelwright.optimize.screen import Ask
from kernelwright.optimize.shown import STRICT_FLOAT32
from kernelwright.optimize.waiting import NOT_LOOKED_FOR
from optimizing import Context, FakeStages, a_workload, environment, facts, rows, run, verdict  # noqa: F401 a fixture

Spec = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Machine:
    """One workload on one device. times: (split products, compiled, one launch) -> us of a call."""

    operators: dict[str, tuple[float, int]]
    """Name -> its share of the device's time, kernels a call."""
    idle_pct: float
    times: dict[tuple[bool, bool, bool], float]
    original_us: float
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    splits: bool = True
    factors: dict[str, float] = field(default_factory=dict)
    """Pass -> factor on the call's time, of those that change it; the others find nothing to do."""
    host_us: tuple[float, float] = (0.0, 0.0)
    """What the host takes to launch a call, uncompiled and compiled: the call takes no less, but as one launch."""
    judged_off: float = 1.0
    """What the judge measures of candidates that the host launches from Python, over what the screen does."""

    def call_us(self, passes) -> float | None:
        """None: a pass finds nothing to do."""
        compiled = any(CATALOGUE[name].carrier for name in passes)
        captured = "aten::_cudnn_rnn" not in self.operators and any(CATALOGUE[name].one_launch for name in passes)
        graphed = "cuda_graph" in passes or captured
        tuned = 0.97 if any("max_autotune" in name for name in passes) else 1.0
        if "split_products" in passes and not self.splits:
            return None
        other = [name for name in passes if name not in ("split_products", "cuda_graph", "no_grad") and not CATALOGUE[name].carrier]
        if any(name not in self.factors for name in other):
            return None
        device_us = self.times["split_products" in passes, compiled, graphed] * tuned * math.prod(self.factors[name] for name in other)
        return max(device_us, 0.0 if graphed else self.host_us[compiled])


def table(*us: float) -> dict[tuple[bool, bool, bool], float]:
    """In the order: plain, compiled, graph, both; the same with split products."""
    keys = [(split, compiled, graph) for split in (False, True) for graph in (False, True) for compiled in (False, True)]
    return dict(zip(keys, us, strict=True))


SEVEN = {
    "gpt2": Machine(
        {"aten::addmm": (0.745, 48), "aten::mm": (0.17, 1), "aten::_efficient_attention_forward": (0.043, 12),
         "aten::native_layer_norm": (0.022, 25), "aten::add": (0.01, 25), "aten::gelu": (0.008, 12), "aten::gather": (0.002, 2)},
        7.5, table(5071, 4155, 4900, 4000, 2700, 2300, 1743, 1600), 5124, (((4, 128), "int64"),), (((4, 128, 50257), "float32"),),
        factors={"freeze_weights": 0.99, "pad_to_tiles": 1.0, "inductor_combo_kernels": 1.0}),
    "conv_block": Machine(
        {"aten::cudnn_convolution": (0.499, 9), "aten::add_": (0.178, 3), "aten::cudnn_batch_norm": (0.157, 3),
         "aten::clamp_min": (0.105, 3), "aten::mean": (0.053, 1), "aten::addmm": (0.008, 1)},
        13.5, table(554, 284, 529, 255, 9e9, 9e9, 9e9, 9e9), 560, (((16, 3, 64, 64), "float32"),), (((16, 10), "float32"),), splits=False,
        factors={"fold_conv_bn": 0.85, "channels_last": 1.09, "cudnn_benchmark": 1.0, "freeze_weights": 0.98, "inductor_fuse_more": 1.0}),
    "depthwise": Machine(
        {"aten::_conv_depthwise2d": (0.346, 3), "aten::cudnn_batch_norm": (0.29, 6), "aten::clamp_min": (0.192, 6),
         "aten::cudnn_convolution": (0.172, 3)},
        26.7, table(358, 319, 362, 240, 9e9, 9e9, 9e9, 9e9), 427, (((16, 32, 56, 56), "float32"),), (((16, 256, 56, 56), "float32"),),
        splits=False, factors={"fold_conv_bn": 0.8, "channels_last": 1.3, "cudnn_benchmark": 1.0, "inductor_fuse_more": 1.0,
                               "separable_convolutions": 0.51}),
    "embedding": Machine(
        {"aten::addmm": (0.988, 3), "aten::gelu": (0.005, 1), "aten::native_layer_norm": (0.003, 1), "aten::gather": (0.002, 1),
         "aten::embedding": (0.001, 1), "aten::add": (0.002, 1)},
        1.2, table(6368, 6435, 6875, 6875, 2400, 2362, 2700, 2650), 6405, (((64, 128), "int64"),), (((64, 128, 32000), "float32"),),
        factors={"blas_library": 1.005}),
    "mlp": Machine(
        {"aten::addmm": (0.975, 7), "aten::gelu": (0.007, 1), "aten::silu": (0.007, 1), "aten::clamp_min": (0.006, 1),
         "aten::tanh": (0.005, 1)},
        13.5, table(274, 187, 250, 198, 540, 548, 85, 80), 277, (((256, 512), "float32"),), (((256, 512), "float32"),),
        factors={"freeze_weights": 1.07}, judged_off=1.4),
    "sdpa": Machine(
        {"aten::mm": (0.551, 8), "aten::_efficient_attention_forward": (0.379, 1), "aten::native_layer_norm": (0.056, 2),
         "aten::add": (0.015, 1)},
        10.9, table(429, 418, 405, 395, 520, 535, 300, 290), 428, (((8, 512, 512), "float32"),), (((8, 512, 512), "float32"),),
        factors={"freeze_weights": 0.97, "split_attention": 0.76}, judged_off=1.2),
    "lstm": Machine(
        {"aten::_cudnn_rnn": (0.984, 528), "aten::addmm": (0.008, 4), "aten::mean": (0.004, 1), "aten::copy_": (0.003, 1)},
        56.9, table(4077, 4231, 1480, 1500, 9e9, 9e9, 9e9, 9e9), 4054, (((32, 128, 256), "float32"),), (((32, 10), "float32"),),
        splits=False, factors={"freeze_weights": 1.0, "inductor_combo_kernels": 1.0}),
}


def context_of(machine: Machine) -> Context:
    """As the baseline's profile would show the workload."""
    whole = machine.original_us * (1 - machine.idle_pct / 100) * 1000
    made = []
    for operator in builders.operators(tuple(machine.operators), 1, 1000):
        share, count = machine.operators[operator.operator_name]
        kernel = operator.kernels[0].model_copy(update={"duration_ns": int(share * whole / count), "grid": (1000, 1, 1)})
        made.append(operator.model_copy(update={
            "kernels": (kernel,) * count, "input_shapes": ((128, 512), (512, 512)),
            "aggregated": operator.aggregated.model_copy(update={"total_duration_ns": int(share * whole), "kernel_count": count})}))
    launches = sum(count for _, count in machine.operators.values())
    timeline = builders.timeline(int(whole), int(whole), kernels=launches).model_copy(update={
        "steps": 1, "activity": Activity(), "idle_share_pct": machine.idle_pct, "cpu_bound_share_pct": machine.idle_pct})
    profile = builders.gpu_annotation(
        capture_metadata=builders.metadata(dtype="float32", device="cuda", version=None), parameters={}, operators=tuple(made),
        unattributed_kernels=(), timeline=timeline, timing=builders.timing(machine.original_us), roofline=builders.roofline("float32"))
    specs = [tuple(TensorSpec(path=str(place), shape=shape, dtype=dtype, device="cuda") for place, (shape, dtype) in enumerate(side))
             for side in (machine.inputs, machine.outputs)]
    return Context(facts=facts(inputs=specs[0], outputs=specs[1]), environment=environment(sm_count=132, compute_capability="9.0"),
                   profile=profile)


class Stages(FakeStages):
    """The simulated machine as profiler, screen and judge; it is its own screener."""

    def __init__(self, machine: Machine) -> None:
        super().__init__({}, profile_s=9.0)
        self.machine, self.context = machine, context_of(machine)
        self.screener = self
        self.asked: list[str] = []
        self.built: set[str] = set()
        self.kernels = False

    def profile(self, workload, folder, baseline, timeout_s, timing=None):
        made = super().profile(workload, folder, baseline, timeout_s, timing)
        document = made.profile if baseline is not None else self.context.profile
        result = made.result.model_copy(update={"facts": self.context.facts, "environment": self.context.environment})
        return type(made)(document, made.out_dir, result)

    def passes_of(self, file: Path) -> tuple[str, ...]:
        """By the file's name; of optimized.py by its first line."""
        if file.name != "optimized.py":
            words = file.stem.split("_", 1)[1].removesuffix("__rest").replace(STRICT_FLOAT32.name, "no_grad").split("__")
            return candidate(words, self.context).passes
        return tuple(file.read_text().split(": ")[1].split(".")[0].split(", "))

    def setup_s(self, passes, *, again: bool = False) -> float:
        """To build a candidate where the compiler is loaded and kernels are tuned: products are measured, what is compiled is traced.
        again: in the judge's process, after its screen."""
        kernels_s = (2.0 if self.kernels else 12.0) if "separable_convolutions" in passes else 0.0  # compiled once, timed each time
        products_s = (1.5 if again else 5.0) if "split_products" in passes else 0.0
        return 0.1 + kernels_s + products_s + (2.5 if any(CATALOGUE[name].carrier for name in passes) else 0.0)

    def screen(self, ask: Ask) -> Screen:
        passes = self.passes_of(ask.file)
        self.asked.append("+".join(passes))
        start = self.clock.now
        self.clock.now += 3.7 if len(self.asked) == 1 else 0.0
        call_us = self.machine.call_us(passes)
        if call_us is None:
            self.clock.now += 0.5
            return Screen(status="not_applicable", reason="found nothing to do", elapsed_s=self.clock.now - start)
        build_s = self.setup_s(passes) + (5.5 if any(CATALOGUE[name].carrier for name in passes) and not self.built else 0.0)
        build_s += 35.0 if any(CATALOGUE[name].cost == "autotune" for name in passes) else 0.0
        self.kernels |= "separable_convolutions" in passes
        if build_s > ask.limit_s:
            self.clock.now += ask.limit_s
            return Screen(status="out_of_budget", reason="did not finish", elapsed_s=self.clock.now - start)
        if any(CATALOGUE[name].carrier for name in passes):
            self.built.add("compiler")
        self.clock.now += build_s + 0.9
        before = self.machine.call_us(self.passes_of(ask.against)) if ask.against is not None else self.machine.original_us
        assert before is not None
        speedup = before / call_us
        hopeless = ask.hopeless is not None and speedup < ask.hopeless
        return Screen(status="hopeless" if hopeless else "timed", speedup=speedup, interval=(speedup * 0.996, speedup * 1.004), pairs=9,
                      reference_ns=before * 1e3, candidate_ns=call_us * 1e3, build_s=build_s, elapsed_s=self.clock.now - start,
                      against=ask.against_name)

    def compile_ahead(self, files, limit_s):
        pass

    def processes(self):
        return 0

    def begun(self, file):
        return False

    def compiled(self, file):
        return False

    def compiling(self, files):
        return False

    def end_ahead(self):
        pass

    def let_end(self):
        pass

    def judge(self, file, precision, seconds, effort=USUAL):
        passes = self.passes_of(file)
        name = ("optimized:" if file.name == "optimized.py" else "") + "+".join(passes)
        self.judged.append(name)
        call_us = self.machine.call_us(passes)
        assert call_us is not None
        setup = self.setup_s(passes, again=True)
        needed = 2.0 + 2.5 + 1.5 + 1.0 + max(0.1, setup) + effort.timing_s - USUAL.timing_s
        self.clock.now += min(needed, seconds)
        if needed > seconds:
            raise OutOfTime("calling")
        launched = any(CATALOGUE[one].carrier for one in passes) and not any(CATALOGUE[one].one_launch for one in passes)
        speedup = self.machine.original_us / call_us / (self.machine.judged_off if launched else 1.0)
        word = "FASTER" if speedup > 1.03 else "SLOWER" if speedup < 0.97 else "AMBIGUOUS"
        said = verdict(word, speedup)
        return said.model_copy(update={"candidate_sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
                                       "candidate_setup_s": max(0.1, setup)})


LEAST = {"gpt2": 2.0, "conv_block": 1.6, "depthwise": 1.3, "embedding": 2.5, "mlp": 3.0, "sdpa": 1.3, "lstm": 2.5}
"""Speed-up that a minute must give already."""


def story(stages: Stages, outcome) -> str:
    """What happened, for the message of a test that fails."""
    shown = [f"{row.index} {row.name}: {row.screen.speedup if row.screen else ''} {row.verdict.verdict if row.verdict else row.status}"
             f" {row.reason[:200]}" for row in Ledger(outcome.out_dir / "ledger.jsonl").rows if row.screen or row.verdict or row.tags]
    return "\n".join([outcome.line, f"{stages.clock.now:.0f} s", *shown])


@pytest.mark.parametrize(("name", "budget"), [(name, budget) for budget in (60.0, 180.0) for name in SEVEN] + [("gpt2", 480.0)])
def test_each_budget_finds_what_the_workload_has_to_give(workload, name, budget):
    stages = Stages(SEVEN[name])
    outcome = run(workload, stages, budget_s=budget)
    said = story(stages, outcome)
    closing = stages.profile_s if "after" in stages.profiled else 0.0
    closing += sum(row.elapsed_s for row in Ledger(outcome.out_dir / "ledger.jsonl").rows if is_audit(row))
    assert stages.clock.now - closing <= budget + 1.0 and closing <= CLOSING_S, said
    assert outcome.speedup >= LEAST[name] and outcome.confirmed, said
    if SEVEN[name].splits:
        assert "split_products" in outcome.kept, said
    if name in ("gpt2", "mlp", "sdpa", "lstm"):
        assert any(CATALOGUE[one].one_launch for one in outcome.kept), said
    if name == "depthwise":
        assert "separable_convolutions" in outcome.kept, said
    if name == "gpt2" and budget > 100:
        assert any(CATALOGUE[one].carrier for one in outcome.kept), said
    useless = {"no_grad", "compile_default+no_grad"} if name in ("lstm", "embedding", "gpt2", "mlp") else {"no_grad"}
    assert not useless & set(stages.judged[:2]), said


def test_a_product_that_is_slower_for_its_launches_is_tried_in_a_graph(workload):
    """The host takes longer to launch the split products than the device takes to compute them."""
    stages = Stages(SEVEN["mlp"])
    outcome = run(workload, stages, budget_s=60.0)
    found = rows(outcome)
    assert "split_products" in outcome.kept and "cuda_graph" in outcome.kept
    launched = strategy.View(stages.context, "equal", [
        a_screen(stages.context, 1, "compile_default", 1.49),
        a_screen(stages.context, 2, "split_products+compile_default", 0.52, ("compile_default",))])
    nexts = [item for item, hope in hoped(launched, strategy.proposals(launched)) if hope.ratio >= strategy.OPENING]
    assert any({"split_products", "cuda_graph"} <= set(item.passes) for item in nexts[:2]), [item.name for item in nexts]
    assert found["split_products+cuda_graph"].verdict.verdict == "FASTER"


def test_where_lower_precision_is_allowed_it_comes_first_and_gets_a_graph(workload):
    machine = replace(SEVEN["mlp"], factors={"bf16": 0.4, "bf16_autocast": 0.5, "tf32": 0.6})
    stages = Stages(machine)
    outcome = run(workload, stages, budget_s=60.0, precision="bf16")
    assert "bf16" in outcome.kept and any(CATALOGUE[one].one_launch for one in outcome.kept), story(stages, outcome)
    assert outcome.confirmed and "bf16" in stages.judged[0], "the fastest goes to the judge first"


def test_casts_whose_launches_hide_what_they_shorten_are_tried_in_a_graph_and_compiled(workload):
    """Without a graph TF32 looks best, since the host launches more kernels for the others."""
    machine = replace(SEVEN["gpt2"], factors={"tf32": 0.28, "bf16": 0.17, "bf16_autocast": 0.25}, host_us=(2600.0, 2000.0))
    stages = Stages(machine)
    outcome = run(workload, stages, budget_s=60.0, precision="bf16")
    assert {"bf16", "compile_default", "cuda_graph"} <= set(outcome.kept) and outcome.confirmed, story(stages, outcome)
    used_s = json.loads((outcome.out_dir / "report.json").read_text())["used_s"]
    assert outcome.speedup > 6.5 and used_s <= 60.0, story(stages, outcome)
    assert "compile_default+no_grad" not in stages.asked, "a minute has no room for what can't catch up"
    known = [a_screen(stages.context, index, name, speedup) for index, (name, speedup) in enumerate((
        ("tf32", 1.9), ("bf16", 1.8), ("tf32+cuda_graph", 3.6), ("bf16+cuda_graph", 4.6), ("fold_conv_bn+tf32+cuda_graph", 9.0)))]
    ladder = strategy.untried_ladder(strategy.View(stages.context, "bf16", known))
    assert [item.name for item in ladder[:2]] == ["bf16+compile_default", "bf16+compile_reduce_overhead"]


def test_every_cast_is_tried_in_a_graph_before_anything_is_compiled():
    """GPT-2 on an H200: bf16 was fastest in a graph, and a budget of two minutes had gone to compiling autocast."""
    context = with_a_wide_result(context_of(SEVEN["gpt2"]))
    seen = {"bf16": 1.16, "bf16_autocast": 0.86, "bf16_autocast+cuda_graph": 3.48, "tf32": 1.86, "wide_outputs": 1.13,
            "wide_outputs+bf16_autocast+cuda_graph": 4.04, "tf32+cuda_graph": 4.12, "bf16+cuda_graph": 4.71}
    made = [candidate(name.split("+"), context) for name in list(seen)[:6]]
    known = [a_screen(context, index, item.name, seen[item.name], precision=item.precision) for index, item in enumerate(made)]
    asked: list = []
    while not asked or strategy.is_cheap(asked[-1].passes):
        asked.append(strategy.next_candidate(strategy.View(context, "bf16", known), lambda _: True))
        known.append(a_screen(context, len(known), asked[-1].name, seen.get(asked[-1].name, 1.0), asked[-1].parents, asked[-1].precision))
    assert {"tf32+cuda_graph", "bf16+cuda_graph"} <= {item.name for item in asked}, [item.name for item in asked]
    assert {"bf16", "compile_default", "cuda_graph"} == set(asked[-1].passes) - {"no_grad"}, asked[-1].name


def test_a_cast_is_tried_in_a_graph_where_one_of_equal_precision_is_ahead_in_one():
    """GPT-2 on an H100 at tf32: split products led in a graph, and 120 s ended before TF32, 1.4 times as fast, was in one."""
    context = context_of(SEVEN["gpt2"])
    made = [(candidate(name.split("+"), context), speed) for name, speed in (("tf32", 1.28), ("split_products+cuda_graph", 2.85))]
    known = [a_screen(context, index, item.name, speed, precision=item.precision) for index, (item, speed) in enumerate(made)]
    assert strategy.next_candidate(strategy.View(context, "tf32", known), lambda _: True).name == "tf32+cuda_graph"
    assert strategy.next_candidate(strategy.View(context, "equal", known[1:]), lambda _: True).precision == "equal"
    without = [known[0], a_screen(context, 1, "split_products", 1.9)]
    assert "tf32+cuda_graph" not in {item.name for item in lower_precision.casts_in_graph(strategy.View(context, "tf32", without))}


def test_a_cast_whose_launches_hide_what_it_gains_is_tried_in_a_graph_next():
    """GPT-2 on an H200 at tf32, 120 s: the original left the device idle for 10% of a call, so nothing was ahead in a graph, and two
    compilations took the time."""
    context = context_of(replace(SEVEN["gpt2"], idle_pct=9.6))

    def after(speed: float, context: Context = context) -> str:
        known = [a_screen(context, 0, "tf32", speed, precision="tf32")]
        return strategy.next_candidate(strategy.View(context, "tf32", known), lambda _: True).name

    assert after(1.25) == "tf32+cuda_graph"
    casts = [a_screen(context, index, name, speed, precision=precision) for index, (name, speed, precision) in enumerate((
        ("tf32", 1.25, "tf32"), ("bf16", 0.3, "bf16"), ("bf16_autocast", 0.3, "bf16")))]
    in_graph = [item.name for item in lower_precision.casts_in_graph(strategy.View(context, "bf16", casts))]
    assert in_graph[0] == "tf32+cuda_graph" and len(in_graph) == 3, "the one that is ahead comes first"
    no_cast = strategy.View(context, "bf16", [a_screen(context, 0, "no_grad", 1.005)])
    assert lower_precision.casts_in_graph(no_cast) == []
    assert after(2.6) != "tf32+cuda_graph", "what was expected"
    assert after(1.25, context_of(replace(SEVEN["gpt2"], idle_pct=1.0, original_us=60000.0))) != "tf32+cuda_graph", "long kernels"


CASTS_SEEN = (("bf16", 7.4), ("bf16_autocast", 7.44), ("tf32", 5.5))


@pytest.mark.parametrize(("seen", "first"), [
    (CASTS_SEEN, "bf16+compile_default"),
    ((("bf16", 7.4), ("bf16_autocast", 9.0), ("tf32", 5.5)), "compile_default+bf16_autocast"),
    ((("bf16", 1.0), ("bf16_autocast", 1.08), ("tf32", 1.0)), "compile_default+bf16_autocast"),
    ((("bf16", 1.9), ("bf16_autocast", 1.2), ("tf32", 2.0)), "compile_default+tf32"),
    ((("bf16+cuda_graph", 8.9), ("bf16_autocast+cuda_graph", 9.0), ("cuda_graph", 1.1), ("bf16", 2.0), ("tf32+cuda_graph", 3.0)),
     "bf16+compile_default+cuda_graph"),
    ((*CASTS_SEEN, ("bf16+compile_default", 7.0)), "compile_default+bf16_autocast"),
    ((*CASTS_SEEN, ("bf16+compile_default", None)), "compile_default+bf16_autocast"),
], ids=["alike", "autocast is faster", "the weights' gains nothing", "tf32 is faster", "in a graph", "slower compiled", "fails compiled"])
def test_of_casts_that_are_as_good_as_each_other_the_one_of_the_weights_is_compiled(seen, first):
    """A product with a batch norm on an H200: compiled, autocast came to 9.2x and the weights' cast to 9.9x, which a minute never tried."""
    context = context_of(SEVEN["mlp"])
    made = [candidate(name.split("+"), context) for name, _ in seen]
    known = [a_screen(context, index, item.name, speed or 1.0, precision=item.precision)
             for index, (item, (_, speed)) in enumerate(zip(made, seen, strict=True))]
    known = [row if speed else row.model_copy(update={"status": "failed", "screen": None})
             for row, (_, speed) in zip(known, seen, strict=True)]
    view = strategy.View(context, "bf16", known)
    assert strategy._lower_compiled(view, strategy.proposals(view))[0].name == first
    assert strategy.next_candidate(view, lambda item: not strategy.is_cheap(item.passes)).name == first
    judged = known[0].model_copy(update={"verdict": verdict("WRONG", reason="the output")})
    refused = strategy.View(context, "bf16", [judged, *known[1:3]])
    assert len(seen) > 3 or {"bf16", "compile_default"} != set(strategy._lower_compiled(refused, strategy.proposals(refused))[0].passes)


BY_HAND = replace(SEVEN["sdpa"], operators={"aten::bmm": (0.25, 2), "aten::_softmax": (0.1, 1), "aten::masked_fill": (0.05, 1),
                                            "aten::addmm": (0.6, 2)}, idle_pct=1.0)
WITH_ONE_CALL = {"sdpa_substitution", "freeze_weights", "compile_default"}


@pytest.mark.parametrize(("precision", "seen", "cast"), [
    ("tf32", (("tf32", 2.4),), {"tf32"}),
    ("bf16", CASTS_SEEN, {"bf16"}),
    ("bf16", (("bf16+cuda_graph", 8.9), ("cuda_graph", 1.1), ("bf16", 2.0)), {"bf16", "cuda_graph"}),
])
def test_what_no_compiler_does_is_in_the_first_compilation(precision, seen, cast):
    """minGPT's attention on an H200: a minute had room for one compilation, and attention as one call never had its turn."""
    context = context_of(BY_HAND)
    known = [a_screen(context, index, item.name, speed, precision=item.precision)
             for index, (item, speed) in enumerate((candidate(name.split("+"), context), speed) for name, speed in seen)]

    def compiled_next(rows: list, context: Context = context) -> set[str]:
        found = strategy.next_candidate(strategy.View(context, precision, rows), lambda item: not strategy.is_cheap(item.passes))
        return set(found.passes) - {"no_grad"}

    whole = {*WITH_ONE_CALL, *cast, *(["scaled_fp16_attention_by_hand"] if "tf32" in cast else [])}
    assert compiled_next(known) == whole
    first = candidate(whole, context)
    row = a_screen(context, len(known), first.name, 1.0, parents=(known[0].name,), precision=precision)
    idle = row.model_copy(update={"screen": None, "status": "not_applicable", "reason": f"{ruled_out.IDLE}: sdpa_substitution"})
    assert compiled_next([*known, idle]) == {"compile_default", *cast}, "nothing was found to change"
    if "tf32" in cast:
        slow = idle.model_copy(update={"reason": f"{ruled_out.IDLE}: scaled_fp16_attention_by_hand"})
        assert compiled_next([*known, slow]) == {*WITH_ONE_CALL, *cast}, "torch's own kernel may pay"
    bare = candidate(["compile_default", *cast], context)
    bare_row = a_screen(context, len(known) + 1, bare.name, 20.0, parents=(known[0].name,), precision=precision)

    def left(*rows: Experiment) -> set[str]:
        names = {name for item in strategy.proposals(strategy.View(context, precision, [*known, *rows])) for name in item.passes}
        return names & {"sdpa_substitution", "split_attention_by_hand"}

    assert "sdpa_substitution" in left(bare_row)
    assert left(idle, bare_row) == (set() if "tf32" in cast else left(bare_row)), "nor is it without frozen weights; types decide"
    assert compiled_next([*known, row]) == {"compile_default", *cast}, "slower than without"
    plain = a_screen(context, len(known) + 1, bare.name, 1.5, precision=precision)
    faster = [a_screen(context, len(known) + 2 + place, candidate([*names.split("+")], context).name, 15.0, precision=precision)
              for place, names in enumerate(["wide_outputs+bf16" if precision == "bf16" else "wide_outputs+tf32"])]
    assert "sdpa_substitution" not in compiled_next([*known, row, plain, *faster]), "it was no faster than without"
    ahead = a_screen(context, len(known), first.name, 12.0, parents=(known[0].name,), precision=precision)
    assert compiled_next([*known, ahead]) != {"compile_default", *cast}, "it can't catch up"
    assert compiled_next(known, context_of(SEVEN["mlp"])) == {"compile_default", *cast}, "no attention"
    shown = [a_screen(context, 7 + place, name, speed, parents) for place, (name, speed, parents) in enumerate((
        ("compile_default", 1.5, ()), ("sdpa_substitution+compile_default", 1.0, ("compile_default",))))]
    assert ("sdpa_substitution" in compiled_next([*known, *shown])) == ("cuda_graph" in cast), "a loss says nothing of it in a graph"
    little = replace(BY_HAND, operators={"aten::bmm": (0.03, 2), "aten::_softmax": (0.01, 1), "aten::addmm": (0.96, 2)})
    assert compiled_next(known, context_of(little)) == {"compile_default", *cast}, "nothing to expect of it"


def test_a_minute_has_room_for_attention_as_one_call(workload):
    machine = replace(BY_HAND, factors={"tf32": 0.4, "sdpa_substitution": 0.75, "freeze_weights": 1.0}, original_us=12000.0,
                      times=table(12000, 9800, 12000, 9800, 9e9, 9e9, 9e9, 9e9), splits=False)
    stages = Stages(machine)
    outcome = run(workload, stages, budget_s=60.0, precision="tf32")
    assert {"sdpa_substitution", "compile_default", "tf32"} <= set(outcome.kept) and outcome.confirmed, story(stages, outcome)


def test_a_cast_that_is_ahead_by_noise_is_compiled_after_what_is_expected_to_gain():
    context = context_of(SEVEN["embedding"])

    def next_of(speed: float) -> str:
        view = strategy.View(context, "tf32", [a_screen(context, 0, "tf32", speed, precision="tf32")])
        return strategy.next_candidate(view, lambda item: item.name in ("split_products", "compile_default+tf32")).name

    assert next_of(1.006) == "split_products"
    compiled = context_of(SEVEN["depthwise"])
    known = [a_screen(compiled, index, name, speed, precision=precision) for index, (name, speed, precision) in enumerate((
        ("bf16", 0.4, "bf16"), ("bf16_autocast", 0.3, "bf16"), ("compile_default", 1.3, "equal")))]
    view = strategy.View(compiled, "bf16", known)
    assert lower_precision.casts_on_fastest(view) == [], "no hardware for it: a cast that halves the speed"


def test_what_a_kernel_of_ones_own_gains_in_a_graph_is_tried_with_the_lowest_cast():
    """Depthwise convolutions on an H100 at bf16: the cast's best candidate had no `separable_convolutions`, and both together were expected
    to gain less than what was ahead. They were not begun in 120 s, and are what won on an H200."""
    context = context_of(SEVEN["depthwise"])
    known = [a_screen(context, index, name, speed, precision=precision) for index, (name, speed, precision) in enumerate((
        ("separable_convolutions+cuda_graph", 3.18, "equal"), ("bf16+cuda_graph", 1.97, "bf16"), ("bf16_autocast+cuda_graph", 1.81, "bf16"),
        ("tf32+cuda_graph", 1.58, "tf32"), ("bf16", 0.88, "bf16")))]

    def next_of(precision: str, known: list) -> str:
        return strategy.next_candidate(strategy.View(context, precision, known), lambda item: "channels_last" not in item.passes).name

    assert next_of("bf16", known) == "separable_convolutions+bf16+cuda_graph"
    assert next_of("tf32", [known[0], known[3]]) == "separable_convolutions+tf32+cuda_graph"
    done = [*known, a_screen(context, 5, "separable_convolutions+bf16+cuda_graph", 3.0, precision="bf16").model_copy(
        update={"parents": (known[0].name,)})]
    assert lower_precision.casts_on_fastest(strategy.View(context, "bf16", done)) == [], "once; autocast, it excludes"
    graph = [a_screen(context, 5, "cuda_graph", 2.0), *known[:1], known[1].model_copy(update={"parents": ("cuda_graph",)}), *known[4:]]
    names = [item.name for item in lower_precision.casts_on_fastest(strategy.View(context, "bf16", graph))]
    assert names == ["separable_convolutions+bf16+cuda_graph"], "though it gained nothing over the graph"
    assert lower_precision.casts_on_fastest(strategy.View(context, "bf16", known[:1])) == [], "the casts themselves come first"
    slow = [*known[:-1], a_screen(context, 4, "bf16", 0.3, precision="bf16")]
    assert lower_precision.casts_on_fastest(strategy.View(context, "bf16", slow)) == [], "a cast that halves the speed"


def test_where_compiled_code_is_ahead_the_lowest_cast_is_tried_in_it():
    """A LayerNorm on an H200 at bf16: by itself the cast gained nothing, and compiled it came when nothing could be judged any more."""
    context = context_of(SEVEN["mlp"])
    known = [a_screen(context, index, name, speed, precision=precision) for index, (name, speed, precision) in enumerate((
        ("bf16", 1.01, "bf16"), ("bf16_autocast", 0.99, "bf16"), ("tf32", 1.0, "tf32"), ("compile_default", 20.3, "equal")))]

    def next_of(precision: str, known: list) -> list[str]:
        view = strategy.View(context, precision, known)
        return [item.name for item in lower_precision.casts_on_fastest(view)]

    assert next_of("bf16", known)[0] == "bf16+compile_default"
    assert next_of("tf32", known[2:]) == ["compile_default+tf32"]
    assert next_of("bf16", [*known[:3], a_screen(context, 3, "no_grad", 1.5)]) == [], "neither compiled nor in a graph"
    assert next_of("equal", known[3:]) == [] and next_of("bf16", known[2:]) == [], "a cast is seen by itself first"
    tried = [*known, a_screen(context, 4, "fold_conv_bn+compile_default", 20.0),
             a_screen(context, 5, "fold_conv_bn+bf16+compile_default", 15.0, precision="bf16").model_copy(
                 update={"parents": ("fold_conv_bn+compile_default",)})]
    assert "bf16+compile_default" not in next_of("bf16", tried), "it gained nothing in other compiled code"
    tuned = a_screen(context, 4, "compile_max_autotune_no_cudagraphs", 21.0)
    assert next_of("bf16", [*known, tuned])[0] == "bf16+compile_default", "not what is still to be tuned"
    norm = replace(SEVEN["mlp"], operators={"aten::native_layer_norm": (1.0, 1)})
    light = strategy.View(context_of(norm), "bf16", [*known, tuned])
    names = [item.name for item in lower_precision.casts_on_fastest(light)]
    assert "bf16+compile_max_autotune_no_cudagraphs" in names, "there is little to tune"
    assert {"compile_max_autotune", "compile_max_autotune_no_cudagraphs"} <= {
        part for view in (light, strategy.View(context, "equal", known[3:])) for item in strategy.tuning(view) for part in item.passes}
    higher = [*known[:2], a_screen(context, 2, "compile_default+tf32", 21.0, precision="tf32")]
    assert next_of("bf16", higher)[0] == "bf16+compile_default" and next_of("tf32", higher) == []
    assert strategy.next_candidate(strategy.View(context, "bf16", known), lambda item: not strategy.is_cheap(item.passes)).name \
        == "bf16+compile_default", "before what else is expected to gain and must be compiled"
    little = context_of(replace(SEVEN["mlp"], operators={"aten::native_layer_norm": (1.0, 1)}, idle_pct=0.5))
    assert strategy.next_candidate(strategy.View(little, "bf16", known), lambda _: True).name == "bf16+compile_default"


def test_below_equal_precision_the_ladder_is_that_of_the_cast_that_pays(workload):
    machine = replace(SEVEN["mlp"], factors={"bf16": 0.4, "bf16_autocast": 0.5, "tf32": 0.6})
    stages = Stages(machine)
    outcome = run(workload, stages, budget_s=600.0, precision="bf16")
    asked = [set(name.split("+")) - {"no_grad"} for name in stages.asked]
    ladder = [{"bf16", name} for name in strategy.LADDER if name != "no_grad"]
    assert all(row in asked for row in ladder), story(stages, outcome)
    assert all({name} in asked for name in strategy.LADDER if name != "no_grad"), "with the time for it the workload's own too"
    assert asked.index(ladder[-1]) < asked.index({"compile_max_autotune"})
    assert "| bf16+compile_max_autotune | bf16 |" in outcome.report.read_text()


def test_a_graph_of_ones_own_takes_the_place_of_the_compilers_and_what_was_compiled_stays_so():
    """Where a call's kernels take less than replaying the compiler's costs the host, one's own is expected to be faster."""
    assert captures.joined(["fold_conv_bn", "compile_reduce_overhead"], "cuda_graph") == ["fold_conv_bn", "compile_default", "cuda_graph"]
    tuned = captures.joined(["compile_max_autotune", "freeze_weights"], "cuda_graph")
    assert tuned == ["freeze_weights", "compile_max_autotune_no_cudagraphs", "cuda_graph"]
    assert captures.joined(["bf16"], "cuda_graph") == ["bf16", "cuda_graph"]
    assert captures.joined(["compile_reduce_overhead"], "compile_default") == ["compile_default"]
    short, long = context_of(SEVEN["mlp"]), context_of(SEVEN["gpt2"])
    for context in (short, long):
        own, theirs = (modelled(context, names, {"bf16": 9.0}.get) for names in (
            ("bf16", "compile_default", "cuda_graph"), ("bf16", "compile_reduce_overhead")))
        assert own >= theirs
        assert (theirs < SEVEN["mlp"].original_us / 149) is (context is short)


def test_where_the_compilers_graphs_are_ahead_and_the_call_is_short_ones_own_come_next():
    """A depthwise network on an H200: 225 us whatever was compiled, the host's; with a graph of its own 204."""
    context = context_of(SEVEN["depthwise"])
    known = [a_screen(context, index, name, speedup) for index, (name, speedup) in enumerate((
        ("no_grad", 1.15), ("cuda_graph", 1.01), ("compile_default", 1.25), ("fold_conv_bn", 1.13),
        ("fold_conv_bn+compile_reduce_overhead", 2.06)))]
    own = "fold_conv_bn+compile_default+cuda_graph"
    found = strategy.next_candidate(strategy.View(context, "equal", known), lambda _: True)
    assert found.name == own and found.parents == ("fold_conv_bn+compile_reduce_overhead",)
    known.append(a_screen(context, 5, own, 1.9, found.parents))
    known.append(a_screen(context, 6, "fold_conv_bn+compile_reduce_overhead+cudnn_benchmark", 2.2))
    again = strategy.proposals(strategy.View(context, "equal", known))
    assert not strategy._steps(strategy.View(context, "equal", known), "equal", [CATALOGUE["cuda_graph"]]), "it lost once"
    assert own not in {item.name for item in again}
    slow = context_of(replace(SEVEN["depthwise"], original_us=4000.0))
    assert captures.own_graphs(strategy.View(slow, "equal", known[:5])) == [], "its kernels take longer than the host"
    measured = [row.model_copy(update={"screen": row.screen.model_copy(update={"candidate_ns": 330e3})}) for row in known[:5]]
    assert captures.own_graphs(strategy.View(slow, "equal", measured)), "the screen's own time, not the profile's over the speed-up"


def test_a_short_compiled_call_that_no_graph_makes_faster_is_called_directly_next():
    """A GELU on an H200: compiled 200 us a call, half of them the device's; copying its result out of a graph costs more."""
    context = context_of(SEVEN["depthwise"])
    known = [a_screen(context, index, name, speedup) for index, (name, speedup) in enumerate((
        ("no_grad", 1.0), ("cuda_graph", 1.0), ("compile_default", 2.0), ("compile_reduce_overhead", 1.5)))]
    assert captures.called_directly(strategy.View(context, "equal", known)) == [], "a graph of it was not tried"
    known.append(a_screen(context, 4, "compile_default+cuda_graph", 1.6, ("compile_default",)))
    found = strategy.next_candidate(strategy.View(context, "equal", known), lambda _: True)
    assert found.name == "direct_calls+compile_default" and found.parents == ("compile_default",)
    long = [row.model_copy(update={"screen": row.screen.model_copy(update={"candidate_ns": 5e6})}) for row in known]
    assert captures.called_directly(strategy.View(context, "equal", long)) == [], "the kernels take so long that nobody sees the host"
    ahead = [*known, a_screen(context, 5, "fold_conv_bn+compile_default+cuda_graph", 2.2)]
    assert captures.called_directly(strategy.View(context, "equal", ahead)) == [], "in a graph Dynamo is not asked"
    known.append(a_screen(context, 5, found.name, 2.4, found.parents))
    assert captures.called_directly(strategy.View(context, "equal", known)) == [], "once"
    without = replace(context, environment=environment("cpu"))
    one = [a_screen(without, 0, "no_grad", 1.0), a_screen(without, 1, "compile_default", 1.5)]
    assert [item.name for item in captures.called_directly(strategy.View(without, "equal", one))] == ["direct_calls+compile_default"]


def test_what_the_host_hid_is_no_evidence_against_a_pass():
    """The depthwise network on a busy H200: kernels of its own in the compiler's graphs 1.75x, the compiler's graphs alone 1.80x; in a
    graph of its own the pass was never tried."""
    context, parent = context_of(SEVEN["depthwise"]), ("compile_reduce_overhead",)
    known = [a_screen(context, 0, "cuda_graph", 1.55), a_screen(context, 1, *parent, 1.80),
             a_screen(context, 2, "separable_convolutions+compile_reduce_overhead", 1.75, parent)]
    view = strategy.View(context, "equal", known)
    assert ("separable_convolutions", True) not in evidence(view) and ("cuda_graph", True) in evidence(view)
    own = next(item for item in strategy.proposals(view) if item.name == "separable_convolutions+cuda_graph")
    assert hope(view, own).ratio >= strategy.OPENING
    gained = [*known[:2], a_screen(context, 2, "separable_convolutions+compile_reduce_overhead", 5.4, parent)]
    assert evidence(strategy.View(context, "equal", gained))["separable_convolutions", True] == pytest.approx(3.0), "a gain shows anyway"
    long = replace(SEVEN["depthwise"], original_us=4000.0)
    assert evidence(strategy.View(context_of(long), "equal", known))["separable_convolutions", True] == pytest.approx(1.75 / 1.80)


def test_the_screens_time_of_the_original_counts_where_the_profiles_differs():
    """969 us by the profile, 650 by the screen: the device idles half of the time, not two thirds."""
    context = context_of(SEVEN["depthwise"])
    busy_ns = context.profile.timeline.busy_ns / context.profile.timeline.steps
    row = a_screen(context, 0, "cuda_graph", 1.55)

    def seen(reference_ns: float | None, against: str = "") -> Context:
        return as_screened(context, [row.model_copy(update={"screen": row.screen.model_copy(
            update={"reference_ns": reference_ns, "against": against})})])

    whole_ns = call_ns(context)
    for same in (seen(None), seen(whole_ns * 1.05), seen(2 * whole_ns, "cuda_graph"), as_screened(context, [])):
        assert same is context
    other = seen(2 * whole_ns)
    assert other is seen(2 * whole_ns) and call_ns(other) == 2 * whole_ns
    assert idle_share(other) == pytest.approx(1.0 - busy_ns / (2 * whole_ns))
    assert idle_share(seen(busy_ns / 2)) == 0.0
    assert modelled(other, ["cuda_graph"], {}.get) > modelled(context, ["cuda_graph"], {}.get)


def with_a_wide_result(context: Context) -> Context:
    """The same, its last product as wide as GPT-2's vocabulary."""
    wide = [item.model_copy(update={"input_shapes": ((512, 768), (768, 50257))}) if item.operator_name == "aten::mm" else item
            for item in context.profile.operators]
    return Context(facts=context.facts, environment=context.environment,
                   profile=context.profile.model_copy(update={"operators": tuple(wide)}))


def a_screen(context: Context, index: int, name: str, speedup: float, parents: tuple[str, ...] = (), precision="equal") -> Experiment:
    item = candidate(name.split("+"), context, parents=parents)
    screen = Screen(status="timed", speedup=speedup, interval=(speedup - 0.01, speedup + 0.01), pairs=9, elapsed_s=8.0)
    return Experiment(index=index, name=item.name, passes=item.passes, precision=precision, candidate_file="c", status="screened",
                      screen=screen, parents=parents)


def test_what_a_graph_gives_is_predicted_from_the_idle_time_and_the_copies():
    lstm, embedding = context_of(SEVEN["lstm"]), context_of(SEVEN["embedding"])
    assert graph_words(lstm).gain == pytest.approx((1.0, 2.3), rel=0.05) and copies_share(lstm) < 0.01
    assert copies_share(embedding) == pytest.approx(0.08, abs=0.01), "a GiB of outputs is cloned"
    assert graph_words(embedding).gain[1] < 1.0, "it loses more than the 1% that the device idles"
    first = [strategy.next_candidate(strategy.View(one, "equal", []), lambda _: True).name for one in (lstm, embedding)]
    assert first == ["cuda_graph", "split_products"]
    recurrent = CATALOGUE["compile_reduce_overhead"].predict(lstm)
    assert recurrent.gain[1] < 1.1 and "stay outside" in recurrent.words, "torch.compile does not capture cuDNN's recurrent layers"


def test_what_wide_outputs_may_gain_is_bounded_by_the_products_as_wide_as_a_result():
    machine = SEVEN["gpt2"]
    context = context_of(machine)
    assert context.facts.outputs[0].shape[-1] == 50257
    context = with_a_wide_result(context)
    found = CATALOGUE["wide_outputs"]
    assert found.refusal(context) is None
    low, high = found.predict(context).gain
    assert low == 1.0 and high == pytest.approx(1 / (1 - 0.17 * (1 - 1 / 14.8)), rel=0.05)
    narrow = tuple(one.model_copy(update={"dtype": "bfloat16"}) for one in context.facts.outputs)
    halved = context.facts.model_copy(update={"outputs": narrow})
    assert found.refusal(Context(facts=halved, environment=context.environment, profile=context.profile)) == "no result is float32"


@settings(max_examples=40, deadline=None)
@given(st.sets(st.sampled_from(sorted(CATALOGUE)), max_size=6), st.floats(0, 95), st.floats(0.2, 20))
def test_what_is_expected_is_a_finite_speed_up_and_a_graph_takes_waiting_only(names, idle_pct, shown):
    about = context_of(replace(SEVEN["mlp"], idle_pct=idle_pct))
    known = {next(iter(sorted(names)), "tf32"): shown}
    speedup = modelled(about, names, known.get)
    assert 0.0 < speedup <= 50.0
    saved = 1.0 / speedup - 1.0 / modelled(about, {*names, "cuda_graph"}, known.get)
    assert -copies_share(about) - 1e-9 <= saved <= idle_pct / 100 + 1e-9, "of the call's time"


def test_what_was_not_begun_and_what_was_not_judged_is_said_once(workload):
    stages = Stages(SEVEN["gpt2"])
    real = stages.judge

    def judge(file, precision, seconds, effort=USUAL):
        if file.name != "optimized.py":
            stages.clock.now += seconds
            raise OutOfTime("its own kernels")
        return real(file, precision, seconds, effort)

    stages.judge = judge
    outcome = run(workload, stages, budget_s=60.0)
    every = Ledger(outcome.out_dir / "ledger.jsonl").rows
    listed = [row for row in every if row.name == NOT_BEGUN]
    assert len(listed) == 1 and listed[0].status == "out_of_budget" and "freeze_weights" in listed[0].reason
    assert outcome.kept == () and "no candidate could be judged; the best of the screens, split_products" in outcome.line
    report = outcome.report.read_text()
    assert "was screened at 2.94x" in report and "the screen ranks and proves nothing" in report and "Not begun with" in report
    table = report.split("## All experiments")[1].split("Not applicable")[0]
    assert "| not begun |" not in table, "the list is no candidate"


def test_a_long_search_says_of_no_pass_that_it_tried_on_another_that_it_had_no_time(workload):
    outcome = run(workload, Stages(SEVEN["mlp"]), budget_s=2000.0)
    tried = [set(row.passes) for row in rows(outcome).values() if row.screen is not None]
    left = {one["candidate"]: one for one in json.loads((outcome.out_dir / "next.json").read_text())}
    assert not [name for name, one in left.items() if any(set(one["passes"]) - {"no_grad", "compile_default"} <= own for own in tried)]
    assert "cuda_graph" in outcome.kept, "which what spares the host's launches is not put on"
    assert left["inductor_cpp_wrapper+compile_default"]["why_not_begun"] == NOT_LOOKED_FOR
    assert not [name for name, one in left.items() if "s for its screen" in one["why_not_begun"]], "there was the time for all"


def test_small_gains_of_cheap_passes_hold_no_time_back_that_a_compilation_needs(workload, monkeypatch):
    """Two CPU cores, 60 s: gains of 3% by the screen were judged, none was FASTER, and what gave 1.6x, compiled, was never begun."""
    monkeypatch.setattr(explain, "usual_costs", lambda _lessons: {"cheap": 2.3, "compile": 19.4, JUDGEMENT: 9.3})
    machine = Machine({"aten::cudnn_convolution": (0.97, 9), "aten::batch_norm": (0.03, 9)}, 1.0,
                      table(560, 350, 600, 400, 9e9, 9e9, 9e9, 9e9), 560, (((16, 3, 64, 64), "float32"),), (((16, 10), "float32"),),
                      splits=False, factors={"channels_last": 0.985, "fold_conv_bn": 0.99})
    stages = Stages(machine)
    outcome = run(workload, stages, budget_s=60.0)
    assert "compile_default" in outcome.kept and outcome.speedup > 1.5, story(stages, outcome)
    audits_s = sum(row.elapsed_s for row in Ledger(outcome.out_dir / "ledger.jsonl").rows if is_audit(row))
    assert stages.clock.now - stages.profile_s - audits_s <= 61.0


def test_the_first_compilation_of_a_run_says_nothing_of_later_ones(workload):
    first, second = screened_in(1, "compile_default", 19.4), screened_in(2, "freeze_weights+compile_default", 9.0)
    assert "compile" not in costs_of([screened_in(0, "no_grad", 2.0), first], has_products=True), "a compiler's headers are in it"
    assert screens_s([screened_in(0, "no_grad", 2.0), first], has_products=True)["compile"] == [19.4], "within a run it is what is known"
    assert costs_of([first, second], has_products=True)["compile"] == 9.0


def screened_in(index: int, name: str, seconds: float) -> Experiment:
    found = a_screen(context_of(SEVEN["mlp"]), index, name, 1.1)
    return found.model_copy(update={"screen": found.screen.model_copy(update={"elapsed_s": seconds})})


def test_what_a_run_took_is_known_to_the_next_one(workload):
    run(workload, Stages(SEVEN["mlp"]), budget_s=180.0)
    workload.path.write_text("# another one")
    state = json.loads((run(workload, Stages(SEVEN["sdpa"]), budget_s=60.0).out_dir / "state.json").read_text())
    assert 5.0 < state["costs"][JUDGEMENT] < 14.0 and state["costs"]["compile"] > 2.0
