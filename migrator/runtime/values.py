"""Changes and dictionaries of msgspec structs and dataclasses.

A plain value is a frozen `msgspec.Struct`: a command loads some 500 classes, made 40 times as fast as
dataclasses. Types with more than fields (a lock, an uncompared field) are dataclasses.
"""

from __future__ import annotations

import dataclasses
from operator import add
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct, structs

if TYPE_CHECKING:
    # Type checkers know what these two check, and treat a struct as a dataclass.
    from dataclasses import asdict as asdict
    from dataclasses import replace as replace
else:

    def replace(value: Any, /, **changes: Any) -> Any:
        change = structs.replace if isinstance(value, Struct) else dataclasses.replace
        return change(value, **changes)

    def asdict(value: Any) -> Any:
        if isinstance(value, Struct):
            return {name: asdict(getattr(value, name)) for name in value.__struct_fields__}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {one.name: asdict(getattr(value, one.name)) for one in dataclasses.fields(value)}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(asdict, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(asdict, value))
        if isinstance(value, dict):
            return {asdict(name): asdict(one) for name, one in value.items()}
        return value


class Summed(Struct, frozen=True):
    """Numbers that are added field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*map(add, structs.astuple(self), structs.astuple(other)))

    def __neg__(self) -> Self:
        return type(self)(*(-number for number in structs.astuple(self)))


def picked(value: object, *names: str) -> dict[str, Any]:
    return {name: asdict(getattr(value, name)) for name in names}
