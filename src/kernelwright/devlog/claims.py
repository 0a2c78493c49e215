"""What a note of a person or an agent claims of the entry it goes into, held against the figures of the log.

Only plain claims are checked (phrases.py): `30% faster`, `2x speed-up`, `slower than v3`, `halved the time` (against the entry before, or
the newest comparable one of the version that is named), `it takes 12 us`, `reaches 3000 GB/s`, `occupancy 50%`, and `the kernel is
memory-bound`. Sentences that hedge (could, expected, up to, ...), tell of a part of the call, of something else or of other sizes, or
compare with something that is not in the log are left alone: a false refusal is worse than a claim that passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..model.errors import BadInput
from ..report.numbers import faster_or_slower, two, us, whole_pct
from .entry import DevlogChange, DevlogEntry, DevlogFigures, change_between
from .phrases import ROUGHLY, Figure, FigureKind, Speed, bounds, figures, speeds

TOLERANCE_POINTS = 2.0
TOLERANCE_SHARE = 0.15
"""A claim may be off by this many points of percent, or by this share of the measured change, whichever is more: people round."""
FIGURE_SHARE = 0.05
"""A figure may be off by this share of the measured one, or by half of its last digit."""
SUBJECT_CHARACTERS = 100
"""Before a claim, in which its subject is looked for."""
UNMEASURED = "was not measured in this mode"
_SENTENCE = re.compile(r"(?<=[.;!?])(?<!\bvs\.)(?<!\be\.g\.)(?<!\bi\.e\.)\s+|\n", re.IGNORECASE)
_SHORT_IS = re.compile(r"\b(it|that|which|this|kernel|call|version)['’]s\b", re.IGNORECASE)
_HEDGE = re.compile(r"\b(?:could|would|should|may|might|can|expect\w*|estimat\w*|est|target|potential\w*|up to|hope\w*|goal|predict\w*|"
                    rf"tried|dropped(?!\s+(?:by\s+|from\s+)?{ROUGHLY}\d)|rejected|discarded|reverted|abandoned)\b|"
                    r"\b(?:was|were|used to)\b.*\b(?:before|earlier|previously)\b", re.IGNORECASE)
_THAN = re.compile(r"(?:\b(?:than|against|versus|vs\.?|compared (?:to|with))|^\s*(?:over|of|as|(?P<maybe>since|from)))\s+(?:the\s+)?"
                   r"(?P<other>\w(?:[\w.-]*\w)?)(?:[ :]+(?P<next>\w(?:[\w.-]*\w)?))?", re.IGNORECASE)
_BEFORE = ("previous", "before", "last", "baseline")
_ENTRY = ("one", "entry", "version", "profile", "run", "kernel")
_IS_SO = re.compile(r"(?:^|.*(?:[,:;]|\b(?:and|so|but|then|because|since)\b|\s-)\s*)(?P<subject>.*?)\s+(?:is|was|runs|ran|got|gets|became)"
                    rf"(?:\s+(?:now|still|already))*\s*{ROUGHLY}$", re.IGNORECASE)
_MADE_SO = re.compile(r".*\bma(?:de|kes?|king)\s+(?P<subject>.*?)\s*$", re.IGNORECASE)
_ITSELF = frozenset([
    "it", "this", "that", "which", "the", "a", "an", "its", "new", "whole", "kernel", "call", "calls", "workload",
    "version", "one", "everything", "overall", "all", "now", "latency", "duration", "time", "runtime", "performance", "speed", "median",
])
"""Words for the call that the entry is of."""
_PRONOUN = re.compile(r"\b(?:it|this|that|which)$", re.IGNORECASE)
_ELSEWHERE = re.compile(r"^\s+(?:on|under)\s+(?!v\d)", re.IGNORECASE)
_OF_SOMETHING = re.compile(r"^\s*(?:->|→|=>|\s(?:of|to|for|in|on|before|earlier|previously|then)\b)", re.IGNORECASE)
"""A figure with this behind it is the old one, or of something else."""
_NOT = re.compile(r"(?:\b(?:no|not|never|hardly)|n't)(?:\s+(?:any|much))?\s*$", re.IGNORECASE)
_VERSION = re.compile(r"\bv\d+\b", re.IGNORECASE)
_PART = r"(?:stage|step|phase|pass|loop|prologue|epilogue)s?\b"
_OF_A_PART = re.compile(rf"\b{_PART}(?:\s+[\w'-]+){{0,2}}\s*$|^(?:in|for|at) (?:the |its |this )?(?:[\w-]+ )?{_PART}", re.IGNORECASE)
_FOR_A_PART = re.compile(rf"^\s+(?:(?:in|for|at|on|during)\s+)?(?:the |its |this |each )?(?:[\w-]+ )?{_PART}", re.IGNORECASE)
_OTHER_SIZE = re.compile(r"\b(?:at|for|when|where|if|with|on|from)\b.*(?:(?:\b(?:small|large|big|long|short|wide|tall)\w*\s+(?:\w+\s+)?"
                         r"(?:inputs?|rows?|columns?|matri\w+|tensors?|problems?|contexts?|prompts?|lengths?|\w)\b)|"
                         r"(?<!tile )(?<!block )\bsizes?\b|\b(?:shapes?|batch\w*|sequences?)\b)", re.IGNORECASE)
_PARAMETER = r"(?:(?<![\w/]){name}\s*=|\b(?:at|for|when|where|if|with|on|from)\b.*\b{name}\s*(?:is|of)\b)\s*(?P<value>[\w.+-]*\w)?"
_OTHER_FIGURE = re.compile(r"\b(?:peak|roof\w*|DRAM|L1|L2|cache|shared|reads?|writes?|traffic|counters?|theoretical|limit\w*|max\w*|"
                           r"kernel)\b", re.IGNORECASE)
"""A rate or an occupancy beside one of these may be another than the entry's."""


