"""The Jinja environment of every document. Wording lives in templates/*.j2 alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jinja2

from ..model.resources import resource
from . import numbers
from .text import bullet, cell, code, named

TEXT_LIMIT = 400


def _inert(value: Any) -> str:
    """Whatever a template prints goes through here, so that no value can reach a document unescaped."""
    return cell(value, TEXT_LIMIT)


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Undefined names are errors; every printed value is made inert for Markdown. Raises KernelwrightError."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(resource("templates"))), undefined=jinja2.StrictUndefined, autoescape=False,
        finalize=_inert, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    env.filters.update(cell=cell, bullet=bullet, code=code, named=named)
    for name in ("us", "pct", "percent", "whole_pct", "two", "x_xx", "amount", "si", "figure", "signed", "gain", "faster_or_slower",
                 "quantity"):
        env.filters[name] = getattr(numbers, name)
    return env


def render(template: str, **values: Any) -> str:
    """Fill templates/<template>; ends with exactly one line end."""
    return environment().get_template(template).render(**values).rstrip("\n") + "\n"
