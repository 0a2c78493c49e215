"""Of what a phrase of a note is: of the entry's call, or of a part, a variant, another size or another machine.

Where it can't be told, it is of something else: a note that says nothing wrong is never refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .entry import DevlogEntry
from .phrases import Phrase, Speed

_OTHER = r"\s+(?:the\s+)?(?P<other>(?:last|previous)(?:\s+\w+)?|\w(?:[\w.:-]*\w)?(?:\s+v\d+\b)?)"
_THAN = re.compile(rf"\b(?:than|against|versus|vs\.?|compared (?:to|with)|since(?=\s+v\d)){_OTHER}", re.IGNORECASE)
_OVER = re.compile(rf"\s*(?:over|of|as|since|from(?!\s+(?:\d|\w+ing\b))){_OTHER}", re.IGNORECASE)
_PREVIOUS = re.compile(r"(?:previous|last)(?: (?:one|entry|version|run|profile|kernel))?|before|baseline")

_VERSION = re.compile(r"\bv\d+\b", re.IGNORECASE)
_ARTICLES = {"the", "a", "this", "our", "its", "new", "current", "now", "and"}
_OWN = {"it", "kernel", "call", "workload", "version"}
_LEAD = {"a", "an", "the", "this", "that", "our", "its", "new", "current", "we", "now", "overall", "still", "much", "clearly", "slightly",
         "already", "about", "around", "roughly", "only", "nearly", "almost", "over", "more", "is", "s", "was", "has", "been", "runs",
         "ran", "got", "became", "takes", "took", "makes", "made", "gives", "gave", "measured", "median", "total", "in", "and", "or"}
"""What may stand between the beginning of a clause and a claim of the entry; any other word may be what the claim is of."""
_BREAK = re.compile(r"[,:;(—]|\s[-–]\s|\b(?:and|but|so|then|thus|hence|which|while|whereas|although)\b", re.IGNORECASE)
_IT = re.compile(r"(?<!makes )(?<!made )(?<!making )\bit\b", re.IGNORECASE)
_CAUSED = re.compile(r"\b(?:gave|brought|yielded|made (?:it|the (?:kernel|call)))\b", re.IGNORECASE)
_DONE = re.compile(r"\s*(?:now )?\w+ed\s+(?:the|a|an|its|all|both|each|every)\b", re.IGNORECASE)
_PREDICATE = re.compile(r"\W*(?:(?:and|or|also|now)\s+)*(?:is|s|was|has|runs|ran|got|became|takes|took|reaches|achieves|sustains|\w+ed)\b",
                        re.IGNORECASE)
_IS_SOMETHING = re.compile(r"\b(?:is|are|was|were|runs?|ran|got|became|takes?|took)\b", re.IGNORECASE)
_NEXT = re.compile(r"\s*(?:$|[^\w\s'’]|(?:than|as|over|of|vs|versus|against|compared|since|from|now|again|overall|here|and|but|so|which|"
                   r"while|by|because|thanks|through|due|with|without|when|where|if|after|once|using|on|in|for|at|under)\b)", re.IGNORECASE)
"""What may follow a claim of a speed: any other word may be what is faster."""
_ELSEWHERE = re.compile(r"\s*(?:(?:only|mainly|mostly)\s+)?(?:from\s+\d|on\s+(?!(?:all|this|every)\b)|"
                        r"(?:in|for|at|under|during|within)\s+(?!(?:all|total|this|every|equal|average|the same|the whole)\b|\w+\s*=))",
                        re.IGNORECASE)
"""Where something is faster that is not the call, or from what other figure; `at b=32` may be the entry's own (see below)."""
_VARIANT = re.compile(r"\s*(?:with|without|when|where|if|after|once|until|using)\b", re.IGNORECASE)
"""What is slower under such a condition is as a rule the variant that was not taken; a boast may have one."""
_DEVICE = re.compile(r"\s+on\s+(?:the\s+|an?\s+)?(?P<device>[\w-]+)")
_LARGE = r"(?:small|large|long|short|big|tiny)\w*"
_SIZES = r"(?:(?<!tile )(?<!block )sizes?|shapes?|batch\w*|inputs?|sequences?|contexts?)"
_SIZE = re.compile(rf"\b(?:at|for|when|where|if|with|on|from|in)\s+(?:[\w-]+\s+){{0,3}}?(?:{_SIZES}\b|{_LARGE}\s+(?:ones|[b-z])\b)"
                   rf"(?:\s+(?:of\s+|above\s+|below\s+)?\d+)?|\b(?:when|where|if)\b[^,;]*\b{_LARGE}(?=\s*(?:$|[,;.]))", re.IGNORECASE)
_SETTING = re.compile(r"(?<![\w/])(?P<name>\w+)\s*=+\s*(?P<value>[\w.+-]*\w)?")
_WORDED = r"\b(?:at|for|when|where|if|with|on|from)\b[^,;]*\b{name}\s+(?:is|of)\s+(?P<value>[\w.+-]*\w)"
_CLAUSE = re.compile(r"[,;(]|\b(?:and|but|while|whereas)\b", re.IGNORECASE)


