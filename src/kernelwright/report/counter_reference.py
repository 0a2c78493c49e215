"""The tables of docs/counters-reference.md, made from knowledge/counters.yaml.

`python -m kernelwright.report.counter_reference FILE` writes them between the marks of that file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..model.files import write_text_atomic
from ..roofline.counters import metric_names, unavailable
from ..roofline.knowledge import Role, Way, counter_knowledge

BEGIN, END = "<!-- made from knowledge/counters.yaml -->", "<!-- end -->"


def tables() -> str:
    """Chips, then roles, as Markdown."""
    data = counter_knowledge()
    lines = ["| chip | compute capability | warps an SM | metrics, default / full | without |", "|---|---|---|---|---|"]
    for name, chip in data.chips.items():
        lacking = ", ".join(f"`{role}`" for role in unavailable(name, "full"))
        lines.append(f"| {name} | {', '.join(chip.capabilities)} | {chip.warps_per_sm} | {len(metric_names(name))} / "
                     f"{len(metric_names(name, 'full'))} | {lacking} |")
    lines += ["", "| role | unit | set | meaning | from | source |", "|---|---|---|---|---|---|"]
    lines += [f"| `{name}` | {role.unit or '1'} | {role.set} | {_meaning(role)} | {'; else '.join(map(_way, role.ways))} | {role.source} |"
              for name, role in data.roles.items()]
    lines += ["", *(f"- {key}: {words}" for key, words in data.sources.items())]
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its tables made anew. ValueError without the marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return f"{head}{BEGIN}\n\n{tables()}\n\n{END}{tail}"


def _meaning(role: Role) -> str:
    if role.healthy is None:
        return role.meaning
    limit = f"above {role.healthy.above:g}" if role.healthy.above is not None else f"at most {role.healthy.at_most:g}"
    return f"{role.meaning} Healthy: {limit}."


def _way(way: Way) -> str:
    names = [f"`{name}`" for name in way.names]
    times = f" x {way.times:g}" if way.times != 1 else ""
    if way.sum is not None:
        text = " + ".join(name if weight == 1 else f"{weight:g} x {name}" for name, weight in zip(names, way.weights, strict=True))
    elif way.ratio is not None:
        text = " / ".join(names) + times
    elif way.max is not None:
        text = f"the larger of {' and '.join(names)}"
    elif way.formula is not None:
        text = f"{way.formula} of {', '.join(names)}"
    else:
        text = names[0] + times
    notes = [*([", ".join(way.chips)] if way.chips else []), *(["read only"] if way.only_read else [])]
    return f"{text} ({'; '.join(notes)})" if notes else text


def main(argv: Sequence[str]) -> int:
    """FILE -> its tables made anew."""
    if len(argv) != 1:
        sys.stderr.write("usage: python -m kernelwright.report.counter_reference FILE\n")
        return 2
    file = Path(argv[0])
    write_text_atomic(file, page(file.read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
