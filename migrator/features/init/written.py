"""A proposed design for a source's questions, written as a mapping file with comments that give reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Mapping as Dict
from functools import partial
from typing import Any

from msgspec import Struct

from migrator.cli.template import text_template
from migrator.features.init.placing import (
    OWN_SORT,
    Access,
    AccessPart,
    EntityNames,
    KeyPiece,
    PlacedTables,
    design_of,
    joined_key,
)
from migrator.mapping.language.document import quoted, text_of
from migrator.mapping.language.parse import examine_mapping
from migrator.mapping.model.facts import SchemaFacts, TableFacts
from migrator.mapping.model.questions import (
    Figures,
    Joined,
    Path,
    Statement,
    StatementQuestion,
    Unserved,
    Wanted,
    free_name,
    is_of_the_database,
    parent_keys,
    row_key,
)
from migrator.runtime.errors import Fault, MappingError, amount


def frequency(*statements: Statement) -> str:
    """Frequency of all statements together: logged calls, and calls per second if known."""
    calls, rates = sum(statement.calls for statement in statements), [each.per_s for each in statements]
    counted = f"{calls:g} call" if calls == 1 else f"{calls:,.10g} calls"
    if None in rates:
        return counted
    per_s = sum(rate for rate in rates if rate is not None)
    return f"{per_s:.3g}/s" if per_s == calls else f"{counted}, {per_s:.3g}/s"


_UNITS = (("s", 1), ("min", 60), ("h", 3_600), ("day", 86_400))


def _rate(per_s: float) -> str:
    unit, seconds = next(((unit, of) for unit, of in _UNITS if per_s * of >= 1), _UNITS[-1])
    number = per_s * seconds
    return f"{number:.0f}/{unit}" if number >= 100 else f"{round(number, 2):.3g}/{unit}"


def mapping_of(
    design: PlacedTables,
    facts: SchemaFacts,
    figures: Figures,
    table: str,
    quote: Callable[[str], str],
    remarks: Dict[str, str],
) -> str:
    def returns(access: Access) -> str:
        names = attributes_of(access.stored, facts)
        if not access.parts:
            return text_of([names.get(path, path[1]) for path in access.question.outputs])
        parts: dict[str, dict[str, Any]] = {}
        for part in access.parts:
            one = {"one": True} if part.one else {}
            attributes = [names.get(path, path[1]) for path in part.outputs]
            parts[part.name] = {"type": design.names.types[part.table], **one, "attributes": attributes}
        return text_of(parts)

    def sql(access: Access) -> str:
        if not access.parts:
            return quoted(access.question.sql)
        return text_of({part.name: _select(part, facts, quote) for part in access.parts})

    def shortened(access: Access) -> dict[str, str]:
        """Numbers that MySQL and MariaDB show with six digits."""
        found = {}
        for answer in access.parts or (access.question,):
            tables = {"": answer.table, **{one.alias: one.table for one in answer.joins}}
            for alias, name in answer.outputs:
                column = facts.tables[tables[alias]].column(name)
                if column is not None and column.kind.single:
                    found[attributes_of(access.stored, facts).get((alias, name), name)] = "six_digits"
        return found

    entities = [_entity(design, facts, figures, name) for name in sorted(design.homes)]
    template = text_template(
        __package__, "mapping.yaml.j2", text=text_of, quoted=quoted, calls=frequency, rate=_rate
    )
    functions = {
        "stored": _stored,
        "request": _request,
        "returns": returns,
        "row_key": row_key,
        "sql": sql,
        "shortened": shortened,
    }
    return template.render(functions, design=design, table=table, entities=entities, remarks=remarks)


def _entity(design: PlacedTables, facts: SchemaFacts, figures: Figures, name: str) -> dict[str, Any]:
    """A table's entity. Patterns that need the same join or total share it."""
    table, rows = facts.tables[name], figures.rows.get(name)
    accesses = [access for access in design.accesses if access.question.table == name]
    questions = [access.stored for access in accesses]
    calls = (
        f"{frequency(*(one.question.statement for one in accesses))} of {amount(len(accesses), 'pattern')}"
    )
    about = "" if name in figures.exact else "about "
    attributes: dict[Path, str] = {}
    for question in questions:
        attributes |= attributes_of(question, facts)
    return {
        "facts": table,
        "accesses": accesses,
        "rows": "rows not counted" if rows is None else f"{about}{amount(rows, 'row')}",
        "calls": calls if accesses else "no pattern reads it",
        "joins": _joins(design, name, questions, attributes),
        "totals": {one.total.alias: one.total for one in questions if one.total is not None}.values(),
        "unknown": [column.name for column in table.columns if column.kind.name == "unknown"],
        "attributes": sorted({attribute: _path_text(path) for path, attribute in attributes.items()}.items()),
    }


