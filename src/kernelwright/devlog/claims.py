"""What a note of a person or an agent claims of the entry it goes into, held against the entry's own figures.

Only plain claims are checked: `30% faster`, `slower by 5%`, `1.8x faster` (against the entry before, or its version), and `the kernel is
memory-bound`. Sentences that hedge (could, expected, up to, ...) or compare with something else are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..model.errors import BadInput
from ..report.numbers import faster_or_slower
from .entry import DevlogEntry

TOLERANCE_POINTS = 2.0
TOLERANCE_SHARE = 0.15
"""A claim may be off by this many points of percent, or by this share of the measured change, whichever is more: people round."""
_SENTENCE = re.compile(r"(?<=[.;!?])\s+|\n")
_HEDGE = re.compile(r"\b(?:could|would|should|may|might|can|expect\w*|estimat\w*|est|if|when|target|potential\w*|up to|hope\w*|goal|"
                    r"predict\w*|stage|step)\b", re.IGNORECASE)
_SPEED = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>%|x\b|×|times\b)\s*(?P<word>faster|slower)|(?P<word2>faster|slower)\s+by\s+"
                    r"(?P<amount2>\d+(?:\.\d+)?)\s*(?P<unit2>%)", re.IGNORECASE)
_THAN = re.compile(r"\bthan\s+(?:the\s+)?(?P<other>[\w.-]+)", re.IGNORECASE)
_BOUND = re.compile(r"^(?:the |this )?(?:kernel|call|workload|it|version|(?P<name>[\w.-]+))\s+"
                    r"(?:is|now|still|remains|became|becomes|stays)\s+(?:now |still )?"
                    r"(?P<kind>memory|compute|latency)[- ]bound", re.IGNORECASE)


def refuse_contradictions(entry: DevlogEntry, notes: dict[str, tuple[str, ...]]) -> None:
    """Raises BadInput contradicts_profile for the first claim that the entry's figures do not bear. notes: option -> its texts."""
    for option, texts in notes.items():
        for text in texts:
            for sentence in _SENTENCE.split(text):
                for claim, truth in _wrong(entry, sentence.strip()):
                    raise BadInput("contradicts_profile", f"says {claim!r}, and the profile says: {truth}", where=option,
                                   fix="correct it, or leave the figure out: the entry has the measured one")


def _wrong(entry: DevlogEntry, sentence: str) -> Iterator[tuple[str, str]]:
    bound = _BOUND.match(sentence)
    subject = (bound["name"] or "").lower() if bound else ""
    about_it = subject in ("", (entry.version or "").lower(), entry.kernel.lower())
    if bound and about_it and bound["kind"].lower() != (entry.bottleneck or "").lower():
        yield bound[0], f"{entry.bottleneck}-bound" if entry.bottleneck else "its bottleneck is not known"
    if _HEDGE.search(sentence):
        return
    other = _THAN.search(sentence)
    before = entry.change.previous_version if entry.change is not None else None
    if other and other["other"].lower() not in ("previous", "before", "last", "baseline", (before or "").lower()):
        return
    for match in _SPEED.finditer(sentence):
        amount, unit = float(match["amount"] or match["amount2"]), (match["unit"] or match["unit2"]).lower()
        truth = _untrue(entry, _time_pct(amount, unit, faster=(match["word"] or match["word2"]).lower() == "faster"))
        if truth is not None:
            yield match[0], truth


def _time_pct(amount: float, unit: str, *, faster: bool) -> float:
    """The claim as a change of time in percent, negative is faster: 30% faster takes 30% less time, 2x faster half of it."""
    if unit == "%":
        return -amount if faster else amount
    return -100 * (1 - 1 / amount) if faster and amount > 0 else 100 * (amount - 1)


def _untrue(entry: DevlogEntry, claimed_pct: float) -> str | None:
    """What the entry says instead; None where it bears the claim."""
    change = entry.change
    if change is None:
        return "there is no earlier entry that it could be compared with"
    if change.too_noisy is not None or change.duration_pct is None:
        return f"it can't be compared ({change.too_noisy or 'a duration was not measured'})"
    measured = f"{faster_or_slower(change.duration_pct)} than the entry before"
    if change.within_noise:
        return f"{measured}, which is within noise"
    off = abs(claimed_pct - change.duration_pct)
    return measured if off > max(TOLERANCE_POINTS, TOLERANCE_SHARE * abs(change.duration_pct)) else None
