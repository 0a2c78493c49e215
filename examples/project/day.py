"""A day with this project, replayed: init, profile each version, log it, compare, sweep, the log, the gate.

    python3 examples/project/day.py --out DIR [--project FOLDER] [-- OPTIONS of each run, e.g. --clocks=none]

Works in a copy of the project with a git repository of its own, in a temporary folder that goes with the day. DIR gets session.md (every
command, what it printed, its exit code and its time; written anew after each, so a day cut short has left what there was), the logs with
their charts, the sweeps' plots and bench.xml. Exits 1 when a command ended otherwise than it should.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "scripts"
OVER_BUDGET = 5
"""Exit code of a gate that found a version slower than its budget: what it is for."""
KEPT = (".md", ".jsonl", ".svg")
"""Files of the logs that DIR gets."""
CAUSE = "Root cause:"
"""The line of a contract that says why."""
INSIGHTS = {
    ("rmsnorm", "v1"): "Two kernels; the sums of squares go through memory.",
    ("rmsnorm", "v2"): "One kernel; the second pass should find the row in the L2 cache.",
    ("rmsnorm", "v3"): "The row stays in registers: inputs are read once.",
    ("rmsnorm", "v4"): "The number of warps is tuned for the length of the row.",
    ("rmsnorm", "v5"): "Persistent programs: the weight is loaded once a program.",
    ("transpose", "v1"): "Writes are a row apart, so each touches a sector of its own.",
    ("transpose", "v2"): "Tiles through shared memory: reads and writes are coalesced.",
}


class Day:
    """The commands of one day and what came of them."""

    def __init__(self, folder: Path, out: Path, options: list[str]) -> None:
        self.folder, self.out, self.options = folder, out, options
        self.parts: list[str] = []
        self.odd: list[str] = []
        self.begun = time.monotonic()

    def run(self, verb: str, *words: str, measures: bool = False, shown: bool = True, good: tuple[int, ...] = (0,)) -> str:
        """One verb in the project's folder; returns its stdout. shown: the session has that too. good: exit codes that are no fault."""
        argv = [verb + ".py", *words, *(self.options if measures else [])]
        line = self._own(shlex.join(argv))
        print("$", line, flush=True)
        begun = time.monotonic()
        done = subprocess.run([sys.executable, str(SCRIPTS / argv[0]), *argv[1:]], cwd=self.folder, capture_output=True, text=True)
        took = f"exit {done.returncode}, {time.monotonic() - begun:.1f} s"
        print(f"  {took}", flush=True)
        failed = done.returncode not in good
        if failed:
            last = self._own(_fault(done))
            print(f"  {last}", flush=True)
            self.odd.append(f"{line}: exit {done.returncode}: {last}")
        self.tell(f"```sh\n{line}    # {took}\n```\n", done.stdout if shown or failed else "", done.stderr if failed else "")
        return done.stdout

    def tell(self, heading: str, *texts: str) -> None:
        """Add to the session, and write it."""
        self.parts.append("\n".join([heading, *(f"{_quoted(self._own(text))}\n" for text in texts if text.strip())]))
        _write(self.out / "session.md", "\n".join(["# The session\n", *self._left_behind(), *self.parts]))

    def keep(self) -> None:
        """Copy what the day has left so far to the folder of results."""
        for file in sorted((self.folder / "devlog").glob("*")):
            if file.suffix in KEPT and not file.name.startswith("."):
                shutil.copy(file, self.out)
        for file in sorted((self.folder / "out" / "profiles" / "sweep").glob("*/*/*/sweep.svg")):
            shutil.copy(file, self.out / f"{file.parents[2].name}.sweep.svg")
        if (self.folder / "bench.xml").is_file():
            _write(self.out / "bench.xml", self._own((self.folder / "bench.xml").read_text(encoding="utf-8")))

    def git(self, *words: str) -> None:
        """One git command; without git the log names no commits."""
        if shutil.which("git"):
            who = ["-c", "user.name=A day", "-c", "user.email=day@example.invalid", "-c", "commit.gpgsign=false"]
            subprocess.run(["git", *who, *words], cwd=self.folder, check=False, capture_output=True)

    def _own(self, text: str) -> str:
        return text.replace(str(self.folder), ".")

    def _left_behind(self) -> list[str]:
        files = [file.name for file in sorted(self.out.glob("*")) if file.suffix in (*KEPT, ".xml") and file.name != "session.md"]
        return ["What it left: " + ", ".join(f"[{name}]({name})" for name in files) + "\n"] if files else []


