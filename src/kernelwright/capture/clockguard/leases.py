"""The record of a clock lock: one file a GPU, with a lease for each process that counts on the lock.

The last lease to end resets the clocks. A lease whose process is gone is dead: whoever finds it resets in its place.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORD_SUFFIX = ".json"
FLOCK_WAIT_S = 1.0
"""A stopped process must not keep a watchdog from its reset: after this long it goes on without the file lock."""


@dataclass(frozen=True)
class Lease:
    """One holder. pid 0: locked by hand, without a process, until it is reset by hand."""

    token: str
    pid: int
    start: str
    """What tells a process from a later one of the same number (Linux: start time in ticks since boot); "" where unknown."""

    @property
    def by_hand(self) -> bool:
        """Held until somebody resets it."""
        return self.pid == 0


@dataclass(frozen=True)
class Record:
    """Clocks that kernelwright locked."""

    uuid: str
    mhz: int
    route: tuple[str, ...]
    """How it was locked: () through NVML, else the command in front of nvidia-smi's options."""
    boot: str
    """The boot it was made in: a restart undoes every lock."""
    since: str
    leases: tuple[Lease, ...]


def state_dir() -> Path:
    """KERNELWRIGHT_STATE, else the platform's per-user state folder. Not created here."""
    if os.environ.get("KERNELWRIGHT_STATE"):
        return Path(os.environ["KERNELWRIGHT_STATE"])
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "kernelwright"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "kernelwright" / "State"
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "kernelwright"


def records_dir() -> Path:
    """Where the records lie."""
    return state_dir() / "clocks"


def record_path(uuid: str) -> Path:
    """The record of one GPU."""
    return records_dir() / (re.sub(r"[^A-Za-z0-9-]", "_", uuid)[:80] + RECORD_SUFFIX)


@contextlib.contextmanager
def guarded(uuid: str) -> Iterator[None]:
    """Alone with this GPU's record (a file lock, for at most FLOCK_WAIT_S). Raises OSError when the folder can't be made."""
    records_dir().mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(record_path(uuid).with_suffix(".flock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _flock(handle)
        yield
    finally:
        os.close(handle)


def _flock(handle: int) -> None:
    if sys.platform == "win32":
        return
    import fcntl

    deadline = time.monotonic() + FLOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return
            time.sleep(0.02)


def read(uuid: str) -> Record | None:
    """The record of a GPU; None when there is none, it is unreadable, or from before the last restart (which undid the lock)."""
    record = _read(record_path(uuid))
    return record if record is not None and record.uuid == uuid and record.boot == boot_id() else None


def recorded() -> list[Record]:
    """All records of this boot."""
    try:
        files = sorted(records_dir().glob("*" + RECORD_SUFFIX))
    except OSError:
        return []
    found = [_read(file) for file in files]
    return [record for record in found if record is not None and record.boot == boot_id()]


def _read(path: Path) -> Record | None:
    try:
        with path.open("rb") as file:
            document: Any = json.loads(file.read(1 << 16))
        rows = tuple(Lease(str(row["token"]), int(row["pid"]), str(row["start"])) for row in document["leases"])
        route = tuple(str(part) for part in document["route"])
        return Record(str(document["uuid"]), int(document["mhz"]), route, str(document["boot"]), str(document["since"]), rows)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(record: Record) -> None:
    """Keep a record, whole or not at all. Raises OSError."""
    path = record_path(record.uuid)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(dataclasses.asdict(record), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove(uuid: str) -> None:
    """Forget a record."""
    record_path(uuid).unlink(missing_ok=True)


def living(record: Record) -> tuple[Lease, ...]:
    """The leases that still hold."""
    return tuple(lease for lease in record.leases if alive(lease))


def alive(lease: Lease) -> bool:
    """Whether the lease's process still runs (a lease by hand always holds)."""
    if lease.by_hand:
        return True
    try:
        os.kill(lease.pid, 0)
    except (ProcessLookupError, OverflowError):  # OverflowError: no process can have this number
        return False
    except PermissionError:
        pass
    return start_of(lease.pid) == lease.start


def start_of(pid: int) -> str:
    """Start time of a process in clock ticks since boot, "" where the platform does not tell; "gone" for a zombie or no process."""
    if sys.platform != "linux":
        return ""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "gone"
    return "gone" if fields[0] in "ZX" else fields[19]  # proc(5): state is field 3, starttime field 22


def boot_id() -> str:
    """Names this boot of the machine; "" where the platform does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
