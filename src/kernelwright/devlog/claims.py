"""What a note of a person or an agent claims of the entry it goes into, held against the figures of the log.

Only plain claims are checked (phrases.py): `30% faster`, `2x speed-up`, `slower than v3`, `halved the time` (against the entry before, or
the newest comparable one of the version that is named), `it takes 12 us`, `reaches 3000 GB/s`, `occupancy 50%`, and `the kernel is
memory-bound`. Sentences that hedge (could, expected, up to, ...), tell of something else than the entry's call (scope.py), or compare
with something that is not in the log are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..model.errors import BadInput
from ..report.numbers import faster_or_slower, two, us, whole_pct
from .entry import NOTE_LIMIT, DevlogChange, DevlogEntry, DevlogFigures, change_between
from .phrases import Figure, FigureKind, Phrase, Speed, bounds, figures, speeds
from .scope import compared_with, is_of_the_entry, is_of_the_whole, is_under_other_conditions, names_other_conditions

TOLERANCE_POINTS = 2.0
TOLERANCE_SHARE = 0.15
"""A claim may be off by this many points of percent, or by this share of the measured change, whichever is more: people round."""
FIGURE_SHARE = 0.05
"""A figure may be off by this share of the measured one, or by half of its last digit."""
_ABBREVIATIONS = ("vs", "e.g", "i.e", "est", "ca", "cf", "approx")
_SENTENCE = re.compile("(?<=[.;!?])" + "".join(rf"(?<!\b{re.escape(word)}\.)" for word in _ABBREVIATIONS) + r"\s+|\n", re.IGNORECASE)
_HEDGE = re.compile(r"\b(?:could|would|should|may|might|can|expect\w*|estimat\w*|est|target|potential\w*|up to|hope\w*|goal|predict\w*|"
                    r"whether|unless|must|aim\w*|todo|paper|"
                    r"tried|dropped(?!\s+(?:by\s+|from\s+)?(?:(?:only|about|around|roughly|nearly|almost)\s+|~\s?)?\d)|"
                    r"rejected|discarded|reverted|abandoned)\b|"
                    r"\b(?:was|were|used to)\b.*\b(?:before|earlier|previously)\b", re.IGNORECASE)
_OTHER_FIGURE = re.compile(r"\b(?:peak|roof\w*|DRAM|L1|L2|cache|shared|reads?|writes?|traffic|counters?|theoretical|limit\w*|max\w*|"
                           r"kernel)\b", re.IGNORECASE)
"""A rate or an occupancy beside one of these may be another than the entry's; the time of a kernel is not that of the call."""
_CORRECT = "correct it, or leave the figure out: the entry has the measured one"
_LEAVE_OUT = "leave it out"


def refuse_contradictions(entry: DevlogEntry, earlier: Sequence[DevlogEntry], notes: dict[str, tuple[str, ...]]) -> None:
    """Raises BadInput contradicts_profile for the first claim that the figures do not bear. earlier: the log. notes: option -> texts."""
    log = _Log(entry, earlier)
    for option, texts in notes.items():
        for text in texts:
            for sentence in _SENTENCE.split(text):
                for claim, truth, fix in _wrong(log, sentence.strip()[:NOTE_LIMIT]):
                    raise BadInput("contradicts_profile", f"says {claim.text!r}, and the profile says: {truth}",
                                   where=option, fix=fix)


@dataclass(frozen=True)
class _Log:
    """The entry, and what it can be compared with."""

    entry: DevlogEntry
    earlier: Sequence[DevlogEntry]

    def against(self, other: str | None) -> tuple[DevlogChange | None, str] | None:
        """(change, in words against what); None where `other` is nothing that this log knows."""
        change = self.entry.change
        before = change.previous_version if change is not None else None
        if other in (None, "", (before or "").lower()):
            return change, "the entry before"
        known = [item for item in self.earlier if (item.version or "").lower() == other and item.key == self.entry.key
                 and item.run != self.entry.run]
        return (change_between(known[-1], self.entry), str(known[-1].version)) if known else None


