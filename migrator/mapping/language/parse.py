"""Parses the text of a mapping file to a Mapping, or reports every fault of its form at once."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping as Dict
from typing import Any, TypeAlias

from msgspec import Struct
from pydantic import ValidationError

from migrator.mapping.items.filters import FILTERS
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
from migrator.mapping.language.documents import KEY_TYPES, key_type
from migrator.mapping.language.expression_reader import ExpressionReader
from migrator.mapping.language.parse_entity import EntityParser, unknown_word
from migrator.mapping.language.parse_pattern import OPERATIONS, PatternParser
from migrator.mapping.language.value_forms import FREQUENCY_ADVICE
from migrator.mapping.model.mapping import (
    SCHEMA_PATH,
    DocumentQuestion,
    DocumentTable,
    Entity,
    Filter,
    Mapping,
    Operation,
    Part,
    Pattern,
    Ref,
)
from migrator.mapping.model.table import Index, KeyAttribute, KeyType, TableDesign
from migrator.runtime.errors import Fault, MappingError, amount, did_you_mean
from migrator.runtime.values import replace


class ParsedMapping(Struct, frozen=True):
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
    "this is not a mapping; start it with 'mapping: 1' (see mappings/README.md)",
)


def examine_mapping(text: str, file: str) -> ParsedMapping:
    """The mapping that `text` describes; `file` is its name in messages.

    It holds every fault of the form (unknown words, templates, filters, index and map names), if what remains without the
    faulty places can still be checked. Raises: MappingError if it cannot.
    """
    document = load_document(text, file, _OURS)
    form, faults = _form(document)
    reader = ExpressionReader(document, form.maps)
    mapping = replace(_mapping(form, reader, file), text=text)
    for ref, path in reader.schema_refs:
        what = schema_fault(ref, mapping)
        if what:
            reader.fault(path, what)
    follow = {fault.where for fault in faults}
    rest = [fault for fault in reader.faults if not _lacks_what_was_taken_out(fault, follow)]
    all_faults = sorted([*faults, *rest], key=lambda fault: fault.line)
    return ParsedMapping(mapping, document, tuple(all_faults))


def _form(document: Document) -> tuple[forms.MappingForm, list[Fault]]:
    """The form of the document without its faulty places, and the faults."""
    faults: list[Fault] = []
    taken_out: set[str] = set()
    data = copy.deepcopy(document.data)
    for _ in range(5):
        try:
            return forms.MappingForm.model_validate(data), faults
        except ValidationError as error:
            form_faults = schema_faults(error, document, forms.known_words())
            faults += [_worded(fault, document) for fault in form_faults if not _follows(fault, taken_out)]
            paths = [real_path(problem["loc"], document) for problem in error.errors()]
            if any(problem["type"] == "missing" for problem in error.errors()):
                break
            taken_out |= {where_of(path) for path in paths}
            for path in paths:
                _take_out(data, path)
    raise MappingError(sorted(dict.fromkeys(faults), key=lambda fault: fault.line))


def _follows(fault: Fault, taken_out: set[str]) -> bool:
    """Whether the fault only follows from a place that was taken out, whose own fault is already reported."""
    return any(f"{where}.".startswith(f"{fault.where}.") for where in taken_out)


def _lacks_what_was_taken_out(fault: Fault, taken_out: set[str]) -> bool:
    """Whether a pattern has no request, or an item's index is unknown, because a faulty place was taken out."""
    path = fault.where.split(".")
    if path[0] == "access_patterns" and len(path) == 2:
        return any(f"{fault.where}.{operation}" in taken_out for operation in OPERATIONS)
    is_entry = path[0] == "entities" and path[2:3] == ["items"] and len(path) == 5
    return is_entry and not taken_out.isdisjoint({"table.indexes", f"table.indexes.{path[4]}"})


def _worded(fault: Fault, document: Document) -> Fault:
    """The fault, with a better message for a pattern's frequency and an unknown index of an item."""
    path = fault.where.split(".")
    if path[0] == "access_patterns" and path[2:] == ["frequency"]:
        return document.fault(path, FREQUENCY_ADVICE)
    if (
        len(path) != 5
        or path[0] != "entities"
        or path[2] != "items"
        or path[4] in forms.ItemForm.model_fields
    ):
        return fault
    table = document.data.get("table")
    indexes = table.get("indexes") if isinstance(table, dict) else None
    index_names = list(indexes) if isinstance(indexes, dict) else []
    return fault if path[4] in index_names else document.fault(path, unknown_word(path[4], index_names))


