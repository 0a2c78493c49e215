"""What --clocks may ask for, and the figures of knowledge/clocks.yaml."""

from __future__ import annotations

from functools import cache

import yaml
from pydantic import ValidationError

from ...model.base import Record
from ...model.errors import MachineLacks
from ...model.resources import resource
from ...model.yaml_file import read_yaml


class ProbeSettings(Record):
    """How the clock to lock at is found."""

    settle_s: float
    sample_s: float
    tries: int
    foreign_pct: float


class ClockSettings(Record):
    """`knowledge/clocks.yaml`."""

    tolerance_mhz: int
    held_share_pct: float
    unsteady_pct: float
    unsteady_samples: int
    probe: ProbeSettings


@cache
def settings() -> ClockSettings:
    """The data file. Raises MachineLacks."""
    try:
        return ClockSettings.model_validate(read_yaml(resource("knowledge/clocks.yaml")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise MachineLacks("knowledge_broken", f"the data file can't be used: {error}", where="clocks.yaml", fix="reinstall kernelwright") \
            from error


def valid_request(asked: str) -> bool:
    """Whether --clocks (or `clocks:` of a project file) may be this: none, lock or a number of MHz."""
    return asked in ("none", "lock") or (asked.isascii() and asked.isdigit() and 100 <= int(asked) <= 10_000)
