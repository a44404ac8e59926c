"""The text of the function that makes an entity's items as JSON: readable Python, from a mapping's names and constants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from json.encoder import encode_basestring

from migrator.mapping.heart.encoder_columns import (
    ColumnCode,
    Piece,
    TupleText,
    comment,
    constant,
    label,
    literal,
    name_of,
    size_of,
)
from migrator.mapping.heart.encoder_values import RUNTIME
from migrator.mapping.heart.items import compile_expiry, index_keys
from migrator.mapping.heart.rows import (
    compile_conditions,
    compile_key,
    decoding_steps,
    places_of,
)
from migrator.mapping.heart.values import decoder
from migrator.mapping.heart.wire import text_bytes
from migrator.model.facts import CollectionPlan, EntityPlan, Kind, Slot, kept_columns
from migrator.model.mapping import (
    Condition,
    Each,
    Expression,
    ItemDesign,
    Mapping,
    Template,
    paths_in,
)
from migrator.model.table import (
    CLIMB_LEVELS,
    ITEM_BYTES,
    PARTITION_KEY_BYTES,
    SORT_KEY_BYTES,
    Index,
    KeyAttribute,
)

# ── The function of an entity ──


class FunctionText:
    """The text of one entity's function; '' where two parts of an item would have one name.

    `offered`: places of the row that can be read raw. `raw`: those that are, because nothing needs more of them than their
    text. `names`: what the text refers to beside its own variables.
    """

    def __init__(self, mapping: Mapping, plan: EntityPlan, offered: AbstractSet[int]) -> None:
        self.mapping = mapping
        self.plan = plan
        self.raw: frozenset[int] = frozenset()
        self._write()
        columns = self.row.columns.values()
        self.raw = frozenset(
            column.place for column in columns if column.place in offered and not column.decoded
        )
        if self.raw:
            self._write()

    def _write(self) -> None:
        self.names = dict(RUNTIME)
        self.functions: list[str] = []
        self.lists: dict[int, list[tuple[str, str]]] = {}
        self.row = TupleText(self.mapping, self.names, places_of(self.plan), self._columns())
        source = self._source()
        written = all(self._item(design) for design in self.plan.entity.items)
        lines = [*self._prologue(), *source, *self.row.body]
        body = "\n".join("            " + line for line in lines)
        self.code = f"{''.join(self.functions)}{_HEAD}{body}\n{_TAIL}" if written else ""

    def _columns(self) -> dict[str, ColumnCode]:
        """The columns of the row, and the aggregates of its collections."""
        columns = _columns_of(self.plan.slots, self.raw)
        for place, one in enumerate(self.plan.collections, start=len(self.plan.slots)):
            if not one.collection.is_list:
                kind = Kind("integer") if one.collection.kind == "count" else _kind_of(one)
                alias = one.collection.alias
                columns[alias] = ColumnCode(alias, kind, place, decoder(kind), optional=True, raw=False)
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
        """Lines that set what `_src` holds: `source`, that as JSON, and its bytes."""
        columns = [self.row.columns[column.name] for column in self.plan.key]
        before = self.plan.entity.name + ":"
        known = text_bytes(before)
        if len(columns) == 1 and columns[0].kind.name == "integer":
            (column,) = columns
            d, t = f"d{column.place}", f"t{column.place}"
            checks = [] if column.raw else [f"if type({d}) is not int:", "    no_code()"]
            shown = literal(encode_basestring(before)[1:-1])
            return [*checks, f"source = f'\"{shown}[{{{t}}}]\"'", f"source_bytes = {known + 2} + len({t})"]
        for column in columns:
            column.decoded = True
        values = ", ".join(f"d{column.place}" for column in columns)
        key = f"{before!r} + encode_key([{values}])"
        return [f"source = {key}", "source_bytes = text_bytes(source)", "source = quoted(source)"]

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
            pieces += self._attribute(level, name, expression)
        pieces += self._expiry(level, design)
        row.line(level, "item = (")
        for number, piece in enumerate(pieces):
            row.line(level + 1, f"f'{'{{' + piece.json[1:] if number == 0 else piece.json}'")
        row.line(level, ")")
        row.line(level, f"size = {size_of(pieces)}")
        row.line(level, f"if size > {ITEM_BYTES}:")
        row.line(level + 1, "no_code()")
        row.line(level, "append((key, (item + end).encode(), size + end_bytes, expiry))")
        return len(set(names)) == len(names)

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
            Piece(
                name_of(table.source_attribute) + '{{"S":{source}}}',
                text_bytes(table.source_attribute),
                ("source_bytes",),
            ),
        ]

    def _attribute(self, level: int, name: str, expression: Expression) -> list[Piece]:
        if isinstance(expression, Each):
            return [self._each(name, expression)]
        piece = self.row.attribute(level, name, expression)
        return [] if piece is None else [piece]

    def _expiry(self, level: int, design: ItemDesign) -> list[Piece]:
        seconds, name = compile_expiry(self.mapping, design, self.row.places), self.mapping.table.ttl
        if seconds is None or design.expiry is None or name is None:
            self.row.line(level, "expiry = None")
            return []
        self.row.line(level, f"expiry = {self.row.called('expiry', seconds, [design.expiry.path])}")
        return [self.row.any(level, f"named({label(name)}, {text_bytes(name)}, expiry)")]

    # ── keys ──

    def _base_key(self, level: int, design: ItemDesign) -> list[Piece]:
        row, pieces, variables = self.row, [], []
        limits = (PARTITION_KEY_BYTES, SORT_KEY_BYTES)
        for attribute, template, limit in zip(self.mapping.table.key, design.key, limits, strict=False):
            variable, _ = row.variables()
            key = self._key(level, template, attribute, limit)
            for null in key.nulls:
                row.line(level, f"if {null} is None:")
                row.line(level + 1, "no_code()")
            for line in key.lines:
                row.line(level, line)
            row.line(level, f"{variable} = {key.value}")
            variables.append(variable)
            pieces.append(key.piece)
        row.line(level, f"key = ({''.join(f'{variable}, ' for variable in variables)})")
        return pieces

    def _entry(self, level: int, design: ItemDesign, number: int) -> list[Piece]:
        """An index entry's attributes: all of them, or none where one is NULL."""
        row, table, entry = self.row, self.mapping.table, design.entries[number]
        index = next(one for one in table.indexes if one.name == entry.index)
        made, size = row.variables()
        row.line(level, f"{made}, {size} = '', 0")
        if entry.when:
            row.line(level, f"if {self._condition(entry.when)}:")
            level += 1
        keys = [
            self._key(level, template, attribute, _limit(index, attribute))
            for attribute, template in zip(index_keys(table, entry), entry.values, strict=True)
        ]
        nulls = dict.fromkeys(null for key in keys for null in key.nulls)
        if nulls:
            row.line(level, f"if {' and '.join(f'{null} is not None' for null in nulls)}:")
            level += 1
        for line in (line for key in keys for line in key.lines):
            row.line(level, line)
        pieces = [key.piece for key in keys]
        if not nulls and not entry.when:
            row.body.pop(row.body.index(f"{'    ' * level}{made}, {size} = '', 0"))
            return pieces
        row.line(level, f"{made} = f'{''.join(piece.json for piece in pieces)}'")
        row.line(level, f"{size} = {size_of(pieces)}")
        return [Piece(f"{{{made}}}", 0, (size,))]

    def _key(self, level: int, template: Template, attribute: KeyAttribute, limit: int) -> Key:
        row, name = self.row, attribute.name
        text = row.text(template) if attribute.type == "text" else None
        if text is not None:
            checks = list(text.checks())
            if not text.fits:
                checks += [f"if not 0 < {text.size} <= {limit}:", "    no_code()"]
            piece = Piece(f'{name_of(name)}{{{{"S":{text.in_json}}}}}', text_bytes(name), (text.size,))
            return Key(text.nulls, checks, f"f'{text.plain}'", piece)
        get = compile_key(template, attribute, row.places, row.around)
        value, _ = row.variables()
        row.line(level, f"{value} = {row.called('get', get, paths_in([template]))}")
        made, size = row.variables()
        lines = [f"{made}, {size} = as_json({value})", f"if not 0 < {size} <= {limit}:", "    no_code()"]
        return Key([value], lines, value, Piece(f"{name_of(name)}{{{made}}}", text_bytes(name), (size,)))

    # ── lists ──

    def _each(self, name: str, each: Each) -> Piece:
        """The attribute of a list, by a function of its own, which the prologue calls."""
        place, places = self.row.places.lists[each.collection]
        plan = self.plan.collections[place - len(self.plan.slots)]
        made, size = self.row.variables()
        function = f"list_{made}"
        columns = _columns_of(plan.slots, frozenset(), f"{function}_")
        child = TupleText(self.mapping, self.names, places, columns)
        fields = [child.attribute(0, field, expression) for field, expression in each.attributes.items()]
        self.functions.append(self._list_text(function, plan, child, [one for one in fields if one]))
        self.lists.setdefault(place, []).append((f"{made}, {size}", function))
        return Piece(f"{name_of(name)}{{{made}}}", text_bytes(name), (size,))

    def _list_text(self, function: str, plan: CollectionPlan, child: TupleText, fields: list[Piece]) -> str:
        climb = plan.collection.kind == "climb"
        most = CLIMB_LEVELS if climb else plan.collection.at_most
        lines = [f"def {function}(children):", "    made, size = [], 3"]
        if most is not None:
            lines += [f"    if len(children) > {most}:", "        no_code()"]
        first = "" if climb or plan.collection.first is None else f"[:{plan.collection.first}]"
        lines.append(f"    for child in children{first}:")
        inside = ["".join(f"d{place}, " for place in range(len(plan.slots))) + "= child"]
        for column in child.columns.values():
            self.names[f"{function}_decode{column.place}"] = column.decode
            inside += column.lines()
        if child.needs_decoded:
            values = (f"c{c.place}" if c.decoded else "None" for c in child.columns.values())
            inside.append(f"decoded = ({', '.join(values)},)")
        inside += child.body
        inside.append("fields = (")
        inside += [f"    f'{piece.json}'" for piece in fields] or ["    ''"]
        inside.append(")")
        inside.append("made.append('{\"M\":{' + fields[1:] + '}}')")
        # DynamoDB counts three bytes for a list or a map, and one for each value in it.
        there = [f"({piece.json[1:-1]} != '')" for piece in fields if not piece.known_bytes]
        inside.append(f"size += {' + '.join([size_of(fields), str(4 + len(fields) - len(there)), *there])}")
        lines += [f"        {line}" for line in inside]
        return "\n".join([*lines, "    return '{\"L\":[' + ','.join(made) + ']}', size", "", ""])


@dataclass(frozen=True)
class Key:
    """A key attribute as code: what must not be NULL, lines that raise for what it has no code for, and its value."""

    nulls: list[str]
    lines: list[str]
    value: str
    piece: Piece


_HEAD = """def encode(rows, end, end_bytes, items, left):
    append = items.append
    for row in rows:
        before = len(items)
        try:
"""
_TAIL = """        except LEFT:
            del items[before:]
            left(row)
"""


def _limit(index: Index, attribute: KeyAttribute) -> int:
    return PARTITION_KEY_BYTES if attribute in index.partition else SORT_KEY_BYTES


def _kind_of(plan: CollectionPlan) -> Kind:
    return plan.column.kind if plan.column else Kind("unknown")


def _columns_of(slots: Sequence[Slot], raw: frozenset[int], scope: str = "") -> dict[str, ColumnCode]:
    return {
        slot.path: ColumnCode(
            slot.path,
            slot.column.kind,
            place,
            decoder(slot.column.kind),
            optional=slot.alias != "" or slot.column.nullable,
            raw=place in raw,
            scope=scope,
        )
        for place, slot in enumerate(slots)
    }
