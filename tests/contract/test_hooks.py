"""hooks.json and its scripts: known events, files that exist, the standard library alone, and words that name what exists."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest
from after_bash import VERDICTS
from before_bash import AGENT_VERBS
from clock_record import state_dir
from recognise import TIMING_VERBS

import hook_runner
from kernelwright.cli.main import VERBS
from kernelwright.model.verdict import VerdictName

ROOT, HOOKS = hook_runner.ROOT, hook_runner.HOOKS
CONFIG = json.loads((HOOKS / "hooks.json").read_text())
SOURCES = sorted(HOOKS.glob("*.py"))
EVENTS = {"SessionStart", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "SubagentStop"}
COMMAND = re.compile(r'python3 -I -S "\$\{CLAUDE_PLUGIN_ROOT\}/hooks/run\.py" (\w+)')


def test_the_events_and_their_form() -> None:
    assert set(CONFIG) == {"description", "hooks"} and set(CONFIG["hooks"]) == EVENTS
    for event, groups in CONFIG["hooks"].items():
        for group in groups:
            assert set(group) <= {"matcher", "hooks"}
            assert group.get("matcher") == (
                "Bash" if "ToolUse" in event else "startup|resume|clear|compact" if event == "SessionStart" else None
            )
            (hook,) = group["hooks"]
            assert set(hook) == {"type", "command", "timeout"} and hook["type"] == "command" and 0 < hook["timeout"] <= 10


def test_every_command_starts_a_hook_that_is_there() -> None:
    named = set()
    for event in CONFIG["hooks"]:
        match = COMMAND.fullmatch(hook_runner.command_of(event))
        assert match, event
        named.add(match[1])
        tree = ast.parse((HOOKS / f"{match[1]}.py").read_text())
        assert "answer" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    with_answer = {path.stem for path in SOURCES if "\ndef answer(" in path.read_text()}
    assert named == with_answer and len(named) == 4, "a hook that nothing starts"


def test_the_sources_are_there() -> None:
    assert len(SOURCES) >= 8


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_standard_library_only_and_python_3_8(source: Path) -> None:
    text = source.read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    own = {path.stem for path in SOURCES}
    for node in ast.walk(tree):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        for name in names:
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top in own or name in ("kernelwright.setup.place", "kernelwright.setup.stamp"), name
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os" and node.attr == "environ":
            continue
        assert not isinstance(node, ast.Match)
    assert source.name == "run.py" or "from __future__ import annotations" in text, "newer types in annotations are never evaluated"
    assert not re.search(r"\bopen\([^)]*[\"'][wax]b?[\"']", text), "a hook writes nothing"
    assert not re.search(r"print\(.*environ|dumps\(.*environ", text), "never log a hook's environment: it holds a token"


def test_the_starter_parses_on_any_python() -> None:
    tree = ast.parse((HOOKS / "run.py").read_text(encoding="ascii"), feature_version=(3, 4))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.JoinedStr | ast.AnnAssign | ast.NamedExpr)
        assert not isinstance(node, ast.FunctionDef) or (
            node.returns is None and not any(argument.annotation for argument in node.args.args)
        )


def test_verbs_scripts_and_verdicts_exist() -> None:
    later = {"bench"}  # named by the hooks before its verb is there
    assert set(TIMING_VERBS) - set(VERBS) <= later
    assert set(VERDICTS) == set(VerdictName.__args__)
    text = "\n".join(source.read_text() for source in SOURCES)
    scripts = set(re.findall(r"\b([a-z_]+)\.py\b", text)) - {source.stem for source in SOURCES}
    known = {path.stem for path in (ROOT / "scripts").glob("*.py")} | later
    sources = {path.stem for path in (ROOT / "src").rglob("*.py")}
    assert len(scripts) >= 3
    assert scripts <= known | sources | {"optimized"}, scripts - known - sources
    shell = set(re.findall(r"\b((?:re)?(?:set|lock)-gpu-clock\.sh)\b", text))
    assert shell == {"lock-gpu-clock.sh", "reset-gpu-clock.sh"}
    assert all((ROOT / "scripts" / name).is_file() for name in shell) or not list((ROOT / "scripts").glob("*.sh"))
    assert AGENT_VERBS


def test_every_refusal_says_what_to_do_next() -> None:
    texts = {name: (HOOKS / f"{name}.py").read_text() for name in ("before_bash", "at_stop", "after_bash")}
    assert {name: text.count("Do next: ") >= 3 for name, text in texts.items()} == dict.fromkeys(texts, True)


def test_the_clock_records_are_looked_for_where_they_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if importlib.util.find_spec("kernelwright.capture.clockguard") is None:
        return  # this version locks nothing
    leases = importlib.import_module("kernelwright.capture.clockguard.leases")
    for variables in ({"KERNELWRIGHT_STATE": str(tmp_path / "a")}, {"XDG_STATE_HOME": str(tmp_path / "b")}, {}):
        for name in ("KERNELWRIGHT_STATE", "XDG_STATE_HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert Path(state_dir()) == leases.state_dir()