def _fault(done: subprocess.CompletedProcess[str]) -> str:
    """Why a command failed: the error of its JSON, else the last line of its stderr."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        error = json.loads(done.stdout)["error"]
        return f"{error['where']}: {error['message']}. Fix: {error['fix']}"
    return "".join(done.stderr.strip().splitlines()[-1:])


def _quoted(text: str) -> str:
    fence = "`" * 4
    return f"{fence}text\n{text.strip()}\n{fence}"


def _write(file: Path, text: str) -> None:
    """Whole or not at all."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)


def replay(project: Path, day: Day) -> None:
    """The whole day."""
    for file in sorted(project.glob("*.py")):
        if file.name != Path(__file__).name:
            shutil.copy(file, day.folder)
    (day.folder / ".gitignore").write_text("out/\n__pycache__/\n")
    kernels = json.loads(day.run("init", "--json") or "{}").get("kernels", {})
    if (project / "kernelwright.yaml").is_file():  # sweeps and budgets were added by hand
        shutil.copy(project / "kernelwright.yaml", day.folder)
        day.tell("The project's own `kernelwright.yaml`, with sweeps and budgets added by hand, now stands in place of the one that init "
                 "wrote.\n")
    for words in (("init", "--quiet"), ("add", "--all"), ("commit", "--quiet", "-m", "The project")):
        day.git(*words)
    for kernel, versions in kernels.items():
        for version in versions:
            _develop(day, kernel, version)
        day.run("compare", *(f"{kernel}:{version}" for version in versions))
        # --stored: the point of the default parameters was measured above.
        day.run("compare", kernel, versions[0], versions[-1], "--sweep", "--stored", measures=True)
        _look(day, kernel, versions[-1])
        day.run("devlog", "show", kernel)
        day.keep()
    day.run("bench", "--check", "--pairs", "3", "--junit", "bench.xml", "--github", measures=True, good=(0, OVER_BUDGET))
    day.keep()
    day.tell(f"The whole day: {time.monotonic() - day.begun:.0f} s.\n")


def _develop(day: Day, kernel: str, version: str) -> None:
    """Profile a version, and write down what was done to it."""
    if done := _profiled(day, kernel, version, "event"):
        day.run("devlog", "add", done[0], "--insight", INSIGHTS.get((kernel, version), f"Version {version}."), shown=False)


def _look(day: Day, kernel: str, version: str) -> None:
    """Profile a version in mode annotation, and write down the cause that the profile itself names."""
    if done := _profiled(day, kernel, version, "annotation"):
        causes = [line.partition(":")[2].strip() for line in done[1].splitlines() if line.startswith(CAUSE)]
        day.run("devlog", "add", done[0], *(word for cause in causes for word in ("--insight", cause)), shown=False)


def _profiled(day: Day, kernel: str, version: str, mode: str) -> tuple[str, str] | None:
    """(folder, contract) of a new profile, the contract shown; None where there is none."""
    answer = json.loads(day.run("profile_kernel", kernel, version, "--mode", mode, "--json", measures=True, shown=False) or "{}")
    if answer.get("status") != "ok":
        return None
    contract = Path(answer["contract"]).read_text(encoding="utf-8")
    day.tell("Its contract:\n", contract)
    return str(Path(answer["out_dir"]).relative_to(day.folder)), contract


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description="Replay a day with this project.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the session, the logs and the plots")
    parser.add_argument("--project", type=Path, default=HERE, metavar="FOLDER", help="another project's folder (default: this one)")
    parser.add_argument("options", nargs="*", help="options of every command that measures, after --")
    args = parser.parse_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="day-") as place:
        day = Day(Path(place).resolve(), out, args.options)
        replay(args.project.resolve(), day)
    for line in day.odd:
        print("otherwise than it should:", line)
    print(f"session: {out / 'session.md'}")
    return 1 if day.odd else 0


if __name__ == "__main__":
    sys.exit(main())
