"""Capture's triggers as values, with the statements that create and drop them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from migrator.mapping.model.facts import Captured, Column, columns_of, digest_of

VERSION = 1
"""The version of our two tables and of the images in marks; raised with every change of either."""


class Trigger(Struct, frozen=True):
    """One trigger of ours.

    `table`: as in Captured.name.
    `digest`: of the text of all triggers of its table.
    `undo`: drops what `create` makes.
    """

    table: str
    name: str
    digest: str
    create: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()


class ExistingTrigger(Struct, frozen=True):
    """A trigger of ours in the source.

    `text`: its body.
    `calls`: the statement that drops what it calls.
    """

    table: str
    name: str
    digest: str
    enabled: bool = True
    drop: tuple[str, ...] = ()
    text: str = ""
    calls: str = ""

    @property
    def refuses(self) -> bool:
        """Whether it refuses writes of others than `migrator reverse`, and leaves no mark."""
        return f"_{REFUSES}" in self.name


def trigger_name(table: str, event: str, digest: str) -> str:
    """At most 64 characters, MySQL's limit."""
    return f"migrator_{digest_of(table)}_{event}_{digest}"


REFUSES = "refuse"
"""In names of triggers that refuse."""


def refusal(table: str) -> str:
    """The error for a service: at most 128 characters, MySQL's limit for a trigger's message."""
    return f"migrator: rows of {table[:37]} are made of items in DynamoDB; write those instead (see docs/reverse.md)"


UPDATES_LISTED = "UPDATE {mark} SET {values} WHERE id IN ({ids})"
DELETES_LISTED = "DELETE FROM {mark} WHERE id IN ({ids})"


class Ddl(Protocol):
    """One dialect's statements. `tables` creates ours if missing, `no_tables` drops them."""

    mark: str
    ticket: str
    now: str

    def tables(self) -> list[str]: ...

    def no_tables(self) -> list[str]: ...

    def triggers(self, captured: Captured) -> list[Trigger]: ...

    def refusing(self, captured: Captured) -> list[Trigger]: ...

    def quoted(self, name: str) -> str: ...

    def image(self, columns: Sequence[Column], row: str) -> str:
        """SQL for JSON of written name -> type, a colon and the value's text."""


_COLUMN = re.compile(r'\b(?:NEW|OLD)\.("(?:[^"]|"")+"|`(?:[^`]|``)+`|\w+)', re.IGNORECASE)


def columns_named(*texts: str) -> set[str]:
    return {_plain(name) for text in texts for name in _COLUMN.findall(text)}


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '"`' else name


def words_of(captured: Captured) -> dict[str, tuple[str, ...]]:
    read = names_of(captured) if captured.watched is None else [*captured.columns, *captured.watched]
    words = {column.name: column.words for column in columns_of(captured, read) if column.words}
    return words | ({MADE_BY: captured.made_by} if captured.made_by else {})


MADE_BY = "definition of"
"""In place of a column's name: functions and views that values are made by."""
_NAME = re.compile(r"[\w$]+")


def made_by(texts: Sequence[str], definitions: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """A word for each definition named in these texts, directly or through others. `definitions`: by lower-case
    name.
    """
    found: dict[str, str] = {}
    waiting = list(texts)
    while waiting:
        text = waiting.pop().lower()
        for name in (text, *_NAME.findall(text)):
            if name in definitions and name not in found:
                found[name] = f"{name}@{int(digest_of(*definitions[name]), 16)}"
                waiting += definitions[name]
    return tuple(sorted(found.values()))


def columns_note(captured: Captured, digest: str) -> str:
    """A comment of one line, which changes if two columns swap names. `digest`: of the triggers' text without it."""
    return f"-- columns: {json.dumps([digest, *names_of(captured)])}"


def names_of(captured: Captured) -> list[str]:
    return [column.name for column in captured.table.columns if column.sql is None]


def are_in_order(now: Sequence[str], before: Sequence[str]) -> bool:
    """Whether no column has swapped its name with another."""
    in_both = {*now} & {*before}
    return [name for name in now if name in in_both] == [name for name in before if name in in_both]


_ORDER = ""
"""In place of a column's name: the table's columns in order."""


def spelling_of(captured: Captured) -> dict[str, tuple[str, ...]]:
    """The words of values and the order of columns, recorded by an install without triggers."""
    return {**words_of(captured), _ORDER: tuple(names_of(captured))}


def respelled(captured: Captured, noted: Mapping[str, Sequence[str]]) -> tuple[bool, tuple[str, ...]]:
    """Whether columns swapped names since `noted`, and the words that are gone."""
    words = words_of(captured)
    gone = dict.fromkeys(
        shown_word(column, word)
        for column, spelled in sorted(noted.items())
        if column in words
        for word in sorted({*spelled} - {*words.get(column, ())})
    )
    return not are_in_order(names_of(captured), noted.get(_ORDER, ())), tuple(gone)


_COLUMNS = re.compile(r"-- columns: (\[.*\])$", re.MULTILINE)


def is_same(trigger: Trigger, other: ExistingTrigger) -> bool:
    if (trigger.name, trigger.digest) == (other.name, other.digest):
        return True
    noted = [_COLUMNS.search(text) for text in ("".join(trigger.create), other.text)]
    if trigger.name.rpartition("_")[0] != other.name.rpartition("_")[0] or None in noted:
        return False
    (digest, *now), (digest_before, *before) = (json.loads(note[1]) for note in noted if note)
    return bool(digest == digest_before and are_in_order(now, before))


def words_note(captured: Captured) -> str:
    words = words_of(captured)
    text = json.dumps(words, sort_keys=True).replace("$", "\\u0024")
    return f"-- words: {text}" if words else ""


_NOTE = re.compile(r"-- words: (\{.*\})$", re.MULTILINE)


def noted_words(*texts: str) -> set[tuple[str, str]] | None:
    notes = [json.loads(note) for text in texts for note in _NOTE.findall(text)]
    pairs = {(column, word) for note in notes for column, words in note.items() for word in words}
    return pairs if notes else None


_NUMBER = re.compile(r"@\d+$")


def shown_word(column: str, word: str) -> str:
    plain = _NUMBER.sub("", word)
    return f"{column} {plain}" if column == MADE_BY else f"{column}: {plain}".removesuffix(": ")


Side = Literal["OLD", "NEW"]
EVENTS: dict[str, tuple[Side, ...]] = {"INSERT": ("NEW",), "UPDATE": ("OLD", "NEW"), "DELETE": ("OLD",)}
IMAGES = {"OLD": "image_before", "NEW": "image_after"}
