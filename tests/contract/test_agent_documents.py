"""What agents read (skills, references, agents, playbooks) against the code: every option, script, path, name and number exists."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from front_matter import parts
from kernelwright.cli.main import VERBS, build_parser
from kernelwright.cli.progress import QUIET_S
from kernelwright.judge.options import JudgeOptions
from kernelwright.judge.statistics import PROCESS_DIFFERENCE
from kernelwright.model import errors
from kernelwright.optimize.budget import SCREEN_PRIOR_S
from kernelwright.optimize.passes import CATALOGUE
from kernelwright.pipeline.peaks import SUSPECT_PEAK_PCT
from kernelwright.probe.script_window import BARE_STEPS
from kernelwright.report.top import MOST_ROWS
from kernelwright.roofline.knowledge import bottlenecks, counter_knowledge

ROOT = Path(__file__).resolve().parents[2]
SKILLS = sorted(ROOT.glob("skills/*/SKILL.md"))
REFERENCES = sorted(ROOT.glob("skills/*/references/*.md"))
AGENTS = sorted(ROOT.glob("agents/*.md"))
PLAYBOOKS = sorted(ROOT.glob("knowledge/playbooks/*.md"))
DOCUMENTS = [*SKILLS, *REFERENCES, *AGENTS, *PLAYBOOKS]
MODES = ("annotation", "event", "ncu", "nsys")
FENCE = re.compile(r"^\s*```(\w*)\n(.*?)^\s*```", re.MULTILINE | re.DOTALL)
STANDS_FOR = {"train.py", "WORKLOAD.py", "CANDIDATE.py", "NAME.py", "NN_name.py"}
"""Files of the user's."""
PARAMETERS = ("--NAME", "--b", "--dtype", "--norm")
"""Of workloads."""


def each(documents: list[Path]) -> pytest.MarkDecorator:
    """Once for each document."""
    return pytest.mark.parametrize("document", documents, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")


def body_of(document: Path) -> str:
    """The text without its front matter."""
    return parts(document)[1] if document.name == "SKILL.md" or document in AGENTS else document.read_text(encoding="utf-8")


def commands(document: Path) -> list[str]:
    """Fenced lines that are no Python, and inline code."""
    text = body_of(document)
    fenced = [line for language, block in FENCE.findall(text) if language != "python" for line in block.splitlines() if line.strip()]
    return fenced + re.findall(r"`([^`\n]+)`", FENCE.sub("", text))


@cache
def options(verb: str) -> frozenset[str]:
    """Every option of a verb, those of its actions too."""
    found: set[str] = set()
    waiting: list[argparse.ArgumentParser] = [build_parser(verb)]
    while waiting:
        for action in waiting.pop()._actions:
            found.update(action.option_strings)
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()
    return frozenset(found)


@cache
def source() -> str:
    """All code and data that a name may come from. Documents are none: they could agree with each other and be wrong."""
    folders = ("src", "hooks", "scripts", "templates", "examples", "knowledge/kernels", "tests/exploits")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".j2", ".sh", ".yaml")]
    files += [*ROOT.glob("knowledge/*.yaml"), ROOT / "docs" / "schema" / "profile.schema.json"]
    assert len(files) > 100
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def test_all_kinds_are_there() -> None:
    assert {path.parent.name for path in SKILLS} == {"optimize", "profile-kernel"}
    assert {path.stem for path in REFERENCES} == {*(f"mode-{mode}" for mode in MODES), "metrics", "loop", "background", "devlog",
                                                "unconfirmed", "handover"}
    assert len(AGENTS) == 3 and len(PLAYBOOKS) >= 16
    modes = next(action.choices for action in build_parser("profile_kernel")._actions if "--mode" in action.option_strings)
    assert tuple(modes or ()) == MODES, "one page a mode"


@each(SKILLS)
def test_every_reference_is_named_and_said_when(document: Path) -> None:
    linked = set(re.findall(r"\]\((references/[\w-]+\.md)\)", body_of(document)))
    there = {f"references/{path.name}" for path in document.parent.glob("references/*")}
    assert there and linked == there
    assert not [path for path in document.parent.glob("references/*") if path.is_dir()], "one level deep"


