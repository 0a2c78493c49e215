"""What a sentence of a note claims in plain words: a change of speed, a figure, a bottleneck. Whether it is so is for claims.py."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

FigureKind = Literal["duration_us", "gbps", "tflops", "occupancy_pct", "tc_pct"]

_WORDS = {word: float(value) for value, word in enumerate(["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], 2)}
_NUMBER = rf"(?P<amount>\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?|\b(?:{'|'.join(_WORDS)})\b)\s*"
ROUGHLY = r"(?:only |about |around |roughly |almost |nearly |~ ?)?"
_ABOUT = rf"(?:now )?{ROUGHLY}"
_IS = r"\s*(?:is |of |at |now |:|=)*\s*"
_OWN = r"(?:the |this |a )?(?:new )?(?:kernel|call|workload|it|version|one|(?P<name>[\w.-]+(?:[ :][\w.-]+)?))\s+"
_TIME = r"(?:latency|duration|run ?time|time(?: of a call| per call| a call)?|call time)"
_ITS = r"(?:^|\b(?:the|its|call|kernel|median|total|and)\s+)"
_WENT = r"(?:is |was |has been |has |went )?"
_LESS = r"(?:dropp?(?:ed|s|ing)?|fell|fallen|decreas(?:e[sd]?|ing)|shrank|reduc(?:e[sd]?|ing)|cut(?:s|ting)?|lower(?:s|ed|ing)?|down)"
_MORE = r"(?:rose|risen|rais(?:e[sd]?|ing)|increas(?:e[sd]?|ing)|grew|grown|higher|up)"
_OF_OTHERS = r"(?!\s+(?:to|on|in|for|at|of|between|it|spent|[a-z]+ing|stalled)\b)"
_END = r"(?=\s*(?:$|[.,;:(]|now\b))"
_REACHES = r"(?:\b(?:achieves|achieving|reaches|reaching|sustains|runs at|now at) |^(?:now )?(?:at )?)"
_TIMES = r"(?P<unit>%|x\b|×|times\b)\s*"
_WITH_FACTOR = r"(?P<unit>x\b|×|times\b)"

_SPEEDS: tuple[tuple[str, str], ...] = (
    (rf"{_NUMBER}{_TIMES}(?P<word>faster|slower)", ""),
    (rf"(?P<word>faster|slower)\s+by\s+{ROUGHLY}{_NUMBER}(?P<unit>%|x\b|×|times\b)", ""),
    (rf"{_NUMBER}{_WITH_FACTOR}\s*speed-?\s?up", "faster"),
    (rf"speed-?\s?up\s*(?:of\b|is\b|:|=)?\s*{_NUMBER}{_WITH_FACTOR}", "faster"),
    (rf"(?:(?P<twice>twice)|{_NUMBER}{_WITH_FACTOR})\s+as\s+(?P<word>fast|slow)\b", ""),
    (rf"(?P<twice>halve[sd]?|halving)\s+(?:the |its )?{_TIME}\b{_OF_OTHERS}", "faster"),
    (rf"(?P<twice>doubled?s?|doubling)\s+(?:the |its )?{_TIME}\b{_OF_OTHERS}", "slower"),
    (rf"{_ITS}{_TIME}\s+{_WENT}(?P<twice>halved)\b", "faster"),
    (rf"{_ITS}{_TIME}\s+{_WENT}(?P<twice>doubled)\b", "slower"),
    (rf"{_NUMBER}(?P<unit>%)\s+less\s+time\b{_OF_OTHERS}", "faster"),
    (rf"{_NUMBER}(?P<unit>%)\s+more\s+time\b{_OF_OTHERS}", "slower"),
    (rf"\b{_LESS}\s+(?:the |its )?{_TIME}\s+by\s+{ROUGHLY}{_NUMBER}(?P<unit>%)", "faster"),
    (rf"\b{_MORE}\s+(?:the |its )?{_TIME}\s+by\s+{ROUGHLY}{_NUMBER}(?P<unit>%)", "slower"),
    (rf"(?:(?P<twice>twice)|{_NUMBER}{_WITH_FACTOR})\s+the\s+(?:throughput|speed)\b", "faster"),
    (rf"{_ITS}{_TIME}\s+{_WENT}{_LESS}\s+(?:by )?{ROUGHLY}{_NUMBER}(?P<unit>%)", "faster"),
    (rf"{_ITS}{_TIME}\s+{_WENT}{_MORE}\s+(?:by )?{ROUGHLY}{_NUMBER}(?P<unit>%)", "slower"),
    (r"(?<!% )(?<!x )\b(?P<word>faster|slower)(?=\s+than\b)", ""),
    (rf"^{_OWN}(?:is|runs|got|became)\s+(?:now |still |much |clearly |slightly )?(?P<word>faster|slower)\b"
     r"(?!\s+(?:than|by|to|under|on|when|where|if|in|with|without|for|at|during|after|unless)\b)", ""),
    (rf"^(?:{_OWN}|(?:performance|speed|{_TIME})\s+)?(?:has )?regressed\b", "slower"),
)
_FIGURES: tuple[tuple[FigureKind, str], ...] = (
    ("duration_us", rf"^(?:now )?(?:{_OWN})?(?:now )?(?:takes|runs in) {_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)\b"),
    ("duration_us", rf"^(?:the |its |median |now )*{_TIME}\s*(?:is |of |at |now |:|=)+\s*{_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)\b"),
    ("duration_us", rf"^(?:the |its |median |now )*{_TIME}\s+{_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)(?=\s*(?:$|[.,;(]|now\b))"),
    ("duration_us", rf"^{_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)\s*(?:per|a|each|/)\s*call\b{_END}"),
    ("duration_us", rf"^(?:the |its |now )*median\s*(?:is |of |at |now |:|=)+\s*{_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)\b"),
    ("duration_us", rf"^now {ROUGHLY}{_NUMBER}(?P<unit>ns|us|µs|μs|ms){_END}"),
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
_BOUNDS = (rf"^{_OWN}(?:is|now|still|remains|became|becomes|stays)\s+(?:now |still )?"
           r"(?P<kind>memory|compute|latency)[- ]bound",
           r"^(?:the |its |main |new )*bottleneck\s*(?:is\b|:|=)?\s*(?:now )?"
           r"(?P<kind>memory|compute|latency)(?=[- ]bound|\s*(?:$|[.,;:!(]))",
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
            amount = 2.0 if found.get("twice") else _amount(found["amount"]) if found.get("amount") else None
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
            yield Figure(match[0], match.end(), kind, _amount(match["amount"]) * scale, digit * scale, match.groupdict().get("name"))


def _amount(text: str) -> float:
    """Of "1,200.5" or "three"."""
    return _WORDS.get(text.lower()) or float(text.replace(",", ""))


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
