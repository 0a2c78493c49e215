"""Speed-ups that a text claims as facts. Estimates, plans, questions and quotations are no claims; when in doubt it is none."""

from __future__ import annotations

import re

_NUMBER = r"(?<![\d.,])(\d{1,9}(?:[.,]\d{1,9})?)"
_TIMES = r"\s*(?:x\b|×|-?\s?times\b|-?fold\b)"
_RATIOS = (
    re.compile(_NUMBER + _TIMES + r"\s*(?:as\s+fast|faster|quicker|speed-?\s?up|improvement|higher throughput|lower latency)",
               re.IGNORECASE),
    re.compile(r"speed-?\s?up\s*(?:of|is|was|:|=|by)?\s*(?:about|around|roughly|~|≈)?\s*" + _NUMBER + _TIMES, re.IGNORECASE),
    re.compile(r"(?:sped|speeds|speed(?:ed)?)\s+(?:\w+\s+){0,4}?up\s+(?:by\s+)?(?:about|around|roughly|~|≈)?\s*" + _NUMBER + _TIMES,
               re.IGNORECASE),
)
_PERCENTS = (
    re.compile(_NUMBER + r"\s*(?:%|percent)\s*(?:faster|quicker|speed-?\s?up|lower latency|less time|higher throughput)", re.IGNORECASE),
    re.compile(r"(?:speed-?\s?up|sped\s+(?:\w+\s+){0,4}?up)\s*(?:of|is|was|by|:|=)?\s*(?:about|around|roughly|~|≈)?\s*" + _NUMBER
               + r"\s*(?:%|percent)", re.IGNORECASE),
    re.compile(r"(?:reduc|cut|lower|decreas)\w*\s+(?:the\s+|its\s+)?(?:run\s?-?time|latency|time|duration|execution time)\s+by\s+"
               r"(?:about\s+|~|≈)?" + _NUMBER + r"\s*(?:%|percent)", re.IGNORECASE),
)
_TWICE = re.compile(r"\btwice\s+as\s+fast\b|\b(?:run\s?-?time|latency|duration|time)\s+(?:is|was|has been)\s+halved\b|\bhalved\s+the\s+"
                    r"(?:run\s?-?time|latency|duration|time)\b", re.IGNORECASE)
_HEDGE = re.compile(
    r"\b(?:could|would|should|might|may|can|will|estimat\w*|expect\w*|potential\w*|up to|at most|at best|theor\w*|if|goal|target\w*|aim\w*|"
    r"hop(?:e|es|ed|ing)|predict\w*|projected|projection|typical\w*|usual\w*|generally|often|literature|paper|docs|documentation|blog|"
    r"claim(?:s|ed)?|asked?|asks|wants?|wish\w*|tr(?:y|ies|ied|ying)|unproven|unproved|unverified|unjudged|instead of|ceiling|roof\w*|"
    r"suggest\w*|opportunit\w*|threshold|tolerance|example|need(?:s|ed)? to|must|to be|not judged|not proved)\b|\best\.|\be\.g\.|\?|gain —|"
    r"trigger:", re.IGNORECASE)
_NEGATION = re.compile(r"(?:\b(?:not|no|never|cannot|without|nothing|neither)\b|n't\b|n’t\b)", re.IGNORECASE)
TEXT_LIMIT, SENTENCE_LIMIT = 20_000, 1_000
BEFORE, AFTER, CLOSE = 80, 40, 30
"""How many characters around a figure are read for words that make it no claim; a negation counts only close before it."""
_HIDDEN = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|^>.*$", re.DOTALL | re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z*#|-])|\n+")


def claims(text: str) -> list[float]:
    """The speed-ups claimed, as ratios of old to new time, the lowest reading of each: "30% faster" is 1.3."""
    found: list[float] = []
    for sentence in _SENTENCE.split(_HIDDEN.sub(" ", text[-TEXT_LIMIT:])):
        sentence = sentence[:SENTENCE_LIMIT]
        for patterns, ratio in ((_RATIOS, _value), (_PERCENTS, lambda match: 1 + _value(match) / 100), ((_TWICE,), lambda _match: 2.0)):
            for pattern in patterns:
                found += [ratio(match) for match in pattern.finditer(sentence) if _meant(sentence, match)]
    return [ratio for ratio in found if 1.0 < ratio < 1e6]


def _meant(sentence: str, match: re.Match[str]) -> bool:
    before, after = sentence[max(0, match.start() - BEFORE) : match.start()], sentence[match.end() : match.end() + AFTER]
    return not (_HEDGE.search(before) or _HEDGE.search(after) or _NEGATION.search(before[-CLOSE:]))


def _value(match: re.Match[str]) -> float:
    return float(match[1].replace(",", "."))
