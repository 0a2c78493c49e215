"""README and docs/ against the repository: links, paths, verbs, options, skills and parameters that they name exist."""

from __future__ import annotations

import argparse
import importlib.util
import re
from pathlib import Path

import pytest

from kernelwright.cli.main import VERBS, build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = re.compile(r"^```[^\n]*\n(.*?)^```|`([^`\n]+)`", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"(?<![\w./~-])((?:scripts|examples|docs|src|bench|knowledge|templates|skills|tests|hooks|agents)/[\w./-]*[\w/])")
FOREIGN = ("nsys export", "nsys profile", "torchrun", "ncu --set", "docker", "pip ", "nvidia-smi", "sudo", "git ", "claude ", "codex ",
           "npm ", "uv ")
"""Code that starts other programs; their options are not ours."""


def code_of(page: Path) -> list[str]:
    """Every line of code on a page: fenced blocks line by line, inline spans whole."""
    return [line for block, span in CODE.findall(page.read_text(encoding="utf-8")) for line in (block or span).splitlines()]


def relative_links(page: Path) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """Heading anchors as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def options(parser: argparse.ArgumentParser) -> set[str]:
    """All option strings, those of sub-commands too."""
    found: set[str] = set()
    for action in parser._actions:
        found.update(action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                found |= options(child)
    return found


@pytest.fixture(scope="module")
def options_by_verb() -> dict[str, set[str]]:
    return {verb: options(build_parser(verb)) for verb in VERBS}


@pytest.fixture(scope="module")
def example_parameters() -> set[str]:
    names: set[str] = set()
    for path in (*(ROOT / "examples").glob("*.py"), *(ROOT / "knowledge" / "kernels").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"parameters_of_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        names |= set(getattr(module, "PARAMS", {}))
    assert names
    return names


def test_there_are_pages() -> None:
    assert (ROOT / "README.md").is_file() and len(PAGES) > 4


def test_relative_links_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in relative_links(page)]
    assert len(links) > 10
    for page, link in links:
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.relative_to(ROOT)} links to {link}"
        assert not anchor or anchor in anchors(target), f"{page.relative_to(ROOT)} links to {link}"


def test_every_page_is_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in relative_links(page) if not link.startswith("#")]
        waiting += [target for target in targets if target.suffix == ".md" and target.is_file()]
    own = {page for page in PAGES if "adr" not in page.parts}
    assert own and own <= seen, [str(page.relative_to(ROOT)) for page in own - seen]


def test_paths_in_code_exist() -> None:
    found = [(page, path) for page in PAGES for line in code_of(page) for path in PATH.findall(line)]
    named = [(page, path) for page, path in found if not re.search(r"\b[A-Z]+\b", path)]  # scripts/VERB.py stands for all of them
    assert len(named) > 5
    for page, path in named:
        assert (ROOT / path).exists(), f"{page.relative_to(ROOT)} names {path}"


def test_verbs_exist_and_all_are_in_the_readme() -> None:
    mentioned: dict[str, set[str]] = {}
    for page in PAGES:
        for line in code_of(page):
            named = re.findall(r"scripts/([a-z]\w*)\.py", line) + re.findall(r"(?:^|(?<!from)\s)kernelwright ([a-z][\w-]*)", line)
            for verb in named:
                mentioned.setdefault(verb.replace("-", "_"), set()).add(page.name)
    unknown = {verb: pages for verb, pages in mentioned.items() if verb not in VERBS}
    assert mentioned and not unknown, unknown
    missing = [verb for verb in VERBS if "README.md" not in mentioned.get(verb, set())]
    assert not missing, missing


def test_options_belong_to_the_verb_they_are_shown_with(options_by_verb: dict[str, set[str]], example_parameters: set[str]) -> None:
    checked = 0
    for page in PAGES:
        if "adr" in page.parts:  # decisions speak of other tools' options
            continue
        for line in code_of(page):
            if any(word in line for word in FOREIGN):
                continue
            verb = next((name for name in VERBS if re.search(rf"\b{name}\.py|kernelwright {name.replace('_', '[_-]')}\b", line)), None)
            known = options_by_verb[verb] if verb else set().union(*options_by_verb.values())
            for option, equals in re.findall(r"(?<![\w-])(--[A-Za-z][\w-]*)(=?)", line.partition(" -- ")[0]):  # after it: the script's
                checked += 1
                is_parameter = bool(equals) and (option[2:] in example_parameters or option == "--NAME")
                assert option in known or is_parameter, f"{page.relative_to(ROOT)}: {option} in {line!r}"
    assert checked > 10


def test_skills_named_exist() -> None:
    lines = [line for page in PAGES for line in code_of(page)]
    named = {match for line in lines for match in re.findall(r"(?:^|\s)/([a-z][a-z-]+)(?=\s|$)", line)} - {"plugin"}
    assert named == {"optimize", "profile-kernel"}
    assert all((ROOT / "skills" / name / "SKILL.md").is_file() for name in named)


def test_schemas_and_variables_named_are_in_the_source() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = {word for page in PAGES for word in re.findall(r"\bKERNELWRIGHT_[A-Z_]+\b", page.read_text(encoding="utf-8"))}
    assert named and all(word in source for word in named), named


def test_the_report_shown_has_the_contracts_form() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = next((block for block, _ in CODE.findall(text) if block.startswith("## Profile: ")), "")
    headings = re.findall(r"^#+ (.+)$", shown, re.MULTILINE)
    assert [heading.split(":")[0] for heading in headings[:5]] == [
        "Profile", "Configuration", "Stages", "Bottleneck", "Top 3 Opportunities (ranked by estimated impact)"]
    assert "| Stage | Duration (us) | TC% | DRAM% | Occ% | Bottleneck | Key Issue |" in shown
    assert re.search(r"^1\. .+ — est\. \d.*% gain — trigger: .+=.+$", shown, re.MULTILINE)
    assert not re.search(r"TODO|PLACEHOLDER|<[A-Za-z ]+>", text)
