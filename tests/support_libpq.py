"""Answers of libpq that no server gave: what the native executor reads where libpq has it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import psycopg

from migrator.mapping.items import _native
from migrator.source.engines.postgresql.connect import _functions

_TUPLES_OK = 2


class _Column(ctypes.Structure):
    """PGresAttDesc of libpq-fe.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("tableid", ctypes.c_uint),
        ("columnid", ctypes.c_int),
        ("format", ctypes.c_int),
        ("typid", ctypes.c_uint),
        ("typlen", ctypes.c_int),
        ("atttypmod", ctypes.c_int),
    )


class Answer:
    """As psycopg has one: with these values as text, None for NULL."""

    def __init__(self, rows: Sequence[Sequence[bytes | None]], columns: int) -> None:
        self._library = library = ctypes.CDLL(str(sys.modules[psycopg.pq.PGresult.__module__].__file__))
        library.PQmakeEmptyPGresult.restype = ctypes.c_void_p
        made = library.PQmakeEmptyPGresult(None, _TUPLES_OK)
        self.pgresult_ptr: int | None = made
        self.ntuples, self.nfields = len(rows), columns
        described = (_Column * columns)(*(_Column(b"c") for _ in range(columns)))
        assert library.PQsetResultAttrs(ctypes.c_void_p(made), columns, described)
        for number, row in enumerate(rows):
            for place, value in enumerate(row):
                length = -1 if value is None else len(value)
                assert library.PQsetvalue(ctypes.c_void_p(made), number, place, value, length)

    def clear(self) -> None:
        if self.pgresult_ptr is not None:
            self._library.PQclear(ctypes.c_void_p(self.pgresult_ptr))
            self.pgresult_ptr = None

    __del__ = clear


def in_place(rows: Sequence[tuple[Any, ...]], columns: int) -> _native.Result:
    """The rows where libpq has them: a text as it is; other values, and places with such, by a function of their number."""
    functions = _functions()
    assert functions is not None
    values: list[Any] = []

    def is_text(value: Any) -> bool:
        return value is None or (type(value) is str and not any("\ud800" <= c <= "\udfff" for c in value))

    def text(place: int, value: Any) -> bytes | None:
        if value is None:
            return None
        if place in texts:
            return str(value).encode()
        values.append(value)
        return str(len(values) - 1).encode()

    texts = {place for place in range(columns) if all(is_text(row[place]) for row in rows)}
    answer = Answer([[text(place, value) for place, value in enumerate(row)] for row in rows], columns)
    loads = tuple(
        None if place in texts else (lambda number: values[int(number)]) for place in range(columns)
    )
    return _native.Result(answer, functions, loads, lambda first, behind: list(rows[first:behind]))
