"""The parts of the set-up that decide: where the environment lives, and what a failed installation means."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kernelwright.setup import explain, place, stamp, torch_install
from kernelwright.setup.child import Runner
from kernelwright.setup.errors import SetupError
from kernelwright.setup.place import CHECKOUT, environment_folder
from kernelwright.setup.stamp import lock_hash


@pytest.fixture(autouse=True)
def on_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's data folder is another on other systems."""
    monkeypatch.setattr("sys.platform", "linux")


def clone(folder: Path, *, worktree: bool = False) -> Path:
    """A git checkout, as far as its place is concerned."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".git").write_text("gitdir: elsewhere") if worktree else (folder / ".git").mkdir()
    return folder


@pytest.mark.parametrize("worktree", [False, True])
def test_the_environment_of_a_git_checkout_is_in_it(tmp_path: Path, worktree: bool) -> None:
    assert environment_folder(clone(tmp_path, worktree=worktree), {"HOME": "/home/me"}) == tmp_path / ".venv"


def test_a_copy_without_git_keeps_it_in_the_users_data_folder_whoever_may_write_there(tmp_path: Path) -> None:
    """An unpacked archive, or a plugin that a client reads where it lies: nothing is written into it, by root neither."""
    assert os.access(tmp_path, os.W_OK)
    assert environment_folder(tmp_path, {"HOME": "/home/me"}).parent == Path("/home/me/.local/share/kernelwright")


def test_roots_rights_do_not_make_a_read_only_checkout_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = clone(tmp_path / "checkout")
    checkout.chmod(0o555)
    monkeypatch.setattr(os, "access", lambda path, mode: True)  # as it answers root
    try:
        assert environment_folder(checkout, {"HOME": "/home/me"}).parent == Path("/home/me/.local/share/kernelwright")
    finally:
        checkout.chmod(0o755)


def test_the_user_moves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert environment_folder(tmp_path, {"KERNELWRIGHT_ENV": "/big/disk"}) == Path("/big/disk")
    assert environment_folder(tmp_path, {"KERNELWRIGHT_ENV": "here"}) == tmp_path / "here"
    assert environment_folder(tmp_path, {"KERNELWRIGHT_ENV": "~/there"}) == tmp_path / "there"


def test_an_installed_plugin_keeps_it_through_updates(tmp_path: Path) -> None:
    plugins = tmp_path / ".claude" / "plugins"
    expected = plugins / "data" / "kernelwright-shop" / "env"
    for version in ("0.1.0", "0.2.0"):
        assert environment_folder(plugins / "cache" / "shop" / "kernelwright" / version, {}) == expected


HOOKS_ALONE = {"CLAUDE_PLUGIN_DATA": "/data/kernelwright-inline", "CLAUDE_PROJECT_DIR": "/project"}
"""What a client tells its hooks, and not the commands that an agent runs; CLAUDE_PLUGIN_ROOT is set in each case."""


@pytest.mark.parametrize("kind", ["checkout", "plain copy", "installed"])
def test_hooks_and_commands_look_for_the_environment_in_one_place(kind: str, tmp_path: Path) -> None:
    """`claude --plugin-dir DIR` names a data folder to the hooks, but the commands install beside the checkout or in the user's folder."""
    checkout = tmp_path / "plugins" / "cache" / "shop" / "kernelwright" / "0.1.0" if kind == "installed" else tmp_path / "copy"
    checkout.mkdir(parents=True)
    if kind == "checkout":
        clone(checkout)
    commands = {"HOME": str(tmp_path), "XDG_DATA_HOME": ""}
    hooks = {**commands, **HOOKS_ALONE, "CLAUDE_PLUGIN_ROOT": str(checkout)}
    assert environment_folder(checkout, hooks) == environment_folder(checkout, commands)


def test_the_session_hook_finds_the_environment_that_the_commands_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook itself, with a client's variables: ready once the folder that the commands use is ready, not before."""
    monkeypatch.syspath_prepend(str(CHECKOUT / "hooks"))
    import session_start

    monkeypatch.delenv("KERNELWRIGHT_PYTHON", raising=False)
    monkeypatch.setenv("KERNELWRIGHT_ENV", "")
    monkeypatch.setattr(place, "CHECKOUT", clone(tmp_path / "plugin"))
    (tmp_path / "plugin" / "requirements.lock").write_text("numpy==2\n")
    for name, value in {**HOOKS_ALONE, "CLAUDE_PLUGIN_ROOT": str(tmp_path / "plugin")}.items():
        monkeypatch.setenv(name, value)
    asked: list[Path] = []
    monkeypatch.setattr(stamp, "is_ready", lambda folder, hashes: asked.append(folder) is None and folder.is_dir())
    assert session_start._environment_ready() == "no"
    (tmp_path / "plugin" / ".venv").mkdir()
    assert session_start._environment_ready() == "yes" and asked == [tmp_path / "plugin" / ".venv"] * 2


