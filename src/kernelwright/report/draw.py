"""Draws the roofline of a stored profile: `python -m kernelwright.report.draw PROFILE_DIR [OUT_DIR]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..model.errors import BadInput, KernelwrightError
from ..model.profile import Profile
from .roofline import write_roofline

USAGE = "usage: python -m kernelwright.report.draw PROFILE_DIR [OUT_DIR]\n"


def main(argv: Sequence[str]) -> int:
    """PROFILE_DIR [OUT_DIR] -> roofline.svg and roofline.png there; prints their paths."""
    if len(argv) not in (1, 2) or argv[0].startswith("-"):
        sys.stderr.write(USAGE)
        return 0 if argv[:1] in (["-h"], ["--help"]) else 2
    try:
        written = write_roofline(Profile.load(Path(argv[0])), Path(argv[-1]) if len(argv) == 2 else _folder(Path(argv[0])))
        if not written:
            raise BadInput("no_roofline", "the profile knows no work of its stages, or no roof, so there is nothing to draw", where=argv[0],
                           fix="profile with --mode annotation; its report says what is not known")
    except KernelwrightError as error:
        sys.stderr.write(f"{error.line()}\n")
        return error.exit_code
    sys.stdout.write("".join(f"{path.resolve()}\n" for path in written))
    return 0


def _folder(named: Path) -> Path:
    """Where a profile lies that was named by its folder or its profile.json."""
    return named if named.is_dir() else named.parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
