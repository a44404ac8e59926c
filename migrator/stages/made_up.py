"""Values of a parameter that no column gives."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from uuid import UUID

from migrator.mapping.geo import reach_m
from migrator.mapping.param_texts import list_text
from migrator.model import Param, ParamType, Pattern

MADE_UP = "made up"
_LIMIT = 20
_FIRST_DAY = date(2020, 1, 1)


def made_up(pattern: Pattern, param: Param, rng: random.Random, texts: Mapping[str, str]) -> str:
    """A text of the parameter's type; a limit is 1 to 20, a distance one that the cells asked cover.

    `texts`: of the parameters that are known.
    """
    if pattern.near is not None and param.name == pattern.near.within_m:
        return str(1 + int(rng.random() * 0.9 * _reach_m(pattern, texts)))
    made = str(rng.randint(1, _LIMIT)) if param.name == pattern.limit else _MAKERS[param.type](rng)
    return list_text([made]) if param.many else made


def _reach_m(pattern: Pattern, texts: Mapping[str, str]) -> float:
    near, star = pattern.near, pattern.star
    latitude = texts.get(near.origin[0]) if near else None
    if star is None or latitude is None:
        return 1.0
    return reach_m(float(latitude), int(star.filters[0].args[0]))


def _day(rng: random.Random) -> date:
    return _FIRST_DAY + timedelta(days=rng.randrange(3650))


_MAKERS: dict[ParamType, Callable[[random.Random], str]] = {
    "integer": lambda rng: str(rng.randint(1, _LIMIT)),
    "number": lambda rng: f"{rng.randint(1, 10_000) / 100:.2f}",
    "text": lambda rng: f"{rng.getrandbits(32):08x}",
    "boolean": lambda rng: rng.choice(["true", "false"]),
    "date": lambda rng: _day(rng).isoformat(),
    "timestamp": lambda rng: datetime.combine(_day(rng), datetime.min.time()).isoformat(),
    "uuid": lambda rng: str(UUID(int=rng.getrandbits(128), version=4)),
    "binary": lambda rng: base64.b64encode(rng.randbytes(8)).decode("ascii"),
}
