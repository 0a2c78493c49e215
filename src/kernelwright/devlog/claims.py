"""What a note of a person or an agent claims of the entry it goes into, held against the figures of the log.

Only plain claims are checked: `30% faster`, `slower by 5%`, `1.8x faster`, `2x speed-up`, `faster than v3` (against the entry before, or
the newest comparable one of the version that is named), `it takes 12 us`, `reaches 3000 GB/s`, `occupancy 50%`, and `the kernel is
memory-bound`. Sentences that hedge (could, expected, up to, ...), tell of a part of the call or of other sizes, or compare with
something that is not in the log are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..model.errors import BadInput
from ..report.numbers import faster_or_slower, two, us, whole_pct
from .entry import DevlogChange, DevlogEntry, change_between

TOLERANCE_POINTS = 2.0
TOLERANCE_SHARE = 0.15
"""A claim may be off by this many points of percent, or by this share of the measured change, whichever is more: people round."""
FIGURE_SHARE = 0.05
"""A figure may be off by this share of the measured one, or by half of its last digit."""
_SENTENCE = re.compile(r"(?<=[.;!?])\s+|\n")
_HEDGE = re.compile(r"\b(?:could|would|should|may|might|can|expect\w*|estimat\w*|est|target|potential\w*|up to|hope\w*|goal|predict\w*|"
                    r"tried|dropped|rejected|discarded|reverted|abandoned)\b|"
                    r"\b(?:was|were|used to)\b.*\b(?:before|earlier|previously)\b", re.IGNORECASE)
_NUMBER = r"(?P<amount>\d+(?:\.\d+)?)\s*"
_SPEED = re.compile(rf"{_NUMBER}(?P<unit>%|x\b|×|times\b)\s*(?P<word>faster|slower)|(?P<word2>faster|slower)\s+by\s+"
                    r"(?P<amount2>\d+(?:\.\d+)?)\s*(?P<unit2>%)|(?P<amount3>\d+(?:\.\d+)?)\s*(?P<unit3>x\b|×|times\b)\s*speed-?\s?up|"
                    r"speed-?\s?up of (?P<amount4>\d+(?:\.\d+)?)\s*(?P<unit4>x\b|×|times\b)|"
                    r"(?<!% )(?<!x )\b(?P<bare>faster|slower)(?=\s+than\b)", re.IGNORECASE)
_THAN = re.compile(r"(?:\bthan|^\s*over)\s+(?:the\s+)?(?P<other>\w(?:[\w.-]*\w)?)", re.IGNORECASE)
_NOT = re.compile(r"(?:\b(?:no|not|never|hardly)|n't)(?:\s+(?:any|much))?\s*$", re.IGNORECASE)
_VERSION = re.compile(r"\bv\d+\b", re.IGNORECASE)
_PART = r"(?:stage|step|phase|pass|loop|prologue|epilogue)s?\b"
_OF_A_PART = re.compile(rf"\b{_PART}(?:\s+[\w'-]+){{0,2}}\s*$|^(?:in|for|at) (?:the |its |this )?(?:[\w-]+ )?{_PART}", re.IGNORECASE)
_FOR_A_PART = re.compile(rf"^\s+(?:(?:in|for|at|on|during)\s+)?(?:the |its |this |each )?(?:[\w-]+ )?{_PART}", re.IGNORECASE)
_OTHER_SIZE = (r"\b(?:at|for|when|where|if|with|on|from)\b.*\b(?:(?:small\w*|large\w*|long\w*|short\w*|sizes?|shapes?|batch\w*|"
               r"sequences?)\b{names})")
_BOUND = re.compile(r"^(?:the |this )?(?:kernel|call|workload|it|version|(?P<name>[\w.-]+))\s+"
                    r"(?:is|now|still|remains|became|becomes|stays)\s+(?:now |still )?"
                    r"(?P<kind>memory|compute|latency)[- ]bound", re.IGNORECASE)
_ABOUT = r"(?:now )?(?:only |about |around |roughly |~ ?)?"
_TAKES = re.compile(r"^(?:now )?(?:(?:a |the |this )?(?:call|workload|it|version|(?P<name>[\w.-]+))\s+)?(?:now )?(?:takes|runs in) "
                    rf"{_ABOUT}{_NUMBER}(?P<unit>ns|us|µs|μs|ms)\b", re.IGNORECASE)
_RATE = re.compile(rf"(?:\b(?:achieves|achieving|reaches|reaching|sustains|runs at|now at) |^(?:now )?(?:at )?){_ABOUT}{_NUMBER}"
                   r"(?P<unit>[GT]B/s|[GT]FLOPS?(?:/s)?)(?!\w)", re.IGNORECASE)
_OCCUPANCY = re.compile(rf"^(?:the |its |achieved )*occupancy\s*(?:is |of |at |now |:|=)*\s*{_ABOUT}{_NUMBER}%|"
                        rf"^(?:now )?(?:at )?(?P<amount2>\d+(?:\.\d+)?)\s*% occupancy\b", re.IGNORECASE)
_OTHER_FIGURE = re.compile(r"\b(?:peak|roof\w*|DRAM|L1|L2|cache|shared|reads?|writes?|traffic|counters?|theoretical|limit\w*|max\w*|"
                           r"kernel)\b", re.IGNORECASE)
"""A rate or an occupancy beside one of these may be another than the entry's."""
_TO_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6}


def refuse_contradictions(entry: DevlogEntry, earlier: Sequence[DevlogEntry], notes: dict[str, tuple[str, ...]]) -> None:
    """Raises BadInput contradicts_profile for the first claim that the figures do not bear. earlier: the log. notes: option -> texts."""
    log = _Log(entry, earlier)
    for option, texts in notes.items():
        for text in texts:
            for sentence in _SENTENCE.split(text):
                for claim, truth in _wrong(log, sentence.strip()):
                    raise BadInput("contradicts_profile", f"says {claim!r}, and the profile says: {truth}", where=option,
                                   fix="correct it, or leave the figure out: the entry has the measured one")


