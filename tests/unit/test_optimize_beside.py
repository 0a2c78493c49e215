"""Two candidates that no judgement tells apart are timed in turns before one is kept."""

from __future__ import annotations

from functools import partial

import pytest

from kernelwright.model.trial import Screen
from kernelwright.model.verdict import Experiment
from kernelwright.optimize import beside
from kernelwright.optimize.ledger import Ledger
from optimizing import a_workload, few_passes, rows, run, verdict  # noqa: F401 fixtures
from screened_stages import GAINS, Stages

NOTHING = dict.fromkeys(GAINS, 1.0)
AUTOTUNED = "compile_max_autotune_no_cudagraphs"


def faster(name: str, speedup: float, interval: tuple[float, float], **changes: object) -> Experiment:
    said = verdict("FASTER", speedup).model_copy(update={"interval": interval})
    return Experiment(**{"index": 1, "name": name, "passes": (name,), "precision": "equal", "candidate_file": f"candidates/{name}.py",
                         "status": "judged", "verdict": said, "ladder_row": True, **changes})


def timed(name: str, other: str, speedup: float | None, interval: tuple[float, float] | None = None) -> Experiment:
    screen = Screen(status="timed" if speedup else "failed", speedup=speedup, interval=interval, pairs=9)
    return Experiment(index=2, name=f"{name} beside {other}", passes=(name,), precision="equal", candidate_file="c", status="screened",
                      screen=screen, tags={"role": beside.BESIDE, "of": name, beside.AGAINST: other})


FIRST, SECOND = faster("compile_default", 2.15, (2.15, 2.16)), faster(AUTOTUNED, 2.19, (2.09, 2.21))
CLOSE = faster("channels_last", 2.14, (2.12, 2.16))
pair = partial(timed, AUTOTUNED, "compile_default")


def test_only_one_whose_interval_meets_that_of_the_first_is_timed_beside_it_and_once():
    assert beside.rival([FIRST, SECOND], []) == SECOND
    assert beside.rival([FIRST, faster("cuda_graph", 2.1, (2.0, 2.14))], []) is None, "clearly slower"
    assert beside.rival([FIRST, SECOND.model_copy(update={"precision": "tf32"})], []) is None
    assert beside.rival([FIRST], []) is None and beside.rival([], []) is None
    assert beside.rival([FIRST, SECOND], [pair(1.016, (1.01, 1.02))]) is None
    assert beside.rival([SECOND, FIRST], [pair(1.016, (1.01, 1.02))]) is None, "nor the other way round"
    assert beside.rival([FIRST, SECOND, CLOSE], [pair(None, None)]) == CLOSE, "one that failed is not tried again"
    cut = pair(None, None).model_copy(update={"status": "out_of_budget"})
    assert beside.rival([FIRST, SECOND], [cut]) == SECOND, "by a resumed run, which has more time"
    gone = [timed(name, "refuted since", 1.0, (0.9, 1.1)) for name in ("a", "b", "c")]
    assert beside.rival([FIRST, SECOND], gone) == SECOND and beside.rival(
        [FIRST, SECOND, CLOSE], [timed(one.name, FIRST.name, 1.0, (0.9, 1.1)) for one in (SECOND, CLOSE)]) is None, "two at most"
    unsure = FIRST.model_copy(update={"verdict": verdict("AMBIGUOUS", 2.5)})
    assert beside.rival([unsure, SECOND], []) is None, "its interval is its confirmation's"
    assert beside.rival([SECOND, FIRST, faster("cuda_graph", 2.1, (2.09, 2.14))], [pair(1.016, (1.01, 1.02))]) is None, "below the second's"
    whole = faster("cuda_graph", 2.2, (2.1, 2.3))
    without = timed("x", "y", 1.0, (0.99, 1.01)).model_copy(update={
        "passes": SECOND.passes, "tags": {"role": "ablation", "of": FIRST.name, "without": "fold_conv_bn"}})
    assert beside.rival([FIRST, SECOND], [without]) is None
    slim = FIRST.model_copy(update={"origin": "ablation", "parents": ("cuda_graph",)})
    assert beside.rival([slim, whole], []) is None, "ablation has timed these two"


