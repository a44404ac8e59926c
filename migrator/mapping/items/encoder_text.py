"""The text of the function that makes an entity's items as JSON: readable Python, from a mapping's names and constants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as _Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import TypeAlias

from migrator.mapping.items.encoder_columns import ColumnCode, TupleText, constant, label
from migrator.mapping.items.encoder_values import RUNTIME, Piece, comment, literal, more_of, piece
from migrator.mapping.items.items import compile_expiry, index_keys
from migrator.mapping.items.rows import (
    compile_conditions,
    compile_key,
    decoding_steps,
    places_of,
)
from migrator.mapping.items.values import decoder
from migrator.mapping.items.wire import text_bytes
from migrator.mapping.model.facts import CollectionPlan, EntityPlan, Kind, Slot, kept_columns
from migrator.mapping.model.mapping import (
    Condition,
    Each,
    Expression,
    ItemDesign,
    Mapping,
    Template,
    paths_in,
)
from migrator.mapping.model.table import (
    CLIMB_LEVELS,
    ITEM_BYTES,
    PARTITION_KEY_BYTES,
    SORT_KEY_BYTES,
    EncodedItem,
    Index,
    KeyAttribute,
)

# ── The function of an entity ──

Orders: TypeAlias = _Mapping[tuple[str, ...], Sequence[str]]
"""Names in the order in which they are wanted, others behind: those of an item's attributes by its type, and those in the
maps of a list by the type and the list's name."""
_TICKET = 0
"""In items of which the text alone is wanted."""


