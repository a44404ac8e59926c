"""Parser for the entities of a mapping file: joins, collections, items, attributes, conditions."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from typing import TYPE_CHECKING, get_args

from migrator.mapping.language import forms as language_forms
from migrator.mapping.language import value_forms
from migrator.mapping.language.document import Path
from migrator.mapping.model.mapping import (
    TRANSFORM,
    Aggregate,
    Collection,
    CollectionKind,
    Computed,
    Condition,
    Const,
    Each,
    Entity,
    Expiry,
    Expression,
    IndexEntry,
    ItemDesign,
    Join,
    Keep,
    MapOf,
    Ref,
    Stored,
    Version,
)
from migrator.mapping.model.table import TableDesign, Value
from migrator.runtime.errors import amount, did_you_mean

if TYPE_CHECKING:
    from migrator.mapping.language.expression_reader import ExpressionReader

_AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)


class EntityParser:
    """Parses one entity; faults go to the reader."""

    def __init__(self, reader: ExpressionReader, table: TableDesign, name: str) -> None:
        self.reader = reader
        self.table = table
        self.name = name
        self.at: Path = ("entities", name)

    def entity(self, form: language_forms.EntityForm) -> Entity:
        self._names(form)
        joins = self.joins(form.join, (*self.at, "join"))
        table = form.table or self.name
        collections = [
            self._collection(alias, collection, (*self.at, "collect", alias))
            for alias, collection in form.collect.items()
        ]
        collections += [_climb(alias, climb, table) for alias, climb in form.climb.items()]
        version = self._version(form)
        attributes = self._values(form.attributes, (*self.at, "attributes"))
        attributes |= {version.attribute: Ref((version.column,))} if version else {}
        return Entity(
            name=self.name,
            table=table,
            items=tuple(self._item(name, item) for name, item in form.items.items()),
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

    def _names(self, form: language_forms.EntityForm) -> None:
        """Faults of names that would be ambiguous."""
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

    def joins(self, forms: Dict[str, language_forms.JoinForm], at: Path) -> tuple[Join, ...]:
        joins: list[Join] = []
        for alias, form in forms.items():
            aliases = {join.alias for join in joins}
            joins.append(self._join(alias, form, aliases, (*at, alias)))
        return tuple(joins)

    def _join(self, alias: str, form: language_forms.JoinForm, aliases: set[str], at: Path) -> Join:
        if isinstance(form, language_forms.OnForm):
            parent, columns = self._parent(list(form.on), aliases, (*at, "on"))
            return Join(alias, parent, (), form.table, tuple(zip(columns, form.on.values(), strict=True)))
        names = [form] if isinstance(form, str) else form
        parent, columns = self._parent(names, aliases, at)
        return Join(alias, parent, tuple(columns))

    def _parent(self, names: list[str], earlier: set[str], at: Path) -> tuple[str, list[str]]:
        """The alias that all of `names` share ('' is the row itself), and the names without it."""
        split = [name.partition(".") if "." in name else ("", "", name) for name in names]
        aliases = {alias for alias, _, _ in split}
        parent = aliases.pop()
        if aliases:
            self.reader.fault(at, "its columns belong to several aliases; a join starts from one")
        if parent and parent not in earlier:
            what = f"no earlier alias '{parent}'{did_you_mean(parent, earlier)}"
            self.reader.fault(at, what)
        return parent, [name for _, _, name in split]

    def _collection(self, alias: str, form: language_forms.CollectForm, at: Path) -> Collection:
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

    def _item(self, name: str, form: language_forms.ItemForm) -> ItemDesign:
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
            key=tuple(
                self.reader.template(text, (*at, "key", number)) for number, text in enumerate(form.key)
            ),
            entries=tuple(entry for entry in made if entry is not None),
            when=self._conditions(form.when, (*at, "when")),
            keep=keep,
            keep_except=keep_except,
            attributes=self._values(form.attributes, (*at, "attributes")),
            expiry=self._expiry(form.ttl, at),
        )

    def _entry(self, name: str, form: language_forms.EntryForm, at: Path) -> IndexEntry | None:
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
        when = self._conditions(form.when, (*at, "when")) if isinstance(form, language_forms.PairForm) else ()
        return IndexEntry(name, values, when)

    def _expiry(self, form: language_forms.TtlForm | None, at: Path) -> Expiry | None:
        if form is None:
            return None
        if self.table.ttl is None:
            self.reader.fault((*at, "ttl"), "the table has no ttl attribute; write table: {ttl: expiresAt}")
        if isinstance(form, str):
            return Expiry(form)
        return Expiry(form.from_, form.days, 1000 if form.unit == "milliseconds" else 1, form.zero or "")

    # ── values and conditions ──

    def _version(self, form: language_forms.EntityForm) -> Version | None:
        if form.version is None:
            return None
        at: Path = (*self.at, "version")
        if isinstance(form.version, language_forms.VersionAsForm):
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

    def _values(self, forms: Dict[str, value_forms.ValueForm], at: Path) -> dict[str, Expression]:
        for name in forms:
            self._own_name(name, (*at, name))
        return {name: self._value(form, (*at, name)) for name, form in forms.items()}

    def _value(self, form: value_forms.ValueForm, at: Path) -> Expression:
        if isinstance(form, str):
            return self.reader.value(form, at)
        if isinstance(form, value_forms.ConstForm):
            return Const(self._const(form.const, (*at, "const")))
        if isinstance(form, value_forms.MapForm):
            return MapOf(
                {name: self._value(inner_form, (*at, "map", name)) for name, inner_form in form.map.items()}
            )
        if isinstance(form, value_forms.StoredForm):
            if len(at) != (6 if at[2] == "items" else 4):
                self.reader.fault(at, "only a whole attribute of an item can be kept in S3")
            return Stored(self._value(form.from_, (*at, "from")), form.over)
        inner = {
            name: self._value(inner_form, (*at, "attributes", name))
            for name, inner_form in form.attributes.items()
        }
        return Each(form.each, inner)

    def _const(self, value: object, at: Path) -> Value:
        if isinstance(value, float):
            self.reader.fault(
                at, "write the number as a text in quotes, so that it stays exact, or as an integer"
            )
        return value  # type: ignore[return-value]

    def _conditions(self, form: value_forms.ConditionForm | None, at: Path) -> tuple[Condition, ...]:
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


def _climb(alias: str, form: language_forms.ClimbForm, table: str) -> Collection:
    if isinstance(form, dict):
        return Collection(alias, "climb", table, tuple(form), of=tuple(form.values()))
    return Collection(alias, "climb", table, (form,) if isinstance(form, str) else tuple(form))


def _computed(form: language_forms.ComputedForm) -> Computed:
    return Computed(form) if isinstance(form, str) else Computed(form.sql, form.type)


def unknown_word(name: str, indexes: list[str]) -> str:
    """The message for a name in an item that is neither a word of the language nor an index."""
    words = [*indexes, *language_forms.ItemForm.model_fields]
    return f"'{name}' is neither an index of the table nor a key of an item{did_you_mean(name, words)}"


def _keep(
    form: language_forms.KeepForm | None,
) -> tuple[Keep, tuple[str, ...]]:
    if form is None:
        return "none", ()
    if isinstance(form, language_forms.ExceptForm):
        return "all", tuple(form.except_)
    return ("all", ()) if isinstance(form, str) else (tuple(form), ())