@each([*REFERENCES, *PLAYBOOKS])
def test_links_lead_to_a_page_beside_it(document: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", FENCE.sub("", body_of(document))):
        assert target.startswith("https://") or ((document.parent / target).is_file() and "/" not in target), target


def test_options_exist() -> None:
    checked = 0
    for document in DOCUMENTS:
        for line in commands(document):
            if "TORCH_LOGS" in line or "nvidia-smi" in line:
                continue
            own = re.split(r"(?<=\S) -- ", line)[0]
            named = [verb for verb in VERBS if re.search(rf"\b{verb}\.py", own)]
            known = options(named[0]) if named else frozenset().union(*map(options, VERBS))
            for option, equals in re.findall(r"(?<![\w-])(--[A-Za-z][\w-]*)(=?)", own):
                checked += 1
                assert option in known or (equals and option in PARAMETERS), f"{document.name}: {option} in {line!r}"
    assert checked > 60


def test_values_of_options_are_accepted() -> None:
    """`--mode event`, `--precision tf32`, ...: the word after an option is one of its choices."""
    checked = 0
    choices: dict[str, set[str]] = {}
    for verb in VERBS:
        for action in build_parser(verb)._actions:
            for option in action.option_strings:
                choices.setdefault(option, set()).update(map(str, action.choices or ()))
    for document in DOCUMENTS:
        for option, value in re.findall(r"(--[a-z][\w-]*) ([a-z][\w]*)", "\n".join(commands(document))):
            if choices.get(option):
                checked += 1
                assert value in choices[option], f"{document.name}: {option} {value}"
    assert checked >= 10


def test_precisions_exist() -> None:
    match = re.search(r"^PRECISIONS = \(([^)]+)\)", (ROOT / "src/kernelwright/probe/judge_candidate.py").read_text(), re.MULTILINE)
    assert match
    known = set(re.findall(r'"(\w+)"', match[1]))
    named = {value for document in DOCUMENTS for value in re.findall(r'(?:PRECISION = |or )`?"(\w+)"', body_of(document))}
    named |= {value for document in DOCUMENTS for value in re.findall(r'PRECISION = "(\w+)"', body_of(document))}
    assert len(named) >= 2 and named <= known


def test_scripts_exist() -> None:
    named = [(document, name) for document in DOCUMENTS for line in commands(document)
             for name in re.findall(r"([\w-]+\.(?:py|sh))\b", re.sub(r"knowledge/[\w./]+", "", line))]  # test_paths_exist has these
    ours = {name for _, name in named} - STANDS_FOR - {"optimized.py"}
    assert len(ours) >= 5
    missing = [(document.name, name) for document, name in named if name in ours and not (ROOT / "scripts" / name).is_file()]
    assert not missing


def test_paths_exist() -> None:
    """Paths of the plugin are there; files of a result are named in the code."""
    checked = 0
    for document in DOCUMENTS:
        for line in commands(document):
            for path in re.findall(r"(?<![\w./}-])((?:knowledge|docs|examples|hooks|skills|agents|references)/[\w./-]+)", line):
                checked += 1
                assert (ROOT / path).exists() or (document.parent / path).exists(), f"{document.name}: {path}"
            for name in re.findall(r"(?<![\w./-])(?:raw/)?([\w.-]+\.(?:jsonl?|md|gz|csv|txt|log|yaml))(?![\w/])", line):
                checked += 1
                assert name in source() or (ROOT / name).exists() or name.startswith("KERNEL."), f"{document.name}: {name}"
    assert checked > 25


def known_names() -> Callable[[str], bool]:
    """Whether a name is one of kernelwright's (in its code or data) or one of torch's."""
    homes = [torch, torch.nn, torch.nn.functional, torch.Tensor, torch.cuda, torch.backends.cudnn, torch.nn.attention]
    homes = [*homes, importlib.import_module("torch.utils.data").DataLoader]
    loader = torch.utils.data.DataLoader.__init__.__code__.co_varnames

    words = set(re.findall(r"\w+", source()))

    def known(name: str) -> bool:
        return name in words or any(hasattr(home, name) for home in homes) or name in loader

    return known


def test_names_exist() -> None:
    """Every name with an underscore in inline code: error codes, rules, metrics, passes, JSON keys, functions."""
    known, checked, unknown = known_names(), 0, set()
    codes = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "errors.md").read_text(encoding="utf-8"), re.MULTILINE))  # held to the code
    triggers = {name for page in PLAYBOOKS for name in re.findall(r"^\| `\w+` \| `(\w+)` \|", page.read_text(), re.MULTILINE)}  # likewise
    elsewhere = {"worker_init_fn", "__launch_bounds__", "graph_breaks", "input_precision", "enable_gqa"}  # of CUDA, Triton, torch's C++
    for document in DOCUMENTS:
        for line in commands(document):
            if "CLAUDE_PLUGIN_ROOT" in line:
                continue
            for name in re.findall(r"(?<![\w/.-])([A-Za-z]\w*_\w+)(?![\w/-])", line):
                checked += 1
                if name not in elsewhere | codes | triggers and not name.isupper() and not known(name):
                    unknown.add((document.name, name))
    assert checked > 100 and not unknown, unknown


