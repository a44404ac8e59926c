"""A mapping file's text as a Mapping, or all that is wrong with its form at once."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping as Dict
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from migrator.mapping.language import forms, value_forms
from migrator.mapping.language.document import (
    Document,
    Ours,
    Path,
    load_document,
    real_path,
    schema_faults,
    where_of,
)
from migrator.mapping.language.expression_reader import ExpressionReader
from migrator.mapping.language.parse_entity import EntityParser, unknown_word
from migrator.mapping.language.parse_pattern import PatternParser
from migrator.mapping.language.tenants import schema_fault
from migrator.model.entities import Mapping
from migrator.model.errors import Fault, MappingError
from migrator.model.table import Index, KeyAttribute, TableDesign


@dataclass(frozen=True)
class ParsedMapping:
    """A mapping with the document that it stands in, so that later faults have lines too.

    With `faults`, the mapping is what is left when the faulty places are taken out: good for finding more faults,
    never for moving rows.
    """

    mapping: Mapping
    document: Document
    faults: tuple[Fault, ...] = ()


_OURS = Ours(
    "mapping",
    frozenset(forms.MappingForm.model_fields),
    "this is no mapping; start it with 'mapping: 1' (see mappings/README.md)",
)


def examine_mapping(text: str, file: str) -> ParsedMapping:
    """The mapping that `text` describes; `file` is its name in messages.

    With every fault of the form (unknown words, templates, filters, index and map names) in it, where as much is left as
    a check can go on with. Raises: MappingError where nothing is left.
    """
    document = load_document(text, file, _OURS)
    form, faults = _form(document)
    reader = ExpressionReader(document, form.maps)
    mapping = _mapping(form, reader, file)
    for ref, path in reader.schema_refs:
        what = schema_fault(ref, mapping)
        if what:
            reader.fault(path, what)
    found = sorted([*faults, *reader.faults], key=lambda fault: fault.line)
    return ParsedMapping(mapping, document, tuple(found))


def _form(document: Document) -> tuple[forms.MappingForm, list[Fault]]:
    """The form of the document without its faulty places, and the faults."""
    faults: list[Fault] = []
    taken_out: set[str] = set()
    data = copy.deepcopy(document.data)
    for _ in range(5):
        try:
            return forms.MappingForm.model_validate(data), faults
        except ValidationError as error:
            found = schema_faults(error, document, forms.known_words())
            faults += [_worded(fault, document) for fault in found if not _follows(fault, taken_out)]
            paths = [real_path(problem["loc"], document) for problem in error.errors()]
            if any(problem["type"] == "missing" for problem in error.errors()):
                break
            taken_out |= {where_of(path) for path in paths}
            for path in paths:
                _take_out(data, path)
    raise MappingError(sorted(dict.fromkeys(faults), key=lambda fault: fault.line))


def _follows(fault: Fault, taken_out: set[str]) -> bool:
    """Whether the fault is there because something in its place was taken out, which has been told."""
    return any(f"{where}.".startswith(f"{fault.where}.") for where in taken_out)


def _worded(fault: Fault, document: Document) -> Fault:
    """The fault, said better of a word that patterns had, and where an item has one that is no word of its and no index."""
    path = fault.where.split(".")
    if path[0] == "access_patterns" and path[2:] == ["frequency"]:
        return document.fault(path, "frequency is not used: delete the line")
    if (
        len(path) != 5
        or path[0] != "entities"
        or path[2] != "items"
        or path[4] in forms.ItemForm.model_fields
    ):
        return fault
    table = document.data.get("table")
    indexes = table.get("indexes") if isinstance(table, dict) else None
    known = list(indexes) if isinstance(indexes, dict) else []
    return fault if path[4] in known else document.fault(path, unknown_word(path[4], known))


def _take_out(data: Any, path: Path) -> None:
    """Takes the value at `path` out of `data`; in a list a null stays, so that the other places keep their number."""
    for part in path[:-1]:
        data = data[part] if isinstance(data, dict) and part in data else None
        if not isinstance(data, dict):
            return
    if path:
        data.pop(path[-1], None)


def _mapping(form: forms.MappingForm, reader: ExpressionReader, file: str) -> Mapping:
    table = _table(form.table, reader)
    entities = {
        name: EntityParser(reader, table, name).entity(entity) for name, entity in form.entities.items()
    }
    patterns = {
        name: PatternParser(reader, table, name).pattern(pattern)
        for name, pattern in form.access_patterns.items()
    }
    return Mapping(
        name=file,
        revision=_revision(reader.document.data),
        table=table,
        entities=entities,
        names=form.source.names,
        timezone=form.source.timezone,
        schemas=tuple(form.source.schemas),
        maps={name: _map_texts(entries) for name, entries in form.maps.items()},
        patterns=patterns,
    )


def _map_texts(entries: Dict[str, value_forms.Scalar]) -> dict[str, str]:
    return {key: "" if value is None else str(value) for key, value in entries.items()}


def _revision(data: Any) -> str:
    """12 hex digits over all that shapes items; access patterns can change without making other items."""
    shaping = {word: value for word, value in data.items() if word != "access_patterns"}
    shaping["entities"] = {
        name: {word: value for word, value in entity.items() if word != "changes"}
        for name, entity in data["entities"].items()
        if isinstance(entity, dict)
    }
    canonical = json.dumps(shaping, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _table(form: value_forms.TableForm, reader: ExpressionReader) -> TableDesign:
    return TableDesign(
        name=form.name,
        key=tuple(_key_attribute(part) for part in form.key),
        type_attribute=form.type,
        ttl=form.ttl,
        separator=form.separator,
        indexes=tuple(_index(name, index) for name, index in form.indexes.items()),
        source_attribute=form.own.source,
        ticket_attribute=form.own.ticket,
        revision_attribute=form.own.revision,
    )


def _key_attribute(form: str | value_forms.TypedKeyForm) -> KeyAttribute:
    return KeyAttribute(form) if isinstance(form, str) else KeyAttribute(form.name, form.type)


def _index(name: str, form: value_forms.IndexForm) -> Index:
    parts = [
        tuple(_key_attribute(one) for one in part) if isinstance(part, list) else (_key_attribute(part),)
        for part in form.key
    ]
    projection = tuple(form.project) if isinstance(form.project, list) else form.project
    return Index(name, parts[0], parts[1] if len(parts) > 1 else (), projection, form.local)
