"""Takes environments of processes out of an SQLite export of Nsight Systems.

nsys reads the environment of every process that it may look at (/proc/*/environ), not of the recorded one only, and keeps each as one text
with NUL between the variables. Nothing of that is needed for a timeline. The report itself (.nsys-rep) can't be scrubbed.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ..model.errors import BadInput, NotWritable
from .profiled import SECRET_NAME, allowed

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.()%-]*=")
_OWN = frozenset({"PYTHONUNBUFFERED", "KERNELWRIGHT_STARTER", "KERNELWRIGHT_UNDER", "KERNELWRIGHT_PYCACHE", "PWD", "OLDPWD", "SHLVL", "_"})
"""What we and the shell between set besides the allow-list."""
_INJECTED = ("NSYS_", "QUADD_", "NVTX_", "CUDA_INJECTION", "LD_PRELOAD", "OPENSSL_", "NSIGHT_", "INJECTION_", "NV_", "VK_")
"""What nsys itself sets in the process that it starts."""
MAX_VARIABLES = 100_000
_ENVIRONMENT = re.compile(rb"[A-Za-z_][^=]*=")


@dataclass(frozen=True)
class Scrubbed:
    """What was taken out."""

    blocks: int
    """Environments found, each of one process or of several alike."""
    foreign: int
    """Of these, with variables that the recorded process was not given."""


def scrub_environments(database: Path, given: Collection[str] = ()) -> Scrubbed:
    """Take the environments out of a database of ours, in place. given: names of the variables that the recorded process got.

    Raises BadInput where it is no such database, NotWritable."""
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.text_factory = bytes
            connection.execute("PRAGMA trusted_schema=OFF")
            connection.execute("PRAGMA secure_delete=ON")
            return _scrub(connection, given)
    except (sqlite3.DatabaseError, MemoryError) as error:
        why = str(error) or "it needs more memory than there is"
        raise BadInput("not_nsys_sqlite", f"is no SQLite export of Nsight Systems that can be changed ({why})", where=str(database),
                       fix="export the report again: nsys export --type sqlite FILE.nsys-rep") from error
    except OSError as error:
        raise NotWritable(error, database) from error


def _scrub(connection: sqlite3.Connection, given: Collection[str]) -> Scrubbed:
    (sound,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if sound != b"ok":  # pages that belong to two rows would multiply without end, here and in VACUUM
        raise sqlite3.DatabaseError(f"it is damaged: {sound.decode('utf-8', 'replace')[:200]}")
    tables = {name.decode("utf-8", "replace") for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone()[0]:
        raise sqlite3.DatabaseError("it has triggers")
    blocks = foreign = 0
    if "StringIds" in tables:
        removed = []
        for number, value in connection.execute("SELECT id, value FROM StringIds WHERE typeof(value) = 'text'"):
            suspect = b"\0" in value or _ENVIRONMENT.match(value)
            kind = _kind(value.decode("utf-8", "surrogateescape"), given) if suspect else None
            if kind is not None:
                removed.append((number,))
                blocks, foreign = blocks + 1, foreign + (kind == "foreign")
        connection.executemany("UPDATE StringIds SET value = '' WHERE id = ?", removed)
    if "META_DATA_CAPTURE" in tables:
        connection.execute("DELETE FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT%'")
    connection.commit()
    if connection.total_changes:
        connection.execute("VACUUM")
    return Scrubbed(blocks, foreign)


def _kind(text: str, given: Collection[str]) -> str | None:
    """"own" or "foreign" for an environment, None for any other text."""
    parts = [part for part in text.split("\0")[:MAX_VARIABLES] if part]
    variables = dict(part.split("=", 1) for part in parts if _VARIABLE.match(part))
    if not variables or ("\0" not in text and not any(SECRET_NAME.search(name) or name == "PATH" for name in variables)):
        return None
    if "\0" in text and 2 * len(variables) < len(parts):
        return None  # some other list
    known = allowed(variables)
    strange = [name for name in variables
               if name not in known and name not in given and name not in _OWN and not name.startswith(_INJECTED)]
    return "foreign" if strange else "own"
