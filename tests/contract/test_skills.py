"""The skill documents: what clients read of them, and that every path, verb and option in them exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from front_matter import parts
from kernelwright.cli.main import TAKES_SCRIPTS, VERBS, build_parser

ROOT = Path(__file__).resolve().parents[2]
SKILLS = sorted(ROOT.glob("skills/*/SKILL.md"))
FIELDS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
RULE = re.compile(r'Bash\((python3 "\$\{CLAUDE_PLUGIN_ROOT\}/scripts/(\w+)\.py")(?: \*| reset)\)')
"""Any arguments; or exactly `gpu_clock.py reset`: a lock by hand would stay, so it asks the user."""
COMMAND = re.compile(r'python3 "\$\{CLAUDE_PLUGIN_ROOT\}/scripts/\w+\.py"[^\n`]*')


def test_the_skills_are_there() -> None:
    assert {skill.parent.name for skill in SKILLS} >= {"optimize", "profile-kernel"}


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_front_matter(skill: Path) -> None:
    matter, body = parts(skill)
    assert set(matter) <= FIELDS
    assert matter["name"] == skill.parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", str(matter["name"])) and len(str(matter["name"])) <= 64
    description = str(matter["description"])
    assert "Use when " in description and len(description) <= 1024
    assert not re.search(r"\b(I|you|your|we)\b", description), "third person"
    assert not re.search(r"<[^>]+>", description)
    assert len(str(matter.get("compatibility", ""))) <= 500
    assert all(isinstance(value, str) for value in matter.values())
    assert len(skill.read_text().splitlines()) < 500
    assert "$ARGUMENTS" in body


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_commands_are_allowed_and_exist(skill: Path) -> None:
    matter, body = parts(skill)
    rules = dict(RULE.findall(str(matter["allowed-tools"])))
    assert len(rules) == str(matter["allowed-tools"]).count("Bash("), "a rule that quotes differently from the commands"
    commands = COMMAND.findall(body)
    assert body.count("CLAUDE_PLUGIN_ROOT}/") == len(commands), "a path that is not a command"
    used = set()
    for command in commands:
        prefix = next((rule for rule in rules if command.startswith(rule)), None)
        assert prefix, f"not allowed: {command}"
        verb = rules[prefix]
        used.add(verb)
        assert (ROOT / "scripts" / f"{verb}.py").is_file()
        assert verb in VERBS
        assert not re.search(r"[>|;&]", command), f"not covered by the rule: {command}"
    assert used == set(rules.values()), "a rule that no command needs, or a command without a rule"


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_options_and_arguments_are_accepted(skill: Path) -> None:
    """Each command of a skill, parsed by the verb's own parser."""
    _, body = parts(skill)
    for command in COMMAND.findall(body):
        script, *arguments = shlex.split(command)[1:]
        verb = Path(script).stem
        own = arguments[: arguments.index("--")] if "--" in arguments and verb in TAKES_SCRIPTS else arguments
        if arguments or verb == "doctor":
            _, unknown = build_parser(verb).parse_known_args(own)
            assert unknown == [], command


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_nothing_is_substituted_by_accident(skill: Path) -> None:
    _, body = parts(skill)
    known = {"$ARGUMENTS", "${CLAUDE_PLUGIN_ROOT}", "${CLAUDE_SKILL_DIR}"}
    assert set(re.findall(r"\$\{\w+\}|\$\w+", body)) <= known


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_only_a_reset_of_clocks_is_allowed_unasked(skill: Path) -> None:
    matter, body = parts(skill)
    allowed = re.findall(r'gpu_clock\.py" ([^)]+)\)', str(matter["allowed-tools"]))
    assert allowed == ["reset"]
    assert re.findall(r'gpu_clock\.py" ([^`\n]+)', body) == ["reset"]


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.parent.name)
def test_references_are_one_level_deep_and_there(skill: Path) -> None:
    _, body = parts(skill)
    targets = re.findall(r"\]\(([^)#]+)\)", body)
    assert targets
    for target in targets:
        assert "://" not in target and target.count("/") <= 1
        assert (skill.parent / target).is_file(), target
