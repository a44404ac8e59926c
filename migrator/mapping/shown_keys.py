"""Keys as they may be shown to anybody: what could name a person gives way to a short mask that stays the same."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from migrator.mapping.tenants import entities_of
from migrator.model import Mapping, Template

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TIME = re.compile(r"\d{4}-\d\d(-\d\d([T ]\d\d(:?\d\d(:?\d\d(\.\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)?)?)?")
_NUMBER = re.compile(r"-?0*(\d{0,6}(?:\.\d+)?)")
"""In text only up to six digits after padding: longer ones can be a telephone's or a card's."""
_SEPARATOR = re.compile("(#)")


def key_templates(mapping: Mapping) -> tuple[Template, ...]:
    """The templates of all items' keys that have constant text, those with the most of it first."""
    found = {form for entity in entities_of(mapping) for item in entity.items for form in item.key}
    return tuple(sorted(filter(_constant, found), key=lambda form: (-_constant(form), form.source)))


def integers_of(key: str) -> frozenset[str]:
    """The integers in a row's key (JSON text), as they stand, padded or not, in the keys of the row's items."""
    values = json.loads(key) if key else []
    return frozenset(str(one) for one in values if isinstance(one, int) and not isinstance(one, bool))


def masked_keys(text: str, templates: Sequence[Template], known: frozenset[str] = frozenset()) -> str:
    """The text with every key in it (a JSON array: an item's or a row's) masked; the rest stays.

    Left whole are constant texts of the templates, integers and the `known` ones, UUIDs, dates and times.
    """
    pieces: list[str] = []
    begin = 0
    for start, end, values in _arrays(text):
        masked = [_masked(value, templates, known) for value in values]
        shown = json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
        pieces += [text[begin:start], text[start:end] if masked == values else shown]
        begin = end
    return "".join([*pieces, text[begin:]])


def mask(text: str) -> str:
    """A mask of four digits: the same for the same text, and for too many others to say which it was."""
    return f"…{hashlib.blake2b(text.encode(errors='surrogatepass'), digest_size=2).hexdigest()}"


def _arrays(text: str) -> Iterator[tuple[int, int, list[Any]]]:
    """(begin, end, values) of each JSON array in the text, the outermost ones."""
    decoder, place = json.JSONDecoder(), 0
    while (start := text.find("[", place)) >= 0:
        try:
            values, place = decoder.raw_decode(text, start)
        except ValueError:
            place = start + 1
        else:
            yield start, place, values


def _masked(value: Any, templates: Sequence[Template], known: frozenset[str]) -> Any:
    if isinstance(value, str):
        pieces = next((found for form in templates if (found := _fitted(form, value)) is not None), None)
        if pieces is None:
            pieces = [(piece, piece == "#") for piece in _SEPARATOR.split(value)]
        return "".join(piece if constant else _part(piece, known) for piece, constant in pieces)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return mask(json.dumps(value, sort_keys=True))


def _part(text: str, known: frozenset[str]) -> str:
    number = _NUMBER.fullmatch(text)
    plain = number is not None or _UUID.fullmatch(text) or _TIME.fullmatch(text)
    return text if not text or plain or (text.lstrip("0") or "0") in known else mask(text)


def _fitted(form: Template, text: str) -> list[tuple[str, bool]] | None:
    """The text in pieces (piece, whether it is constant text of the template); None where it does not fit."""
    pieces: list[tuple[str, bool]] = []
    place, parts = 0, _parts(form)
    for number, part in enumerate(parts):
        if part is None:
            continue
        start = len(text) - len(part) if number == len(parts) - 1 else text.find(part, place)
        open_before = number > 0
        if start < place or not text.startswith(part, start) or (start > place and not open_before):
            return None
        pieces += [(text[place:start], False), (part, True)]
        place = start + len(part)
    if place < len(text) and (not parts or parts[-1] is not None):
        return None
    return [*pieces, (text[place:], False)]


def _parts(form: Template) -> list[str | None]:
    """The template's constant texts in order, with one None for what lies between two of them."""
    runs = groupby(form.parts, key=lambda part: isinstance(part, str))
    return ["".join(map(str, run)) if constant else None for constant, run in runs]


def _constant(form: Template) -> int:
    return sum(len(part) for part in form.parts if isinstance(part, str))