def test_error_codes_and_exit_codes_go_together() -> None:
    """`code`, exit N: as docs/errors.md, which a test holds to the code."""
    page = dict(re.findall(r"^\| `(\w+)` \| (\d+) \|", (ROOT / "docs" / "errors.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert len(page) > 80
    found = [(document.name, code, exit_code) for document in DOCUMENTS for text in [body_of(document)]
             for code, exit_code in [*re.findall(r"\(`(\w+)`, exit (\d+)\)", text),
                                     *((code, number) for number, code in re.findall(r"exits (\d+) \(`(\w+)`\)", text))]]
    assert len(found) >= 4
    assert all(page.get(code) == exit_code for _, code, exit_code in found), found


@each(SKILLS)
def test_every_exit_code_has_its_row(document: Path) -> None:
    rows = {int(number) for number in re.findall(r"^\| (\d+) \| .+ \| .+ \|$", body_of(document), re.MULTILINE)}
    known = {value for name, value in vars(errors).items() if name.startswith("EXIT_")} | {1}
    assert len(known) >= 6
    assert rows == known - {errors.EXIT_OK}


def test_passes_named_exist() -> None:
    catalogue = "|".join(sorted(CATALOGUE, key=len, reverse=True))
    named = {name for document in [*PLAYBOOKS, *REFERENCES] for line in commands(document)
             for name in re.findall(rf"^(?:{catalogue})$", line)}
    assert len(named) >= 7
    compiled = {name for document in DOCUMENTS for line in commands(document) for name in re.findall(r"^compile_[a-z_]+$", line)}
    assert compiled - {"compile_share"} <= set(CATALOGUE)


def _script(name: str) -> int:
    match = re.search(r"^WARMUP, STEPS = (\d+), (\d+)$", (ROOT / "src/kernelwright/probe/script.py").read_text(), re.MULTILINE)
    assert match
    return int(match[1 if name == "warmup" else 2])


HIGH = bottlenecks().high
RULES = bottlenecks().rules
FACTS: list[tuple[str, tuple[float, ...]]] = [
    (r"expected to take (\d+) s and at max-autotune (\d+) s", (SCREEN_PRIOR_S["compile"], SCREEN_PRIOR_S["autotune"])),
    (r"(\d+) warm-up and (\d+) profiled", (_script("warmup"), _script("steps"))),
    (r"a line (?:comes on stderr at least )?every (\d+) s", (20,)),
    (r"compute from (\d+)%, bandwidth from (\d+)%", (HIGH.compute_pct, HIGH.bandwidth_pct)),
    (r"from (\d+) to (\d+)% on the rules",
     (RULES["host_outside_operators"].thresholds["share_pct"], RULES["launch_gaps"].thresholds["share_pct"])),
    (r"had not come \| (\d+)%", (RULES["launch_gaps"].thresholds["share_pct"],)),
    (r"from (\d+)% on only", (RULES["roof_distance"].thresholds["near_pct"],)),
    (r"heaviest stage \| below (\d+)%", (RULES["stage_far_from_roof"].thresholds["best_pct"],)),
    (r"up to about (\d+)% between two processes", (100 * PROCESS_DIFFERENCE,)),
    (r"the top (\d+) over", (MOST_ROWS,)),
    (r"[Ww]ithin (\d+)%", (100 - RULES["roof_distance"].thresholds["near_pct"],)),
    (r"`--steps N`, default (\d+)", (5,)),
    (r"and (\d+) bare ones", (BARE_STEPS,)),
    (r"the call beats by (\d+)%", (SUSPECT_PEAK_PCT - 100,)),
    (r"\(default `(\d+)s`\)", (JudgeOptions.model_fields["max_timing_s"].default,)),
]
"""Phrases with numbers -> what the code has. All of the phrase's groups that matched are compared."""
COUNTER = r"^\| (\w+) \(`(\w+)`\) \| (above|at most) ([\d.]+)%? \|"
ADVICE = (
    r"time-out of 600 seconds", r"budget over 7m", r"2 minutes", r"5 minutes past", r"at least 5%", r"go back to 1\b",
    r"within 10 minutes", r"mostly above 1\b",
    r"interval that excludes 1\.0", r"`speedup` 1\.0", r"above 100%", r"95% interval", r"[Tt]op 3 Opportunities",
    r"copy_share=9%", r"\[0\.99, 1\.01\]",
    r"\b(?:L2|float64|tf32|TF32|bf16|float32)\b", r"exits? \d+(?:, \d)*(?: or \d)?", r"^\| \d+ \| .*$",
    r"same exit 3 or 4", r"Exit 2, 3 or 4",
)
"""Numbers that advise or name, and state nothing of the code (exit codes have tests of their own)."""


def test_what_the_facts_say_is_so() -> None:
    assert QUIET_S < 20, "the documents promise a line every 20 s"
    seen = dict.fromkeys((phrase for phrase, _ in FACTS), 0)
    for document in [*SKILLS, *REFERENCES, *AGENTS]:
        for phrase, expected in FACTS:
            for match in re.finditer(phrase, body_of(document)):
                seen[phrase] += 1
                said = tuple(float(group) for group in match.groups() if group is not None)
                assert said == tuple(map(float, expected)), (document.name, match[0])
    assert all(seen.values()), seen


@each([*SKILLS, *REFERENCES, *AGENTS])
def test_every_number_is_a_known_one(document: Path) -> None:
    """A new number in a document needs its fact here, or to be marked as advice."""
    text = FENCE.sub("", body_of(document))
    text = re.sub(r"^\s*(?:#+ )?\d+\. ", "", text, flags=re.MULTILINE)
    for phrase in [*(phrase for phrase, _ in FACTS), COUNTER, *ADVICE]:
        text = re.sub(phrase, "", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    left = [text[max(0, match.start() - 30): match.end() + 15] for match in re.finditer(r"(?<![\w-])\d+", text)]
    assert not left, left


def test_the_table_of_counters_is_the_data() -> None:
    page = (ROOT / "skills/profile-kernel/references/metrics.md").read_text(encoding="utf-8")
    rows = re.findall(COUNTER, page, re.MULTILINE)
    healthy = {name: role.healthy for name, role in counter_knowledge().roles.items() if role.healthy is not None}
    assert {name for _, name, _, _ in rows} == set(healthy) and len(rows) == len(healthy)
    for label, name, word, number in rows:
        assert label == healthy[name].label
        assert float(number) == (healthy[name].above if word == "above" else healthy[name].at_most), name
