"""A day with this project, replayed: init, profile each version, log it, compare, sweep, the log, the gate.

    python3 examples/project/day.py --out DIR [--project FOLDER] [-- OPTIONS of each run, e.g. --clocks=none]

Works in a copy of the project, DIR/project, with a git repository of its own. DIR/session.md has every command, what it printed, its exit
code and its time; the logs, their charts and the sweeps' plots are copied to DIR. Exits 1 when a command ended otherwise than it should.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = HERE.parents[1] / "scripts"
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

    def __init__(self, folder: Path, options: list[str]) -> None:
        self.folder, self.options = folder, options
        self.parts: list[str] = []
        self.odd: list[str] = []

    def run(self, verb: str, *words: str, measures: bool = False) -> str:
        """One verb in the project's folder; returns its stdout."""
        argv = [verb + ".py", *words, *(self.options if measures else [])]
        print("$", " ".join(argv), flush=True)
        begun = time.monotonic()
        done = subprocess.run([sys.executable, str(SCRIPTS / argv[0]), *argv[1:]], cwd=self.folder, capture_output=True, text=True)
        took = f"exit {done.returncode}, {time.monotonic() - begun:.1f} s"
        print(f"  {took}", flush=True)
        told = done.stdout if done.returncode == 0 else done.stdout + done.stderr
        text = told.replace(str(self.folder), ".").strip()
        self.parts.append(f"```sh\n{' '.join(argv)}    # {took}\n```\n\n{_quoted(text)}\n")
        if done.returncode != 0:
            self.odd.append(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        return done.stdout

    def git(self, *words: str) -> None:
        """One git command; without git the log names no commits."""
        if shutil.which("git"):
            who = ["-c", "user.name=A day", "-c", "user.email=day@example.invalid", "-c", "commit.gpgsign=false"]
            subprocess.run(["git", *who, *words], cwd=self.folder, check=False, capture_output=True)


def _quoted(text: str) -> str:
    fence = "`" * 4
    return f"{fence}text\n{text}\n{fence}" if text else ""


def replay(project: Path, out: Path, options: list[str]) -> Day:
    """The whole day."""
    folder = out / "project"
    if folder.exists():
        sys.exit(f"{folder} is there already: name another folder with --out")
    folder.mkdir(parents=True)
    for file in sorted(project.glob("*.py")):
        if file.name != Path(__file__).name:
            shutil.copy(file, folder)
    (folder / ".gitignore").write_text("out/\n__pycache__/\n")
    day = Day(folder, options)
    kernels = json.loads(day.run("init", "--json") or "{}").get("kernels", {})
    if (project / "kernelwright.yaml").is_file():  # sweeps and budgets were added by hand
        shutil.copy(project / "kernelwright.yaml", folder)
    day.git("init", "--quiet")
    day.git("add", "--all")
    day.git("commit", "--quiet", "-m", "The project")
    for kernel, versions in kernels.items():
        for version in versions:
            done = day.run("profile_kernel", kernel, version, "--mode", "event", "--json", measures=True)
            day.parts.pop()
            answer = json.loads(done or "{}")
            if answer.get("status") == "ok":
                contract = Path(answer["contract"]).read_text(encoding="utf-8")
                day.parts.append(f"```sh\nprofile_kernel.py {kernel} {version} --mode event\n```\n\n{_quoted(contract.strip())}\n")
                day.run("devlog", "add", answer["out_dir"], "--insight", INSIGHTS.get((kernel, version), f"Version {version}."))
        named = [f"{kernel}:{version}" for version in versions]
        day.run("compare", *named)
        day.run("compare", kernel, versions[0], versions[-1], "--sweep", measures=True)
        day.run("profile_kernel", kernel, versions[-1], "--mode", "annotation", measures=True)
        day.run("devlog", "show", kernel)
    day.run("bench", "--check", "--junit", "bench.xml", "--github", measures=True)
    return day


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description="Replay a day with this project.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the session, the logs and the plots")
    parser.add_argument("--project", type=Path, default=HERE, metavar="FOLDER", help="another project's folder (default: this one)")
    parser.add_argument("options", nargs="*", help="options of every command that measures, after --")
    args = parser.parse_args()
    out = args.out.resolve()
    day = replay(args.project.resolve(), out, args.options)
    (out / "session.md").write_text("# A day\n\n" + "\n".join(day.parts), encoding="utf-8")
    for file in sorted((out / "project" / "devlog").glob("*")):
        if file.suffix in (".md", ".svg") and not file.name.startswith("."):
            shutil.copy(file, out)
    for file in sorted((out / "project" / "out" / "profiles" / "sweep").glob("*/*/*/sweep.svg")):
        shutil.copy(file, out / f"{file.parents[2].name}.sweep.svg")
    if (out / "project" / "bench.xml").is_file():
        shutil.copy(out / "project" / "bench.xml", out)
    for line in day.odd:
        print("otherwise than it should:", line)
    print(f"session: {out / 'session.md'}")
    return 1 if day.odd else 0


if __name__ == "__main__":
    sys.exit(main())
