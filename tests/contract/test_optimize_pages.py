"""Numbers on the pages of the optimiser are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelwright.judge import spare
from kernelwright.judge.options import USUAL_TIMING_S
from kernelwright.judge.statistics import ALPHA
from kernelwright.optimize import (
    ablation,
    audits,
    beside,
    budget,
    confirm,
    expected,
    finalists,
    hypothesis,
    lower_precision,
    memory,
    plan,
    screening,
    strategy,
    summary,
    timed,
    view,
    waiting,
)
from kernelwright.optimize.stages import COUNTED_BUDGET_S
from kernelwright.probe.rewrites.blas_library import WORTH_PCT

ROOT = Path(__file__).resolve().parents[2]
FACTS = {
    "docs/optimize.md": [
        (r"confirmation: ([\d.]+) times its own seconds \(([\d.]+) times where it was screened before\)",
         (budget.RESERVE_MARGIN, budget.SCREENED_MARGIN)),
        (r"at least (\d+) s more than the two together\), and twice the (\d+) s that are kept", (budget.START_S, budget.ENDING_S)),
        (r"with up to (\d+) s of timing \(five times the pairs; at least (\d+) s", (confirm.LONG_TIMING_S, confirm.WORTH_TIMING_S)),
        (r"share one error budget of (\d+)%", (100 * ALPHA,)),
        (r"and the report take at most (\d+) s more", (audits.CLOSING_S,)),
        (r"medians within the run differ more than ([\d.]+)-fold", (summary.NOTABLE_SPREAD,)),
        (r"where the two durations are more than (\d+)% apart", (round(100 * (summary.OWN_TIMING_APART - 1)),)),
        (r"the largest expectation first, (\d+) at most", (waiting.MOST_WAITING,)),
    ],
    "docs/search.md": [
        (r"such a gain of (\d+)% waits for its judgement, .* this judgement and (\d+) s for both", (
            100 * (strategy.OPENING - 1), 2 * budget.ENDING_S)),
        (r"to gain (\d+)% \(no gradients alone: (\d+)%\), and no screen fits", tuple(
            round(100 * (strategy.OPENING ** times - 1)) for times in (1, 2))),
        (r"From a budget of (\d+) s on, on a GPU", (COUNTED_BUDGET_S,)),
        (r"\(at least (\d+) s, and (\d+) of the original", (timed.LEAST_LIMIT_S, timed.LEAST_CALLS)),
        (r"expect at least (\d+)% over the best so far", (round(100 * (strategy.OPENING - 1)),)),
        (r"when the time left is ([\d.]+) times what those of them need", (screening.LADDER_MARGIN,)),
        (r"expected to take ([\d.]+) times a compilation", (budget.LIGHT_FACTOR,)),
        (r"at once, for (\d+) s or what its own screen is expected to take", (screening.SHORTLY_S,)),
        (r"trials in a row without a gain of (\d+)%", (round(100 * (view.STEP - 1)),)),
        (r"expected to take (\d+) us at least", (expected.COMPILERS_GRAPH_NS / 1e3,)),
        (r"its call is below (\d+) us", (expected.HOST_BOUND_NS / 1e3,)),
        (r"where that differs by (\d+)%", (round(100 * (expected.OTHERWISE - 1)),)),
        (r"\((\d+)% of the budget at most; in longer budgets for two judgements, or on a GPU, .* it takes no more than (\d+)%, for the",
         (100 * budget.JUDGING_SHARE, 100 * timed.CONFIRMED_SHARE)),
        (r"else (\d+) s \((\d+) s on a GPU\); where none was in this run, (\d+) times what the workload takes to make its inputs .*\n"
         r"  the first, on a GPU (\d+) s for each GB that a call returns and (\d+) calls of the original \((\d+) s at most\), "
         r"and always (\d+) s",
         (budget.JUDGE_PRIOR_S[False], budget.JUDGE_PRIOR_S[True], budget.INPUTS_MADE, budget.OUTPUTS_S_PER_GB, budget.JUDGED_CALLS,
          budget.JUDGED_CALLS_S, budget.SETUP_S)),
        (r"one within (\d+)% of the winner", (round(100 * (1 - finalists.CLOSE)),)),
        (r"although its figure is (\d+)% larger", (round(100 * (beside.LOWER_GAIN - 1)),)),
        (r"goes before that where it is faster by (\d+)%", (round(100 * (view.STEP - 1)),)),
        (r"less than half a percent \(a cast: (\d+)%\) goes", (round(100 * (view.STEP - 1)),)),
        (r"While nothing was FASTER, (\d+)% of the budget at most are held back", (100 * budget.WEIGHING_SHARE,)),
        (r"Where the screens of the\n  two are a factor of ([\d.]+) apart", (timed.FAR,)),
        (r"earns something by the screens already \(([\d.]+) times as fast with it\)", (ablation.CLEAR,)),
        (r"more than ([\d.]+) times what all its passes together", (hypothesis.BEYOND,)),
        (r"its confirmation's seconds and (\d+) s more", (audits.AUDIT_S,)),
        (r"latest of each workload and precision, (\d+) at most", (memory.KEPT_LINES,)),
        (r"operators' shares are similar \(cosine ([\d.]+)\)", (memory.SIMILAR,)),
        (r"at least (\d+) cores may be used and the machine has (\d+) GiB of free memory",
         (spare.LEAST_CORES, spare.LEAST_MEMORY_BYTES / 2**30)),
        (r"the original's times scatter by ([\d.]+)% or more", (100 * view.SCATTERED,)),
    ],
    "docs/runtime-passes.md": [(r"keeps the faster one where it wins (\d+)% or more", (WORTH_PCT,))],
}
"""Page -> phrases with numbers, and what the code has."""
WORDS = [
    ("docs/search.md", "a CUDA graph takes seven tenths of it", 1 - expected.WAITING_LEFT, 0.7),
    ("docs/search.md", "At least twelve trials in a row", strategy.PATIENCE, 12),
    ("docs/search.md", "once they took a quarter of the budget", strategy.PATIENCE_SHARE, 0.25),
    ("docs/search.md", "What is expected to be 2% faster than the best so far has its trial all the same", strategy.PROMISING, 1.02),
    ("docs/search.md", "that takes five times what its kind took", timed.LIMIT_FACTOR, 5),
    ("docs/search.md", "clearly below half of the best one", screening.HOPELESS, 0.5),
    ("docs/search.md", "earns less than half a percent", ablation.WORTH, 1.005),
    ("docs/search.md", "unless the judge's figures are more than a tenth apart", ablation.APART, 1.1),
    ("docs/search.md", "was less than 1.1 times as fast as without", ablation.CLEAR, 1.1),
    ("docs/search.md", "such a look is expected to take 6% of the budget at most", budget.WEIGHING_SHARE, 0.06),
    ("docs/search.md", "and all looks 15%", budget.ABLATION_SHARE, 0.15),
    ("docs/search.md", "if that is within a tenth of it", lower_precision.ALIKE, 1.1),
    ("docs/search.md", "that did not halve the speed by themselves", plan.HOPELESS, 0.5),
    ("docs/search.md", "(three at most)", finalists.MOST_JUDGED, 3),
    ("docs/search.md", "in one process (two such timings at most", beside.MOST, 2),
    ("docs/search.md", "begins with two fifths of the time", budget.LAST_TRY_SHARE, 0.4),
    ("docs/optimize.md", "at most a fifth of the time left for screens", screening.SHOWN_SHARE, 0.2),
    ("docs/optimize.md", "at\nmost two fifths of the budget", budget.CONFIRM_SHARE, 0.4),
    ("docs/optimize.md", "(five times the pairs;", confirm.LONG_TIMING_S / USUAL_TIMING_S, 5),
]
"""(page, number in words, what the code has, what the words say)."""


@pytest.mark.parametrize(("page", "phrase", "known"), [(page, *fact) for page, facts in FACTS.items() for fact in facts])
def test_a_number_on_the_page_is_the_codes(page: str, phrase: str, known: tuple[float, ...]) -> None:
    found = re.findall(phrase, (ROOT / page).read_text(encoding="utf-8"))
    assert found, "the page has no such phrase any more"
    for one in found:
        groups = one if isinstance(one, tuple) else (one,)
        assert tuple(map(float, groups)) == pytest.approx(tuple(map(float, known)))


@pytest.mark.parametrize(("page", "words", "known", "said"), WORDS)
def test_a_number_in_words_is_the_codes(page: str, words: str, known: float, said: float) -> None:
    assert words in (ROOT / page).read_text(encoding="utf-8") and known == pytest.approx(said)
