"""What a sentence of a note claims in plain words: a change of speed, a figure, a bottleneck. Of what it claims it is for scope.py,
and whether it is so for claims.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

FigureKind = Literal["duration_us", "gbps", "tflops", "occupancy_pct", "tc_pct"]

_WORDS = {"two": 2.0, "three": 3.0, "four": 4.0, "five": 5.0, "six": 6.0, "eight": 8.0, "ten": 10.0}
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_NUMBER = rf"(?<![\w.,])(?P<amount>{_DIGITS}|(?:{'|'.join(_WORDS)})\b)\s*"
_ROUGHLY = r"(?:only |about |around |roughly |nearly |almost |~ ?)?"
_ABOUT = rf"(?:now )?{_ROUGHLY}"
_BE = r"(?:\b(?:is|runs|got|became|remains|stays)\s+|['’]s\s+)"
_STILL = r"(?:now |still |much |clearly |slightly |again )*"
_TIME = r"(?:latency|duration|run ?time|time(?: of a call| per call| a call)?|call time)"
_ITS_TIME = rf"(?P<subject>(?:^|\b(?:the|its|call|kernel|median|total|and)\s+){_TIME})"
_SPEED = rf"(?P<subject>(?:^|\b(?:the|its)\s+)(?:performance|speed|{_TIME}))"
_WENT = r"(?:(?:is|was|has|have|had|been|went|got)\s+)*"
_PERCENT = r"(?P<unit>%|percent\b)"
_FACTOR = r"(?P<unit>x\b|×|times\b)"
_TIMES = r"(?P<unit>%|percent\b|x\b|×|times\b)"
_IS = r"\s*(?:is |of |at |now |:|=)*\s*"
_REACHES = r"(?:\b(?:achieves|achieving|reaches|reaching|sustains|runs at|now at) |^(?:now )?(?:at )?)"
_OLD = rf"{_DIGITS}\s*(?:%|[a-zµμ/]+)?"
_WAS = rf"(?:(?:from\s+)?{_OLD}\s*(?:->|→|=>)\s*|(?:went\s+)?from\s+{_OLD}\s+to\s+|{_OLD}\s+before,?\s+(?:and\s+)?)?"
"""The old figure before the new one, which alone is the entry's."""
_END = r"(?=\s*(?:$|[.,;:!)(]|now\b))"
"""A figure with more words after it is of something else, or an old one (`25% -> 50%`, `25% before`)."""
_END_OF_TIME = r"(?=\s*(?:$|[.;(]|now\b))"
_US = r"(?P<unit>ns|us|µs|μs|ms)"
_GBPS, _TFLOPS = r"(?P<unit>[GT]B/s)", r"(?P<unit>[GT]FLOPS?(?:/s)?)"
_PER_CALL = r"\s*(?:per|a|each|/)\s*call\b"
_BOUND_KIND = r"(?P<kind>memory|compute|latency)"

