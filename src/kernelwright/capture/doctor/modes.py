"""From the checks: what each of the four modes can do here, and where each of its figures would come from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from .report import Check, ModeAbility
from .seen import Seen

NEEDS: dict[str, tuple[str, ...]] = {"ncu": ("gpu", "torch", "ncu", "counters"), "nsys": ("gpu", "torch", "nsys")}
COUNTED = "TC%, DRAM%, Occ%"


def abilities(checks: Mapping[str, Check], seen: Seen, available: Collection[str]) -> dict[str, ModeAbility]:
    """The four modes. available: those that this version of kernelwright has."""
    torch = checks["torch"]
    if torch.status != "ok":
        plain = ModeAbility(works=False, evidence=torch.detail, fix=torch.fix, advice=torch.advice)
    else:
        where = seen.gpus[0].name if seen.gpu_usable else "the CPU (no GPU is visible)"
        plain = ModeAbility(works=True, evidence=f"{torch.detail}; runs on {where}")
    made = {"event": plain, "annotation": plain, **{mode: _from_checks([checks[name] for name in names]) for mode, names in NEEDS.items()}}
    made["nsys"] = _with_stand_in(made["nsys"], checks)
    lacking = next((checks[name] for name in NEEDS["ncu"] if checks[name].status != "ok"), None)
    counters = "counters (ncu)" if lacking is None else f"n/a: {lacking.name}: {lacking.detail}"
    made = {mode: _unless(mode in available, ability, mode) for mode, ability in made.items()}
    return {mode: ability.model_copy(update={"figures": _figures(mode, seen, counters)}) if ability.works else ability
            for mode, ability in made.items()}


def _figures(mode: str, seen: Seen, counters: str) -> dict[str, str]:
    timer = "events (CUDA events)" if seen.gpu_usable else "events (CPU timer)"
    rates = {"TFLOP/s, GB/s": "analytic (FLOPs and bytes counted on the operators) over the duration",
             "peaks": "calibration (measured on this device), the datasheet beside it where the device is known"}
    if mode == "event":
        return {"duration": timer, **rates}
    if mode == "annotation":
        return {"duration": timer, "stages, launches, idle": "timeline (torch.profiler)", COUNTED: counters, **rates}
    if mode == "ncu":
        return {"duration": "timeline (torch.profiler)", f"{COUNTED}, L2 hit, spilling": counters, **rates}
    recorder = "nsys" if seen.nsys.works else "torch.profiler"
    return {"duration, overlap, gaps, copies, syncs": f"timeline ({recorder})", COUNTED: "n/a: nsys reads no counters of a kernel"}


def _with_stand_in(ability: ModeAbility, checks: Mapping[str, Check]) -> ModeAbility:
    """Without a usable nsys torch.profiler records: the mode works, and the fix gives more."""
    nsys = checks["nsys"]
    if nsys.status == "ok" or any(checks[name].status != "ok" for name in NEEDS["nsys"] if name != "nsys"):
        return ability
    return ability.model_copy(update={"works": True, "evidence": f"torch.profiler records in its place: nsys: {nsys.detail}"})


def _from_checks(checks: Sequence[Check]) -> ModeAbility:
    failed = [check for check in checks if check.status != "ok"]
    evidence = "; ".join(f"{check.name}: {check.detail}" for check in failed or checks)
    return ModeAbility(works=not failed, evidence=evidence, fix=_unlike([check.fix for check in failed], " && "),
                       advice=_unlike([check.advice for check in failed], "; "))


def _unless(available: bool, ability: ModeAbility, mode: str) -> ModeAbility:
    if available:
        return ability
    state = "the machine has what it needs" if ability.works else f"the machine lacks: {ability.evidence}"
    return ModeAbility(works=False, evidence=f"{mode} mode is not in this version of kernelwright; {state}",
                       advice="use --mode annotation or --mode event")


def _unlike(texts: Sequence[str], between: str) -> str:
    return between.join(dict.fromkeys(text for text in texts if text))
