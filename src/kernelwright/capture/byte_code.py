"""A place for torch's byte code where it has none of its own, so that one process of a profile compiles it for all later ones."""

from __future__ import annotations

import hashlib
import os
import sys

from .cache import cache_dir
from .interpreter import Interpreter

VARIABLE = "KERNELWRIGHT_BYTE_CODE"


def byte_code_variables(interpreter: Interpreter) -> dict[str, str]:
    """What tells a probe where to keep the byte code of what is installed beside torch; empty where that needs no place of ours.

    Only a folder of this user's that nobody else can write to: what lies there is run. One for each interpreter and version of torch.
    """
    if not interpreter.compiles_anew:
        return {}
    name = hashlib.sha256(f"{interpreter.path}\0{interpreter.torch_version}".encode()).hexdigest()[:16]
    try:
        folder = cache_dir().absolute() / "byte-code" / name
        folder.mkdir(parents=True, exist_ok=True)
        if sys.platform != "win32":
            for own in (folder, folder.parent):
                found = own.lstat()
                if found.st_uid != os.geteuid() or found.st_mode & 0o022:
                    return {}
    except (OSError, RuntimeError):  # RuntimeError: no home folder. It only costs time
        return {}
    return {VARIABLE: str(folder)}
