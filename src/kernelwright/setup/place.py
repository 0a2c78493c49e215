"""Where the environment lives: a pure decision from the checkout's place and the user's variables, one for the commands and the hooks."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
"""The folder that holds src/, scripts/ and requirements.lock."""
WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def environment_folder(checkout: Path, variables: Mapping[str, str]) -> Path:
    """The environment's folder, there already or not. First that applies:

    1. KERNELWRIGHT_ENV;
    2. installed as a plugin: the plugin's data folder, which outlives updates of the plugin;
    3. CHECKOUT/.venv, if there is one, or if this is a git checkout that can be written to;
    4. a per-user data folder, one for each checkout.

    What the folder is decides before whether it can be written to: root can write anywhere, and a copy without .git may be a plugin
    that some client put or reads there and says nothing about.
    """
    asked = variables.get("KERNELWRIGHT_ENV")
    if asked:
        return Path(asked).expanduser().absolute()
    data = plugin_data_folder(checkout)
    if data is not None:
        return data / "env"
    own = checkout / ".venv"
    if own.exists() or ((checkout / ".git").exists() and _may_be_written_to(checkout)):  # .git is a file in a worktree
        return own
    return user_data_folder(variables) / "kernelwright" / f"env-{hashlib.sha256(os.fsencode(checkout)).hexdigest()[:8]}"


def plugin_data_folder(checkout: Path) -> Path | None:
    """The data folder of an installed plugin, None for a plain checkout (`claude --plugin-dir` included).

    Of an installed plugin the place of the checkout tells: plugins/cache/MARKETPLACE/PLUGIN/VERSION, whose data folder is
    plugins/data/PLUGIN-MARKETPLACE. CLAUDE_PLUGIN_DATA is not asked: clients export it to hooks only, not to the commands that an agent
    runs, and both must find the same environment.
    """
    parts = checkout.parts
    if len(parts) > 5 and parts[-5:-3] == ("plugins", "cache"):
        marketplace, plugin = parts[-3], parts[-2]
        return Path(*parts[:-4]) / "data" / f"{plugin}-{marketplace}"
    return None


def user_data_folder(variables: Mapping[str, str]) -> Path:
    """The operating system's folder for one user's application data."""
    home = Path(variables.get("HOME") or Path.home())
    if sys.platform == "win32":
        return Path(variables.get("LOCALAPPDATA") or home / "AppData" / "Local")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support"
    return Path(variables.get("XDG_DATA_HOME") or home / ".local" / "share")


def _may_be_written_to(folder: Path) -> bool:
    """By its mode bits too: root passes os.access whatever they say."""
    try:
        bits = folder.stat().st_mode & WRITABLE
    except OSError:
        return False
    return bool(bits) and os.access(folder, os.W_OK)


def python_of(environment: Path) -> Path:
    """The interpreter inside an environment."""
    return environment / "Scripts" / "python.exe" if sys.platform == "win32" else environment / "bin" / "python"
