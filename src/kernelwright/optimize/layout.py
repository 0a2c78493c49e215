"""The order in which a generated file is written: to be read from the top, and to be loaded as it stands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from .needed import Statement, read

TORCHS_OWN = ("aten", "prims")
"""Namespaces of operators that are there before a file is loaded."""


class Part(NamedTuple):
    """A statement with the texts behind it that document it."""

    section: str
    text: str
    says: Statement


def laid_out(files: Mapping[str, Sequence[str]], order: Iterable[str]) -> dict[str, str]:
    """The text of each section in this order; "" holds what waits for the end. files: the statements of each section, in an order in which
    they can be loaded: a section after those that it needs.

    A function finds names when it is called, so only what is evaluated on loading asks for an order. A function or class that needs
    a later section's has that moved ahead of itself; any other statement waits for the end.
    """
    order = [*order, ""]
    parts = [part for section, statements in files.items() for part in _parts(section, statements)]
    needs = _needs(parts)
    rank: list[int] = []
    for part, others in zip(parts, needs, strict=True):
        own = order.index(part.section)
        rank.append(len(order) - 1 if not part.says.is_definition and any(rank[other] > own for other in others) else own)
    sections: list[list[Part]] = [[] for _ in order]
    written: set[int] = set()

    def write(place: int, section: int) -> None:
        for other in sorted(needs[place] - written):
            if other not in written:
                write(other, section)
        written.add(place)
        sections[section].append(parts[place])

    for section in range(len(order)):
        for place in range(len(parts)):
            if rank[place] == section and place not in written:
                write(place, section)
    return {name: _spaced(section) for name, section in zip(order, sections, strict=True)}


def _parts(section: str, statements: Sequence[str]) -> list[Part]:
    parts: list[Part] = []
    for text in statements:
        if read(text).documents and parts:
            parts[-1] = parts[-1]._replace(text=f"{parts[-1].text}\n{text}")
        else:
            parts.append(Part(section, text, read(text)))
    return parts


def _needs(parts: Sequence[Part]) -> list[set[int]]:
    """For each part the places of what must stand ahead of it: what it names on loading, and where it may call that, all that it leads to.

    Only of what stands ahead in the order that can be loaded, so that no circle can come about.
    """
    defined: dict[str, list[int]] = {}
    """The places so far."""
    needs: list[set[int]] = []

    def definers(section: str, name: str) -> set[int]:
        places = defined.get(name, ())
        return {place for place in places if parts[place].section == section} or {*places}

    for part in parts:
        reached = set[int]()
        waiting = [(part.section, name) for name in part.says.run_at_once]
        while waiting:
            new = definers(*waiting.pop()) - reached
            reached |= new
            waiting += [(parts[place].section, further) for place in new for further in parts[place].says.mentions]
        direct = {place for name in part.says.at_once for place in definers(part.section, name)}
        again = {place for name in part.says.defines for place in defined.get(name, ()) if parts[place].section == part.section}
        namespaces = part.says.namespaces.union(*(parts[place].says.namespaces for place in reached)).difference(TORCHS_OWN)
        registered = {place for place in range(len(needs)) if parts[place].says.namespaces & namespaces}
        needs.append(reached | direct | again | registered)
        for name in part.says.defines:
            defined.setdefault(name, []).append(len(needs) - 1)
    return needs


def _spaced(parts: Sequence[Part]) -> str:
    """Two empty lines around functions, classes and blocks; constants one below the other."""
    text = ""
    for before, part in zip([None, *parts], parts, strict=False):
        apart = before is None or any(one.says.is_definition or one.says.is_block for one in (before, part))
        text += ("" if before is None else "\n\n\n" if apart else "\n") + part.text
    return text
