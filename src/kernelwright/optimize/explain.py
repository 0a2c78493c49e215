"""What an optimisation leaves behind beside its result: predictions held against the profiles, and a lesson for later workloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..judge.correctness import PRECISION_ORDER
from ..model.profile import Profile
from ..model.trial import Hypothesis
from ..model.verdict import Experiment, Verdict
from ..model.workload import Precision, WorkloadRef
from . import ablation, memory
from .budget import costs_of, usual_costs, workload_s
from .confirm import AUDIT, OF, ROLE
from .expected import once
from .hypothesis import check
from .ledger import Ledger
from .passes import CATALOGUE, Context
from .passes.conditions import has_products
from .plan import best
from .state import State, digest_of, files_of, utc_now

HYPOTHESIS = "hypothesis"
"""Role of the row that holds what came of the predictions."""


def explain(ledger: Ledger, kept: Experiment, confirmation: Experiment | None, before: Profile, after: Profile) -> None:
    """Write the row that holds the kept passes' predictions against the two profiles, unless the same is there. Raises OSError."""
    found = check(kept.prediction, before, after, realised(ledger.rows, kept))
    last = next((row for row in reversed(ledger.rows) if row.tags.get(ROLE) == HYPOTHESIS and row.tags.get(OF) == kept.name), None)
    if not found or (last is not None and last.hypotheses == found):
        return
    audited = {AUDIT: confirmation.tags[AUDIT]} if confirmation is not None and AUDIT in confirmation.tags else {}
    ledger.append(Experiment(
        index=ledger.next_index(), name=f"predictions of {kept.name}", passes=kept.passes, precision=kept.precision,
        candidate_file=kept.candidate_file, status="screened", started_utc=utc_now(), hypotheses=found,
        tags={ROLE: HYPOTHESIS, OF: kept.name, **audited}))


def realised(rows: Sequence[Experiment], kept: Experiment) -> dict[str, float]:
    """Pass -> what the kept candidate, or the one that ablation made it from, loses without it."""
    return {name: gain for name, gain in ablation.realised(ablation.tried(rows, kept)).items() if name in kept.passes}


def screening_facts(rows: Sequence[Experiment], kept: Experiment | None) -> dict[str, Any]:
    """Fields of summary.Ending that the ledger's rows give."""
    last = {row.name: row for row in rows if row.screen is not None and ROLE not in row.tags}
    names = {kept.name, *ablation.wholes_of(rows, kept)} if kept is not None else set()
    return {"hypotheses": hypotheses_of(rows, kept),
            "ablation": tuple(row for row in rows if ablation.is_ablation(row) and row.tags.get(OF) in names),
            "screened": len(last), "screening_s": sum(row.screen.elapsed_s for row in last.values() if row.screen is not None)}


def hypotheses_of(rows: Sequence[Experiment], kept: Experiment | None) -> tuple[Hypothesis, ...]:
    """What came of the kept passes' predictions; () where that was not looked at."""
    explained = [row for row in rows if row.tags.get(ROLE) == HYPOTHESIS and kept is not None and row.tags.get(OF) == kept.name]
    return explained[-1].hypotheses if explained else ()


def warm(workload: WorkloadRef, state: State, profile: Profile) -> State:
    """The state with what earlier optimisations on this machine teach: what won for this workload, what paid in similar ones."""
    try:
        lessons = memory.recall(memory.store_for(state.device_name, state.torch_version))
    except RuntimeError:  # no home folder
        return state
    identity = memory.identity(state.workload_sha256, workload.version, workload.params, state.files)
    allowed = PRECISION_ORDER[: PRECISION_ORDER.index(state.precision) + 1]
    catalogue = memory.catalogue_of(CATALOGUE)
    latest = [lesson for lesson in lessons if lesson.workload == identity and lesson.precision == state.precision and lesson.winners]
    return state.model_copy(update={
        "costs": usual_costs(lesson.costs for lesson in lessons),
        "winners": tuple(memory.winners_for(lessons, identity, allowed)) if latest else (), "won": latest[-1].speedup if latest else None,
        "searched_s": latest[-1].searched_s if latest and latest[-1].catalogue == catalogue else 0.0,
        "priors": memory.priors_from((lesson for lesson in lessons if lesson.workload != identity), memory.shares_of(profile))})


def won_before(workload: WorkloadRef, precision: Precision, budget_s: float, torch_version: str) -> bool:
    """Whether something won for this workload on this machine, on whatever device, in a search that had at least this budget and these
    passes: known before the device's name is."""
    try:
        lessons = [lesson for store in memory.stores_of(torch_version) for lesson in memory.recall(store)]
    except RuntimeError:  # no home folder
        return False
    identity = memory.identity(digest_of(workload.path), workload.version, workload.params, files_of(workload))
    catalogue = memory.catalogue_of(CATALOGUE)
    return any(lesson.winners and lesson.searched_s >= budget_s and (lesson.workload, lesson.precision, lesson.catalogue) == (
        identity, precision, catalogue) for lesson in lessons)


def learn(
    workload: WorkloadRef, state: State, context: Context, rows: Sequence[Experiment], said: Mapping[str, Verdict], kept: Experiment | None,
    searched_s: float,
) -> None:
    """Keep what this run found for later ones; where the cache folder can't be written to, nothing. What won before stays where this run
    kept nothing and did not refute it. said: confirmations that were no gain (confirm.refuted). searched_s: see memory.Lesson."""
    screened = [row for row in rows if row.screen is not None]
    if not screened:
        return
    winners = [kept, *best(rows, ("equal",))[:1]] if kept is not None else []
    lesson = memory.Lesson(
        workload=memory.identity(state.workload_sha256, workload.version, workload.params, state.files), precision=state.precision,
        shares=memory.shares_of(context.seen), winners=tuple(dict.fromkeys(row.passes for row in winners if row is not None)),
        speedup=memory.screened_speedup(kept) if kept is not None else None,
        catalogue=memory.catalogue_of(CATALOGUE), searched_s=searched_s,
        costs=costs_of(screened, has_products=once(context, has_products), inputs_s=context.facts.inputs_s, work_s=workload_s(context)),
        trials=tuple(memory.trials_of(screened)[:1000]))
    try:
        store = memory.store_for(state.device_name, state.torch_version)
        memory.remember(store, lesson if kept is not None else _with_earlier(lesson, memory.recall(store), _refuted(rows, said)))
    except (OSError, RuntimeError):
        return


def _with_earlier(lesson: memory.Lesson, known: Sequence[memory.Lesson], gone: set[tuple[str, ...]]) -> memory.Lesson:
    """With what won for this workload before, less what is gone."""
    earlier = next((one for one in reversed(known) if (one.workload, one.precision) == (lesson.workload, lesson.precision)), None)
    left = tuple(passes for passes in earlier.winners if passes not in gone) if earlier is not None else ()
    if earlier is None or not left:
        return lesson
    return lesson.model_copy(update={"winners": left, "speedup": earlier.speedup, "catalogue": earlier.catalogue,
                                     "searched_s": earlier.searched_s})


def _refuted(rows: Sequence[Experiment], said: Mapping[str, Verdict]) -> set[tuple[str, ...]]:
    """Passes of candidates that this run found wrong, failing or no faster; one that was too noisy to tell is none."""
    last = {row.name: row.verdict for row in rows if row.verdict is not None} | dict(said)
    return {row.passes for row in rows if (row.screen is not None and row.screen.status in ("wrong", "failed", "not_applicable"))
            or (row.name in last and last[row.name].verdict not in ("FASTER", "AMBIGUOUS"))}
