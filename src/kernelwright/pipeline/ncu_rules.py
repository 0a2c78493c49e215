"""ncu's own rules, ranked: what they would save of all captured time, each mend once a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..readers.ncu_records import KernelDetails, Rule
from ..roofline.ncu_knowledge import ncu_knowledge


def group_name(kernel: KernelDetails) -> str:
    """How a kernel is called in tables: its function."""
    return kernel.function or kernel.name or "(unnamed)"


def groups(kernels: Iterable[KernelDetails]) -> dict[str, list[KernelDetails]]:
    """Launches by kernel, the kernel with the most time first; within one the launch with the most time first."""
    found: dict[str, list[KernelDetails]] = {}
    for kernel in kernels:
        found.setdefault(group_name(kernel), []).append(kernel)
    for held in found.values():
        held.sort(key=lambda kernel: -(kernel.duration_ns or 0.0))
    return dict(sorted(found.items(), key=lambda item: -sum(kernel.duration_ns or 0.0 for kernel in item[1])))


@dataclass(frozen=True)
class RankedRule:
    """One of ncu's rules about one kernel. gain_pct: of all captured time, at most; None where ncu's estimate is local or missing."""

    kernel: str
    launch: KernelDetails
    rule: Rule
    action: str
    needs: str
    playbook: str
    gain_pct: float | None
    order: Literal[0, 1, 2, 3]
    """0 for the whole kernel, 1 under a condition, 2 of a part only, 3 without an estimate."""


def ranked_rules(launches: Sequence[KernelDetails]) -> list[RankedRule]:
    """What ncu's rules found in the heaviest launch of each kernel, by estimated speed-up times the kernel's share of ncu's time.

    Of rules with the same mend for the same kernel the largest estimate stays.
    """
    table = ncu_knowledge()
    whole = sum(kernel.duration_ns or 0.0 for kernel in launches)
    best: dict[tuple[str, str], RankedRule] = {}
    for name, held in groups(launches).items():
        share = sum(kernel.duration_ns or 0.0 for kernel in held) / whole if whole > 0 else 0.0
        for rule in held[0].rules:
            known = table.rules.get(rule.identifier)
            if rule.kind not in ("optimization", "warning") or (known is not None and known.skip):
                continue
            one = _ranked(name, held[0], rule, share)
            key = (name, one.action)
            if key not in best or (one.order, -(rule.speedup_pct or 0.0)) < (best[key].order, -(best[key].rule.speedup_pct or 0.0)):
                best[key] = one
    return sorted(best.values(),
                  key=lambda one: (one.order, -(one.gain_pct or 0.0), -(one.rule.speedup_pct or 0.0), one.kernel, one.action))


def _ranked(kernel: str, launch: KernelDetails, rule: Rule, share: float) -> RankedRule:
    table = ncu_knowledge()
    known = table.rules.get(rule.identifier)
    needs = known.needs if known is not None else ""
    case = known.case(rule.title) if known is not None else None
    whole = rule.speedup_pct is not None and rule.scope == "global"
    order: Literal[0, 1, 2, 3] = 3 if rule.speedup_pct is None else 2 if rule.scope == "local" else 1 if needs else 0
    return RankedRule(
        kernel=kernel, launch=launch, rule=rule, needs=needs,
        action=case.action if case is not None else rule.title or rule.name,
        playbook=f"knowledge/playbooks/{case.playbook if case is not None else table.other_rule_playbook}",
        gain_pct=share * rule.speedup_pct if whole and rule.speedup_pct is not None else None, order=order)


def metric_label(name: str) -> str:
    """Our short name of a counter, else ncu's."""
    return next((shown.label for shown in ncu_knowledge().counters.values() if name in shown.names), name)
