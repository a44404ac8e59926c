"""Templates of plain text: files that are mappings, modules and worksheets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


@cache
def text_template(package: str, name: str, **filters: Callable[..., str]) -> Template:
    environment = Environment(
        loader=PackageLoader(package, "."),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name)
