"""A NoSQL Workbench model as the head of a mapping: table, keys, indexes, and an entity to fill per facet."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from migrator.mapping.language.document import text_of
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.questions import plain_name
from migrator.runtime.errors import SettingsError, amount

LONGEST_BYTES = 8 * 1024 * 1024
"""Limit of a model's file: DynamoDB's largest table definition, with samples, takes a part of that."""

_VERSIONS = ("1.0", "3.0")
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_FACETS = 500
_NAME_BYTES = 255
_KEY_TYPES = {"S": "text", "N": "number", "B": "binary"}
_PROJECTIONS = {"ALL": "all", "KEYS_ONLY": "keys"}


def head_of_model(text: str, file: str, table: str | None) -> str:
    """The text of a mapping file. `table`: which one, for a model with several.

    Raises: SettingsError, with every fault and its place.
    """
    model = _read(text, file)
    reading = _Reading(file)
    data = reading.table_of(model, table)
    lines = list(reading.lines(data)) if data is not None else []
    if reading.faults:
        raise SettingsError("\n".join(f"{file}: {fault}" for fault in reading.faults))
    written = "\n".join(lines) + "\n"
    if wrong := [fault.what for fault in examine_mapping(written, file).faults if not fault.warning]:
        said = "; ".join(wrong)
        raise SettingsError(f"{file}: its table cannot be used in a mapping: {said}")
    return written


def _read(text: str, file: str) -> Mapping[str, Any]:
    try:
        model = json.loads(text)
    except RecursionError:
        raise SettingsError(f"{file}: its JSON is nested too deeply for a model of NoSQL Workbench") from None
    except ValueError as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "its numbers"
        raise SettingsError(
            f"{file}: {where}: not JSON; export the model from NoSQL Workbench again"
        ) from None
    if not isinstance(model, dict):
        raise SettingsError(f"{file}: not a model of NoSQL Workbench, which is a JSON object")
    metadata = model.get("ModelMetadata")
    version = metadata.get("Version") if isinstance(metadata, dict) else None
    if version not in _VERSIONS:
        there = f"version {_shown(version)}" if isinstance(version, str) else "no version"
        what = f"ModelMetadata.Version: {there}; migrator reads versions {' and '.join(_VERSIONS)}"
        raise SettingsError(f"{file}: {what}: open it in NoSQL Workbench and export it as a model again")
    return model


class _Reading:
    def __init__(self, file: str) -> None:
        self.file = file
        self.faults: list[str] = []

    def table_of(self, model: Mapping[str, Any], wanted: str | None) -> Mapping[str, Any] | None:
        tables = self._dicts(model, "DataModel", "DataModel")
        names = [_shown(data.get("TableName")) for data in tables]
        chosen = [data for data in tables if wanted is None or data.get("TableName") == wanted]
        if not tables:
            if not self.faults:
                self.faults.append("DataModel: no tables; add one in NoSQL Workbench")
        elif not chosen:
            self.faults.append(f"DataModel: table {_shown(wanted)} not found, only {', '.join(names[:20])}")
        elif len(chosen) > 1:
            what = f"DataModel: {len(tables)} tables ({', '.join(names[:20])}), but a mapping has one"
            self.faults.append(f"{what}; name it with --table")
        return chosen[0] if len(chosen) == 1 else None

    def lines(self, data: Mapping[str, Any]) -> Iterator[str]:
        name = data.get("TableName")
        if not isinstance(name, str) or not _TABLE.fullmatch(name):
            self.faults.append(
                f"TableName: {_shown(name)} is not a valid table name: 3 to 255 of A-Z a-z 0-9 _ . -"
            )
        key = self._keys(data, "KeyAttributes")
        plain = self._attributes(data)
        own = {attribute for attribute, _ in key}
        type_ = next(name for name in ("type", "itemType", "_type", "_itemType") if name not in own)
        yield f"# The head of a mapping, from a model of NoSQL Workbench: {_comment(self.file)}."
        yield "# To fill: each entity's table; columns where an attribute has another name; access patterns."
        yield "mapping: 1"
        yield "table:"
        yield f"  name: {text_of(name)}"
        yield f"  key: {_key_text(key)}"
        yield f"  type: {type_}"
        yield from self._indexes(data)
        yield "entities:"
        yield from self._entities(data, key, [name for name in plain if name not in {*own, type_}], type_)

    def _indexes(self, data: Mapping[str, Any]) -> Iterator[str]:
        indexes = self._dicts(data, "GlobalSecondaryIndexes", "GlobalSecondaryIndexes")
        if indexes:
            yield "  indexes:"
        for number, index in enumerate(indexes):
            place = f"GlobalSecondaryIndexes[{number}]"
            name = index.get("IndexName")
            if not isinstance(name, str) or not _TABLE.fullmatch(name):
                self.faults.append(f"{place}.IndexName: {_shown(name)} is not a valid index name")
            words = [f"key: {_key_text(self._keys(index, f'{place}.KeyAttributes'))}"]
            words += self._projection(index.get("Projection"), place)
            yield f"    {text_of(name)}: {{{', '.join(words)}}}"

    def _projection(self, found: Any, place: str) -> list[str]:
        projection = found if isinstance(found, dict) else {}
        kind = projection.get("ProjectionType", "ALL")
        if kind == "INCLUDE":
            listed = projection.get("NonKeyAttributes")
            names = self._names(listed if isinstance(listed, list) else [], f"{place}.Projection")
            return [f"project: {text_of(names)}"]
        if not isinstance(kind, str) or kind not in _PROJECTIONS:
            self.faults.append(
                f"{place}.Projection.ProjectionType: {_shown(kind)} is not one of ALL, KEYS_ONLY, INCLUDE"
            )
            return []
        return [] if kind == "ALL" else [f"project: {_PROJECTIONS[kind]}"]

    def _entities(
        self, data: Mapping[str, Any], key: Sequence[tuple[str, str]], plain: Sequence[str], type_: str
    ) -> Iterator[str]:
        facets = self._dicts(data, "TableFacets", "TableFacets")
        if len(facets) > _FACETS:
            self.faults.append(f"TableFacets: {len(facets)} facets; {_FACETS} at most")
            return
        # A model without facets has its items in one list: one entity, to be split if they differ.
        whole = {"FacetName": "Item", "NonKeyAttributes": list(plain)}
        taken: set[str] = set()
        for number, facet in enumerate(facets or [whole]):
            place = f"TableFacets[{number}]"
            item = self._item(facet.get("FacetName"), place, taken)
            listed = facet.get("NonKeyAttributes")
            kept = self._names(listed if isinstance(listed, list) else [], place)
            yield f"  {text_of(plain_name(item))}:"
            yield f"    table: {text_of(plain_name(item))}    # the table whose rows are these items"
            yield "    items:"
            yield f"      {text_of(item)}:"
            yield f"        key: {text_of(self._templates(facet, key, place))}"
            if kept := [name for name in kept if name != type_]:
                yield f"        keep: {text_of(kept)}"

    def _item(self, name: Any, place: str, taken: set[str]) -> str:
        if not _is_name(name) or not name.strip():
            self.faults.append(
                f"{place}.FacetName: {_shown(name)} is not a valid name: 1 to {_NAME_BYTES} printable characters"
            )
            return ""
        item = _word(name)
        if item in taken:
            self.faults.append(f"{place}.FacetName: two facets are called {_shown(name)}; rename one")
        taken.add(item)
        return item

    def _templates(self, facet: Mapping[str, Any], key: Sequence[tuple[str, str]], place: str) -> list[str]:
        found = facet.get("KeyAttributeAlias")
        aliases = found if isinstance(found, dict) else {}
        made = []
        for (name, _), word in zip(key, ("PartitionKeyAlias", "SortKeyAlias"), strict=False):
            alias = aliases.get(word) or name
            if not isinstance(alias, str) or not alias.isprintable() or len(alias) > _NAME_BYTES:
                self.faults.append(
                    f"{place}.KeyAttributeAlias.{word}: not a text of up to {_NAME_BYTES} printable characters"
                )
                continue
            made.append(_template(alias))
        return made

    def _keys(self, found: Mapping[str, Any], place: str) -> list[tuple[str, str]]:
        """(name, type) of the key's one or two attributes."""
        keys = found.get("KeyAttributes")
        made = []
        for word in ("PartitionKey", "SortKey"):
            key = keys.get(word) if isinstance(keys, dict) else None
            if key is None and word == "SortKey":
                continue
            name = key.get("AttributeName") if isinstance(key, dict) else None
            type_ = key.get("AttributeType") if isinstance(key, dict) else None
            if not _is_name(name):
                self.faults.append(f"{place}.{word}: it does not name an attribute")
            elif not isinstance(type_, str) or type_ not in _KEY_TYPES:
                self.faults.append(f"{place}.{word}.AttributeType: {_shown(type_)} is not one of S, N, B")
            else:
                made.append((str(name), _KEY_TYPES[type_]))
        return made

    def _attributes(self, data: Mapping[str, Any]) -> list[str]:
        found = self._dicts(data, "NonKeyAttributes", "NonKeyAttributes")
        return self._names([attribute.get("AttributeName") for attribute in found], "NonKeyAttributes")

    def _names(self, names: Sequence[Any], place: str) -> list[str]:
        wrong = [name for name in names if not _is_name(name)]
        if wrong:
            found = amount(len(wrong), "attribute name")
            what = f"{place}: {found} invalid: use 1 to {_NAME_BYTES} printable characters"
            self.faults.append(f"{what}, {_shown(wrong[0])} first")
        return list(dict.fromkeys(name for name in names if _is_name(name)))

    def _dicts(self, found: Mapping[str, Any], word: str, place: str) -> list[Mapping[str, Any]]:
        listed = found.get(word)
        if listed is None:
            return []
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            self.faults.append(f"{place}: not a list of objects")
            return []
        return listed


def _is_name(name: Any) -> bool:
    return isinstance(name, str) and name.isprintable() and 0 < len(name) <= _NAME_BYTES


def _key_text(key: Sequence[tuple[str, str]]) -> str:
    parts = [
        text_of(name) if type_ == "text" else f"{{name: {text_of(name)}, type: {type_}}}"
        for name, type_ in key
    ]
    return f"[{', '.join(parts)}]"


def _template(alias: str) -> str:
    """The alias as a template. {name} and <name> are columns; so is a bare name that is not in capitals."""
    if "{" in alias or "}" in alias:
        return alias
    if alias.isidentifier() and not alias.isupper():
        return f"{{{alias}}}"
    return re.sub(r"\$?<(\w+)>", r"{\1}", alias)


def _word(name: str) -> str:
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "Item"
    return word if word[0].isalpha() else f"Item_{word}"


def _shown(value: Any) -> str:
    text = (
        json.dumps(value, ensure_ascii=True, default=str)
        if not isinstance(value, (dict, list))
        else "an object or a list"
    )
    return text if len(text) <= 60 else f"{text[:57]}…"


def _comment(file: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in file)[-120:]
