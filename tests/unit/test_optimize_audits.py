"""A gain that came otherwise than predicted is judged once more with every audit, and what then becomes of it. Fakes, as ever."""

from __future__ import annotations

import json

import pytest

from kernelwright.judge.statistics import ALPHA
from kernelwright.model.trial import Hypothesis, PassPrediction
from kernelwright.model.verdict import Experiment
from kernelwright.optimize import audits
from kernelwright.optimize.confirm import AUDIT, OF, ROLE, is_audit, is_confirmation, next_attempt, refuted, verdicts
from kernelwright.optimize.ending import Kept
from kernelwright.optimize.ledger import Ledger
from kernelwright.optimize.run import _Run
from optimizing import FakeStages, a_workload, few_passes, judged_row, run, verdict  # noqa: F401 fixtures
from screened_stages import BEST, Stages


class Audited(Stages):
    """Ablation shows that the winner's passes earn their place, and the closing profile is that of the original: nothing came about as it
    was predicted. answer: what the audit says; else what the confirmation said."""

    def __init__(self, answer: object = None, **changes: object) -> None:
        super().__init__(**changes)
        self.answer = answer

    def judge(self, file, precision, seconds, *effort):
        said = super().judge(file, precision, seconds, *effort)
        if file.name == "optimized.py" and effort and effort[0].audits and self.answer is not None:
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer.model_copy(update={"candidate_sha256": said.candidate_sha256})
        return said


def rows_of(outcome):
    return Ledger(outcome.out_dir / "ledger.jsonl").rows


def kept_section(outcome) -> str:
    return outcome.report.read_text().partition("## Kept")[2].partition("\n## ")[0]


def test_what_the_closing_profile_leaves_unexplained_is_judged_once_more_with_every_audit(workload):
    stages = Audited()
    outcome = run(workload, stages)
    assert set(outcome.kept) == BEST and stages.audited == [False, True], "the confirmation had no reason for them"
    kinds = [row.tags.get(ROLE) for row in rows_of(outcome)]
    assert kinds.index("confirmation") < kinds.index("hypothesis") < kinds.index(AUDIT)
    audit = next(row for row in rows_of(outcome) if is_audit(row))
    assert audit.name.endswith(", audited") and audit.verdict is not None and audit.candidate_file == "optimized.py"
    section = kept_section(outcome)
    assert "Unexplained: " in section and f"audits and conditions: FASTER {audit.verdict.speedup:.2f}x [" in section
    assert f"| {audit.index} | {audit.name} | FASTER |" in outcome.report.read_text()
    assert "share one error budget" not in outcome.report.read_text(), "an audit is no second confirmation"
    assert outcome.confirmed and (outcome.out_dir / "optimized.py").is_file()
    again = len(stages.judged)
    assert run(workload, stages, resume=True) == outcome and len(stages.judged) == again, "one audit of one file is enough"


@pytest.mark.parametrize("word", ["CHEAT", "WRONG", "FAILED", "SLOWER", "SAME"])
def test_what_its_audit_refutes_is_not_kept_and_nothing_of_it_stays(workload, word):
    stages = Audited(verdict(word, 0.9 if word == "SLOWER" else 1.0 if word == "SAME" else None, reason="it reads the clock"))
    outcome = run(workload, stages)
    assert outcome.kept == () and outcome.speedup == 1.0 and outcome.optimized is None and outcome.confirmed is None
    assert not [name for name in ("optimized.py", "test_optimized.py", "after") if (outcome.out_dir / name).exists()]
    assert outcome.contract == outcome.out_dir / "baseline" / "contract.md"
    assert outcome.line.startswith("Nothing was kept: ") and f"its audit said {word} (" in outcome.line
    report = outcome.report.read_text()
    assert outcome.line in report and "Nothing. The original stays" in report
    assert f"was confirmed, and refuted by its audit, which said {word}." in report
    name = next(row for row in rows_of(outcome) if is_audit(row)).tags[OF]
    assert name in refuted(rows_of(outcome))
    assert f"(not confirmed: FASTER, then {word})" in report.partition("## Gain by precision")[2].partition("\n## ")[0]
    lessons = [json.loads(line) for file in workload.path.parent.rglob("lessons/*.jsonl") for line in file.read_text().splitlines()]
    assert lessons and all(lesson["winners"] == [] for lesson in lessons), "no later run starts with it"
    second = run(workload, stages, resume=True)
    assert second.out_dir == outcome.out_dir and "+".join(one for one in second.kept if one != "no_grad") != name