class FunctionText:
    """The text of one entity's function; '' where two parts of an item would have one name.

    `offered`: places of the row that can be read raw. `raw`: those that are, because nothing needs more of them than their
    text. `names`: what the text refers to beside its own variables.
    """

    def __init__(
        self, mapping: Mapping, plan: EntityPlan, offered: AbstractSet[int], orders: Orders | None = None
    ) -> None:
        self.mapping = mapping
        self.plan = plan
        self.orders = orders
        self.sized = orders is None
        self.raw: frozenset[int] = frozenset()
        self._write()
        columns = self.row.columns.values()
        self.raw = frozenset(
            column.place for column in columns if column.place in offered and not column.decoded
        )
        if self.raw:
            self._write()

    @property
    def may_have_maps(self) -> bool:
        """Whether an item may hold a map beside those of its lists."""
        body = self.code[self.code.index("def encode(") :]
        return '"M":' in body or any(word in self.code for word in ("as_json(", "named("))

    def _write(self) -> None:
        self.names = {**RUNTIME, "BACKSLASH": ord("\\"), "EncodedItem": EncodedItem, "new": tuple.__new__}
        self.functions: list[str] = []
        self.lists: dict[int, list[tuple[str, str]]] = {}
        self.names_in_lists: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.row = TupleText(self.mapping, self.names, places_of(self.plan), self._columns(), self.sized)
        source = self._source()
        written = all(self._item(design) for design in self.plan.entity.items)
        lines = [*self._prologue(), *source, *self.row.body]
        body = "\n".join("            " + line for line in lines)
        head = _HEAD if self.sized else _HEAD_OF_TEXTS
        code = f"{''.join(self.functions)}{head}{body}\n{_TAIL}" if written else ""
        # A row's only item is appended by its last line: there is none to take back.
        self.code = code if len(self.plan.entity.items) > 1 else code.replace(_BEFORE, "").replace(_BACK, "")

    def _columns(self) -> dict[str, ColumnCode]:
        """The columns of the row, and the aggregates of its collections."""
        columns = _columns_of(self.plan.slots, self.raw, sized=self.sized)
        for place, one in enumerate(self.plan.collections, start=len(self.plan.slots)):
            if not one.collection.is_list:
                kind = Kind("integer") if one.collection.kind == "count" else _kind_of(one)
                alias = one.collection.alias
                columns[alias] = ColumnCode(
                    alias, kind, place, decoder(kind), optional=True, raw=False, sized=self.sized
                )
        return columns

    def _prologue(self) -> Iterable[str]:
        """Lines that set the variables of every place, for a row is refused where one cannot be decoded."""
        row, steps = self.row, decoding_steps(self.plan)
        yield "".join(f"d{place}, " for place in range(len(steps))) + "= row"
        by_place = {column.place: column for column in row.columns.values()}
        for place, (path, decode) in enumerate(steps):
            self.names[f"decode{place}"] = decode
            if place in by_place:
                yield from by_place[place].lines()
                continue
            yield f"# {comment(path)}"
            made = self.lists.get(place, [])
            if not made or path in row.decoded_lists:
                yield f"c{place} = decode{place}(d{place})"
            for variables, function in made:
                yield f"{variables} = {function}(d{place})"
        if row.needs_decoded:
            decoded = {place for place, column in by_place.items() if column.decoded}
            decoded |= {row.places.lists[alias][0] for alias in row.decoded_lists}
            places = (f"c{place}" if place in decoded else "None" for place in range(len(steps)))
            yield f"decoded = ({', '.join(places)},)"

    def _source(self) -> list[str]:
        """Lines that set what `_src` holds: `source_text`, `source`, that as JSON, and its bytes."""
        columns = [self.row.columns[column.name] for column in self.plan.key]
        self.source_counted: tuple[str, ...] = ()
        before = self.plan.entity.name + ":"
        if len(columns) == 1 and columns[0].kind.name == "integer":
            (column,) = columns
            d, t = f"d{column.place}", f"t{column.place}"
            checks = [] if column.raw else [f"if type({d}) is not int:", "    no_code()"]
            escaped = encode_basestring(before)[1:-1]
            text = "source" if escaped == before else f"{before!r} + f'[{{{t}}}]'"
            return [*checks, f"source = f'{literal(escaped)}[{{{t}}}]'", f"source_text = {text}"]
        for column in columns:
            column.decoded = True
        values = ", ".join(f"d{column.place}" for column in columns)
        text = f"{before!r} + encode_key([{values}])"
        more = ["source_more = text_bytes(source_text) - text_bytes(source)"] if self.sized else []
        self.source_counted = ("source_more",)
        return [f"source_text = {text}", "source = quoted(source_text)[1:-1]", *more]

    # ── an item ──

    def _item(self, design: ItemDesign) -> bool:
        row, level = self.row, 0
        row.line(level, f"# {comment(design.type)}")
        if design.when:
            row.line(level, f"if {self._condition(design.when)}:")
            level = 1
        pieces = self._base_key(level, design)
        pieces += self._fixed(design)
        names = self._names(design)
        for entry in range(len(design.entries)):
            pieces += self._entry(level, design, entry)
        written = {**self.plan.entity.attributes, **design.attributes}
        kept = [name for name in kept_columns(self.plan, design) if name not in written]
        pieces += [self.row.columns[name].attribute(name) for name in kept]
        for name, expression in written.items():
            pieces += self._attribute(level, design.type, name, expression)
        pieces += self._expiry(level, design)
        if self.sized:
            self._sized_item(level, design, pieces)
        else:
            self._ordered_item(level, design, pieces)
        return len(set(names)) == len(names)

    def _sized_item(self, level: int, design: ItemDesign, pieces: Sequence[Piece]) -> None:
        """Lines that append an item: its key, its text, and its bytes."""
        row = self.row
        row.line(level, "data = (")
        for number, one in enumerate(pieces):
            row.line(level + 1, f"f'{'{{' + one.json[1:] if number == 0 else one.json}'")
        row.line(level + 1, "f'{end}'")
        row.line(level, ").encode()")
        row.line(level, f"size = len(data) + end_more + {more_of(pieces)}")
        escaped = [expression for one in pieces for expression in one.escaped]
        if escaped:
            row.line(level, "if BACKSLASH in data:")
            row.line(level + 1, f"size -= {' + '.join(escaped)}")
        row.line(level, f"if size > {ITEM_BYTES}:")
        row.line(level + 1, "no_code()")
        row.line(
            level,
            f"append(new(EncodedItem, (key, data, size, expiry, {design.type!r}, source_text, ticket)))",
        )

    def _ordered_item(self, level: int, design: ItemDesign, pieces: Sequence[Piece]) -> None:
        """Lines that append an item's text, whose attributes are in the order of its type, without what is around it."""
        row, table = self.row, self.mapping.table
        ticket = constant(table.ticket_attribute, _TICKET)
        row.line(level, "data = (")
        for one in self._in_order([*pieces, ticket], design.type):
            row.line(level + 1, f"f'{one.json}'")
        row.line(level, ").encode()[2:-1]")
        row.line(level, f"if len(data) > {ITEM_BYTES}:")
        row.line(level + 1, "no_code()")
        row.line(level, "append((data, expiry))")

    def _in_order(self, pieces: Sequence[Piece], *where: str) -> list[Piece]:
        order = (self.orders or {}).get(where, ())
        places = {name: place for place, name in enumerate(order)}
        return sorted(pieces, key=lambda one: places.get(one.name, len(places)))

    def _names(self, design: ItemDesign) -> list[str]:
        """The names of all parts that an item may have."""
        table = self.mapping.table
        written = {**self.plan.entity.attributes, **design.attributes}
        kept = [name for name in kept_columns(self.plan, design) if name not in written]
        indexed = [attribute.name for entry in design.entries for attribute in index_keys(table, entry)]
        ttl = [str(table.ttl)] if design.expiry is not None and table.ttl else []
        ours = [
            table.type_attribute,
            table.revision_attribute,
            table.source_attribute,
            table.ticket_attribute,
        ]
        return [*(attribute.name for attribute in table.key), *ours, *indexed, *written, *kept, *ttl]

    def _condition(self, conditions: tuple[Condition, ...]) -> str:
        holds = compile_conditions(conditions, self.row.places)
        return self.row.called("when", holds, [condition.path for condition in conditions])

    def _fixed(self, design: ItemDesign) -> list[Piece]:
        table = self.mapping.table
        return [
            constant(table.type_attribute, design.type),
            constant(table.revision_attribute, self.mapping.revision),
            piece(table.source_attribute, '{{"S":"{source}"}}', self.source_counted),
        ]

    def _attribute(self, level: int, type_: str, name: str, expression: Expression) -> list[Piece]:
        if isinstance(expression, Each):
            return [self._each(type_, name, expression)]
        made = self.row.attribute(level, name, expression)
        return [] if made is None else [made]

    def _expiry(self, level: int, design: ItemDesign) -> list[Piece]:
        seconds, name = compile_expiry(self.mapping, design, self.row.places), self.mapping.table.ttl
        if seconds is None or design.expiry is None or name is None:
            self.row.line(level, "expiry = None")
            return []
        self.row.line(level, f"expiry = {self.row.called('expiry', seconds, [design.expiry.path])}")
        return [self.row.any(level, name, f"named({label(name)}, {text_bytes(name)}, expiry)")]

    # ── keys ──

    def _base_key(self, level: int, design: ItemDesign) -> list[Piece]:
        """The attributes of the base key, with the lines that set `key`, or raise where there is none."""
        row, pieces, variables = self.row, [], []
        limits = (PARTITION_KEY_BYTES, SORT_KEY_BYTES)
        for attribute, template, limit in zip(self.mapping.table.key, design.key, limits, strict=False):
            variable, _ = row.variables()
            key = self._key(level, template, attribute, limit)
            for line in key.before:
                row.line(level, line)
            for null in key.nulls:
                row.line(level, f"if {null} is None:")
                row.line(level + 1, "no_code()")
            for line in key.lines:
                row.line(level, line)
            made = key.piece
            if self.sized:
                row.line(level, f"{variable} = {key.value}")
                variables.append(variable)
                if key.is_plain:
                    made = piece(attribute.name, f'{{{{"S":"{{{variable}}}"}}}}')
            pieces.append(made)
        if self.sized:
            row.line(level, f"key = ({''.join(f'{variable}, ' for variable in variables)})")
        return pieces

    def _entry(self, level: int, design: ItemDesign, number: int) -> list[Piece]:
        """An index entry's attributes: all of them, or none where one is NULL."""
        row, table, entry = self.row, self.mapping.table, design.entries[number]
        index = next(one for one in table.indexes if one.name == entry.index)
        keys = [
            self._key(level, template, attribute, _limit(index, attribute))
            for attribute, template in zip(index_keys(table, entry), entry.values, strict=True)
        ]
        made = [row.variables() for _ in keys]
        sure = not entry.when and not any(key.nulls for key in keys)
        if not sure:
            for text, more in made:
                row.line(level, f"{text}, {more} = '', 0")
        if entry.when:
            row.line(level, f"if {self._condition(entry.when)}:")
            level += 1
        nulls = dict.fromkeys(null for key in keys for null in key.nulls)
        for line in (line for key in keys for line in key.before):
            row.line(level, line)
        if nulls:
            row.line(level, f"if {' and '.join(f'{null} is not None' for null in nulls)}:")
            level += 1
        for line in (line for key in keys for line in key.lines):
            row.line(level, line)
        if sure:
            return [key.piece for key in keys]
        for (text, more), key in zip(made, keys, strict=True):
            row.assign(level, text, more, [key.piece])
        return [
            key.piece.left_out_where_empty(text, more) for (text, more), key in zip(made, keys, strict=True)
        ]

    def _key(self, level: int, template: Template, attribute: KeyAttribute, limit: int) -> Key:
        row, name = self.row, attribute.name
        text = row.text(template) if attribute.type == "text" else None
        if text is not None:
            checks = list(text.checks())
            if not text.fits:
                checks += [f"if not ({text.is_within(limit)}):", "    no_code()"]
            is_plain = text.is_made_of_plain
            return Key(text.nulls, [], checks, f"f'{text.plain}'", text.attribute(name), is_plain)
        get = compile_key(template, attribute, row.places, row.around)
        value, _ = row.variables()
        before = [f"{value} = {row.called('get', get, paths_in([template]))}"]
        made, more = row.variables()
        bytes_ = f"{more} + text_bytes({made})"
        lines = [f"{made}, {more} = as_json({value})", f"if not 0 < {bytes_} <= {limit}:", "    no_code()"]
        return Key([value], before, lines, value, piece(name, f"{{{made}}}", (more,)))

    # ── lists ──

    def _each(self, type_: str, name: str, each: Each) -> Piece:
        """The attribute of a list, by a function of its own, which the prologue calls."""
        place, places = self.row.places.lists[each.collection]
        plan = self.plan.collections[place - len(self.plan.slots)]
        made, more = self.row.variables()
        function = f"list_{made}"
        columns = _columns_of(plan.slots, frozenset(), f"{function}_", sized=self.sized)
        child = TupleText(self.mapping, self.names, places, columns, self.sized)
        fields = [child.attribute(0, field, expression) for field, expression in each.attributes.items()]
        self.names_in_lists[type_, name] = tuple(each.attributes)
        pieces = self._in_order([one for one in fields if one], type_, name)
        self.functions.append(self._list_text(function, plan, child, pieces))
        self.lists.setdefault(place, []).append((f"{made}, {more}", function))
        return piece(name, f"{{{made}}}", (more,))

    def _list_text(self, function: str, plan: CollectionPlan, child: TupleText, fields: list[Piece]) -> str:
        climb = plan.collection.kind == "climb"
        most = CLIMB_LEVELS if climb else plan.collection.at_most
        lines = [f"def {function}(children):", "    made, more = [], 0"]
        if most is not None:
            lines += [f"    if len(children) > {most}:", "        no_code()"]
        first = "" if climb or plan.collection.first is None else f"[:{plan.collection.first}]"
        lines.append(f"    for child in children{first}:")
        lines += [f"        {line}" for line in self._child_lines(function, plan, child, fields)]
        # A list's three bytes are less than its eight characters, and commas are none.
        more = "more - 4 - (len(made) or 1)" if self.sized else "0"
        lines.append(f"    return '{{\"L\":[' + ','.join(made) + ']}}', {more}")
        return "\n".join([*lines, "", ""])

    def _child_lines(
        self, function: str, plan: CollectionPlan, child: TupleText, fields: list[Piece]
    ) -> Iterator[str]:
        """Lines that append a child's text to `made`, and add its `more`."""
        yield "".join(f"d{place}, " for place in range(len(plan.slots))) + "= child"
        for column in child.columns.values():
            self.names[f"{function}_decode{column.place}"] = column.decode
            yield from column.lines()
        if child.needs_decoded:
            values = (f"c{c.place}" if c.decoded else "None" for c in child.columns.values())
            yield f"decoded = ({', '.join(values)},)"
        yield from child.body
        yield "fields = ("
        yield from [f"    f'{one.json}'" for one in fields] or ["    ''"]
        yield ")"
        yield "made.append('{\"M\":{' + fields[1:] + '}}')"
        if not self.sized:
            return
        # DynamoDB counts three bytes for a list or a map, and one for each value in it.
        there = [f"({one.json[1:-1]} != '')" for one in fields if not one.is_sure]
        around = 4 - len('{"M":{}}') + len(fields) - len(there)
        cut = "bool(fields)" if len(there) == len(fields) else "1"
        yield f"more += {' + '.join([str(around), cut, more_of(fields), *there])}"
        escaped = [expression for one in fields for expression in one.escaped]
        if escaped:
            yield r"if '\\' in fields:"
            yield f"    more -= {' + '.join(escaped)}"


