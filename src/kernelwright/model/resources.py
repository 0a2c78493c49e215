"""Where kernelwright's data lies: knowledge/ and templates/, in a checkout or in an installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def resource(name: str) -> Path:
    """The file or folder of this name, e.g. "knowledge/devices.yaml" or "templates".

    The checkout's own comes first, so that an edit there counts at once; an installed package has a copy in kernelwright/_data.
    Raises FileNotFoundError naming both places.
    """
    places = [_PACKAGE / "_data" / name]
    if _PACKAGE.parent.name == "src":
        places.insert(0, _PACKAGE.parents[1] / name)
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"kernelwright's data {name!r} is missing: looked at {' and '.join(map(str, places))}")
