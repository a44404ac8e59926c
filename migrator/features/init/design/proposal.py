"""A mapping proposed for the questions of a source: designed, written, checked, and mended until it has no fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as Dict

from msgspec import Struct

from migrator.features.init.design.placing import Design, design_of
from migrator.features.init.design.written import Writer
from migrator.mapping.model.facts import SchemaFacts, TableFacts
from migrator.mapping.model.questions import (
    Figures,
    Question,
    Statement,
    Unserved,
    Wanted,
    is_of_the_database,
    parent_keys,
    row_key,
)
from migrator.runtime.errors import Fault
from migrator.runtime.values import replace

_MANY = 1_000
"""Children of one row from which on a collection is told as one that may grow without bound."""
_FAULT_PLACE = re.compile(r"(?P<word>access_patterns|entities)\.(?P<name>\w+)")


class Proposal(Struct, frozen=True):
    """A mapping without a fault. `decisions`: what only people can decide, one sentence each."""

    text: str
    design: Design
    unserved: tuple[Unserved, ...]
    decisions: tuple[str, ...]


class Asked(Struct, frozen=True):
    """What a proposal is made from. `faults`: of a mapping's text, each (place, what), by the check and by the source."""

    questions: Sequence[Question]
    facts: SchemaFacts
    figures: Figures
    table: str
    max_indexes: int
    faults: Callable[[str], Sequence[Fault]]


def wanted_of(questions: Sequence[Question], facts: SchemaFacts, *, nulls: bool) -> Wanted:
    """What a design of these questions goes by. `nulls`: whether the rows there are may decide that no row has NULL."""
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
        if question.total is not None and question.order
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


def proposal_of(asked: Asked) -> Proposal:
    """The proposal; what has a fault is taken out, and said, until nothing has.

    An entity with a fault first loses the questions that it is asked, then is left out itself.
    """
    questions, out, unserved = list(asked.questions), set[str](), list[Unserved]()
    while True:
        design = design_of(
            questions, asked.facts, asked.figures, max_indexes=asked.max_indexes, but=frozenset(out)
        )
        text = Writer(design, asked.facts, asked.figures, asked.table).text()
        faults = [fault for fault in asked.faults(text) if not fault.warning] if design.homes else []
        if not faults:
            break
        gone = _refused(design, faults)
        out |= set() if gone else _tables_at_fault(design, faults)
        for question, what in gone:
            questions.remove(question)
            unserved.append(Unserved(question.statement, "fault", what))
        if not gone and not _tables_at_fault(design, faults):
            raise AssertionError(
                "a fault of a proposed mapping stands at no pattern and no entity: " + str(faults[0])
            )
        left = [question for question in questions if question.table in out]
        questions = [question for question in questions if question.table not in out]
        unserved += [Unserved(question.statement, "fault", "its table is left out") for question in left]
    everything = (*design.unserved, *unserved)
    return Proposal(text, design, everything, tuple(_decisions(asked, design, out)))


def remarked(proposal: Proposal, asked: Asked, remarks: Dict[str, str]) -> Proposal:
    """The same with a comment beside the patterns that there are remarks on."""
    writer = Writer(proposal.design, asked.facts, asked.figures, asked.table, remarks)
    return replace(proposal, text=writer.text())


def _refused(design: Design, faults: Sequence[Fault]) -> list[tuple[Question, str]]:
    """Questions whose patterns have a fault, or whose table's entity has one and is asked."""
    places = {
        (match["word"], match["name"]): fault.what
        for fault in faults
        if (match := _FAULT_PLACE.match(fault.where))
    }
    made: list[tuple[Question, str]] = []
    for access in design.accesses:
        entity = design.names.entities[access.question.table]
        what = places.get(("access_patterns", access.name)) or places.get(("entities", entity))
        if what is not None:
            made.append((access.question, what))
    return made


def _tables_at_fault(design: Design, faults: Sequence[Fault]) -> set[str]:
    names = {
        match["name"]
        for fault in faults
        if (match := _FAULT_PLACE.match(fault.where)) and match["word"] == "entities"
    }
    return {
        table for table, entity in design.names.entities.items() if entity in names and table in design.homes
    }


# ── what only people can decide ──


def _decisions(asked: Asked, design: Design, out: set[str]) -> Iterator[str]:
    for name in (name for name in design.without_key if not is_of_the_database("", name)):
        yield f"{name} has no primary key and no unique key without NULL, so it is left out: name one with key:, or leave it"
    for name in sorted(out):
        yield f"{name} is left out: the mapping of it has a fault; write its entity by hand"
    used = {access.question.table for access in design.accesses}
    read = {joined.table for access in design.accesses for joined in access.question.joins}
    unasked = sorted(set(design.homes) - used - read)
    if unasked and asked.questions:
        yield f"nobody asks for {', '.join(unasked)}: keep each as it is, or take its entity out"
    for name in sorted(design.homes):
        yield from _of_columns(asked.facts.tables[name])
    for (name, columns), most in sorted(asked.figures.fan_out.items()):
        if most >= _MANY and name in design.homes:
            yield f"one row has {most:,} rows of {name} by {', '.join(columns)}: bound it, or cut it by time"
    yield from _of_texts(asked, design)


def _of_columns(table: TableFacts) -> Iterator[str]:
    for column in table.columns:
        if column.kind.name == "unknown":
            yield f"{table.name}.{column.name} ({column.declared}) has no form in an item and is left out: see columns:"
        elif column.kind.name == "binary":
            yield f"{table.name}.{column.name} holds bytes: keep them in S3 ({{from: …, to: s3}}) where an item nears 400 KB"


def _of_texts(asked: Asked, design: Design) -> Iterator[str]:
    """Texts in keys that may be longer than a key."""
    for name, entries in sorted(design.entries.items()):
        table = asked.facts.tables[name]
        pieces = {piece.path for entry in entries for piece in entry.partition[1] if not piece.path[0]}
        for _, column_name in sorted(pieces):
            column = table.column(column_name)
            if column is not None and column.kind.name == "text" and column.kind.length is None:
                yield f"{name}.{column_name} is a key of any length: a row with more than 2,048 bytes of it is refused"


def default_statements(facts: SchemaFacts, quote: Callable[[str], str]) -> list[Statement]:
    """Questions that follow from keys alone: each row by its key, and rows by each of their foreign keys."""
    made: list[Statement] = []
    for table in sorted(facts.tables.values(), key=lambda table: table.name):
        keys = [row_key(table), *(key.columns for key in parent_keys(facts, table))]
        for columns in dict.fromkeys(key for key in keys if key):
            real = [column.real for name in columns if (column := table.column(name)) is not None]
            condition = " AND ".join(f"{quote(name)} = ?" for name in real)
            made.append(Statement(f"SELECT * FROM {quote(table.real)} WHERE {condition}"))
    return made