def test_what_its_audit_finds_smaller_counts_and_stays_so(workload, monkeypatch):
    stages = Audited(verdict("FASTER", 1.2))
    outcome = run(workload, stages)
    assert set(outcome.kept) == BEST and outcome.confirmed and outcome.speedup == 1.2
    first = next(row.verdict for row in rows_of(outcome) if is_confirmation(row))
    assert outcome.interval is not None and outcome.interval[0] < 1.2 < first.interval[0] <= outcome.interval[1]
    assert f"is 1.20x [1.18, 1.22] and {first.speedup:.2f}x [" in outcome.line
    assert "(confirmed by a second judgement, the audit after it smaller and further apart than their intervals;" in outcome.line
    assert "The two judgements are further apart than their intervals: " in kept_section(outcome)
    assert run(workload, stages, resume=True) == outcome
    monkeypatch.setattr(_Run, "_complete", lambda _: True)
    assert run(workload, stages, resume=True).speedup == 1.2, "also where the earlier run was complete"


def test_an_audit_of_the_same_size_or_larger_changes_nothing(workload):
    same = run(workload, Audited())
    larger = run(workload, Audited(verdict("FASTER", 50.0)))
    assert (larger.speedup, larger.interval, larger.line) == (same.speedup, same.interval, same.line) and "further apart" not in same.line


def test_what_counts_of_three_judgements():
    def of(speedup: float, spread: float, name: str = "FASTER") -> Experiment:
        return judged_row(1, "a").model_copy(update={"verdict": verdict(name, speedup, spread)})

    first, wide, high = of(2.3, 0.1), of(1.9, 0.5), of(3.0, 0.05)
    assert Kept(first, wide, high).least == Kept(first, wide).least and Kept(first, wide, high).verdict is wide.verdict
    low = of(1.2, 0.05)
    once, twice = Kept(first, None, low), Kept(of(2.3, 2.0, "AMBIGUOUS"), first, low)
    for kept in (once, twice):
        assert kept.verdict is low.verdict and kept.apart == (low.verdict, first.verdict) and kept.least[0] == 1.2
    assert Kept(first, wide, of(2.0, 0.1)).apart is None, "within the confirmation's interval it says nothing new"


def test_an_audit_that_is_too_noisy_to_tell_changes_nothing(workload):
    outcome = run(workload, Audited(verdict("AMBIGUOUS", 1.3, spread=0.5)))
    assert set(outcome.kept) == BEST and "audits and conditions: AMBIGUOUS undecided [0.80, 1.80]" in kept_section(outcome)


def at_the_end(stages: Stages, budget_s: float) -> None:
    """The confirmation ends with the budget."""
    real = stages.judging

    def judging(workload, *, confirms=False):
        if stages.sessions == 1:  # the search's was the first
            stages.clock.now = budget_s - 4.0
        return real(workload)

    stages.judging = judging


