"""A page of rows as items and refusals, and the check that the columns of a run have not changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from migrator.mapping.heart.items import CompiledEntity, items_for, objects_for
from migrator.mapping.plan import Change, changes
from migrator.model.edges import Rows
from migrator.model.errors import MissingNameError, RowError, SourceError
from migrator.model.journal import Finding, Journal, Run
from migrator.model.keys import item_key_text
from migrator.model.table import Item, RowTree, TableDesign

# ── Rows of a page as items and refusals: what every stage does before it writes or compares ──


@dataclass(frozen=True)
class Projection:
    """Items of a page's rows, in the rows' order, and the objects that they point to. `expired` items are left out."""

    rows: int
    items: list[Item]
    expired: list[Item]
    refused: list[Finding]
    objects: dict[str, bytes]


def project(entity: CompiledEntity, rows: Sequence[RowTree], now_s: float) -> Projection:
    """The items of `rows`; a row that `items_for` refuses is a finding, and the others go on."""
    items: list[Item] = []
    expired: list[Item] = []
    refused: list[Finding] = []
    objects: dict[str, bytes] = {}
    for row in rows:
        try:
            made = items_for(entity, row)
            objects |= objects_for(entity, row)
        except RowError as error:
            refused.append(Finding("refused", entity.name, str(error), row_key(entity, row)))
            continue
        for item in made:
            (expired if is_expired(item, entity.table, now_s) else items).append(item)
    return Projection(len(rows), items, expired, refused, objects)


def is_expired(item: Item, table: TableDesign, now_s: float) -> bool:
    """Whether the item's TTL has passed. Such an item is clean present or absent: DynamoDB deletes late."""
    expiry = item.get(table.ttl) if table.ttl else None
    return isinstance(expiry, int) and expiry <= now_s


def key_text(table: TableDesign, item: Item) -> str:
    """The item's key as JSON text, for findings."""
    return item_key_text(table.key_of(item))


def stamp(items: Iterable[Item], table: TableDesign, ticket: int) -> None:
    """Writes the ticket of the reading into each item."""
    for item in items:
        item[table.ticket_attribute] = ticket


def row_key(entity: CompiledEntity, row: RowTree) -> str:
    """The row's key; '' where it holds what no key should."""
    try:
        return entity.source_key(row)
    except TypeError:
        return ""


# ── A run keeps to the columns that it began with: one that comes, goes or changes meanwhile is told ──

_ADVICE = (
    "rows read before and after do not fit together. Correct the mapping where it names them (or put them back),"
    " then give the same command again: over other columns it begins a new run"
)


@contextmanager
def pinned_columns(
    source: Rows, journal: Journal, run: Run, entities: Sequence[CompiledEntity]
) -> Iterator[None]:
    """Looks at the source's columns where a SELECT misses one, and once more when all is done.

    Looking at the end is enough for what stops no SELECT: new columns are never read, since SELECTs name theirs.
    Raises: SourceError that says what changed among the columns that are read; the rest becomes findings.
    """
    try:
        yield
    except MissingNameError:
        _check(source, journal, run, entities)
        raise
    _check(source, journal, run, entities)


def _check(source: Rows, journal: Journal, run: Run, entities: Sequence[CompiledEntity]) -> None:
    facts = source.facts()
    for entity in entities:
        found = changes(entity.plan, facts)
        if any(change.read for change in found):
            what = "; ".join(str(change) for change in found)
            raise SourceError(f"entity {entity.name}: since the run began, {what}; {_ADVICE}")
        journal.add_findings(run, [_finding(entity, change) for change in found])


def _finding(entity: CompiledEntity, change: Change) -> Finding:
    what = f"{change} since the run began; the run does not read it"
    return Finding("schema", entity.name, what, attribute=change.column)