def test_a_checkout_that_cannot_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only mount: its mode bits say nothing."""
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    variables = {"HOME": "/home/me"}
    first, second = (environment_folder(clone(tmp_path / name), variables) for name in "ab")
    assert first.parent == Path("/home/me/.local/share/kernelwright")
    assert first != second
    assert environment_folder(tmp_path / "a", {**variables, "XDG_DATA_HOME": "/x"}).parent == Path("/x/kernelwright")
    (tmp_path / "a" / ".venv").mkdir()  # made when it could be written to
    assert environment_folder(tmp_path / "a", variables) == tmp_path / "a" / ".venv"


OUTPUTS = {
    "pip, index out of reach": (
        "ERROR: Could not find a version that satisfies the requirement six==1.16.0 (from versions: none)",
        "no_package_index",
    ),
    "uv, no name service": (
        "error: Request failed after 3 retries in 7.4s\n  cause: dns error\n  cause: error resolving DNS",
        "no_package_index",
    ),
    "uv, offline": ("hint: Packages were unavailable because the network was disabled.", "no_package_index"),
    "pip, another file": ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "hash_mismatch"),
    "uv, another file": ("error: Failed to download `six==1.16.0`\n  cause: Hash mismatch for `six==1.16.0`", "hash_mismatch"),
    "venv, full disk": ("Error: [Errno 28] No space left on device", "no_disk_space"),
    "anything else": ("Traceback ...\nImportError: libstdc++.so.6: cannot open shared object file\nbye", "setup_failed"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_a_failed_installation_means(name: str, tmp_path: Path) -> None:
    output, code = OUTPUTS[name]
    error = explain.install_failed("installing", output, tmp_path, tmp_path / "the.log", ("numpy",))
    assert error.code == code
    assert error.exit_code == 3
    assert error.fix and "\n" not in error.line()
    assert ("the.log" in error.line()) == (code != "no_disk_space")
    if code == "setup_failed":
        assert "libstdc++" in error.message


def test_a_full_disk_is_seen_though_the_installer_hides_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = "Error: Command '['env/bin/python', '-m', 'ensurepip']' returned non-zero exit status 1."
    monkeypatch.setattr(explain, "free_mb", lambda folder: 3)
    error = explain.install_failed("making it", output, tmp_path, tmp_path / "log", ("numpy",))
    assert error.code == "no_disk_space"
    assert "3 MB free" in error.message


@pytest.mark.parametrize(("file", "needed_mb"), [("torch-2.13.0+cpu-cp311.whl", 1000), ("nvidia_cudnn_cu13-9.20.0.48.whl", 7500)])
def test_a_disk_that_torch_filled_is_told_what_this_build_of_torch_needs(tmp_path: Path, file: str, needed_mb: int) -> None:
    output = f"Downloading {file}\nERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
    runner = SimpleNamespace(run=lambda what, command: False, output=output, log=tmp_path / "log")
    with pytest.raises(SetupError, match=f"about {needed_mb} MB needed") as failed:
        torch_install._install(Path(sys.executable), tmp_path / "environment", cast(Runner, runner))
    assert failed.value.code == "no_disk_space" and "KERNELWRIGHT_ENV" in failed.value.fix


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert explain.free_mb(tmp_path / "not" / "yet") == pytest.approx(explain.free_mb(tmp_path), rel=0.05)


def test_a_lock_has_one_hash_whatever_git_did_to_its_line_ends(tmp_path: Path) -> None:
    (tmp_path / "unix").write_bytes(b"a==1\nb==2\n")
    (tmp_path / "dos").write_bytes(b"a==1\r\nb==2\r\n")
    (tmp_path / "other").write_bytes(b"a==1\nb==3\n")
    assert lock_hash(tmp_path / "unix") == lock_hash(tmp_path / "dos") != lock_hash(tmp_path / "other")