def refuse_contradictions(entry: DevlogEntry, earlier: Sequence[DevlogEntry], notes: dict[str, tuple[str, ...]]) -> None:
    """Raises BadInput contradicts_profile for the first claim that the figures do not bear. earlier: the log. notes: option -> texts."""
    log = _Log(entry, earlier)
    for option, texts in notes.items():
        for text in texts:
            for sentence in _SENTENCE.split(text):
                for claim, truth in _wrong(log, _SHORT_IS.sub(r"\1 is", sentence.strip())):
                    fix = "leave it out, or add the entry of a profile that measures it" if truth.endswith(UNMEASURED) else \
                        "correct it, or leave the figure out: the entry has the measured one"
                    raise BadInput("contradicts_profile", f"says {claim!r}, and the profile says: {truth}", where=option, fix=fix)


@dataclass(frozen=True)
class _Log:
    """The entry, and what it can be compared with."""

    entry: DevlogEntry
    earlier: Sequence[DevlogEntry]

    def against(self, than: re.Match[str] | None) -> tuple[DevlogChange | None, str] | None:
        """(change, in words against what); None where that is nothing that this log knows."""
        change = self.entry.change
        before = change.previous_version if change is not None else None
        if than is None:
            return change, "the entry before"
        other, following = than["other"].lower(), (than["next"] or "").lower()
        if other in (self.entry.kernel.lower(), "version") and following:
            other = following
        elif other in _BEFORE and following and following not in _ENTRY:
            return None  # than last week
        if other in (*_BEFORE, (before or "").lower()):
            return change, "the entry before"
        known = [item for item in self.earlier if (item.version or "").lower() == other and item.key == self.entry.key
                 and item.run != self.entry.run]
        if not known and than["maybe"] and not other[0].isdigit():
            return change, "the entry before"  # since the loads are wide
        return (change_between(known[-1], self.entry), str(known[-1].version)) if known else None

    def is_own(self, name: str | None) -> bool:
        own = {(self.entry.version or "").lower(), self.entry.kernel.lower()}
        return all(word in own or word in _ITSELF for word in re.split(r"[\s:]+", (name or "").lower()) if word)