def test_one_of_lower_precision_is_timed_beside_the_first_where_its_figure_is_larger_though_not_surely():
    """The MLP on an H100 at bf16: the cast in a graph, 4.10x [3.73, 4.47], gave way to TF32, 3.77x [3.66, 3.90]."""
    first = faster("tf32", 3.77, (3.66, 3.90), precision="tf32")
    cast = faster("bf16", 4.10, (3.73, 4.47), precision="bf16")
    assert beside.rival([first, cast], [], lower=True) == cast and beside.rival([first, cast], []) is None
    near = cast.model_copy(update={"verdict": verdict("FASTER", 3.9).model_copy(update={"interval": (3.6, 4.2)})})
    assert beside.rival([first, near], [], lower=True) is None, "no 5% more"
    assert beside.rival([cast, first], [], lower=True) is None, "not one of higher precision"
    said = timed("bf16", "tf32", 1.3, (1.2, 1.4))
    assert beside.rival([first, cast], [said], lower=True) is None and beside.preferred([first, cast], [said]) == [cast, first]
    slim = faster("channels_last", 3.77, (3.66, 3.90), precision="tf32", origin="ablation", parents=("tf32",))
    assert beside.rival([slim, first, cast], [timed("bf16", "tf32", 0.97, (0.96, 0.98))], lower=True) is None, "nor beside what it lost to"
    assert beside.rival([slim, first, cast], [], lower=True) == cast
    made = first.model_copy(update={"origin": "ablation", "parents": ("bf16",)})
    assert beside.rival([made, cast], [], lower=True) is None, "ablation has timed these two"
    lost = [timed(name, "tf32", 0.97, (0.96, 0.98)) for name in ("bf16", "cuda_graph")]
    graph, near = faster("cuda_graph", 4.0, (3.7, 4.4), precision="bf16"), faster("no_grad", 3.76, (3.6, 4.2), precision="tf32")
    assert beside.rival([first, cast, graph, near], lost) == near, "those of one precision count apart"
    more = faster("compile_default", 4.2, (3.8, 4.6), precision="bf16")
    assert beside.rival([first, cast, graph, more], lost, lower=True) is None, "two at most"


def test_precision_is_given_up_step_by_step():
    order = [faster("cuda_graph", 1.5, (1.45, 1.6)), faster("tf32", 1.80, (1.55, 2.1), precision="tf32"),
             faster("bf16", 1.81, (1.55, 2.1), precision="bf16")]
    assert beside.rival(order, [], lower=True).name == "tf32"
    won = [timed("tf32", "cuda_graph", 1.2, (1.1, 1.3))]
    order = beside.preferred(order, won)
    assert order[0].name == "tf32" and beside.rival(order, won, lower=True) is None, "bf16 shows no 5% more than that"


@pytest.mark.parametrize(("speedup", "interval", "wins"), [
    (1.016, (1.01, 1.02), True), (1.016, (0.99, 1.04), False), (1.008, (1.001, 1.015), False), (0.98, (0.97, 0.99), False),
    (None, None, False),
])
def test_what_is_faster_by_a_percent_and_surely_comes_first(speedup, interval, wins):
    order = beside.preferred([FIRST, SECOND], [pair(speedup, interval)])
    assert order == ([SECOND, FIRST] if wins else [FIRST, SECOND])
    assert beside.preferred([FIRST], [pair(speedup, interval)]) == [FIRST], "one that was refuted since stays away"


def test_what_ablation_made_of_the_faster_one_comes_first_then():
    slim = faster("cuda_graph", 2.19, (2.08, 2.21), origin="ablation", parents=(AUTOTUNED,))
    assert beside.preferred([FIRST, SECOND, slim], [pair(1.03, (1.02, 1.04))]) == [slim, SECOND, FIRST]
    back = [pair(1.03, (1.02, 1.04)), timed(FIRST.name, slim.name, 1.02, (1.01, 1.03))]
    assert beside.preferred([FIRST, SECOND, slim], back)[0] == FIRST, "which may lose in its turn"


