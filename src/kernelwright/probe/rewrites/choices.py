"""Which kernels were fastest, kept from one process to the next: each candidate is a file of its own, and so is what is kept of it, for
which Triton compiles every tile anew. Copied into files that choose between tiles."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path

import torch


class Choices:
    """A file beside Triton's own compiled kernels. modes: names that a choice may have; sizes: how many numbers its tile may have."""

    def __init__(self, name: str, modes: Collection[str], sizes: Collection[int]) -> None:
        self.name, self.modes, self.sizes = name, modes, sizes

    def file(self) -> Path:
        """Where it is."""
        folder = os.environ.get("TRITON_CACHE_DIR") or os.path.join(os.path.expanduser("~"), ".triton", "cache")
        return Path(folder) / f"{self.name}.json"

    def kept(self) -> dict[str, list[tuple[str, list[int]]]]:
        """{key: [(mode, tile), ...]}; empty where there is no such file, or none that is in order."""
        try:
            stored = json.loads(self.file().read_text()[:1_000_000])
            kept = {str(key): [(str(mode), [int(number) for number in tile]) for mode, tile in rows] for key, rows in stored.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
        in_order = all(mode in self.modes and len(tile) in self.sizes for rows in kept.values() for mode, tile in rows)
        return kept if in_order else {}

    def keep(self, key: str, found: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Adds one choice; where it can't be written, the next process measures again."""
        file = self.file()
        temporary = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps({**self.kept(), key: [(mode, list(tile)) for mode, tile in found]}))
            os.replace(temporary, file)
        except OSError:
            return


def machine_of(x: torch.Tensor, triton: object) -> str:
    """What every choice depends on: the device and the versions."""
    device = torch.cuda.get_device_name(x.device) if x.is_cuda else "cpu"
    return "|".join([device, torch.__version__, getattr(triton, "__version__", "none")])
