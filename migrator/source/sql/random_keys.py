"""Random row keys without a scan: from random blocks on PostgreSQL, else from the index.

Elsewhere a value is drawn between the minimum and maximum of each key column. So a row after a gap is chosen
more often (not for integers), and each value of a key's first column is equally likely.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import takewhile, zip_longest
from random import Random
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.sql.elements import ColumnElement

from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.table import decode_key, encode_key
from migrator.runtime.values import replace
from migrator.source.engines.connect import engine_at
from migrator.source.sql import selects
from migrator.source.sql.selects import Key
from migrator.source.sql.transactions import first_rows

MOST_KEYS = 200
"""One SELECT with all keys puts them in order; see KEYS_A_SELECT."""
DRAWS_A_KEY = 5
"""Draws per key: some end at rows that were already chosen, such as after a gap, so fewer keys may be returned."""
DRAWS_A_VALUE = 4
"""Integers drawn without a row before the next existing one is taken."""
ROWS_A_KEY = 200
"""Rows read from TABLESAMPLE per requested key: a block has some hundred rows, of which few should be chosen."""


def random_keys(connection: Connection, plan: EntityPlan, number: int, rows: int, seed: int) -> list[Key]:
    """Up to MOST_KEYS different keys, in the source's order.

    Includes rows that the entity's `where` excludes. `rows`: the table's approximate number.
    """
    wanted = min(number, MOST_KEYS)
    # A sample of blocks has no computed columns.
    is_plain = all(column.sql is None for column in plan.key)
    by_blocks = is_plain and engine_at(connection).schema.has_blocks(connection, plan.table)
    keys = _by_blocks(connection, plan, wanted, rows, seed) if by_blocks else []
    return _in_order(connection, plan, keys or _by_values(connection, plan, wanted, Random(seed)))


def _in_order(connection: Connection, plan: EntityPlan, keys: Sequence[Key]) -> list[Key]:
    if not keys:
        return []
    root = selects.named(plan.table, "root")
    key = selects.key_of(plan, root)
    conditions = selects.chosen(replace(plan, where=()), root, list(map(_bindable, keys)))
    return first_rows(connection, sa.select(*key).select_from(root).where(*conditions).order_by(*key))


# ── by blocks of the table ──


def _by_blocks(connection: Connection, plan: EntityPlan, number: int, rows: int, seed: int) -> list[Key]:
    percent = min(100.0, 100.0 * ROWS_A_KEY * number / max(1, rows))
    sampled = sa.tablesample(
        selects.unnamed(plan.table), sa.func.pg_catalog.system(percent), name="root", seed=sa.literal(seed)
    )
    key = selects.key_of(plan, sampled)
    by_chance = sa.func.pg_catalog.hashtextextended(sa.func.pg_catalog.concat_ws("/", *key), seed)
    statement = sa.select(*key).where(*selects.with_key(plan, sampled)).order_by(by_chance).limit(number)
    return first_rows(connection, statement)


# ── by values between the smallest and the largest ──


def _by_values(connection: Connection, plan: EntityPlan, number: int, chance: Random) -> list[Key]:
    keys: dict[str, Key] = {}
    walk = _Index(connection, plan)
    for _ in range(DRAWS_A_KEY * number):
        key = walk.drawn(chance)
        if key is None or len(keys) == number:
            break
        keys[encode_key(key)] = key
    return list(keys.values())


class _Index:
    """Looks up single positions in a key's index; remembers gaps between integers."""

    def __init__(self, connection: Connection, plan: EntityPlan) -> None:
        self._connection = connection
        self._root = selects.named(plan.table, "root")
        self._columns = selects.key_of(plan, self._root)
        self._with_key = selects.with_key(plan, self._root)
        self._ranges: dict[Key, list[tuple[Any, Any]]] = {}

    def drawn(self, chance: Random) -> Key | None:
        key: Key = ()
        for _ in self._columns:
            if not (ranges := self._ranges_of(key)):
                return None
            key = (*key, self._value_in(ranges, key, chance))
        return key

    def _ranges_of(self, begins: Key) -> list[tuple[Any, Any]]:
        if begins not in self._ranges:
            column = self._columns[len(begins)]
            first, last = self._first(begins, column), self._first(begins, column.desc())
            self._ranges[begins] = [] if first is None else [(first, last)]
        return self._ranges[begins]

    def _value_in(self, ranges: list[tuple[Any, Any]], begins: Key, chance: Random) -> Any:
        """The first existing value from a drawn one on. An integer without a row is drawn again, without its gap."""
        column = self._columns[len(begins)]
        for _ in range(DRAWS_A_VALUE):
            low, high = _one_of(ranges, chance)
            drawn = between(low, high, chance)
            # Only the source compares drawn values: one that it sorts after the largest becomes the largest.
            nearest = self._first(begins, column, column >= _value(column, drawn))
            nearest = high if nearest is None else nearest
            if type(nearest) is not int or nearest == drawn:
                break
            before = self._first(begins, column.desc(), column < _value(column, drawn))
            ranges.remove((low, high))
            ranges += [(low, before), (nearest, high)]
        return nearest

    def _first(self, begins: Key, order: ColumnElement[Any], *wanted: ColumnElement[bool]) -> Any:
        column = self._columns[len(begins)]
        key_columns = self._columns[: len(begins)]
        equal = [own == _value(own, value) for own, value in zip(key_columns, begins, strict=True)]
        statement = (
            sa.select(column)
            .select_from(self._root)
            .where(*self._with_key, *equal, *wanted)
            .order_by(order)
            .limit(1)
        )
        rows = first_rows(self._connection, statement)
        return rows[0][0] if rows else None