def _joins(
    design: PlacedTables, name: str, questions: Sequence[StatementQuestion], attributes: Iterable[Path]
) -> list[Joined]:
    """Joins read by the items' attributes, keys or conditions, and those between.

    Others only order rows, which need no order here.
    """
    home, entries = design.homes[name], design.entries.get(name, ())
    keys = [home.partition, home.sort, *(key for entry in entries for key in (entry.partition, entry.sort))]
    pieces = [piece for _, values in keys for piece in values]
    pieces += [entry.bucket for entry in entries if entry.bucket is not None]
    read = {path[0] for path in (*attributes, *(piece.path for piece in pieces))}
    read |= {condition.rpartition(".")[0] for entry in entries for condition, _ in entry.when}
    kept: list[Joined] = []
    for joined in reversed({one.alias: one for question in questions for one in question.joins}.values()):
        if joined.alias in read:
            kept.append(joined)
            read.add(joined.parent)
    return kept[::-1]


def attributes_of(question: StatementQuestion, facts: SchemaFacts) -> dict[Path, str]:
    columns = [column.name for column in facts.tables[question.table].columns]
    made: dict[Path, str] = {}
    for path in question.outputs:
        if path[0]:
            made[path] = free_name(f"{path[0]}_{path[1]}", columns)
        elif question.total is not None and path[1] == question.total.alias:
            made[path] = path[1]
    return made


def _select(part: AccessPart, facts: SchemaFacts, quote: Callable[[str], str]) -> str:
    tables = {"": facts.tables[part.table], **{one.alias: facts.tables[one.table] for one in part.joins}}

    def real(path: Path) -> str:
        column = tables[path[0]].column(path[1])
        name = quote(path[1] if column is None else column.real)
        return f"{quote(path[0] or tables[''].real)}.{name}" if part.joins else name

    def place(table: TableFacts) -> str:
        return ".".join(map(quote, filter(None, (table.schema, table.real))))

    sources = [place(tables[""])]
    for one in part.joins:
        on = " AND ".join(f"{real((one.alias, theirs))} = {real(('', own))}" for own, theirs in one.on)
        sources.append(f"LEFT JOIN {place(tables[one.alias])} AS {quote(one.alias)} ON {on}")
    conditions = " AND ".join(f"{real(('', name))} = :{param}" for name, param in part.on)
    order = ", ".join(f"{real(('', name))}{' DESC' if descending else ''}" for name, descending in part.order)
    select = f"SELECT {', '.join(map(real, part.outputs))} FROM {' '.join(sources)} WHERE {conditions}"
    return f"{select} ORDER BY {order}" if order else select


def _request(access: Access) -> str:
    operator, values = access.condition
    if access.operation != "query":
        return f"{{key: {text_of([access.key, *values])}}}"
    sort = text_of(values[0]) if len(values) == 1 else text_of(values)
    sort = sort if operator == "equal" else f"{{{operator}: {sort}}}"
    words = [f"index: GSI{access.index}"] if access.index else []
    words.append(f"key: [{', '.join([text_of(access.key), *([sort] if values else [])])}]")
    words += ["descending: true"] if access.descending else []
    words += [f"filter: {text_of(access.filters)}"] if access.filters else []
    words += [f"limit: {access.question.limit}"] if access.question.limit is not None else []
    return f"{{{', '.join(words)}}}"


def _stored(part: tuple[str, Sequence[KeyPiece]]) -> str:
    word, pieces = part
    return joined_key(word, [piece.stored for piece in pieces])


def _path_text(path: Path) -> str:
    text = ".".join(filter(None, path))
    return '"' + text.replace('"', '""') + '"' if re.search(r"[,:|{}'\"]", text) else text


_MANY = 1_000
"""Children of one row from which on a collection is reported as one that may grow without bound."""
_FAULT_PLACE = re.compile(r"(?P<word>access_patterns|entities)\.(?P<name>\w+)")