@pytest.mark.parametrize(("gain", "kept"), [(2.04, AUTOTUNED), (2.0, "compile_default")])
def test_of_two_that_the_judge_cannot_tell_apart_the_one_that_is_faster_in_turns_is_kept(workload, gain, kept):
    """A convolution with ReLU and bias on an H100: compile_default, 2.15x [2.15, 2.16], was kept; max-autotune, judged 2.19x [2.09, 2.21],
    was 1.6% faster in turns with it."""
    stages = Stages(NOTHING | {"compile_default": 2.0, AUTOTUNED: gain, "compile_reduce_overhead": 0.9, "compile_max_autotune": 0.9,
                               "cuda_graph": 0.7, "channels_last": 0.9, "fold_conv_bn": 0.9, "cudnn_benchmark": 0.9})
    stages.speedups[AUTOTUNED] = verdict("FASTER", 2.02).model_copy(update={"interval": (1.90, 2.12)})
    stages.speedups["compile_default"] = verdict("FASTER", 2.0).model_copy(update={"interval": (1.99, 2.01)})
    outcome = run(workload, stages)
    assert set(outcome.kept) - {"no_grad"} == {kept}, stages.screener.asked
    assert f"{AUTOTUNED} against compile_default" in stages.screener.asked
    found = [row for row in Ledger(outcome.out_dir / "ledger.jsonl").rows if row.tags.get("role") == beside.BESIDE]
    assert [row.tags["of"] for row in found] == [AUTOTUNED] and found[0].candidate_file == rows(outcome)[AUTOTUNED].candidate_file
    again = Stages(dict(stages.gains))
    assert run(workload, again, resume=True).kept == outcome.kept and not again.screener.asked, "it is complete"


@pytest.mark.parametrize(("tf32", "kept"), [(1.5, "bf16"), (1.99, "tf32")])
def test_lower_precision_is_kept_where_it_is_faster_in_turns_though_its_judgement_was_noisy(workload, tf32, kept):
    """tf32: its speed-up in turns with the cast, which has 2.0."""
    stages = Stages(dict.fromkeys(GAINS, 0.6) | {"no_grad": 1.0, "tf32": tf32, "bf16": 2.0})
    stages.screens["tf32"] = 1.5
    stages.speedups["bf16"] = verdict("FASTER", 1.62).model_copy(update={"interval": (1.4, 1.8)})
    stages.speedups["tf32"] = verdict("FASTER", 1.5).model_copy(update={"interval": (1.49, 1.52)})
    outcome = run(workload, stages, precision="bf16")
    assert set(outcome.kept) - {"no_grad"} == {kept} and "bf16 against tf32" in stages.screener.asked
    again = Stages(dict(stages.gains))
    assert run(workload, again, precision="bf16", resume=True).kept == outcome.kept and not again.screener.asked, "it is complete"


def test_lower_precision_is_timed_in_turns_before_passes_are_dropped_and_by_a_resumed_run_where_there_was_no_time(workload):
    """Both in a CUDA graph, so that either has a pass to drop. Whether a cast earns anything was asked before each was judged."""
    stages = Stages(dict.fromkeys(GAINS, 0.6) | {"no_grad": 1.0, "tf32": 1.5, "bf16": 2.0, "cuda_graph": 1.25})
    stages.speedups |= {name: verdict("FASTER", speedup).model_copy(update={"interval": interval}) for name, speedup, interval in (
        ("bf16+cuda_graph", 2.1, (1.8, 2.4)), ("tf32+cuda_graph", 1.9, (1.88, 1.92)))}
    plain, asked = stages.screener.screen, stages.screener.asked
    turns, cast = "bf16__cuda_graph against tf32__cuda_graph", "tf32__cuda_graph against cuda_graph__rest"

    def cut_off(ask):
        if ask.against is None or "bf16" not in ask.file.name:
            return plain(ask)
        assert [name for name in asked if " against " in name] in ([], [cast]), "before the ablation of what may not be kept"
        return Screen(status="out_of_budget", reason="did not finish")

    stages.screener.screen = cut_off
    assert "tf32" in run(workload, stages, precision="bf16").kept and turns not in asked and any(" against " in name for name in asked)
    stages.screener.screen = plain
    assert "bf16" in run(workload, stages, precision="bf16", resume=True).kept and turns in asked
    later = [name for name in asked[asked.index(turns):] if name.startswith("bf16__cuda_graph against") and name != turns]
    assert len(later) == 2 and not any(name.startswith("bf16__cuda_graph against") for name in asked[:asked.index(turns)]), asked