def test_without_time_for_it_the_report_says_so_and_a_resume_makes_up_for_it(workload):
    """60 s after the budget: the profile takes 45, the report 5, and the audit is expected to take 24."""
    stages = Audited(profile_s=45.0)
    at_the_end(stages, 1000.0)
    outcome = run(workload, stages, budget_s=1000.0)
    assert stages.clock.now == 1045.0 and outcome.kept and stages.audited == [False] and not any(map(is_audit, rows_of(outcome)))
    assert "Not audited: no time (about 24 s needed, 10 s left)." in kept_section(outcome)
    assert run(workload, stages, resume=True, budget_s=20.0) == outcome and stages.audited == [False], "nor is there time now"
    again = run(workload, stages, resume=True, budget_s=1000.0)
    assert again.kept == outcome.kept and stages.audited == [False, True] and "Not audited" not in kept_section(again)


def test_an_audit_ends_with_the_minute_after_the_budget(workload):
    stages = Audited()
    at_the_end(stages, 1000.0)
    real = stages.judge

    def judge(file, precision, seconds, *effort):
        if effort and effort[0].audits:
            stages.allowed = stages.clock.now + seconds
            return real(file, precision, 1.0, *effort)
        return real(file, precision, seconds, *effort)

    stages.judge = judge
    outcome = run(workload, stages, budget_s=1000.0)
    assert 1050.0 < stages.allowed <= 1000.0 + 60.0 - 5.0
    assert outcome.kept and "Not audited: no time (the time was up while calling)." in kept_section(outcome)


def test_ctrl_c_in_an_audit_keeps_what_was_confirmed_and_says_that_it_was_not_audited(workload):
    outcome = run(workload, Audited(KeyboardInterrupt()))
    assert outcome.interrupted and set(outcome.kept) == BEST and "Not audited: interrupted." in kept_section(outcome)


def test_a_gain_that_was_predicted_is_not_audited(workload):
    stages = FakeStages({"cuda_graph": 1.1, "optimized:cuda_graph, no_grad": 1.1})
    outcome = run(workload, stages)
    assert outcome.kept and stages.audited == [False] and "Unexplained" not in kept_section(outcome)


def test_a_confirmation_that_had_every_audit_needs_no_second(workload):
    stages = Stages({"cuda_graph": 9.0}, operators=("aten::mm",))
    outcome = run(workload, stages, budget_s=2000.0)
    assert stages.audited == [True] and "The confirmation was made with all of the judge's audits" in kept_section(outcome)


def test_doubt_names_the_passes_or_the_whole():
    said = PassPrediction(name="cuda_graph", words="w", gain=(1.0, 1.5))
    row = judged_row(1, "cuda_graph").model_copy(update={"verdict": verdict("FASTER", 2.0), "prediction": (said,)})
    odd, seen = (Hypothesis(name=name, result=result) for name, result in (("tf32", "unexplained"), ("no_grad", "confirmed")))
    assert audits.doubt(Kept(row, None), [odd, seen]) == "Unexplained: tf32 gains in another way, or more, than predicted"
    assert audits.doubt(Kept(row, None), [seen]) == "Unexplained: the whole gains more than all its passes together said they could"
    slower = row.model_copy(update={"verdict": verdict("FASTER", 1.6)})
    assert audits.doubt(Kept(slower, None), [seen]) == ""


def test_an_audit_counts_among_the_judgements_only_where_it_refutes():
    rows = [judged_row(1, "a").model_copy(update={"tags": {ROLE: "confirmation", OF: "a"}, "verdict": verdict("FASTER", 2.0)}),
            judged_row(2, "b").model_copy(update={"tags": {ROLE: AUDIT, OF: "a"}, "verdict": verdict("FASTER", 2.0)})]
    assert [one.verdict for one in verdicts(rows)["a"]] == ["FASTER"] and not is_confirmation(rows[1]) and not refuted(rows)
    rows.append(rows[1].model_copy(update={"verdict": verdict("WRONG")}))
    assert [one.verdict for one in verdicts(rows)["a"]] == ["FASTER", "WRONG"] and list(refuted(rows)) == ["a"]
    following = next_attempt([judged_row(3, "c")], rows, 100.0)
    assert following is not None and following.effort.alpha == ALPHA / 2, "an audit spends nothing of the error budget"
