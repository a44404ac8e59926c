"""A service's session on PostgreSQL: what of its settings would make an image another one than a trigger makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from migrator.facts import Column
from migrator.source.adapter.driver import Driver

_WANTED = {
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "TimeZone": "UTC",
}
EVERY_SETTING = tuple(_WANTED)
_WHOLE = {"row_security": "off"}
"""An error where a policy would leave rows out."""
FOR_READING = (*EVERY_SETTING, *_WHOLE)
"""What our reads inside of a service's transaction need."""
_AS_THEY_ARE = frozenset({"integer", "number", "text", "boolean", "uuid"})
_BY_KIND: Mapping[str, tuple[str, ...]] = {
    # A zone is written with the moment, so that any will do.
    **dict.fromkeys(("date", "time", "timestamp"), ("DateStyle",)),
    "float": ("extra_float_digits",),
    "binary": ("bytea_output",),
}
_PLAIN_TEXT = ("character", "text", "varchar", "char", "bpchar", "name", "citext")


def settings_for(columns: Sequence[Column]) -> tuple[str, ...]:
    """The settings that the text of such columns depends on."""
    found: list[str] = []
    for column in columns:
        kind = column.kind.name
        if kind in _BY_KIND:
            found += _BY_KIND[kind]
        elif kind not in _AS_THEY_ARE or (
            kind == "text" and not column.declared.lower().startswith(_PLAIN_TEXT)
        ):
            found += _WANTED
    return tuple(dict.fromkeys(found))


def fits(names: Sequence[str]) -> str:
    """SQL that says whether the session's settings are as images need them."""
    tests = [f"current_setting('{name}') {_test(name)}" for name in names]
    return " AND ".join(tests) or "true"


def _test(name: str) -> str:
    if name == "DateStyle":
        return "LIKE 'ISO%'"
    if name == "extra_float_digits":
        return "IN ('1', '2', '3')"
    return f"= '{_WANTED[name]}'"


@contextmanager
def as_wanted(driver: Driver, names: Sequence[str]) -> Iterator[None]:
    """The settings as images need them, until the block ends; never longer than the transaction."""
    asked = ", ".join(f"current_setting('{name}')" for name in names)
    before = dict(zip(names, driver.rows(driver.sql(f"SELECT {asked}"))[0], strict=True))
    _set(driver, {name: (_WANTED | _WHOLE)[name] for name in names})
    try:
        yield
    except BaseException:
        # A transaction that has failed takes no statement any more, and its settings end with it.
        with suppress(Exception):
            _set(driver, before)
        raise
    _set(driver, before)


def _set(driver: Driver, values: Mapping[str, str]) -> None:
    sql = driver.sql("SELECT ")
    for number, (name, value) in enumerate(values.items()):
        sql.text(f"{', ' if number else ''}set_config('{name}', ").value(value).text(", true)")
    driver.rows(sql)
