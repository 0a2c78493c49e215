"""Playbooks against the rules: each rule leads to one, each names rules with their metric and thresholds of today, and has six parts."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kernelwright.cli.main import VERBS, build_parser
from kernelwright.diagnose.common import page
from kernelwright.diagnose.rules import RULES
from kernelwright.roofline.knowledge import bottlenecks, counter_knowledge

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOKS = sorted((ROOT / "knowledge" / "playbooks").glob("*"))
PARTS = ["Trigger", "Check", "Change", "Run", "Expect", "Source"]
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (.+) \|$", re.MULTILINE)
OFFICIAL = ("https://docs.pytorch.org/", "https://pytorch.org/", "https://docs.nvidia.com/", "https://triton-lang.org/")
REPORT = "".join((ROOT / file).read_text(encoding="utf-8") for file in (
    "templates/report.md.j2", "src/kernelwright/report/baseline.py", "src/kernelwright/report/figures.py"))


def each() -> pytest.MarkDecorator:
    """Once for each playbook."""
    return pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)


def section(playbook: Path, name: str) -> str:
    """One part of a page."""
    return playbook.read_text(encoding="utf-8").partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def thresholds_of(rule: str) -> dict[str, float]:
    """Those of the rule, and the healthy range of the counter it looks at."""
    known = bottlenecks().rules[rule]
    healthy = counter_knowledge().roles[known.role].healthy if known.role else None
    limits = {"above": healthy.above, "at_most": healthy.at_most} if healthy else {}
    return {**known.thresholds, **{name: value for name, value in limits.items() if value is not None}}


def writes(rule: str, metric: str) -> bool:
    """Whether the rule's trigger can be `metric=...`."""
    text = (ROOT / "src" / "kernelwright" / "diagnose" / "rules" / f"{rule}.py").read_text(encoding="utf-8")
    triggers = [re.sub(r"\\\{.*?\\\}", r"\\w+", re.escape(name)) for name in re.findall(r'trigger=f?"([^="]+)=', text)]
    assert triggers, rule
    return any(re.fullmatch(trigger, metric) for trigger in triggers)


def test_every_rule_leads_to_a_playbook_that_names_it() -> None:
    assert set(bottlenecks().rules) == set(RULES) and len(RULES) >= 20
    led_to = set()
    for name, rule in bottlenecks().rules.items():
        for path in {page(rule), *(page(rule, case) for case in rule.playbooks)}:
            led_to.add(ROOT / path)
            assert (ROOT / path).is_file(), f"{name}: {path}"
            text = (ROOT / path).read_text(encoding="utf-8")
            assert f"`{name}`" in text, f"{path} says nothing of {name}"
    assert led_to == set(PLAYBOOKS), "a playbook that no rule leads to"


def test_cases_are_those_that_the_rule_tells_apart() -> None:
    cases = {name: set(rule.playbooks) - set(rule.patterns) for name, rule in bottlenecks().rules.items() if rule.playbooks}
    assert cases == {"kernel_bottleneck": set()}


@each()
def test_six_parts_and_short(playbook: Path) -> None:
    text = playbook.read_text(encoding="utf-8")
    assert playbook.suffix == ".md" and re.match(r"# \w", text)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == PARTS
    assert all(len(section(playbook, name).split()) >= (3 if name == "Source" else 15) for name in PARTS)
    assert len(text.splitlines()) <= 66


@each()
def test_triggers_are_the_rules_own(playbook: Path) -> None:
    rows = ROW.findall(section(playbook, "Trigger"))
    assert rows
    for rule, metric, fires in rows:
        assert rule in RULES
        assert writes(rule, metric), f"{rule} writes no {metric}="
        named = {name: float(value) for name, value in re.findall(r"`(\w+): ([\d.]+)`", fires)}
        assert named == thresholds_of(rule), rule


@each()
def test_the_change_is_code_that_parses(playbook: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", section(playbook, "Change"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        tree = ast.parse(block)
        names = {alias.asname or alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
                 for alias in node.names}
        assert names, "a change names what it imports"
        assert names <= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}, "an import that is not used"


@each()
def test_what_to_run_is_taken_by_the_scripts(playbook: Path) -> None:
    """Commands that parse, on files that are there; and the judge of the change, but for scripts, which are only profiled."""
    block = re.search(r"^```\n(.*?)^```", section(playbook, "Run"), re.MULTILINE | re.DOTALL)
    assert block
    lines = [line.split() for line in block[1].splitlines()]
    for script, *arguments in lines:
        verb = script.removesuffix(".py")
        assert verb in VERBS and (ROOT / "scripts" / script).is_file()
        own = arguments[: arguments.index("--")] if "--" in arguments else arguments
        known, unknown = build_parser(verb).parse_known_args(own)
        examples = [ROOT / word for word in own if word.startswith("knowledge/")]
        assert all(path.is_file() for path in examples)
        parameters = ast.literal_eval(_assigned(examples[0], "PARAMS")) if examples else {}
        assert {word[2:].partition("=")[0] for word in unknown} <= set(parameters), unknown
        assert verb != "judge" or bool(examples) == (known.version == "torch")
    judged = ["judge.py", "WORKLOAD.py", "candidates/NAME.py"] in lines
    assert judged or playbook.stem == "data_loader"


def _assigned(file: Path, name: str) -> str:
    """The value of a module's dict, its conditional entries by their first value."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    value = next(node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name)
    assert isinstance(value, ast.Dict)
    value.values = [item.body if isinstance(item, ast.IfExp) else item for item in value.values]
    return ast.unparse(value)


@each()
def test_what_is_expected_to_move_is_in_the_report(playbook: Path) -> None:
    """Figures in capitals are rows and columns of report.md or of `vs Baseline`; the others are the rules' metrics."""
    expected = section(playbook, "Expect")
    figures = re.findall(r"`([A-Z][\w%]*(?: \w+)*)`", expected)
    every = {metric for page_ in PLAYBOOKS for _, metric, _ in ROW.findall(section(page_, "Trigger"))}
    moved = [name for name in re.findall(r"`([a-z0-9_]+)`", expected) if name in every]
    assert figures or moved
    missing = [name for name in figures if name not in REPORT]
    assert not missing


@each()
def test_sources_are_official_pages(playbook: Path) -> None:
    links = re.findall(r"\[[^\]]+\]\((https://[^)]+)\)", section(playbook, "Source"))
    assert links and all(link.startswith(OFFICIAL) for link in links)
