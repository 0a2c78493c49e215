"""The plugin in the real Claude Code, driven by a scripted model: `make test-clients` installs the client and runs this."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from claude_code import Client, Session, words
from scripted_model import Step, Turn, delegates, reads, runs, says

from contract_format import check_contract
from kernelwright.setup.place import environment_folder

ON_CPU = f"--device cpu --python {sys.executable}"
WORKLOAD = """
import torch

class Chain(torch.nn.Module):
    def forward(self, x):
        for _ in range(40):
            x = torch.sin(x)
        return x

def get_model_and_input():
    return Chain(), torch.randn(64, 256)
"""
WRONG = "def optimize(model, inputs):\n    return lambda x: model(x) * 2\n"
SLOWER = "def optimize(model, inputs):\n    return lambda x: (model(x), model(x))[1]\n"
VERSIONS = """
import torch

PARAMS = {"n": 64}

def get_inputs(n):
    return (torch.randn(n, n),)

VERSIONS = {"v3": lambda x: x @ x, "v4": lambda x: (x @ x).relu()}
"""
PROJECT = "kernels:\n  chain:\n    file: versions.py\n    versions: [v3, v4]\n    default_version: v3\n"


@pytest.fixture
def user(user: Client) -> Client:
    """A user with a small project."""
    for name, text in (
        ("workload.py", WORKLOAD),
        ("wrong.py", WRONG),
        ("slower.py", SLOWER),
        ("versions.py", VERSIONS),
        ("kernelwright.yaml", PROJECT),
        ("broken.py", "def get_model_and_input():\n    raise RuntimeError('no such data set')\n"),
    ):
        (user.work / name).write_text(text)
    return user


def command(plugin: Path, verb: str, arguments: str) -> str:
    """A command as the skills spell it."""
    return f'python3 "{plugin}/scripts/{verb}.py" {arguments}'


def contract_in(text: str) -> str:
    """The contract that a text holds, as it was printed."""
    return text[text.index("## Profile: ") :].split("\n\nreport: ")[0].strip() + "\n"


# --- loading, validating, installing ------------------------------------------------------------------------------------------------------


def test_the_client_finds_nothing_to_mend(user: Client, plugin: Path) -> None:
    done = user.run("plugin", "validate", ".", "--strict", cwd=plugin)
    assert done.returncode == 0, done.stdout + done.stderr


def test_from_its_own_marketplace_and_back(user: Client, plugin: Path) -> None:
    assert user.run("plugin", "marketplace", "add", plugin).returncode == 0
    assert "kernelwright" in user.run("plugin", "marketplace", "list").stdout
    assert user.run("plugin", "install", "kernelwright@kernelwright").returncode == 0
    assert "kernelwright@kernelwright" in user.run("plugin", "list").stdout
    seen = user.session("/optimize w.py", says("done"))
    assert "# Optimize a workload" in seen.said(0) and seen.start["agents"].count("kernelwright:profiler") == 1
    assert user.run("plugin", "uninstall", "kernelwright@kernelwright").returncode == 0
    assert "kernelwright@kernelwright" not in user.run("plugin", "list").stdout
    assert user.run("plugin", "marketplace", "remove", "kernelwright").returncode == 0


def test_used_from_a_read_only_copy(user: Client, plugin: Path, tmp_path: Path) -> None:
    """A plugin from a git repository is copied into the client's cache (one from a local folder is read where it lies)."""
    repository, market = tmp_path / "repository", tmp_path / "market"
    shutil.copytree(plugin, repository)
    for words_ in (("init", "-q"), ("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "all")):
        subprocess.run(["git", *words_], cwd=repository, check=True)
    (market / ".claude-plugin").mkdir(parents=True)
    entry = {"name": "kernelwright", "source": {"source": "url", "url": f"file://{repository}"}}
    document = {"name": "market", "owner": {"name": "a test"}, "plugins": [entry]}
    (market / ".claude-plugin" / "marketplace.json").write_text(json.dumps(document))
    assert user.run("plugin", "marketplace", "add", market).returncode == 0
    assert user.run("plugin", "install", "kernelwright@market").returncode == 0
    (copy,) = (user.home / ".claude" / "plugins" / "cache" / "market" / "kernelwright").iterdir()
    for path in [copy, *copy.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    files = _plugins_own(copy)
    asked = command(copy, "profile_kernel", f"v4 --mode event --steps 5 --warmup 1 {ON_CPU}")
    seen = user.session("/profile-kernel v4", runs(asked), says("done"))
    for path in [copy, *copy.rglob("*")]:
        path.chmod(path.stat().st_mode | stat.S_IWUSR)  # so that the test's folder can be removed
    assert seen.denied() == [] and check_contract(contract_in(seen.said(1))) == []
    assert list((user.work / "out" / "profiles" / "event").rglob("contract.md")), "outputs go to the user's project"
    assert _plugins_own(copy) == files, "nothing is written into the plugin"
    data = user.home / ".claude" / "plugins" / "data" / "kernelwright-market"
    assert environment_folder(copy, {"HOME": str(user.home)}) == data / "env"
    assert data.is_dir(), "the client's own data folder for this plugin"


def _plugins_own(copy: Path) -> set[Path]:
    """All files of an installed plugin, without byte code and `.in_use`: the client's own mark, of sessions that run with this copy."""
    return {path for path in copy.rglob("*") if not {"__pycache__", ".in_use"} & set(path.relative_to(copy).parts)}


def test_the_plugin_loads_with_its_skills_and_agents(user: Client, plugin: Path) -> None:
    seen = user.session("hello", says("hello"), plugin=plugin)
    assert [found["name"] for found in seen.start["plugins"] if found["name"] == "kernelwright"] == ["kernelwright"]
    assert not seen.start.get("plugin_errors")
    assert {"kernelwright:optimize", "kernelwright:profile-kernel"} <= {*seen.start["slash_commands"], *seen.start.get("skills", [])}
    assert {"kernelwright:profiler", "kernelwright:kernel-engineer", "kernelwright:reviewer"} <= set(seen.start["agents"])


@pytest.mark.parametrize(
    ("prompt", "pages"),
    [
        ("/optimize workload.py", ["skills/optimize/references/loop.md", "knowledge/playbooks/sync.md"]),
        ("/profile-kernel v4", ["skills/profile-kernel/references/metrics.md", "knowledge/playbooks/launch_overhead.md"]),
    ],
)
def test_references_playbooks_and_a_reset_of_clocks_need_no_question(user: Client, plugin: Path, prompt: str, pages: list[str]) -> None:
    """What lies in the plugin is outside the user's project; the skill's own permissions cover it."""
    steps = [reads(plugin / page) for page in pages]
    seen = user.session(prompt, *steps, runs(command(plugin, "gpu_clock", "reset")), says("done"), plugin=plugin)
    assert seen.denied() == []
    for place, page in enumerate(pages):
        assert (plugin / page).read_text().splitlines()[0] in seen.said(place + 1)
    assert "KERNELWRIGHT_CLOCKS" in seen.said(-1), "the script ran, and the machine's own rule refused"


@pytest.mark.parametrize("action", ["lock", "reset --force"])
def test_a_lock_of_clocks_by_hand_asks(user: Client, plugin: Path, action: str) -> None:
    seen = user.session("/optimize workload.py", runs(command(plugin, "gpu_clock", action)), says("done"), plugin=plugin)
    assert seen.denied() != []


@pytest.mark.parametrize(
    ("prompt", "title"), [("/optimize my_model.py --b=32", "# Optimize a workload"), ("/profile-kernel v4 --b=32", "# Profile a workload")]
)
def test_a_skill_arrives_with_its_substitutions(user: Client, plugin: Path, prompt: str, title: str) -> None:
    text = user.session(prompt, says("done"), plugin=plugin).said(0)
    assert title in text
    assert f"Asked for: {prompt.split(' ', 1)[1]}" in text
    assert f'python3 "{plugin}/scripts/' in text
    assert "${CLAUDE" not in text and "$ARGUMENTS" not in text


# --- the two skills reach their scripts ---------------------------------------------------------------------------------------------------


def test_profile_kernel_brings_the_contract_back(user: Client, plugin: Path) -> None:
    asked = command(plugin, "profile_kernel", f"v4 --mode event --steps 5 --warmup 1 --clocks lock --n=32 {ON_CPU}")
    seen = user.session("/profile-kernel v4 --n=32", runs(asked), runs(asked + " --json"), says("done"), plugin=plugin)
    assert seen.denied() == []
    contract = contract_in(seen.said(1))
    assert check_contract(contract) == [] and contract.startswith("## Profile: chain v4\n") and "| n |" in contract
    assert "the contract above is complete and in its exact form" in seen.said(1), "PostToolUse"
    told = seen.said(2)[len(seen.said(1)) :]
    assert "kernelwright: the contract of this profile" in told and told.count("## Profile: chain v4") == 1, (
        "with --json the hook hands it over"
    )
    documents = sorted(user.work.rglob("params.json"))
    assert len(documents) == 2
    text = documents[0].read_text()
    assert "versions.py" in text and '"v4"' in text and '"32"' in text.replace(" 32", '"32"')


def test_optimize_brings_its_result_and_a_judgement_its_verdict(user: Client, plugin: Path) -> None:
    loop = command(plugin, "optimize", f"workload.py --budget 25s --clocks lock --json {ON_CPU}")
    wrong = command(plugin, "judge", f"workload.py wrong.py --max-timing 1s --json {ON_CPU}")
    slower = command(plugin, "judge", f"workload.py slower.py --max-timing 1s --json {ON_CPU}")
    seen = user.session("/optimize workload.py", runs(loop), runs(wrong), runs(slower), says("Nothing better was found."), plugin=plugin)
    assert seen.denied() == []
    answer = next(json.loads(line) for line in seen.said(1).splitlines() if line.startswith('{"status"'))
    assert (
        answer["status"] == "ok"
        and Path(answer["report"]).is_file()
        and Path(answer["out_dir"]).is_relative_to(user.work / "out" / "optimize")
    )
    assert check_contract(Path(answer["contract"]).read_text()) == []
    hook = "nothing better was found" if not answer["kept"] else "kernelwright: kept"
    assert hook in seen.said(1)
    assert '"verdict": "WRONG"' in seen.said(2) and "is WRONG" in seen.said(2) and "mend the candidate, never the tolerance" in seen.said(2)
    judged = next(json.loads(line) for line in reversed(seen.said(3).splitlines()) if line.startswith('{"status"'))
    assert judged["verdict"] in ("SLOWER", "SAME", "AMBIGUOUS"), "twice the work is never faster; a busy machine may hide that it is slower"
    assert f"is {judged['verdict']}" in seen.said(3) and seen.said(3).count("report no speed-up") == 2


def test_only_what_the_skill_allows_runs_unasked(user: Client, plugin: Path) -> None:
    seen = user.session(
        "/optimize w.py",
        runs(command(plugin, "optimize", "--help")),
        runs(command(plugin, "_entry", "--help")),
        says("done"),
        plugin=plugin,
    )
    assert "usage: optimize.py" in seen.said(1)
    assert "requires approval" in seen.said(2), "a command that no rule covers must be asked for"


def test_v4_comes_back_word_for_word_and_an_altered_contract_does_not_pass(user: Client, plugin: Path) -> None:
    """The answer that the user reads is the contract that was measured: one that leaves a line out or changes a figure is sent back."""
    asked = command(plugin, "profile_kernel", f"v4 --mode event --steps 5 --warmup 1 {ON_CPU}")
    measured: list[str] = []

    def altered(request: dict[str, object]) -> Turn:
        measured.append(contract_in(words(request)))
        row = next(line for line in measured[0].splitlines() if line.startswith("| (whole call) |"))
        return says(measured[0].replace(row, "| (whole call) | 0.01 | 99.0 | n/a | n/a | Compute | n/a |"))

    def whole(_request: dict[str, object]) -> Turn:
        return says(measured[0])

    seen = user.session("/profile-kernel v4", runs(asked), altered, whole, plugin=plugin)
    assert seen.denied() == [] and len(seen.requests) == 3, "sent back once"
    back = seen.said(2)
    assert "not word for word the one that was measured" in back and " is: | (whole call) | 0.01 |" in back
    (stored,) = (user.work / "out" / "profiles").rglob("contract.md")
    assert check_contract(measured[0]) == [] and seen.end["result"].strip() == stored.read_text().strip() == measured[0].strip()


def test_the_bare_command_profiles_what_changed_last_and_logs_it(user: Client, plugin: Path) -> None:
    """In a project's folder, without an argument: v4 was edited; its profile becomes an entry of the log, figures and all."""
    run = f"--mode event --steps 5 --warmup 1 {ON_CPU}"

    def edits(_request: dict[str, object]) -> Turn:
        (user.work / "versions.py").write_text(VERSIONS.replace(".relu()", ".sigmoid()"))
        return runs(command(plugin, "profile_kernel", run))

    def logs(request: dict[str, object]) -> Turn:
        folder = words(request).split("\nreport: ")[-1].split("\n")[0].removesuffix("/report.md")
        return runs(command(plugin, "devlog", f'add "{folder}" --issue "a whole pass for the sigmoid" --insight "the product is small"'))

    first = [runs(command(plugin, "profile_kernel", f"{version} {run}")) for version in ("v3", "v4")]
    seen = user.session("/profile-kernel", *first, edits, logs, says("Logged."), plugin=plugin)
    assert seen.denied() == [] and "Log it" in seen.said(0)
    assert "chain v4: edited since its newest profile" in seen.said(3), "stderr says what it took"
    (log,) = (user.work / "out" / "devlog").glob("*.jsonl")
    (entry,) = [json.loads(line) for line in log.read_text().splitlines()]
    newest = max((user.work / "out" / "profiles").rglob("profile.json"), key=lambda path: path.stat().st_mtime_ns)
    median = json.loads(newest.read_text())["timing"]["median_ns"]
    assert (entry["kernel"], entry["version"], entry["figures"]["duration_ns"]) == ("chain", "v4", median)
    page = log.with_suffix(".md").read_text()
    assert f"| Duration | {median / 1000:.2f} " in page and "- a whole pass for the sigmoid" in page and "- the product is small" in page


# --- the documented ends ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "verb", "arguments", "code", "text"),
    [
        ("/optimize", "optimize", "", 2, "WORKLOAD"),
        ("/profile-kernel v4", "profile_kernel", f"v4 --mode event --device cuda --python {sys.executable}", 3, "Fix: "),
        ("/profile-kernel broken.py", "profile_kernel", f"broken.py --mode event {ON_CPU}", 4, "no such data set"),
        ("/optimize nothing.py", "optimize", "nothing.py --json", 2, '"status": "error"'),
    ],
)
def test_what_fails_ends_in_the_documented_way(
    user: Client, plugin: Path, prompt: str, verb: str, arguments: str, code: int, text: str
) -> None:
    """A missing argument, a missing GPU, a workload that fails, a missing file."""
    seen = user.session(prompt, runs(command(plugin, verb, arguments).strip()), says("It failed."), plugin=plugin)
    assert f"Exit code {code}" in seen.said(1) and text in seen.said(1)
    assert seen.denied() == [] and seen.end["result"] == "It failed."


# --- hooks --------------------------------------------------------------------------------------------------------------------------------

HELD = """
import sys
from kernelwright.capture.lock import device_lock
with device_lock("profile of something"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_run_waits_for_the_first(user: Client, plugin: Path) -> None:
    """PreToolUse refuses while another run holds the lock, and lets go when it has ended."""
    env = {**os.environ, "KERNELWRIGHT_LOCK": str(user.lock), "PYTHONPATH": str(plugin / "src")}
    asked = command(plugin, "profile_kernel", f"v4 --mode event --steps 5 --warmup 1 {ON_CPU}")
    with subprocess.Popen([sys.executable, "-c", HELD], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin and other.stdout and other.stdout.readline() == "held\n"

        def again(_request: dict[str, object]) -> Turn:
            assert other.stdin
            other.stdin.close()
            other.wait(timeout=20)
            return runs(asked)

        seen = user.session("/profile-kernel v4", runs(asked), again, says("done"), plugin=plugin)
    assert f"another profile or timing run is under way (process {other.pid}: profile of something" in seen.said(1)
    assert "Do next: wait" in seen.said(1) and "## Profile: " not in seen.said(1)
    assert check_contract(contract_in(seen.said(2))) == []


def test_raw_clock_changes(user: Client, plugin: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho stand-in $*\n")
    (tools / "nvidia-smi").chmod(0o755)
    steps = (runs("nvidia-smi -lgc 1500"), runs("nvidia-smi -lgc 1500; nvidia-smi -rgc"), says("done"))
    seen = user.session(
        "hello",
        *steps,
        plugin=plugin,
        options=("--allowedTools", "Bash(nvidia-smi *)"),
        PATH=f"{tools}:{os.environ['PATH']}",
        KERNELWRIGHT_CLOCKS="",
    )
    assert "nothing in this command undoes it" in seen.said(1) and "stand-in" not in seen.said(1)
    assert "stand-in -lgc 1500\nstand-in -rgc" in seen.said(2)


def test_the_session_starts_with_a_line_on_the_machine(user: Client, plugin: Path) -> None:
    seen = user.session("hello", says("hello"), plugin=plugin, KERNELWRIGHT_PYTHON="", KERNELWRIGHT_ENV=str(user.home / "none"))
    assert seen.said(0).count("kernelwright on this machine: ") == 1 and "the first command installs" in seen.said(0)
    ready = user.session("hello", says("hello"), plugin=plugin)
    assert "the first command installs" not in ready.said(0)


def test_a_claim_needs_a_verdict(user: Client, plugin: Path) -> None:
    """Stop objects once, and never holds the session for good."""
    claim = says("Done: workload.py is 3x faster now.")
    seen = user.session("/optimize workload.py", claim, claim, plugin=plugin)
    assert len(seen.requests) == 2
    assert "no verdict in this session supports it" in seen.said(1) and "judge.py" in seen.said(1)
    seen = user.session("/optimize workload.py", says("Nothing better was found; a fused kernel could be 3x faster."), plugin=plugin)
    assert len(seen.requests) == 1
    verdict = 'echo \'{"verdict": "FASTER", "speedup": 3.01, "interval": [2.9, 3.1]}\''
    seen = user.session("/optimize workload.py", runs(verdict), claim, plugin=plugin)
    assert len(seen.requests) == 2, "with a measurement behind it the claim stands"


def test_clocks_left_locked(user: Client, plugin: Path) -> None:
    records = user.home / ".local" / "state" / "kernelwright" / "clocks"
    records.mkdir(parents=True)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    lease = {"token": "t", "pid": 2**22 + 5, "start": "1"}
    record = {"uuid": "GPU-1", "mhz": 1500, "route": [], "boot": boot, "since": "", "leases": [lease]}
    (records / "GPU-1.json").write_text(json.dumps(record))
    seen = user.session("hello", says("Done."), says("Done, really."), plugin=plugin)
    assert len(seen.requests) == 2 and "GPU-1 (1500 MHz)" in seen.said(1) and "reset-gpu-clock.sh" in seen.said(1)
    (records / "GPU-1.json").unlink()
    assert len(user.session("hello", says("Done."), plugin=plugin).requests) == 1


# --- agents -------------------------------------------------------------------------------------------------------------------------------

PROFILER = "You profile one workload and answer with the contract"


def delegated(user: Client, plugin: Path, agent: str, instructions: str, *steps: Step) -> tuple[Session, list[dict[str, object]]]:
    """A session that starts one agent under /profile-kernel; the agent's own requests."""
    seen = user.session(
        "/profile-kernel v4", delegates(f"kernelwright:{agent}", "Profile v4."), says("done"), plugin=plugin, agents={instructions: steps}
    )
    return seen, [request for request in seen.requests if instructions in json.dumps(request.get("system"))]


def test_the_profiler_returns_the_contract_and_nothing_else(user: Client, plugin: Path) -> None:
    asked = command(plugin, "profile_kernel", f"v4 --mode event --steps 5 --warmup 1 {ON_CPU}")

    def contract(request: dict[str, object]) -> Turn:
        return says(contract_in(words(request)))

    def chatter(request: dict[str, object]) -> Turn:
        return says("Here is the contract:\n\n" + contract_in(words(request)))

    seen, own = delegated(user, plugin, "profiler", PROFILER, runs(asked), chatter, contract)
    assert [tool["name"] for tool in own[0]["tools"]] == ["Bash", "Read"]  # type: ignore[attr-defined]
    assert len(own) == 3 and "not the contract in its exact form" in words(own[2]), "SubagentStop objects once"
    assert seen.denied() == [], "the skill's permissions reach the agent"
    back = seen.said(-1)
    assert "Here is the contract" not in back and "## Profile: chain v4" in back


def test_the_profiler_is_held_to_its_verbs(user: Client, plugin: Path) -> None:
    judging = command(plugin, "judge", f"workload.py slower.py {ON_CPU}")
    _, own = delegated(user, plugin, "profiler", PROFILER, runs(judging), runs("touch made"), says("No contract: refused."))
    assert words(own[1]).count("the profiler runs one of") == 1 and words(own[2]).count("the profiler runs one of") == 2
    assert len(own) == 3 and not (user.work / "made").exists()


@pytest.mark.parametrize(
    ("agent", "instructions", "tools"),
    [
        ("kernel-engineer", "You write one candidate", {"Read", "Grep", "Glob", "Write", "Edit"}),
        ("reviewer", "You review a result that others produced", {"Read", "Grep", "Glob"}),
    ],
)
def test_agents_without_a_shell(user: Client, plugin: Path, agent: str, instructions: str, tools: set[str]) -> None:
    _, own = delegated(user, plugin, agent, instructions, runs("touch made"), says("Stopped."))
    assert {tool["name"] for tool in own[0]["tools"]} == tools  # type: ignore[attr-defined]
    assert "No such tool available" in words(own[1]) and not (user.work / "made").exists()
