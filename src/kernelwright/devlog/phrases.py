"""What a sentence of a note claims in plain words: a change of speed, a figure, a bottleneck. Whether it is so is for claims.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

FigureKind = Literal["duration_us", "gbps", "tflops", "occupancy_pct", "tc_pct"]

_NUMBER = r"(?P<amount>\d+(?:\.\d+)?)\s*"
_ABOUT = r"(?:now )?(?:only |about |around |roughly |~ ?)?"
_IS = r"\s*(?:is |of |at |now |:|=)*\s*"
_OWN = r"(?:the |this |a )?(?:kernel|call|workload|it|version|(?P<name>[\w.-]+))\s+"
_TIME = r"(?:latency|duration|run ?time|time(?: of a call| per call| a call)?|call time)"
_ITS = r"(?:^|\b(?:the|its|call|kernel|median|total|and)\s+)"
_WENT = r"(?:is |was |has |went )?"
_REACHES = r"(?:\b(?:achieves|achieving|reaches|reaching|sustains|runs at|now at) |^(?:now )?(?:at )?)"
_TIMES = r"(?P<unit>%|x\b|×|times\b)\s*"
_WITH_FACTOR = r"(?P<unit>x\b|×|times\b)"

_SPEEDS: tuple[tuple[str, str], ...] = (
    (rf"{_NUMBER}{_TIMES}(?P<word>faster|slower)", ""),
    (r"(?P<word>faster|slower)\s+by\s+" + _NUMBER + r"(?P<unit>%)", ""),
    (rf"{_NUMBER}{_WITH_FACTOR}\s*speed-?\s?up", "faster"),
    (rf"speed-?\s?up\s*(?:of\b|is\b|:|=)?\s*{_NUMBER}{_WITH_FACTOR}", "faster"),
    (rf"(?:(?P<twice>twice)|{_NUMBER}{_WITH_FACTOR})\s+as\s+(?P<word>fast|slow)\b", ""),
    (rf"(?P<twice>halve[sd]?|halving)\s+(?:the |its )?{_TIME}\b", "faster"),
    (rf"(?P<twice>doubled?s?|doubling)\s+(?:the |its )?{_TIME}\b", "slower"),
    (rf"{_NUMBER}(?P<unit>%)\s+less\s+time\b(?!\s+to\b)", "faster"),
    (rf"{_NUMBER}(?P<unit>%)\s+more\s+time\b(?!\s+to\b)", "slower"),
    (rf"(?:(?P<twice>twice)|{_NUMBER}{_WITH_FACTOR})\s+the\s+(?:throughput|speed)\b", "faster"),
    (rf"{_ITS}{_TIME}\s+{_WENT}(?:dropped|fell|fallen|decreased|shrank|reduced|cut|lower|down)\s+(?:by )?{_NUMBER}(?P<unit>%)", "faster"),
    (rf"{_ITS}{_TIME}\s+{_WENT}(?:rose|risen|increased|grew|grown|higher|up)\s+(?:by )?{_NUMBER}(?P<unit>%)", "slower"),
    (r"(?<!% )(?<!x )\b(?P<word>faster|slower)(?=\s+than\b)", ""),
    (rf"^{_OWN}(?:is|runs|got|became)\s+(?:now |still |much |clearly |slightly )?(?P<word>faster|slower)\b(?!\s+(?:than|by|to)\b)", ""),
    (rf"^(?:{_OWN}|(?:performance|speed|{_TIME})\s+)?(?:has )?regressed\b", "slower"),
)
_FIGURES: tuple[tuple[FigureKind, str], ...] = (
    ("duration_us", rf"^(?:now )?(?:{_OWN})?(?:now )?(?:takes|runs in) {_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)\b"),
    ("duration_us", rf"^(?:the |its |median |now )*{_TIME}\s*(?:is |of |at |now |:|=)+\s*{_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)\b"),
    ("duration_us", rf"^(?:the |its |median |now )*{_TIME}\s+{_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)(?=\s*(?:$|[.,;(]|now\b))"),
    ("duration_us", rf"^{_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)\s*(?:per|a|each|/)\s*call\b"),
    ("gbps", rf"{_REACHES}{_ABOUT}{_NUMBER}(?P<unit>[GT]B/s)(?!\w)"),
    ("gbps", rf"^(?:the |its |achieved |now )*(?:bandwidth|throughput){_IS}{_ABOUT}{_NUMBER}(?P<unit>[GT]B/s)(?!\w)"),
    ("gbps", rf"^(?:the |its |achieved |now )*(?P<unit>[GT]B/s){_IS}{_ABOUT}{_NUMBER}"),
    ("tflops", rf"{_REACHES}{_ABOUT}{_NUMBER}(?P<unit>[GT]FLOPS?(?:/s)?)(?!\w)"),
    ("tflops", rf"^(?:the |its |achieved |now )*throughput{_IS}{_ABOUT}{_NUMBER}(?P<unit>[GT]FLOPS?(?:/s)?)(?!\w)"),
    ("tflops", rf"^(?:the |its |achieved |now )*(?P<unit>[GT]FLOPS?(?:/s)?){_IS}{_ABOUT}{_NUMBER}"),
    ("occupancy_pct", rf"^(?:the |its |achieved )*occupancy{_IS}{_ABOUT}{_NUMBER}(?P<unit>%)"),
    ("occupancy_pct", rf"^(?:now )?(?:at )?{_NUMBER}(?P<unit>%) occupancy\b"),
    ("tc_pct", rf"^(?:the |its )*(?:TC|tensor[- ]cores?)(?:\s+(?:util\w*|use|usage|activity))?{_IS}{_ABOUT}{_NUMBER}(?P<unit>%)"),
)
_BOUNDS = (rf"^{_OWN}(?:is|now|still|remains|became|becomes|stays)\s+(?:now |still )?(?P<kind>memory|compute|latency)[- ]bound",
           r"^bottleneck\s*(?:is\b|:|=)?\s*(?P<kind>memory|compute|latency)(?=[- ]bound|\s*(?:$|[.,;:!(]))",
           r"^(?:now |still )?(?P<kind>memory|compute|latency)[- ]bound(?=\s*(?:$|[.,;:!(]|now\b|at\b))")
_TO_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3}
_SPEED = [(re.compile(pattern, re.IGNORECASE), word) for pattern, word in _SPEEDS]
_FIGURE = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _FIGURES]
_BOUND = [re.compile(pattern, re.IGNORECASE) for pattern in _BOUNDS]


@dataclass(frozen=True)
class Speed:
    """A claimed change of the time of a call. start, end: where it stands in the sentence."""

    text: str
    start: int
    end: int
    faster: bool
    time_pct: float | None
    """Of the time, in percent, negative is faster; None: only the direction is claimed."""
    name: str | None
    """Whose it is, where the phrase names somebody."""


@dataclass(frozen=True)
class Figure:
    """A claimed figure of the entry. value: in the unit of its kind; half_digit: half of its last digit, in that unit."""

    text: str
    end: int
    kind: FigureKind
    value: float
    half_digit: float
    name: str | None


def speeds(sentence: str) -> Iterator[Speed]:
    """Each claimed change once: of phrases that overlap the first in the list above."""
    taken: list[tuple[int, int]] = []
    for pattern, fixed in _SPEED:
        for match in pattern.finditer(sentence):
            if any(match.start() < end and start < match.end() for start, end in taken):
                continue
            taken.append(match.span())
            found = match.groupdict()
            faster = (fixed or found["word"]).lower() in ("faster", "fast")
            amount = 2.0 if found.get("twice") else float(found["amount"]) if found.get("amount") else None
            yield Speed(match[0], match.start(), match.end(), faster, _time_pct(amount, found.get("unit") or "x", faster=faster),
                        found.get("name"))


def _time_pct(amount: float | None, unit: str, *, faster: bool) -> float | None:
    """30% faster takes 30% less time, 2x faster half of it."""
    if amount is None:
        return None
    if unit == "%":
        return -amount if faster else amount
    return -100 * (1 - 1 / amount) if faster and amount > 0 else 100 * (amount - 1)


def figures(sentence: str) -> Iterator[Figure]:
    """The figures that the sentence gives as the entry's own."""
    for kind, pattern in _FIGURE:
        for match in pattern.finditer(sentence):
            scale = _scale(kind, match["unit"])
            digit = 0.5 * 10.0 ** -len(match["amount"].partition(".")[2])
            yield Figure(match[0], match.end(), kind, float(match["amount"]) * scale, digit * scale, match.groupdict().get("name"))


def _scale(kind: FigureKind, unit: str) -> float:
    if kind == "duration_us":
        return _TO_US[unit.lower()]
    tera = unit.upper().startswith("T")
    return {"gbps": 1e3 if tera else 1.0, "tflops": 1.0 if tera else 1e-3}.get(kind, 1.0)


def bounds(sentence: str) -> Iterator[tuple[str, str, str | None]]:
    """(phrase, memory|compute|latency, whose) of what the sentence says binds."""
    for pattern in _BOUND:
        if match := pattern.match(sentence):
            yield match[0], match["kind"].lower(), match.groupdict().get("name")