def _one_of(ranges: Sequence[tuple[Any, Any]], chance: Random) -> tuple[Any, Any]:
    weights = [high - low + 1 for low, high in ranges] if len(ranges) > 1 else [1]
    return chance.choices(ranges, weights)[0]


def _bindable(key: Sequence[Any]) -> Key:
    return decode_key(encode_key(key))


def _value(column: ColumnElement[Any], value: Any) -> ColumnElement[Any]:
    return selects.bound_values([column], _bindable([value]))[0]


def between(low: Any, high: Any, chance: Random) -> Any:
    """A random value; `low` for types that cannot be drawn.

    It may not exist in a row, nor lie between the two in the source's order.
    """
    kind = type(low)
    if kind is not type(high) or kind not in _BETWEEN:
        return low
    return _BETWEEN[kind](low, high, chance)


def _decimal(low: Decimal, high: Decimal, chance: Random) -> Decimal:
    return low + (high - low) * Decimal(chance.random())


def _bytes(low: bytes, high: bytes, chance: Random) -> bytes:
    size = max(len(low), len(high))
    first, last = (int.from_bytes(bound.ljust(size, b"\0"), "big") for bound in (low, high))
    return chance.randint(first, last).to_bytes(size, "big")


_DIGITS, _HEX, _UPPER_HEX = string.digits, string.digits + "abcdef", string.digits + "ABCDEF"
_ALPHABETS = [
    _DIGITS,
    _HEX,
    _UPPER_HEX,
    *(_DIGITS + letters for letters in (string.ascii_lowercase, string.ascii_uppercase)),
]
_DRAWN_CHARACTERS = 8


def _text(low: str, high: str, chance: Random) -> str:
    """The common prefix, then random characters of the smallest alphabet that contains both.

    Separators of both, such as the dashes of a date or a UUID, stay in their places.
    """
    begins = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(low, high, strict=False)))
    used = {character for character in low[begins:] + high[begins:] if character.isalnum()}
    letters = next(
        (alphabet for alphabet in _ALPHABETS if used <= set(alphabet)), _DIGITS + string.ascii_letters
    )
    first = [letter for letter in letters if low[begins : begins + 1] <= letter <= high[begins : begins + 1]]
    drawn = [chance.choice(first or [high[begins : begins + 1]])]
    for low_character, high_character in zip_longest(low[begins + 1 :], high[begins + 1 :]):
        same = low_character == high_character and not low_character.isalnum()
        drawn.append(low_character if same else chance.choice(letters))
    return low[:begins] + "".join(drawn[:_DRAWN_CHARACTERS])


_BETWEEN: dict[type, Callable[[Any, Any, Random], Any]] = {
    int: lambda low, high, chance: chance.randint(low, high),
    float: lambda low, high, chance: low + (high - low) * chance.random(),
    Decimal: _decimal,
    datetime: lambda low, high, chance: low + (high - low) * chance.random(),
    date: lambda low, high, chance: low + timedelta(days=chance.randint(0, (high - low).days)),
    UUID: lambda low, high, chance: UUID(int=chance.randint(low.int, high.int)),
    bytes: _bytes,
    str: _text,
}