def _wrong(log: _Log, sentence: str) -> Iterator[tuple[str, str]]:
    entry = log.entry
    for phrase, kind, name in bounds(sentence):
        if log.is_own(name) and kind != (entry.bottleneck or "").lower():
            yield phrase, f"{entry.bottleneck}-bound" if entry.bottleneck else "its bottleneck is not known"
    if _HEDGE.search(sentence) or _of_other_sizes(entry, sentence):
        return
    for figure in figures(sentence):
        truth = _other_figure(log, sentence, figure)
        if truth is not None:
            yield figure.text, truth
    for speed in speeds(sentence):
        truth = _untrue(log, sentence, speed)
        if truth is not None:
            yield speed.text, truth


def _of_other_sizes(entry: DevlogEntry, sentence: str) -> bool:
    if _OTHER_SIZE.search(sentence):
        return True
    found = [(value, match["value"]) for name, value in entry.parameters.items()
             for match in re.finditer(_PARAMETER.format(name=re.escape(name)), sentence, re.IGNORECASE)]
    return any(str(own).lower() != (said or "").lower() for own, said in found)


def _other_figure(log: _Log, sentence: str, claim: Figure) -> str | None:
    """What the entry has instead of a claimed figure; None where it bears the claim, or the claim is of something else."""
    if not log.is_own(claim.name) or _FOR_A_PART.match(sentence[claim.end:]) or _OF_SOMETHING.match(sentence[claim.end:]):
        return None
    if _OTHER_FIGURE.search(sentence if claim.kind != "duration_us" else sentence[claim.end:]):
        return None
    measured, words = _measured(log.entry.figures, claim.kind)
    if measured is None:
        return f"{words} {UNMEASURED}"
    return words if abs(claim.value - measured) > max(FIGURE_SHARE * measured, claim.half_digit) else None


def _measured(own: DevlogFigures, kind: FigureKind) -> tuple[float | None, str]:
    """(the entry's figure, in words); without one its name."""
    value = own.duration_ns / 1000 if kind == "duration_us" and own.duration_ns is not None else None
    if kind != "duration_us":
        value = {"gbps": own.gbps, "tflops": own.tflops, "occupancy_pct": own.occupancy_pct, "tc_pct": own.tc_pct}[kind]
    name, text = {"duration_us": ("the duration", f"{us(own.duration_ns)} us a call"), "gbps": ("GB/s", f"{two(own.gbps)} GB/s"),
                  "tflops": ("TFLOP/s", f"{two(own.tflops)} TFLOP/s"), "tc_pct": ("TC util", f"TC util {whole_pct(own.tc_pct)}"),
                  "occupancy_pct": ("occupancy", f"occupancy {whole_pct(own.occupancy_pct)}")}[kind]
    return value, name if value is None else text


def _untrue(log: _Log, sentence: str, claim: Speed) -> str | None:
    """What the log says instead of a claimed change; None where it bears the claim, or the claim is of something else."""
    head, tail = sentence[:claim.start], sentence[claim.end:]
    if not log.is_own(claim.name) or _NOT.search(head) or _OF_A_PART.search(head) or _FOR_A_PART.match(tail) or _ELSEWHERE.match(tail):
        return None
    near = head[-SUBJECT_CHARACTERS:]
    subject = _IS_SO.match(near) or _MADE_SO.match(near)
    if subject is not None and not log.is_own(subject["subject"]) and not _PRONOUN.search(subject["subject"]):
        return None  # num_warps=8 is 10% slower
    if any(not log.is_own(name) for name in _VERSION.findall(head)):
        return None  # v3 is 5% faster than v2
    than = _THAN.search(tail) or _THAN.search(head)
    against = log.against(than)
    if against is None:
        return None
    change, whose = against
    if change is None:
        return None if claim.time_pct is None else "there is no earlier entry that it could be compared with"
    if change.too_noisy is not None or change.duration_pct is None:
        return f"it can't be compared ({change.too_noisy or 'a duration was not measured'})"
    measured = f"{faster_or_slower(change.duration_pct)} than {whose}"
    if change.within_noise:
        return f"{measured}, which is within noise"
    if claim.faster == (change.duration_pct > 0):
        return measured
    if claim.time_pct is None:
        return None
    off = abs(claim.time_pct - change.duration_pct)
    return measured if off > max(TOLERANCE_POINTS, TOLERANCE_SHARE * abs(change.duration_pct)) else None