@dataclass(frozen=True)
class Key:
    """A key attribute as code: what must not be NULL, lines that set that, lines that raise for what it has no code for, and
    its value. `is_plain`: a text that is in JSON as it is."""

    nulls: list[str]
    before: list[str]
    lines: list[str]
    value: str
    piece: Piece
    is_plain: bool = False


_BEFORE, _BACK = "        before = len(items)\n", "            del items[before:]\n"
_HEAD = f"""def encode(rows, ticket, end, end_more, items, left):
    append = items.append
    for row in rows:
{_BEFORE}        try:
"""
_HEAD_OF_TEXTS = _HEAD.replace("rows, ticket, end, end_more, items, left", "rows, items, left")
_TAIL = f"""        except LEFT:
{_BACK}            left(row)
"""


def _limit(index: Index, attribute: KeyAttribute) -> int:
    return PARTITION_KEY_BYTES if attribute in index.partition else SORT_KEY_BYTES


def _kind_of(plan: CollectionPlan) -> Kind:
    return plan.column.kind if plan.column else Kind("unknown")


def _columns_of(
    slots: Sequence[Slot], raw: frozenset[int], scope: str = "", *, sized: bool
) -> dict[str, ColumnCode]:
    return {
        slot.path: ColumnCode(
            slot.path,
            slot.column.kind,
            place,
            decoder(slot.column.kind),
            optional=slot.alias != "" or slot.column.nullable,
            raw=place in raw,
            sized=sized,
            scope=scope,
        )
        for place, slot in enumerate(slots)
    }