def _is_own(entry: DevlogEntry, name: str) -> bool:
    """Whether a word or two name the entry's version or kernel: v3, norm, norm v3, norm:v3."""
    own = ((entry.version or "").lower(), entry.kernel.lower())
    return all(word in own for word in re.split(r"[\s:]+", name.lower()))


def is_of_the_entry(entry: DevlogEntry, sentence: str, phrase: Phrase, *, has_subject: bool = False, faster: bool = False) -> bool:
    """Whether what stands before a phrase makes it one of the entry: `It is` does, `num_warps=8 is` and `softmax:` don't.

    has_subject: the phrase has its own. faster: a boast, of which the entry is the subject whatever `gave` or `made` it so.
    """
    head = _THAN.sub(" ", sentence[:phrase.start])
    if any(not _is_own(entry, name) for name in _VERSION.findall(head)):
        return False  # v3 was slow, and 5% faster than v2
    if faster and (caused := [match.end() for match in _CAUSED.finditer(head)]):
        head = head[caused[-1]:]
    breaks = list(_BREAK.finditer(head))
    begin, separator = (breaks[-1].end(), breaks[-1][0]) if breaks else (0, "")
    clause, before = head[begin:], head[:begin - len(separator)]
    if _ELSEWHERE.match(head) or _ELSEWHERE.match(clause) or (not faster and any(map(_VARIANT.match, (head, clause)))):
        return False
    its = [match.start() for match in _IT.finditer(clause)]
    words = re.findall(r"\w[\w./=-]*", (clause[its[-1]:] if its else clause).lower())
    if not all(word in _LEAD or _is_subject(entry, word) for word in words):
        return False
    if any(_is_subject(entry, word) for word in words) or not before.strip() or _begins_with_the_entry(entry, before):
        return True
    if separator in (":", "("):
        return False
    return has_subject or not (_PREDICATE.match(clause + phrase.text) or _IS_SOMETHING.search(before))


def _is_subject(entry: DevlogEntry, word: str) -> bool:
    return word in _OWN or _is_own(entry, word)


def _begins_with_the_entry(entry: DevlogEntry, text: str) -> bool:
    """Whether a text tells of the entry (`It uses TMA and`, `norm v3 got tiles of 64,`) or what was done to it (`Fused the loads and`)."""
    words = [word for word in re.findall(r"\w[\w./=-]*", text.lower()) if word not in _ARTICLES]
    return bool(_DONE.match(text) or (words and _is_subject(entry, words[0])))


def compared_with(entry: DevlogEntry, sentence: str, claim: Speed) -> tuple[str | None, str]:
    """(what a claim is against, what follows it): None where nothing is named, "" for the entry before, else a version or a thing."""
    tail = sentence[claim.end:]
    over = _OVER.match(tail) or _THAN.match(tail.lstrip())
    if over is not None:
        return _other(entry, over["other"]), over.string[over.end():]
    than = _THAN.search(tail) or _THAN.search(sentence[:claim.start])
    return _other(entry, than["other"]) if than else None, tail


def _other(entry: DevlogEntry, name: str) -> str:
    name = " ".join(name.lower().split())
    kernel, _, version = name.replace(":", " ").partition(" ")
    return "" if _PREVIOUS.fullmatch(name) else version if version and kernel == entry.kernel.lower() else name


def is_of_the_whole(entry: DevlogEntry, tail: str, claim: Speed) -> bool:
    """Whether what follows a claim of a speed leaves it one of the call: `by wider loads` does, `in the GEMM` and `compile` don't."""
    if (device := _DEVICE.match(tail)) and device["device"].lower() in entry.device_name.lower().split():
        tail = tail[device.end():]
    variant = claim.time_pct is None or not claim.faster
    return bool(_NEXT.match(tail)) and not _ELSEWHERE.match(tail) and not (variant and _VARIANT.match(tail))


def is_under_other_conditions(entry: DevlogEntry, sentence: str, claim: Speed, others: Sequence[Speed] = ()) -> bool:
    """Whether a claim's clause names other sizes or settings than the entry's: those before it, in its own words, or alone at the end.

    others: the other claims of the sentence; what they are bound to is their own.
    """
    head, (own, *later) = sentence[:claim.start], _CLAUSE.split(sentence[claim.end:])
    before = [other for other in others if other.end <= claim.start]
    if before and (cut := _CLAUSE.search(head, before[-1].end)):
        head = head[:before[-1].start] + head[cut.end():]
    return bool(_others(entry, head) or _others(entry, own)) or any(text.rstrip(" .!)")[end:] == "" for text in later
                                                                      for end in _others(entry, text))


def names_other_conditions(entry: DevlogEntry, sentence: str) -> bool:
    """Whether a sentence names sizes or settings that are not the entry's."""
    return bool(_others(entry, sentence))


def _others(entry: DevlogEntry, text: str) -> list[int]:
    """Where each size or setting ends that is not the entry's."""
    own = {name.lower(): str(value).lower() for name, value in entry.parameters.items()}
    settings = [match for match in _SETTING.finditer(text) if own.get(match["name"].lower()) != (match["value"] or "").lower()]
    worded = [match for name, value in own.items() for match in re.finditer(_WORDED.format(name=re.escape(name)), text, re.IGNORECASE)
              if match["value"].lower() != value]
    return [match.end() for match in (*_SIZE.finditer(text), *settings, *worded)]
