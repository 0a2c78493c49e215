"""File access of the candidate's process by allow-list: reading everywhere but in hidden folders, writing in a few (landlock(7)).

Inherited by every process started from here on, and irrevocable. It also keeps this process and its children from tracing,
reading the memory of, and (from ABI 6) signalling any process outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Sequence

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_FLAG, PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE = 1 << 13, 1 << 14
CHANGE_ENTRIES = sum(1 << bit for bit in range(4, 13))
"""Remove and make entries of every kind."""
SCOPES = 0b11
"""Abstract sockets and signals stay inside."""
TCP = 0b11
LEAST_ABI = 2
"""ABI 1 refuses every rename from one folder to another, which Triton's cache needs."""
TRUNCATE_ABI, TCP_ABI, SCOPE_ABI = 3, 4, 6
MOST_RULES = 20_000


def version() -> int:
    """The ABI that the kernel offers; 0: none."""
    return max(0, int(_libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_FLAG))))


def restrict(write: Sequence[str], write_files: Sequence[str], hidden: Sequence[str]) -> int:
    """Confine this thread and all that it starts. Returns the ABI; raises OSError with the reason where the machine cannot.

    write: folders that may be changed; write_files: single files (devices) that may be written; hidden: folders that may not be read.
    """
    abi = version()
    if abi < LEAST_ABI:
        raise OSError(0, f"Landlock's ABI here is {abi}, and {LEAST_ABI} is needed")
    truncate = TRUNCATE if abi >= TRUNCATE_ABI else 0
    change = WRITE_FILE | CHANGE_ENTRIES | REFER | truncate
    handled = EXECUTE | READ_FILE | READ_DIR | change
    attributes = struct.pack("<QQQ", handled, TCP if abi >= TCP_ABI else 0, SCOPES if abi >= SCOPE_ABI else 0)
    size = 24 if abi >= SCOPE_ABI else 16 if abi >= TCP_ABI else 8
    ruleset = _call(CREATE_RULESET, attributes[:size], ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        _allow(ruleset, "/", READ_DIR)
        for path in readable(hidden):
            _allow(ruleset, path, EXECUTE | READ_FILE)
        for path in write:
            _allow(ruleset, path, EXECUTE | READ_FILE | READ_DIR | change)
        for path in write_files:
            with contextlib.suppress(OSError):
                _allow(ruleset, path, READ_FILE | WRITE_FILE | truncate)
        _call(RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)
    return abi


def readable(hidden: Sequence[str]) -> list[str]:
    """Paths that together hold every file but those in the hidden folders. Links are left out: what they lead to is there by itself."""
    real = [os.path.realpath(path) for path in hidden]
    found: list[str] = []
    pending = ["/"]
    while pending:
        folder = pending.pop()
        if not any(path == folder or path.startswith(folder.rstrip("/") + "/") for path in real):
            found.append(folder)
        elif folder not in real:
            with os.scandir(folder) as entries:
                pending += [entry.path for entry in entries if not entry.is_symlink()]
        if len(found) > MOST_RULES:
            raise OSError(0, f"more than {MOST_RULES} files lie beside the judge's folder")
    return found


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # gone since it was listed
    try:
        if not stat.S_ISDIR(os.fstat(file).st_mode):  # the kernel takes no others for a file
            rights &= EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE
        _call(ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(PATH_BENEATH), struct.pack("<Qi", rights, file), ctypes.c_uint32(0))
    finally:
        os.close(file)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
