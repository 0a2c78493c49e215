"""The roofline and the contract that the documents show, drawn from a profile: docs/pictures/NAME_roofline.svg, .png and NAME_contract.md.

    python3 scripts/profile_kernel.py examples/gpt2.py --compile-mode inductor --out build/gpt2
    PYTHONPATH=src python bench/picture.py build/gpt2 gpt2

Without a GPU: `python bench/picture.py recording gpt2` draws from the recording in tests/data/ncu.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelwright.model.errors import BadInput, KernelwrightError
from kernelwright.model.files import write_bytes_atomic, write_text_atomic
from kernelwright.model.profile import Profile
from kernelwright.report import render_contract
from kernelwright.report.roofline import draw

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"


def main(argv: Sequence[str]) -> int:
    """PROFILE_DIR NAME, or recording NAME -> the files; prints their paths."""
    if len(argv) != 2 or not argv[1].isidentifier():
        print("usage: python bench/picture.py PROFILE_DIR NAME | recording NAME", file=sys.stderr)
        return 2
    try:
        profile = _recording(argv[1]) if argv[0] == "recording" else Profile.load(Path(argv[0]))
        pictures = draw(profile)
        if not pictures:
            raise BadInput("no_roofline", "the profile has no roofline", where=argv[0], fix="profile with --mode annotation")
        for name, content in pictures.items():
            print(write_bytes_atomic(PICTURES / f"{argv[1]}_{name}", content))
        print(write_text_atomic(PICTURES / f"{argv[1]}_contract.md", render_contract(profile)))
    except KernelwrightError as error:
        print(error.line(), file=sys.stderr)
        return error.exit_code
    return 0


def _recording(name: str) -> Profile:
    sys.path.insert(0, str(ROOT / "tests"))
    from recorded_profiles import CAPTURES, recorded_profile

    if name not in CAPTURES:
        raise BadInput("no_recording", "no such recording", where=name, fix=f"name one of {', '.join(CAPTURES)}")
    with tempfile.TemporaryDirectory() as folder:
        return recorded_profile(name, Path(folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