def _take_out(data: Any, path: Path) -> None:
    """Removes the value at `path` from `data`; stops at a list, whose places keep their numbers."""
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
    documents = {
        name: DocumentTable(tuple(declared.key), dict(declared.columns))
        for name, declared in form.source.tables.items()
    }
    patterns = {
        name: _pattern(name, pattern, table, documents, reader)
        for name, pattern in form.access_patterns.items()
    }
    return Mapping(
        name=file,
        revision=_revision(reader.document.data),
        table=table,
        entities=entities,
        timezone=form.source.timezone,
        schemas=tuple(form.source.schemas),
        maps={name: _map_texts(entries) for name, entries in form.maps.items()},
        patterns=patterns,
        documents=documents,
    )


def _pattern(
    name: str,
    form: forms.PatternForm,
    table: TableDesign,
    documents: Dict[str, DocumentTable],
    reader: ExpressionReader,
) -> Pattern:
    made = PatternParser(reader, table, name).pattern(form)
    if form.old is None:
        return made
    return replace(made, statements=OldParser(reader, made, documents).questions(form.old))


def _map_texts(entries: Dict[str, value_forms.Scalar]) -> dict[str, str]:
    return {key: "" if value is None else str(value) for key, value in entries.items()}


def _revision(data: Any) -> str:
    """12 hex digits over everything that shapes items; access patterns are left out, since they do not."""
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


def _index(name: str, given: value_forms.IndexForm | list[Any]) -> Index:
    form = value_forms.IndexForm.model_construct(key=given) if isinstance(given, list) else given
    parts = [
        tuple(_key_attribute(attribute) for attribute in part)
        if isinstance(part, list)
        else (_key_attribute(part),)
        for part in form.key
    ]
    projection = tuple(form.project) if isinstance(form.project, list) else form.project
    return Index(name, parts[0], parts[1] if len(parts) > 1 else (), projection, form.local)


def schema_fault(ref: Ref, mapping: Mapping) -> str:
    """What is wrong with a reference to @schema; '' for any other."""
    if SCHEMA_PATH not in ref.paths:
        return ""
    if not mapping.schemas:
        return "'@schema' stands for one of source.schemas; write source: {schemas: […]}"
    if len(ref.paths) > 1 or ref.format is not None or not all(map(_takes_schema, ref.filters)):
        filters = ", ".join(name for name, spec in FILTERS.items() if spec.of_schema)
        return f"'@schema' takes no format, and of the filters {filters}"
    return ""


def _takes_schema(used: Filter) -> bool:
    return FILTERS[used.name].of_schema


# ── What an access pattern asks old tables of DynamoDB: a pattern on each, by its own key ──

_RequestForm: TypeAlias = forms.OldQueryForm | forms.OldGetForm
_KEY_TYPES: dict[str, KeyType] = dict(zip(KEY_TYPES, ("text", "number", "binary"), strict=True))
_UNKNOWN = DocumentTable((), {})