_SPEEDS: tuple[tuple[str, str], ...] = (
    (rf"{_NUMBER}{_TIMES}\s*(?P<word>faster|slower)\b", ""),
    (rf"\b(?P<word>faster|slower)\s+by\s+{_ROUGHLY}{_NUMBER}{_TIMES}", ""),
    (rf"{_NUMBER}{_FACTOR}\s*speed-?\s?up", "faster"),
    (rf"speed-?\s?up\s*(?:of\b|is\b|:|=)?\s*{_NUMBER}{_FACTOR}", "faster"),
    (rf"(?:(?P<twice>twice)|{_NUMBER}{_FACTOR})\s+as\s+(?P<word>fast|slow)\b", ""),
    (rf"\b(?P<twice>halve[sd]?|halving)\s+(?:the |its )?{_TIME}\b", "faster"),
    (rf"\b(?P<twice>doubled?s?|doubling)\s+(?:the |its )?{_TIME}\b", "slower"),
    (rf"{_NUMBER}{_PERCENT}\s+less\s+time\b", "faster"),
    (rf"{_NUMBER}{_PERCENT}\s+more\s+time\b", "slower"),
    (rf"(?:(?P<twice>twice)|{_NUMBER}{_FACTOR})\s+the\s+(?:throughput|speed)\b", "faster"),
    (rf"{_ITS_TIME}\s+{_WENT}(?P<twice>halved)\b", "faster"),
    (rf"{_ITS_TIME}\s+{_WENT}(?P<twice>doubled)\b", "slower"),
    (rf"{_ITS_TIME}\s+{_WENT}(?:dropped|fell|fallen|decreased|shrank|reduced|cut|lower|down)\s+(?:by )?{_ROUGHLY}{_NUMBER}{_PERCENT}",
     "faster"),
    (rf"{_ITS_TIME}\s+{_WENT}(?:rose|risen|increased|grew|grown|higher|up)\s+(?:by )?{_ROUGHLY}{_NUMBER}{_PERCENT}", "slower"),
    (rf"\b(?:reduce[sd]?|reducing|cuts?|cutting|lowered|decreased)\s+(?:the |its )?{_TIME}\s+by\s+{_ROUGHLY}{_NUMBER}{_PERCENT}", "faster"),
    (rf"\b(?:increase[sd]?|increasing|raised)\s+(?:the |its )?{_TIME}\s+by\s+{_ROUGHLY}{_NUMBER}{_PERCENT}", "slower"),
    (rf"{_BE}{_STILL}(?P<word>faster|slower)\b", ""),
    (r"\b(?P<word>faster|slower)(?=\s+than\b)", ""),
    (rf"(?:{_SPEED}\s+)?(?:has )?\bregressed\b", "slower"),
)
_FIGURES: tuple[tuple[FigureKind, str], ...] = (
    ("duration_us", rf"\b(?:takes|runs in) {_ABOUT}{_NUMBER}{_US}(?:{_PER_CALL})?{_END}"),
    ("duration_us", rf"^(?:the |its |now )*(?:(?:median )?{_TIME}|median)\b{_IS}{_WAS}{_ABOUT}{_NUMBER}{_US}(?:{_PER_CALL})?{_END}"),
    ("duration_us", rf"^{_WAS}{_ABOUT}{_NUMBER}{_US}{_PER_CALL}{_END_OF_TIME}"),
    ("duration_us", rf"^now {_ROUGHLY}{_NUMBER}{_US}{_END_OF_TIME}"),
    ("gbps", rf"{_REACHES}{_ABOUT}{_NUMBER}{_GBPS}{_END}"),
    ("gbps", rf"^(?:the |its |achieved |now )*(?:bandwidth|throughput){_IS}{_WAS}{_ABOUT}{_NUMBER}{_GBPS}{_END}"),
    ("gbps", rf"^(?:the |its |achieved |now )*{_GBPS}{_IS}{_WAS}{_ABOUT}{_NUMBER}{_END}"),
    ("tflops", rf"{_REACHES}{_ABOUT}{_NUMBER}{_TFLOPS}{_END}"),
    ("tflops", rf"^(?:the |its |achieved |now )*throughput{_IS}{_WAS}{_ABOUT}{_NUMBER}{_TFLOPS}{_END}"),
    ("tflops", rf"^(?:the |its |achieved |now )*{_TFLOPS}{_IS}{_WAS}{_ABOUT}{_NUMBER}{_END}"),
    ("occupancy_pct", rf"^(?:the |its |achieved )*occupancy{_IS}{_WAS}{_ABOUT}{_NUMBER}{_PERCENT}{_END}"),
    ("occupancy_pct", rf"^(?:now )?(?:at )?{_WAS}{_NUMBER}{_PERCENT} occupancy\b{_END}"),
    ("tc_pct", rf"^(?:the |its )*(?:TC|tensor[- ]cores?)(?:\s+(?:util\w*|use|usage|activity))?"
               rf"{_IS}{_WAS}{_ABOUT}{_NUMBER}{_PERCENT}{_END}"),
)
_BOUNDS = (rf"(?:{_BE}|\b(?:now|still)\s+){_STILL}{_BOUND_KIND}[- ]bound{_END}",
           rf"^(?:the |its )?bottleneck\s*(?:is\b|:|=)?\s*{_STILL}{_BOUND_KIND}(?:[- ]bound)?{_END}",
           rf"^{_STILL}{_BOUND_KIND}[- ]bound(?=\s*(?:$|[.,;:!(]|now\b|at\b))")