def _wrong(log: _Log, sentence: str) -> Iterator[tuple[Phrase, str, str]]:
    """(claim, what the log has instead, what to do) of each claim that it does not bear."""
    entry, elsewhere = log.entry, names_other_conditions(log.entry, sentence)
    for bound in bounds(sentence):
        if not elsewhere and bound.kind != (entry.bottleneck or "").lower() and is_of_the_entry(entry, sentence, bound):
            yield (bound, f"{entry.bottleneck}-bound", _CORRECT) if entry.bottleneck else (bound, "its bottleneck is not known", _LEAVE_OUT)
    if _HEDGE.search(sentence):
        return
    for figure in figures(sentence):
        if not elsewhere and (wrong := _other_figure(entry, sentence, figure)):
            yield (figure, *wrong)
    found = speeds(sentence)
    for speed in found:
        if wrong := _untrue(log, sentence, speed, found):
            yield (speed, *wrong)


def _other_figure(entry: DevlogEntry, sentence: str, claim: Figure) -> tuple[str, str] | None:
    """(what the entry has instead of a claimed figure, what to do); None where it bears the claim, or the claim is of something else."""
    head, tail = sentence[:claim.start], sentence[claim.end:]
    if _OTHER_FIGURE.search(head + tail) or not is_of_the_entry(entry, sentence, claim):
        return None
    measured, words = _measured(entry.figures, claim.kind)
    if measured is None:
        by_ncu = claim.kind in ("occupancy_pct", "tc_pct") and entry.mode != "ncu"
        return (f"{words} was not measured in this profile (mode {entry.mode})",
                f"{_LEAVE_OUT}, or add the entry of an ncu profile" if by_ncu else _LEAVE_OUT)
    return (words, _CORRECT) if abs(claim.value - measured) > max(FIGURE_SHARE * measured, claim.half_digit) else None


def _measured(own: DevlogFigures, kind: FigureKind) -> tuple[float | None, str]:
    """(the entry's figure, in words); without one its name."""
    value = own.duration_ns / 1000 if kind == "duration_us" and own.duration_ns is not None else None
    if kind != "duration_us":
        value = {"gbps": own.gbps, "tflops": own.tflops, "occupancy_pct": own.occupancy_pct, "tc_pct": own.tc_pct}[kind]
    name, text = {"duration_us": ("the duration", f"{us(own.duration_ns)} us a call"), "gbps": ("GB/s", f"{two(own.gbps)} GB/s"),
                  "tflops": ("TFLOP/s", f"{two(own.tflops)} TFLOP/s"), "tc_pct": ("TC util", f"TC util {whole_pct(own.tc_pct)}"),
                  "occupancy_pct": ("occupancy", f"occupancy {whole_pct(own.occupancy_pct)}")}[kind]
    return value, name if value is None else text


def _untrue(log: _Log, sentence: str, claim: Speed, claims: Sequence[Speed]) -> tuple[str, str] | None:
    """(what the log says instead of a claimed change, what to do); None where it bears the claim, or the claim is of something else."""
    entry = log.entry
    other, tail = compared_with(entry, sentence, claim)
    against = log.against(other)
    if against is None or not is_of_the_entry(entry, sentence, claim, has_subject=claim.has_subject, faster=claim.faster) \
            or not is_of_the_whole(entry, tail, claim) or is_under_other_conditions(entry, sentence, claim, claims):
        return None
    change, whose = against
    if change is None:
        return None if claim.time_pct is None else ("there is no earlier entry that it could be compared with", _LEAVE_OUT)
    if change.too_noisy is not None or change.duration_pct is None:
        return f"it can't be compared ({change.too_noisy or 'a duration was not measured'})", _LEAVE_OUT
    measured = f"{faster_or_slower(change.duration_pct)} than {whose}"
    if change.within_noise:
        return f"{measured}, which is within noise", _CORRECT
    if claim.faster == (change.duration_pct > 0):
        return measured, _CORRECT
    if claim.time_pct is None:
        return None
    off = abs(claim.time_pct - change.duration_pct)
    return (measured, _CORRECT) if off > max(TOLERANCE_POINTS, TOLERANCE_SHARE * abs(change.duration_pct)) else None
