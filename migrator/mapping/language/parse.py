"""Parses the text of a mapping file to a Mapping, or reports every fault of its form at once."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as Dict
from decimal import Decimal
from typing import Any, TypeAlias, get_args

from msgspec import Struct
from pydantic import ValidationError

from migrator.mapping.items.filters import FILTERS, StarKind, specs_of, texts_of
from migrator.mapping.items.templates import parse_ref, parse_template
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
from migrator.mapping.language.documents import KEY_KINDS, key_type
from migrator.mapping.language.value_forms import (
    FREQUENCY,
    FREQUENCY_ADVICE,
    ConditionForm,
    ConstForm,
    MapForm,
    StoredForm,
    ValueForm,
)
from migrator.mapping.model.mapping import (
    SCHEMA_PATH,
    TRANSFORM,
    Aggregate,
    Collection,
    CollectionKind,
    CompareRules,
    Computed,
    Condition,
    Const,
    DocumentQuestion,
    DocumentTable,
    Each,
    Entity,
    Expiry,
    Expression,
    FilterCondition,
    IndexEntry,
    ItemDesign,
    Join,
    Keep,
    MapOf,
    Mapping,
    Near,
    Operation,
    Operator,
    Param,
    ParamType,
    Part,
    Pattern,
    Ref,
    SortCondition,
    Statement,
    Stored,
    Template,
    Version,
    paths_in,
)
from migrator.mapping.model.table import Index, KeyAttribute, KeyType, TableDesign, Value
from migrator.runtime.errors import Fault, MappingError, amount, did_you_mean
from migrator.runtime.values import replace

# ── Values and templates of a mapping file as expressions ──


class ExpressionReader:
    """Reads values and templates, collecting faults."""

    def __init__(self, document: Document, maps: Dict[str, Any]) -> None:
        self.document = document
        self.maps = maps
        self.faults: list[Fault] = []
        self.schema_refs: list[tuple[Ref, Path]] = []

    def fault(self, path: Path, what: str) -> None:
        self.faults.append(self.document.fault(path, what))

    def template(self, text: str, path: Path, *, stars: Sequence[StarKind] = ()) -> Template:
        try:
            template = parse_template(text, stars=stars)
        except ValueError as error:
            self.fault(path, str(error))
            return Template((text,), text)
        for ref in template.refs:
            self._check_ref(ref, path)
        return template

    def value(self, text: str, path: Path) -> Expression:
        if "{" in text or "}" in text:
            return self.template(text, path)
        try:
            ref = parse_ref(text)
        except ValueError as error:
            self.fault(path, str(error))
            return Ref((text,))
        self._check_ref(ref, path)
        return ref

    def key(self, texts: Sequence[str], path: Path, stars: Sequence[StarKind]) -> list[Template]:
        """Templates of a key. `stars`: allowed meanings of a `*` in the partition key."""
        made = [
            self.template(text, (*path, number), stars=() if number else stars)
            for number, text in enumerate(texts)
        ]
        self.one_star(made, path)
        return made

    def one_star(self, key: Sequence[Template], path: Path) -> None:
        if sum(ref.every for template in key for ref in template.refs) > 1:
            self.fault(path, "has more than one *; use one at a time")

    def _check_ref(self, ref: Ref, path: Path) -> None:
        for used in ref.filters:
            if FILTERS[used.name].of_map and used.args[0] not in self.maps:
                what = f"map '{used.args[0]}' not found{did_you_mean(used.args[0], self.maps)}"
                self.fault(path, what)
        if SCHEMA_PATH in ref.paths:
            self.schema_refs.append((ref, path))


# ── Entities: joins, collections, items, attributes, conditions ──


_QUERIED: tuple[StarKind, ...] = ("shard", "time", "place")
"""Allowed meanings of a `*` in the partition key of a query."""
_MOST_COPIES = 100
_AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)


class EntityParser:
    """Faults go to the reader."""

    def __init__(self, reader: ExpressionReader, table: TableDesign, name: str) -> None:
        self.reader = reader
        self.table = table
        self.name = name
        self.at: Path = ("entities", name)

    def entity(self, form: forms.EntityForm) -> Entity:
        self._names(form)
        if form.single:
            self._single(form)
        joins = self.joins(form.join, (*self.at, "join"))
        table = "" if form.single else form.table or self.name
        collections = [
            self._collection(alias, collection, (*self.at, "collect", alias), single=form.single)
            for alias, collection in form.collect.items()
        ]
        collections += [_climb(alias, climb, table) for alias, climb in form.climb.items()]
        version = self._version(form)
        attributes = self._values(form.attributes, (*self.at, "attributes"))
        attributes |= {version.attribute: Ref((version.column,))} if version else {}
        return Entity(
            name=self.name,
            table=table,
            items=tuple(one for name, item in form.items.items() for one in self._items(name, item)),
            key=tuple(form.key),
            where=self._conditions(form.where, (*self.at, "where")),
            joins=joins,
            collections=tuple(collections),
            attributes=attributes,
            computed={name: _computed(column) for name, column in form.columns.items()},
            transform=form.transform,
            changes=tuple(
                (name, (columns,) if isinstance(columns, str) else tuple(columns))
                for name, columns in form.changes.items()
            ),
            version=version,
        )

    def _single(self, form: forms.EntityForm) -> None:
        for word in ("table", "key", "columns", "where", "changes", "join", "climb", "transform", "version"):
            if getattr(form, word):
                what = "a single entity reads whole tables by collect: alone, and has no row of its own"
                self.reader.fault((*self.at, word), f"{what}; leave {word} out")
        if not form.collect:
            self.reader.fault(
                self.at, "name the tables that its item is made of: collect: {all: {of: TABLE}}"
            )

    def _names(self, form: forms.EntityForm) -> None:
        if set(self.name) & set(":@"):
            self.reader.fault(self.at, "the name of an entity cannot contain ':' or '@'; choose another name")
        places = {"join": list(form.join), "collect": list(form.collect), "climb": list(form.climb)}
        seen: dict[str, str] = {TRANSFORM: "transform"}
        for word, aliases in places.items():
            for alias in aliases:
                at = (*self.at, word, alias)
                if alias in seen:
                    self.reader.fault(at, f"'{alias}' is also a {seen[alias]}; choose another name")
                if set(alias) & set(".@"):
                    self.reader.fault(at, "an alias cannot contain '.' or '@'; choose another name")
                seen.setdefault(alias, word)

    # ── joins and collections ──

    def joins(self, written: Dict[str, forms.JoinForm], at: Path) -> tuple[Join, ...]:
        joins: list[Join] = []
        for alias, form in written.items():
            aliases = {join.alias for join in joins}
            joins.append(self._join(alias, form, aliases, (*at, alias)))
        return tuple(joins)

    def _join(self, alias: str, form: forms.JoinForm, aliases: set[str], at: Path) -> Join:
        if isinstance(form, forms.OnForm):
            parent, columns = self._parent(list(form.on), aliases, (*at, "on"))
            return Join(alias, parent, (), form.table, tuple(zip(columns, form.on.values(), strict=True)))
        names = [form] if isinstance(form, str) else form
        parent, columns = self._parent(names, aliases, at)
        return Join(alias, parent, tuple(columns))

    def _parent(self, names: list[str], earlier: set[str], at: Path) -> tuple[str, list[str]]:
        split = [name.partition(".") if "." in name else ("", "", name) for name in names]
        aliases = {alias for alias, _, _ in split}
        parent = aliases.pop()
        if aliases:
            self.reader.fault(at, "its columns belong to several aliases; a join starts from one")
        if parent and parent not in earlier:
            what = f"no earlier alias '{parent}'{did_you_mean(parent, earlier)}"
            self.reader.fault(at, what)
        return parent, [name for _, _, name in split]

    def _collection(self, alias: str, form: forms.CollectForm, at: Path, *, single: bool) -> Collection:
        if single and form.by:
            self.reader.fault((*at, "by"), "a single entity takes all rows of the table; leave by out")
        elif not single and not form.by:
            self.reader.fault(at, f"write by: the columns of {form.of} that hold the key of the row")
        kinds = [name for name in _AGGREGATES if getattr(form, name) is not None]
        if len(kinds) > 1:
            self.reader.fault(at, f"is {' and '.join(kinds)} at once; write a collection for each")
        kind: CollectionKind = kinds[0] if kinds else "list"
        if kind != "list" and (form.order_by or form.at_most or form.first or form.join):
            self.reader.fault(at, f"a {kind} cannot have join, order_by, at_most or first")
        if form.at_most and form.first:
            self.reader.fault(at, "at_most refuses a row, first cuts it; write one of the two")
        return Collection(
            alias=alias,
            kind=kind,
            table=form.of,
            by=(form.by,) if isinstance(form.by, str) else tuple(form.by),
            column=getattr(form, kind) if kind in ("sum", "min", "max") else None,
            joins=self.joins(form.join, (*at, "join")),
            order_by=tuple(form.order_by),
            at_most=form.at_most,
            first=form.first,
        )

    # ── items ──

    def _items(self, name: str, form: forms.ItemForm) -> Iterator[ItemDesign]:
        design = self._item(name, form)
        star = next((ref for template in design.key for ref in template.refs if ref.every), None)
        if star is None:
            yield design
            return
        texts = texts_of(star.filters[0], ())
        if len(texts) > _MOST_COPIES:
            what = f"makes {len(texts):,} copies of the item; {_MOST_COPIES} at most"
            self.reader.fault((*self.at, "items", name, "key", 0), what)
            texts = texts[:1]
        for number, text in enumerate(texts, 1):
            yield replace(design, key=tuple(one.with_star(text) for one in design.key), copy=number)

    def _item(self, name: str, form: forms.ItemForm) -> ItemDesign:
        at = (*self.at, "items", name)
        if len(form.key) != len(self.table.key):
            wanted = " and ".join(attribute.name for attribute in self.table.key)
            self.reader.fault(
                (*at, "key"), f"has {amount(len(form.key), 'part')}; the table's key is {wanted}"
            )
        entries = (form.__pydantic_extra__ or {}).items()
        made = [self._entry(index, entry, (*at, index)) for index, entry in entries]
        keep, keep_except = _keep(form.keep)
        return ItemDesign(
            type=name,
            key=tuple(self.reader.key(form.key, (*at, "key"), ("shard",))),
            entries=tuple(entry for entry in made if entry is not None),
            when=self._conditions(form.when, (*at, "when")),
            keep=keep,
            keep_except=keep_except,
            attributes=self._values(form.attributes, (*at, "attributes")),
            expiry=self._expiry(form.ttl, at),
        )

    def _entry(self, name: str, form: forms.EntryForm, at: Path) -> IndexEntry | None:
        texts, key_at = (form, at) if isinstance(form, list) else (form.key, (*at, "key"))
        indexes = {index.name: index for index in self.table.indexes}
        if name not in indexes:
            self.reader.fault(at, unknown_word(name, list(indexes)))
            return None
        own = indexes[name].own_attributes(self.table)
        if len(texts) != len(own):
            wanted = ", ".join(attribute.name for attribute in own)
            what = f"the key of {name} is {wanted}" if own else "every item of the table is in it"
            self.reader.fault(at, f"has {amount(len(texts), 'part')}; {what}")
            return None
        values = tuple(self.reader.template(text, (*key_at, number)) for number, text in enumerate(texts))
        when = self._conditions(form.when, (*at, "when")) if isinstance(form, forms.PairForm) else ()
        return IndexEntry(name, values, when)

    def _expiry(self, form: forms.TtlForm | None, at: Path) -> Expiry | None:
        if form is None:
            return None
        if self.table.ttl is None:
            self.reader.fault((*at, "ttl"), "the table has no ttl attribute; write table: {ttl: expiresAt}")
        if isinstance(form, str):
            return Expiry(form)
        return Expiry(form.from_, form.days, 1000 if form.unit == "milliseconds" else 1, form.zero or "")

    # ── values and conditions ──

    def _version(self, form: forms.EntityForm) -> Version | None:
        if form.version is None:
            return None
        at: Path = (*self.at, "version")
        if isinstance(form.version, forms.VersionAsForm):
            at, column, name = (*at, "from"), form.version.from_, form.version.attribute
        else:
            column = name = form.version
        ref = self.reader.value(column, at)
        if not isinstance(ref, Ref) or not ref.column or "." in ref.column:
            self.reader.fault(at, "name one column of the row itself, without a filter")
            return None
        self._own_name(name, (*self.at, "version"))
        written = [("attributes", form.attributes)]
        written += [(f"items.{type_}.attributes", item.attributes) for type_, item in form.items.items()]
        for place, attributes in written:
            if name in attributes:
                what = f"'{name}' is also in {place}; leave it out there: every item has it"
                self.reader.fault((*self.at, "version"), what)
        return Version(name, ref.column)

    def _own_name(self, name: str, at: Path) -> None:
        if name in self.table.reserved | {attribute.name for attribute in self.table.key}:
            self.reader.fault(at, f"'{name}' is reserved for migrator; choose another name")

    def _values(self, written: Dict[str, ValueForm], at: Path) -> dict[str, Expression]:
        for name in written:
            self._own_name(name, (*at, name))
        return {name: self._value(form, (*at, name)) for name, form in written.items()}

    def _value(self, form: ValueForm, at: Path) -> Expression:
        if isinstance(form, str):
            return self.reader.value(form, at)
        if isinstance(form, ConstForm):
            return Const(self._const(form.const, (*at, "const")))
        if isinstance(form, MapForm):
            return MapOf(
                {name: self._value(inner_form, (*at, "map", name)) for name, inner_form in form.map.items()}
            )
        if isinstance(form, StoredForm):
            if len(at) != (6 if at[2] == "items" else 4):
                self.reader.fault(at, "only a whole attribute of an item can be kept in S3")
            stored = self._value(form.from_, (*at, "from"))
            if isinstance(stored, Ref) and any(spec.of_array for spec in specs_of(stored)):
                self.reader.fault(at, "S3 keeps texts, bytes and JSON; a set stays in its item")
            return Stored(stored, form.over)
        inner = {
            name: self._value(inner_form, (*at, "attributes", name))
            for name, inner_form in form.attributes.items()
        }
        return Each(form.each, inner, None if form.key is None else self._map_key(form.key, (*at, "key")))

    def _map_key(self, written: str, at: Path) -> Template:
        key = self.reader.template(written if "{" in written else f"{{{written}}}", at)
        if not key.refs and "{{" in written:
            self.reader.fault(
                at, f"'{written}' is the same for all rows of the list; name a column of theirs"
            )
        return key

    def _const(self, value: object, at: Path) -> Value:
        if isinstance(value, float):
            self.reader.fault(
                at, "write the number as a text in quotes, so that it stays exact, or as an integer"
            )
        return value  # type: ignore[return-value]

    def _conditions(self, form: ConditionForm | None, at: Path) -> tuple[Condition, ...]:
        if form is None:
            return ()
        if isinstance(form, str):
            return (Condition(form),)
        if isinstance(form, list):
            return tuple(Condition(path) for path in form)
        return tuple(
            Condition(path, tuple(allowed) if isinstance(allowed, list) else (allowed,))  # type: ignore[arg-type]
            for path, allowed in form.items()
        )


def _climb(alias: str, form: forms.ClimbForm, table: str) -> Collection:
    if isinstance(form, dict):
        return Collection(alias, "climb", table, tuple(form), of=tuple(form.values()))
    return Collection(alias, "climb", table, (form,) if isinstance(form, str) else tuple(form))


def _computed(form: forms.ComputedForm) -> Computed:
    return Computed(form) if isinstance(form, str) else Computed(form.sql, form.type)


def unknown_word(name: str, indexes: list[str]) -> str:
    words = [*indexes, *forms.ItemForm.model_fields]
    return f"'{name}' is neither an index of the table nor a key of an item{did_you_mean(name, words)}"


def _keep(form: forms.KeepForm | None) -> tuple[Keep, tuple[str, ...]]:
    if form is None:
        return "none", ()
    if isinstance(form, forms.ExceptForm):
        return "all", tuple(form.except_)
    return ("all", ()) if isinstance(form, str) else (tuple(form), ())


# ── Comparison and redaction rules of an access pattern, as model values ──


def rule_faults(reader: ExpressionReader, pattern: Pattern, form: forms.PatternForm, at: Path) -> None:
    returned = {name for part in pattern.parts for name in part.attributes}
    for place, name in _named(form.compare):
        if name not in returned:
            reader.fault((*at, "compare", *place), _unknown(pattern, name, returned))
    names = returned | {param.name for param in pattern.params}
    for number, name in enumerate(form.redact):
        if name not in names:
            reader.fault((*at, "redact", number), _unknown(pattern, name, names))
    for part in pattern.parts:
        if set(part.attributes) <= pattern.compare.ignore:
            where = f"the part '{part.name}'" if part.name else "the answer"
            reader.fault((*at, "compare", "ignore"), f"leaves nothing of {where} to compare")


def _named(form: forms.CompareForm) -> Iterator[tuple[Path, str]]:
    yield from ((("ignore", number), name) for number, name in enumerate(form.ignore))
    yield from ((("tolerance", name), name) for name in form.tolerance)
    yield from ((("normalise", name), name) for name in form.normalise)


def _unknown(pattern: Pattern, name: str, names: set[str]) -> str:
    return f"{pattern.name} returns no '{name}'{did_you_mean(name, names)}"


# ── Access patterns of a mapping file as model values ──

OPERATIONS: tuple[Operation, ...] = get_args(Operation)
_PARAM_TYPES: tuple[str, ...] = get_args(ParamType)
_Key: TypeAlias = tuple[tuple[Template, ...], tuple[SortCondition, ...]]
"""A template for each partition attribute, a condition for each sort attribute of the request."""


class PatternParser:
    """Faults go to the reader."""

    def __init__(
        self, reader: ExpressionReader, table: TableDesign, name: str, at: Path | None = None
    ) -> None:
        self.reader = reader
        self.table = table
        self.name = name
        self.at: Path = at or ("access_patterns", name)

    def pattern(self, form: forms.PatternForm) -> Pattern:
        params = tuple(self._param(name, text) for name, text in form.params.items())
        compare = form.compare
        asked = self.asked(params, *self._request(form))
        made = replace(
            asked,
            near=self._near(form.near, asked.key),
            atomic=form.atomic,
            schema=form.schema_,
            parts=self._parts(form.returns),
            order=form.order,
            statements=self._sql(form),
            compare=CompareRules(
                frozenset(compare.ignore),
                {name: Decimal(str(value)) for name, value in compare.tolerance.items()},
                {
                    name: (steps,) if isinstance(steps, str) else tuple(steps)
                    for name, steps in compare.normalise.items()
                },
            ),
            redact=tuple(form.redact),
            p99_ms=form.budget.p99_ms if form.budget else None,
            calls_per_s=_calls_per_s(form.frequency),
        )
        rule_faults(self.reader, made, form, self.at)
        self.check(made)
        return made

    def asked(
        self, params: tuple[Param, ...], operation: Operation, request: forms.QueryForm | forms.GetForm
    ) -> Pattern:
        at = (*self.at, operation)
        if isinstance(request, forms.GetForm):
            key, sort = self._whole_key(request, (*at, "key"))
            return Pattern(self.name, params, operation, key, sort, consistent=request.consistent)
        key, sort = self._query_key(request, at)
        return Pattern(
            name=self.name,
            params=params,
            operation=operation,
            key=key,
            sort=sort,
            index=request.index,
            descending=request.descending,
            limit=None if request.limit is None else str(request.limit),
            consistent=request.consistent,
            filters=tuple(
                self._filter(name, form, (*self.at, "query", "filter", name))
                for name, form in request.filter.items()
            ),
        )

    def _request(self, form: forms.PatternForm) -> tuple[Operation, forms.QueryForm | forms.GetForm]:
        given = operations_in(self.reader, form, self.at)
        if len(given) == 1:
            return given[0], getattr(form, given[0])
        return "get", forms.GetForm(key=["?"] * len(self.table.key))

    def _param(self, name: str, text: str) -> Param:
        words = text.split()
        optional = words[:1] == ["optional"]
        words = words[1:] if optional else words
        many = words[:2] == ["list", "of"]
        type_ = " ".join(words[2:] if many else words)
        if type_ not in _PARAM_TYPES:
            what = f"'{type_}' is not a parameter type{did_you_mean(type_, _PARAM_TYPES)}"
            self.reader.fault((*self.at, "params", name), what)
        return Param(name, type_, optional, many)  # type: ignore[arg-type]

    # ── the key ──

    def _whole_key(self, form: forms.GetForm, at: Path) -> _Key:
        if len(form.key) != len(self.table.key):
            wanted = " and ".join(attribute.name for attribute in self.table.key)
            self.reader.fault(at, f"has {amount(len(form.key), 'part')}; the table's key is {wanted}")
        stars: Sequence[StarKind] = () if isinstance(form, forms.BatchGetForm) else ("shard",)
        made = self.reader.key(form.key, at, stars)
        return tuple(made[:1]), tuple(SortCondition("equal", (template,)) for template in made[1:])

    def _query_key(self, form: forms.QueryForm, request_at: Path) -> _Key:
        at = (*request_at, "key")
        partition = self._partition(form.key[0], (*at, 0))
        sort = self._sort(form.key[1], (*at, 1)) if len(form.key) > 1 else ()
        index = self.table.asked(form.index)
        if index is None:
            index_names = [index.name for index in self.table.indexes]
            what = f"index '{form.index}' not found{did_you_mean(form.index or '', index_names)}"
            self.reader.fault((*request_at, "index"), what)
            return partition, sort
        if len(partition) != len(index.partition):
            what = f"has {amount(len(partition), 'part')}; the partition key is {_listed(index.partition)}"
            self.reader.fault((*at, 0), f"{what}: give each of them")
        if len(sort) > len(index.sort):
            what = f"has {amount(len(sort), 'condition')}; attributes of the sort key: {_listed(index.sort)}"
            self.reader.fault((*at, 1), what)
        return partition, sort

    def _partition(self, form: forms.PatternKeyForm, at: Path) -> tuple[Template, ...]:
        made = []
        for text, place in _each(form, at):
            if isinstance(text, str):
                made.append(self.reader.template(text, place, stars=_QUERIED))
            else:
                self.reader.fault(place, "a partition key takes one text, not a range")
                made.append(Template(()))
        self.reader.one_star(made, at)
        return tuple(made)

    def _sort(self, form: forms.PatternKeyForm, at: Path) -> tuple[SortCondition, ...]:
        made = [self._condition(condition, place) for condition, place in _each(form, at)]
        if any(condition.operator != "equal" for condition in made[:-1]):
            self.reader.fault(
                at, "only the last condition on a sort key may be a range; earlier ones are texts"
            )
        return tuple(made)

    def _condition(self, form: forms.OneSortForm, at: Path) -> SortCondition:
        if isinstance(form, str):
            return SortCondition("equal", (self.reader.template(form, at),))
        operator, texts = self._only(form, at, "a sort key")
        written = tuple(self.reader.template(text, (*at, operator)) for text in texts)
        return SortCondition(operator, written or (Template(()),))

    def _only(self, form: forms.SortForm | forms.RangeForm, at: Path, of: str) -> tuple[Operator, list[Any]]:
        given: list[tuple[Any, Any]] = [(word, value) for word, value in form if value is not None]
        if len(given) != 1:
            words = ", ".join(type(form).model_fields)
            self.reader.fault(at, f"{of} takes exactly one condition (one of {words})")
            return "equal", []
        operator, value = given[0]
        return operator, value if isinstance(value, list) else [value]

    # ── conditions on other attributes ──

    def _filter(self, attribute: str, form: forms.FilterForm, at: Path) -> FilterCondition:
        operator: Operator = "equal"
        operands: list[forms.OperandForm]
        if isinstance(form, forms.RangeForm):
            operator, operands = self._only(form, at, "an attribute")
            if form.exists is not None or not operands:
                return FilterCondition(attribute, "absent" if form.exists is False else "exists", ())
            at = (*at, operator)
        else:
            operands = [form]
        return FilterCondition(attribute, operator, tuple(self._operand(operand, at) for operand in operands))

    def _operand(self, form: forms.OperandForm, at: Path) -> Expression:
        if isinstance(form, str):
            return self.reader.value(form, at)
        value = form.const if isinstance(form, forms.PlainForm) else form
        if value is None or isinstance(value, (float, list, dict)):
            self.reader.fault(
                at, "a constant is a text, a whole number, true or false; give others as a parameter"
            )
            return Const("")
        return Const(value)

    def _near(self, form: forms.NearForm | None, key: Sequence[Template]) -> Near | None:
        if form is None:
            return None
        star = next((ref for template in key for ref in template.refs if ref.every), None)
        way = FILTERS[star.filters[0].name].way if star else None
        if star is None or way is None or way.of != "place":
            what = "near needs a query whose partition key has a geohash, such as {*lat,lng|geohash:6}"
            self.reader.fault((*self.at, "near"), what)
        elif star.paths != tuple(form.from_):
            what = f"near.from must name the parameters of the geohash: [{', '.join(star.paths)}]"
            self.reader.fault((*self.at, "near", "from"), what)
        within = form.within_m if isinstance(form.within_m, str) else Decimal(str(form.within_m))
        return Near((form.from_[0], form.from_[1]), (form.at[0], form.at[1]), within)

    # ── the answer ──

    def _parts(self, form: forms.ReturnsForm) -> tuple[Part, ...]:
        if isinstance(form, list):
            return (Part("", "", tuple(form)),)
        return tuple(Part(name, part.type, tuple(part.attributes), part.one) for name, part in form.items())

    def _sql(self, form: forms.PatternForm) -> dict[str, Statement]:
        if (form.sql is None) == (form.old is None):
            what = "needs either sql: (a query of the database) or old: (a query of old DynamoDB tables)"
            self.reader.fault(self.at, what)
        if form.sql is None:
            return {}
        sql: dict[str, Statement] = {"": form.sql} if isinstance(form.sql, str) else dict(form.sql)
        parts = {""} if isinstance(form.returns, list) else set(form.returns)
        for name in sorted(parts ^ set(sql)):
            what = f"the part '{name}' is in only one of returns and sql; write it in both"
            self.reader.fault((*self.at, "sql"), what)
        return sql

    # ── parameters ──

    def check(self, pattern: Pattern) -> None:
        names, filtering = _names(pattern), set[str]()
        param_names = [param.name for param in pattern.params]
        for name in sorted(names - set(param_names)):
            what = f"parameter '{name}' not found{did_you_mean(name, param_names)}"
            self.reader.fault(self.at, what)
        for condition in pattern.filters:
            for ref in (value for value in condition.values if isinstance(value, Ref)):
                filtering |= set(ref.paths)
                for name in sorted(set(ref.paths) - set(param_names)):
                    what = f"parameter '{name}' not found{did_you_mean(name, param_names)}"
                    at = (*self.at, "query", "filter", condition.attribute)
                    self.reader.fault(at, f"{what}; a constant is written {{const: {name}}}")
        types = {param.name: param.type for param in pattern.params}
        if pattern.schema is not None and types.get(pattern.schema, "text") != "text":
            self.reader.fault((*self.at, "schema"), f"the parameter '{pattern.schema}' must be a text")
        used = [param.name for param in pattern.params if param.many and param.name in names | filtering]
        if pattern.operation == "batch_get" and len(used) != 1:
            what = "the key of batch_get takes exactly one list, such as product_ids: list of integer"
            self.reader.fault((*self.at, "batch_get", "key"), what)
        elif pattern.operation != "batch_get" and used and not _asks_each(pattern, used):
            what = f"'{used[0]}' is a list; only the key of batch_get and the partition key of query take one"
            self.reader.fault((*self.at, pattern.operation), what)


def operations_in(
    reader: ExpressionReader, form: forms.PatternForm | forms.OldForm, at: Path
) -> list[Operation]:
    given = [word for word in OPERATIONS if getattr(form, word) is not None]
    if len(given) != 1:
        reader.fault(at, "needs one of query:, get: and batch_get:; a Scan is not an access pattern")
    return given


def _each(form: forms.PatternKeyForm, at: Path) -> Iterator[tuple[str | forms.SortForm, Path]]:
    if isinstance(form, list):
        yield from ((inner, (*at, number)) for number, inner in enumerate(form))
    else:
        yield form, at


def _listed(attributes: Sequence[KeyAttribute]) -> str:
    return ", ".join(attribute.name for attribute in attributes) or "none"


_SECONDS = {"s": 1, "min": 60, "h": 3_600, "day": 86_400}


def _calls_per_s(frequency: str | None) -> float | None:
    match = re.fullmatch(FREQUENCY, frequency or "")
    return None if match is None else float(match[1]) / _SECONDS[match[2]]


def _asks_each(pattern: Pattern, lists: Sequence[str]) -> bool:
    elsewhere = [
        *(value for one in pattern.sort for value in one.values),
        *(v for f in pattern.filters for v in f.values),
    ]
    is_query = pattern.operation == "query" and pattern.star is None
    return is_query and len(lists) == 1 and lists[0] in set(paths_in(pattern.key)) - set(paths_in(elsewhere))


def _names(pattern: Pattern) -> set[str]:
    filtering = [
        value for comparison in pattern.filters for value in comparison.values if isinstance(value, Template)
    ]
    names = set(paths_in([*pattern.templates, *filtering]))
    if pattern.near is not None:
        names |= set(pattern.near.origin)
        names |= {pattern.near.within_m} if isinstance(pattern.near.within_m, str) else set()
    if pattern.limit is not None and not pattern.limit.isdecimal():
        names.add(pattern.limit)
    return names | ({pattern.schema} if pattern.schema else set())


class ParsedMapping(Struct, frozen=True):
    """A mapping with its document, so that later faults have lines.

    With `faults`, the mapping lacks the faulty places: enough to find more faults, never to move rows.
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
    """Collects every fault of the form (unknown words, templates, filters, index and map names), if the rest can
    still be checked.

    `file`: its name in messages. Raises: MappingError if the rest cannot be checked.
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
    faults: list[Fault] = []
    taken_out: set[str] = set()
    data = document.data
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
            data = copy.deepcopy(data)
            for path in paths:
                _take_out(data, path)
    raise MappingError(sorted(dict.fromkeys(faults), key=lambda fault: fault.line))


def _follows(fault: Fault, taken_out: set[str]) -> bool:
    return any(f"{where}.".startswith(f"{fault.where}.") for where in taken_out)


def _lacks_what_was_taken_out(fault: Fault, taken_out: set[str]) -> bool:
    path = fault.where.split(".")
    if path[0] == "access_patterns" and len(path) == 2:
        return any(f"{fault.where}.{operation}" in taken_out for operation in OPERATIONS)
    is_entry = path[0] == "entities" and path[2:3] == ["items"] and len(path) == 5
    return is_entry and not taken_out.isdisjoint({"table.indexes", f"table.indexes.{path[4]}"})


def _worded(fault: Fault, document: Document) -> Fault:
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
    """Stops at a list, so that its places keep their numbers."""
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
        maps={
            name: {key: "" if value is None else str(value) for key, value in entries.items()}
            for name, entries in form.maps.items()
        },
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


def _revision(data: Any) -> str:
    """12 hex digits over everything that shapes items; access patterns do not."""
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
    if SCHEMA_PATH not in ref.paths:
        return ""
    if not mapping.schemas:
        return "'@schema' stands for one of source.schemas; write source: {schemas: […]}"
    if len(ref.paths) > 1 or ref.format is not None or not all(spec.of_schema for spec in specs_of(ref)):
        filters = ", ".join(name for name, spec in FILTERS.items() if spec.of_schema)
        return f"'@schema' takes no format, and of the filters {filters}"
    return ""


# ── Requests of an access pattern to old DynamoDB tables: a pattern on each, by its own key ──

_RequestForm: TypeAlias = forms.OldQueryForm | forms.OldGetForm
_UNKNOWN = DocumentTable((), {})


class OldParser:
    """Parses `old` of one pattern; faults go to the reader."""

    def __init__(
        self, reader: ExpressionReader, pattern: Pattern, documents: Dict[str, DocumentTable]
    ) -> None:
        self.reader = reader
        self.pattern = pattern
        self.documents = documents
        self.at: Path = ("access_patterns", pattern.name, "old")

    def questions(self, form: forms.OldForm | Dict[str, forms.OldForm]) -> dict[str, DocumentQuestion]:
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
        parser.check(asked)
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
        given = operations_in(self.reader, form, at)
        return (given or ["get"])[0], getattr(form, given[0]) if given else _NO_REQUEST

    def _design(self, form: _RequestForm, at: Path) -> TableDesign:
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
    return KEY_KINDS.get(key_type(table.columns[name])) if name in table.columns else None


def _as_asked(form: _RequestForm, design: TableDesign) -> forms.QueryForm | forms.GetForm:
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