class OldParser:
    """Parses the `old` of one access pattern; faults go to the reader."""

    def __init__(
        self, reader: ExpressionReader, pattern: Pattern, documents: Dict[str, DocumentTable]
    ) -> None:
        self.reader = reader
        self.pattern = pattern
        self.documents = documents
        self.at: Path = ("access_patterns", pattern.name, "old")

    def questions(self, form: forms.OldForm | Dict[str, forms.OldForm]) -> dict[str, DocumentQuestion]:
        """By part of the answer."""
        given = {"": form} if isinstance(form, forms.OldForm) else form
        parts = {part.name: part for part in self.pattern.parts}
        for name in sorted(parts.keys() ^ given.keys()):
            what = f"the part '{name}' is in only one of returns and old; write it in both"
            self.reader.fault(self.at, what)
        return {
            name: self._question(one, parts[name], (*self.at, name) if name else self.at)
            for name, one in given.items()
            if name in parts
        }

    def _question(self, form: forms.OldForm, part: Part, at: Path) -> DocumentQuestion:
        operation, request = self._request(form, at)
        design = self._design(request, (*at, operation))
        parser = PatternParser(self.reader, design, self.pattern.name, at)
        asked = parser.asked(self.pattern.params, operation, _as_asked(request, design))
        parser.check_params(asked)
        parser.check_lists(asked)
        returns = tuple(form.returns or part.attributes)
        if len(returns) != len(part.attributes):
            returned = f"{amount(len(part.attributes), 'attribute')}: {', '.join(part.attributes)}"
            what = f"has {amount(len(returns), 'column')}, but the pattern returns {returned}"
            self.reader.fault((*at, "returns"), f"{what}; name one for each")
        joins = EntityParser(self.reader, design, self.pattern.name).joins(form.join, (*at, "join"))
        columns = {name: Ref((name,)) for name in returns}
        entity = Entity(self.pattern.name, request.table, (), joins=joins, attributes=columns)
        return DocumentQuestion(design, asked, entity, returns)

    def _request(self, form: forms.OldForm, at: Path) -> tuple[Operation, _RequestForm]:
        given = [word for word in OPERATIONS if getattr(form, word) is not None]
        if len(given) != 1:
            self.reader.fault(at, "needs one of query:, get: and batch_get:; a Scan is not an access pattern")
        return (given or ["get"])[0], getattr(form, given[0]) if given else _NO_REQUEST

    def _design(self, form: _RequestForm, at: Path) -> TableDesign:
        """The old table as the request sees it: an index has the key attributes that are asked."""
        table = self._table(form, at)
        index = form.index if isinstance(form, forms.OldQueryForm) else None
        names = list(form.key) if index or not table.key else [name for name in table.key if name in form.key]
        asked = tuple(KeyAttribute(name, self._key_type(name, form, table, at)) for name in names)
        key = tuple(KeyAttribute(name, _type_of(name, table) or "text") for name in table.key) or asked
        indexes = () if index is None else (Index(index, asked[:1], asked[1:]),)
        return TableDesign(form.table, key, type_attribute="", indexes=indexes)

    def _table(self, form: _RequestForm, at: Path) -> DocumentTable:
        table = self.documents.get(form.table)
        if table is None:
            if self.documents and form is not _NO_REQUEST:
                what = f"source: tables: has no '{form.table}'{did_you_mean(form.table, self.documents)}"
                self.reader.fault((*at, "table"), what)
            return _UNKNOWN
        if isinstance(form, forms.OldQueryForm) and form.index:
            return table
        whole = not isinstance(form, forms.OldQueryForm)
        if set(form.key) != set(table.key if whole else table.key[: len(form.key)]):
            what = f"reads by {', '.join(form.key)}, but the key of {form.table} is {', '.join(table.key)}"
            mend = "give all of it" if whole else "give the first or both, or name the index with these"
            self.reader.fault((*at, "key"), f"{what}; {mend}")
        return table

    def _key_type(self, name: str, form: _RequestForm, table: DocumentTable, at: Path) -> KeyType:
        type_ = _type_of(name, table)
        if type_ is None and table is not _UNKNOWN:
            declared = [column for column in table.columns if _type_of(column, table)]
            what = (
                f"{form.table} declares no '{name}' of a type allowed in a key{did_you_mean(name, declared)}"
            )
            self.reader.fault((*at, "key", name), what)
        return type_ or "text"


_NO_REQUEST = forms.OldGetForm(table="?", key={"?": "?"})


def _type_of(name: str, table: DocumentTable) -> KeyType | None:
    return _KEY_TYPES.get(key_type(table.columns[name])) if name in table.columns else None


def _as_asked(form: _RequestForm, design: TableDesign) -> forms.QueryForm | forms.GetForm:
    """The request as one to a table of that design is written: its key in the table's order."""
    order = [attribute.name for attribute in design.key if attribute.name in form.key]
    if not isinstance(form, forms.OldQueryForm):
        return forms.GetForm.model_construct(
            key=[form.key[name] for name in order], consistent=form.consistent
        )
    key: list[forms.PatternKeyForm] = [form.key[name] for name in (form.key if form.index else order)]
    return forms.QueryForm.model_construct(
        key=key or ["?"],
        index=form.index,
        descending=form.descending,
        limit=form.limit,
        consistent=form.consistent,
        filter=form.filter,
    )