_TO_US = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "μs": 1.0, "ms": 1e3}
_SPEED_PATTERNS = [(re.compile(pattern, re.IGNORECASE), word) for pattern, word in _SPEEDS]
_FIGURE_PATTERNS = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _FIGURES]
_BOUND_PATTERNS = [re.compile(pattern, re.IGNORECASE) for pattern in _BOUNDS]


@dataclass(frozen=True)
class Phrase:
    """Something claimed. start, end: where it stands in the sentence."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Speed(Phrase):
    """A claimed change of the time of a call."""

    faster: bool
    time_pct: float | None
    """Of the time, in percent, negative is faster; None: only the direction is claimed."""
    has_subject: bool
    """Whether the phrase says itself what changed: the latency dropped."""


@dataclass(frozen=True)
class Figure(Phrase):
    """A claimed figure of the entry. value: in the unit of its kind; half_digit: half of its last digit, in that unit."""

    kind: FigureKind
    value: float
    half_digit: float


@dataclass(frozen=True)
class Bound(Phrase):
    """What is said to bind."""

    kind: str
    """memory, compute or latency."""


def speeds(sentence: str) -> list[Speed]:
    """Each claimed change once, in the order of the sentence: of phrases that overlap the first in the list above."""
    found: list[Speed] = []
    for pattern, fixed in _SPEED_PATTERNS:
        for match in pattern.finditer(sentence):
            if any(match.start() < other.end and other.start < match.end() for other in found):
                continue
            words = match.groupdict()
            faster = (fixed or words["word"]).lower() in ("faster", "fast")
            amount = 2.0 if words.get("twice") else _number(words["amount"]) if words.get("amount") else None
            found.append(Speed(_text(match), match.start(), match.end(), faster, _time_pct(amount, words.get("unit") or "x", faster=faster),
                               words.get("subject") is not None))
    return sorted(found, key=lambda speed: speed.start)


def _text(match: re.Match[str]) -> str:
    return re.sub(r"^['’]s\s+", "", match[0]).strip()


def _number(amount: str) -> float:
    return _WORDS.get(amount.lower()) or float(amount.replace(",", ""))


def _time_pct(amount: float | None, unit: str, *, faster: bool) -> float | None:
    """30% faster takes 30% less time, 2x faster half of it."""
    if amount is None:
        return None
    if unit.lower() in ("%", "percent"):
        return -amount if faster else amount
    return -100 * (1 - 1 / amount) if faster and amount > 0 else 100 * (amount - 1)


def figures(sentence: str) -> Iterator[Figure]:
    """The figures that the sentence may give as the entry's own."""
    for kind, pattern in _FIGURE_PATTERNS:
        for match in pattern.finditer(sentence):
            scale = _scale(kind, match["unit"])
            digit = 0.5 * 10.0 ** -len(match["amount"].partition(".")[2])
            yield Figure(_text(match), match.start(), match.end(), kind, _number(match["amount"]) * scale, digit * scale)


def _scale(kind: FigureKind, unit: str) -> float:
    if kind == "duration_us":
        return _TO_US[unit.lower()]
    tera = unit.upper().startswith("T")
    return {"gbps": 1e3 if tera else 1.0, "tflops": 1.0 if tera else 1e-3}.get(kind, 1.0)


def bounds(sentence: str) -> Iterator[Bound]:
    """What the sentence says binds."""
    for pattern in _BOUND_PATTERNS:
        if match := pattern.search(sentence):
            yield Bound(_text(match), match.start(), match.end(), match["kind"].lower())