@dataclass(frozen=True)
class _Log:
    """The entry, and what it can be compared with."""

    entry: DevlogEntry
    earlier: Sequence[DevlogEntry]

    def against(self, other: str | None) -> tuple[DevlogChange | None, str] | None:
        """(change, in words against what); None where `other` is nothing that this log knows."""
        change = self.entry.change
        before = change.previous_version if change is not None else None
        if other is None or other in ("previous", "before", "last", "baseline", (before or "").lower()):
            return change, "the entry before"
        known = [item for item in self.earlier if (item.version or "").lower() == other and item.key == self.entry.key
                 and item.run != self.entry.run]
        return (change_between(known[-1], self.entry), str(known[-1].version)) if known else None

    def is_own(self, name: str | None) -> bool:
        return (name or "").lower() in ("", (self.entry.version or "").lower(), self.entry.kernel.lower())


def _wrong(log: _Log, sentence: str) -> Iterator[tuple[str, str]]:
    entry = log.entry
    bound = _BOUND.match(sentence)
    if bound and log.is_own(bound["name"]) and bound["kind"].lower() != (entry.bottleneck or "").lower():
        yield bound[0], f"{entry.bottleneck}-bound" if entry.bottleneck else "its bottleneck is not known"
    if _HEDGE.search(sentence):
        return
    names = "".join(rf"|{re.escape(name)}\s*(?:=|is\b|of\b)" for name in entry.parameters)
    if re.search(_OTHER_SIZE.format(names=names), sentence, re.IGNORECASE):
        return
    yield from _wrong_figures(log, sentence)
    for match in _SPEED.finditer(sentence):
        truth = _untrue(log, sentence, match)
        if truth is not None:
            yield match[0], truth


def _wrong_figures(log: _Log, sentence: str) -> Iterator[tuple[str, str]]:
    """Claims of the entry's own figures. Where it has none nothing is said."""
    figures = log.entry.figures
    takes = _TAKES.match(sentence)
    if takes and log.is_own(takes["name"]) and not _FOR_A_PART.match(sentence[takes.end():]):
        unit = _TO_NS[takes["unit"].lower()]
        if _is_off(takes["amount"], figures.duration_ns and figures.duration_ns / unit):
            yield takes[0], f"{us(figures.duration_ns)} us a call"
    if _OTHER_FIGURE.search(sentence):
        return
    rate = _RATE.search(sentence)
    if rate and not re.match(r"\s+(?:of|to)\b", sentence[rate.end():]):
        of_bytes, tera = "B/" in rate["unit"].upper(), rate["unit"].upper().startswith("T")
        measured, name = (figures.gbps, "GB/s") if of_bytes else (figures.tflops, "TFLOP/s")
        unit = (1e3 if tera else 1.0) if of_bytes else (1.0 if tera else 1e-3)
        if _is_off(rate["amount"], measured and measured / unit):
            yield rate[0], f"{two(measured)} {name}"
    occupancy = _OCCUPANCY.match(sentence)
    if occupancy and _is_off(occupancy["amount"] or occupancy["amount2"], figures.occupancy_pct):
        yield occupancy[0], f"occupancy {whole_pct(figures.occupancy_pct)}"


def _is_off(claimed: str, measured: float | None) -> bool:
    rounding = 0.5 * 10.0 ** -len(claimed.partition(".")[2])
    return measured is not None and abs(float(claimed) - measured) > max(FIGURE_SHARE * measured, rounding)


def _time_pct(amount: float, unit: str, *, faster: bool) -> float:
    """The claim as a change of time in percent, negative is faster: 30% faster takes 30% less time, 2x faster half of it."""
    if unit == "%":
        return -amount if faster else amount
    return -100 * (1 - 1 / amount) if faster and amount > 0 else 100 * (amount - 1)


def _untrue(log: _Log, sentence: str, match: re.Match[str]) -> str | None:
    """What the log says instead of a claimed change; None where it bears the claim, or the claim is of something else."""
    head, tail = sentence[:match.start()], sentence[match.end():]
    if _NOT.search(head) or _OF_A_PART.search(head) or _FOR_A_PART.match(tail):
        return None
    if any(not log.is_own(name) for name in _VERSION.findall(head)):
        return None  # v3 is 5% faster than v2
    than = _THAN.search(tail) or _THAN.search(head)
    against = log.against(than["other"].lower() if than else None)
    if against is None:
        return None
    change, whose = against
    found = match.groupdict()
    faster = (match["word"] or match["word2"] or match["bare"] or "faster").lower() == "faster"
    if change is None:
        return None if match["bare"] else "there is no earlier entry that it could be compared with"
    if change.too_noisy is not None or change.duration_pct is None:
        return f"it can't be compared ({change.too_noisy or 'a duration was not measured'})"
    measured = f"{faster_or_slower(change.duration_pct)} than {whose}"
    if change.within_noise:
        return f"{measured}, which is within noise"
    if faster == (change.duration_pct > 0):
        return measured
    if match["bare"]:
        return None
    amount = next(float(found[key]) for key in ("amount", "amount2", "amount3", "amount4") if found[key])
    unit = next(found[key].lower() for key in ("unit", "unit2", "unit3", "unit4") if found[key])
    off = abs(_time_pct(amount, unit, faster=faster) - change.duration_pct)
    return measured if off > max(TOLERANCE_POINTS, TOLERANCE_SHARE * abs(change.duration_pct)) else None