class Proposal(Struct, frozen=True):
    """`text`: the mapping's.
    `remarked`: that text with a remark at patterns, by their names.
    """

    text: str
    design: PlacedTables
    unserved: tuple[Unserved, ...]
    decisions: tuple[str, ...]
    remarked: Callable[[Dict[str, str]], str]


def names_in(text: str, file: str) -> dict[str, EntityNames]:
    """Names of tables in a mapping, as far as it is readable."""
    try:
        mapping = examine_mapping(text, file).mapping
    except MappingError:
        return {}
    names = {}
    for entity in mapping.entities.values():
        for item in entity.items[:1]:
            heads = [template.source.partition("#")[0] for template in item.key]
            word = heads[-1] if heads[-1] != OWN_SORT else heads[0]
            if re.fullmatch(r"\w+", word):
                names[entity.table] = EntityNames(entity.name, item.type, word)
    return names


def wanted_of(questions: Sequence[StatementQuestion], facts: SchemaFacts, *, nulls: bool) -> Wanted:
    """Figures that a design needs. `nulls`: the present rows may decide that no row has NULL."""
    columns: dict[str, set[str]] = {name: set(row_key(table)) for name, table in facts.tables.items()}
    for name, table in facts.tables.items():
        columns[name] |= {column for key in parent_keys(facts, table) for column in key.columns}
    for question in questions:
        sorted_by = [path for path, _ in question.order] + [
            condition.path for condition in question.conditions
        ]
        columns[question.table] |= {name for alias, name in sorted_by if not alias}
    spans = {
        name: tuple(sorted(column for column in wanted if _is_number(facts.tables[name], column)))
        for name, wanted in sorted(columns.items())
    }
    totals = {
        (question.total.table, question.total.column, tuple(own for own, _ in question.total.on))
        for question in questions
        if question.total is not None and question.total.kind != "count" and question.order
        if _is_number(facts.tables[question.total.table], question.total.column)
    }
    filled: dict[str, set[str]] = {}
    for question in questions if nulls else ():
        nullable = {column.name for column in facts.tables[question.table].columns if column.nullable}
        ordered = {name for (alias, name), _ in question.order if not alias}
        filled.setdefault(question.table, set()).update(ordered & nullable)
    fan_out = {
        (name, key.columns) for name, table in facts.tables.items() for key in parent_keys(facts, table)
    }
    looked_at = {name: tuple(sorted(columns)) for name, columns in filled.items()}
    return Wanted(spans, tuple(sorted(totals)), tuple(sorted(fan_out)), looked_at)


def _is_number(table: TableFacts, name: str) -> bool:
    column = table.column(name)
    return column is not None and column.kind.name in ("integer", "number")


def proposal_of(
    asked: Sequence[StatementQuestion],
    facts: SchemaFacts,
    figures: Figures,
    table: str,
    max_indexes: int,
    faults_of: Callable[[str], Sequence[Fault]],
    written: Dict[str, EntityNames] = {},
    quote: Callable[[str], str] = '"{}"'.format,
) -> Proposal:
    """The proposal; faulty parts are removed and reported until none is left.

    A faulty entity first loses its questions, then is left out itself.
    `faults_of`: a mapping's text, by check and source.
    `written`: names of a mapping that is replaced, by table.
    `quote`: a name as SQL has it.
    """
    questions, out, unserved = list(asked), dict[str, str](), list[Unserved]()
    while True:
        but = frozenset(out)
        design = design_of(questions, facts, figures, max_indexes=max_indexes, but=but, written=written)
        remarked = partial(mapping_of, design, facts, figures, table, quote)
        text = remarked({})
        faults = [fault for fault in faults_of(text) if not fault.warning] if design.homes else []
        if not faults:
            break
        gone = _refused(design, faults)
        out |= {} if gone else _tables_at_fault(design, faults)
        for question, reason, what in gone:
            questions.remove(question)
            unserved.append(Unserved(question.statement, reason, what))
        if not gone and not _tables_at_fault(design, faults):
            raise AssertionError(
                "a fault of a proposed mapping stands at no pattern and no entity: " + str(faults[0])
            )
        left = [question for question in questions if question.table in out]
        questions = [question for question in questions if question.table not in out]
        unserved += [Unserved(question.statement, "fault", "its table is left out") for question in left]
    everything = (*design.unserved, *unserved)
    decisions = tuple(_decisions(facts, figures, design, out, is_asked=bool(asked)))
    return Proposal(text, design, everything, decisions, remarked)


def _refused(design: PlacedTables, faults: Sequence[Fault]) -> list[tuple[StatementQuestion, str, str]]:
    """Questions with a faulty pattern or entity, each with a word of REASONS and details.

    A fault at the SQL comes from the database.
    """
    places = {
        (match["word"], match["name"]): fault
        for fault in faults
        if (match := _FAULT_PLACE.match(fault.where))
    }
    made: list[tuple[StatementQuestion, str, str]] = []
    for access in design.accesses:
        question, entity = access.question, design.names.entities[access.question.table]
        fault = places.get(("access_patterns", access.name)) or places.get(("entities", entity))
        if fault is None:
            continue
        is_of_sql = fault.where.endswith(".sql")
        place = f"line {question.statement.line}: " if is_of_sql and question.statement.line else ""
        made.append((question, "refused" if is_of_sql else "fault", f"{place}{fault.what}"))
    return made


def _tables_at_fault(design: PlacedTables, faults: Sequence[Fault]) -> dict[str, str]:
    """A fault by table."""
    faults_by_name = {
        match["name"]: fault.what
        for fault in faults
        if (match := _FAULT_PLACE.match(fault.where)) and match["word"] == "entities"
    }
    return {
        table: faults_by_name[entity]
        for table, entity in design.names.entities.items()
        if entity in faults_by_name and table in design.homes
    }


# ── what only people can decide ──


def _decisions(
    facts: SchemaFacts, figures: Figures, design: PlacedTables, out: Dict[str, str], *, is_asked: bool
) -> Iterator[str]:
    for name in (name for name in design.without_key if not is_of_the_database("", name)):
        doubts = dict.fromkeys(why for _, why in facts.tables[name].doubts)
        key = f"key that holds for all rows ({'; '.join(doubts)})" if doubts else ""
        key = key or "primary key and no unique key without NULL"
        yield f"{name} has no {key}, so it is left out: name one with key:, or leave it"
    for name, what in sorted(out.items()):
        yield f"{name} is left out: the mapping of it has a fault ({what}); write its entity by hand"
    used = {access.question.table for access in design.accesses}
    read = {joined.table for access in design.accesses for joined in access.question.joins}
    unasked = sorted(set(design.homes) - used - read)
    if unasked and is_asked:
        yield f"no statement reads {', '.join(unasked)}: keep each, or remove its entity"
    for name in sorted(design.homes):
        yield from _of_columns(facts.tables[name])
    for (name, columns), most in sorted(figures.fan_out.items()):
        if most >= _MANY and name in design.homes:
            yield f"one row has {most:,} rows of {name} by {', '.join(columns)}: bound it, or cut it by time"
    yield from _of_texts(facts, design)


_SMALL_BYTES = re.compile(r"(var)?binary|tinyblob", re.IGNORECASE)


def _of_columns(table: TableFacts) -> Iterator[str]:
    for column in table.columns:
        if column.kind.name == "unknown":
            yield f"{table.name}.{column.name} ({column.declared}) has no form in an item and is left out: see columns:"
        elif column.kind.name == "binary" and not _SMALL_BYTES.match(column.declared):
            yield f"{table.name}.{column.name} holds bytes: keep them in S3 ({{from: …, to: s3}}) where an item nears 400 KB"


def _of_texts(facts: SchemaFacts, design: PlacedTables) -> Iterator[str]:
    for name, entries in sorted(design.entries.items()):
        table = facts.tables[name]
        pieces = {piece.path for entry in entries for piece in entry.partition[1] if not piece.path[0]}
        for _, column_name in sorted(pieces):
            column = table.column(column_name)
            kind = column.kind if column is not None else None
            if kind is not None and kind.name == "text" and not (kind.length or kind.strict):
                yield f"{name}.{column_name} is a key of any length: a row with more than 2,048 bytes of it is refused"


def default_statements(facts: SchemaFacts, quote: Callable[[str], str]) -> list[Statement]:
    """Questions from keys alone: each row by its key, and rows by each of their foreign keys."""
    made: list[Statement] = []
    for table in sorted(facts.tables.values(), key=lambda table: table.name):
        keys = [row_key(table), *(key.columns for key in parent_keys(facts, table))]
        for columns in dict.fromkeys(key for key in keys if key):
            real = [column.real for name in columns if (column := table.column(name)) is not None]
            condition = " AND ".join(f"{quote(name)} = ?" for name in real)
            made.append(Statement(f"SELECT * FROM {quote(table.real)} WHERE {condition}"))
    return made
