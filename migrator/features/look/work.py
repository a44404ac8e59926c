"""`migrator look`: an item collection's stored items, compared with those that its rows make."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any, get_args

import click
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.cli.command_line import print_json
from migrator.cli.inert import plain
from migrator.cli.options import stdout, stop_on_signals
from migrator.cli.page import digest, environment_of_pages, part_of_page
from migrator.commands.query_work import query
from migrator.mapping.items.items import CompiledEntity, items_for, key_text
from migrator.mapping.language.redaction import value_text
from migrator.mapping.model.edges import ItemStore, Rows
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import Root
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.report import (
    FINE,
    Cell,
    ExampleItem,
    LookedItem,
    LookReport,
    LookState,
    ShownDifference,
)
from migrator.mapping.model.table import (
    CONTROL,
    Index,
    Item,
    ItemKey,
    SourceKey,
    TableDesign,
    item_key_text,
    key_order,
)
from migrator.mapping.patterns.diff import differences
from migrator.mapping.patterns.param_sources import AskedKey, stored_keys
from migrator.mapping.patterns.param_sources import shown as key_forms
from migrator.runtime.errors import CLEAN, DIFFERENT, RowError, SettingsError
from migrator.runtime.values import asdict
from migrator.settings.job import Job
from migrator.settings.transforms import sound_mapping
from migrator.stages.design.shown import Showing, clipped
from migrator.stages.design.views import Partitions, RowItems, asked_key
from migrator.stages.session.job import design_for, read_job
from migrator.stages.session.session import JobSession
from migrator.stages.verify.page_check import compare_item
from migrator.stages.verify.scan import DirectItems, Tracer, direct_items

_STATES = frozenset(get_args(LookState))

_FIRST_ROWS = 20
"""Rows of each entity that are read to find an item of each of its types."""


class ComparedItem(Struct, frozen=True):
    """`root`: the row that makes the item, else the one in the stored item.
    `owner`: set if the stored item is another row's.
    `reason`: verify's words.
    """

    state: LookState
    key: ItemKey
    root: Root | None
    made: Item | None
    stored: Item | None
    differing: frozenset[str] = frozenset()
    reason: str = ""


class Looked(Struct, frozen=True):
    asked: AskedKey
    items: Sequence[ComparedItem]
    refused: Sequence[Finding] = ()
    is_cut: bool = False
    notes: Sequence[str] = ()


def known_forms(mapping: MappingModel, table: TableDesign, index: Index) -> str:
    """Forms of partition keys, if the key is missing or has no items."""
    forms = key_forms([key.partition for key in stored_keys(mapping, index)])
    return f"partition keys of {index.name or table.name} look like this: {forms}"


class Look(Struct, frozen=True):
    source: Rows
    store: ItemStore
    mapping: MappingModel
    table: TableDesign
    entities: Sequence[CompiledEntity]
    direct: DirectItems
    items_at_most: int = 100

    def look(self, asked: AskedKey, now_s: float) -> Looked:
        stored, is_cut = self._stored(asked)
        made = Partitions(self.source, self.mapping, self.entities).made(
            asked, now_s, self._named(stored.values())
        )
        last = max(map(self._order(asked), stored.values()), default=None) if is_cut else None
        wanted = [
            (entity, item)
            for entity, item in made.items
            if self.table.key_of(item) in stored
            or (asked.holds(item) and (last is None or self._order(asked)(item) <= last))
        ]
        more = [key for _, item in wanted if (key := self.table.key_of(item)) not in stored]
        items = {**stored, **self.store.get(more)}
        looked = self._compared(wanted, items) + self._left(wanted, made, items)
        return Looked(
            asked=asked,
            items=sorted(looked, key=lambda item: self._order(asked)(item.stored or item.made or {})),
            refused=made.refused,
            is_cut=is_cut,
            notes=made.notes if looked else [*made.notes, known_forms(self.mapping, self.table, asked.index)],
        )

    def examples(self, showing: Showing) -> list[ExampleItem]:
        """An item of each type that the first rows make: a stored one if possible. Raises: as `look`."""
        made: dict[str, list[tuple[str, str, ItemKey]]] = defaultdict(list)
        for entity in self.entities:
            for row in self.source.read_page(entity.plan, None, None, _FIRST_ROWS):
                with suppress(RowError):  # which verify names
                    of_row = (entity.name, entity.source_key(row))
                    for item in items_for(entity, row):
                        made[self.table.type_of(item)].append((*of_row, self.table.key_of(item)))
        stored = self.store.get([key for items in made.values() for _, _, key in items])
        first = {
            type_: next((one for one in items if one[2] in stored), items[0]) for type_, items in made.items()
        }
        return [
            ExampleItem(
                clipped(type_), entity, showing.key(item_key_text(key), row), key, is_stored=key in stored
            )
            for type_, (entity, row, key) in first.items()
        ]

    # ── stored items ──

    def _stored(self, asked: AskedKey) -> tuple[Mapping[ItemKey, Item], bool]:
        """Stored items by base key, in the collection's order, and whether there are more."""
        keys: list[ItemKey] = []
        start: Mapping[str, Any] | None = None
        while len(keys) <= self.items_at_most:
            page = self.store.query(self._request(asked, self.items_at_most + 1 - len(keys)), start)
            keys += [self.table.key_of(item) for item in page.items]
            start = page.next_start
            if start is None:
                break
        shown = keys[: self.items_at_most]
        # An index is read a moment late, and may hold a part of each item only.
        by_key = self.store.get(shown)
        in_collection_order = {key: by_key[key] for key in shown if key in by_key}
        return in_collection_order, len(keys) > len(shown) or start is not None

    def _request(self, asked: AskedKey, limit: int) -> dict[str, Any]:
        index = asked.index
        pairs = list(zip((attribute.name for attribute in index.partition), asked.partition, strict=True))
        conditions = [f"#k{number} = :k{number}" for number in range(len(pairs))]
        if asked.sort != "":
            form = "begins_with(#k{0}, :k{0})" if index.sort[0].type == "text" else "#k{0} = :k{0}"
            conditions.append(form.format(len(pairs)))
            pairs.append((index.sort[0].name, asked.sort))
        return {
            **({"IndexName": index.name} if index.name else {"ConsistentRead": True}),
            "KeyConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": {f"#k{number}": name for number, (name, _) in enumerate(pairs)},
            "ExpressionAttributeValues": {f":k{number}": value for number, (_, value) in enumerate(pairs)},
            "Limit": limit,
        }

    def _named(self, items: Any) -> dict[str, list[SourceKey]]:
        named: dict[str, dict[SourceKey, None]] = defaultdict(dict)
        for item in items:
            root = self.table.root_of(item)
            if root is not None:
                named[root[0]][root[1]] = None
        return {entity: list(keys) for entity, keys in named.items()}

    def _order(self, asked: AskedKey) -> Any:
        names = [attribute.name for attribute in (*asked.index.sort, *self.table.key)]
        return lambda item: tuple(key_order(item.get(name, Decimal(0))) for name in names)

    # ── the comparison, which is verify's ──

    def _compared(
        self, wanted: Sequence[tuple[str, Item]], items: Mapping[ItemKey, Item]
    ) -> list[ComparedItem]:
        by_name = {entity.name: entity for entity in self.entities}
        return [self._compare(by_name[entity], item, items) for entity, item in wanted]

    def _compare(self, entity: CompiledEntity, made: Item, items: Mapping[ItemKey, Item]) -> ComparedItem:
        findings = compare_item(entity, made, items)
        key, root = self.table.key_of(made), self.table.root_of(made)
        return ComparedItem(
            state=_state(findings),
            key=key,
            root=root,
            made=made,
            stored=items.get(key),
            differing=self._differing(made, items.get(key), findings),
            reason=findings[0].reason if findings and not findings[0].attribute else "",
        )

    def _differing(self, made: Item, stored: Item | None, findings: Sequence[Finding]) -> frozenset[str]:
        """Differing attributes, also of another row's item, which verify does not compare."""
        if stored is not None and findings and findings[0].kind == "collision":
            own = frozenset({*self.table.own_attributes, *self.table.kept})
            return frozenset(difference.attribute for difference in differences(made, stored, own))
        return frozenset(finding.attribute for finding in findings if finding.attribute)

    def _left(
        self, wanted: Sequence[tuple[str, Item]], made: RowItems, items: Mapping[ItemKey, Item]
    ) -> list[ComparedItem]:
        keys = {self.table.key_of(item) for _, item in wanted}
        expired = {self.table.key_of(item): item for _, item in made.expired}
        left = {key: item for key, item in items.items() if key not in keys}
        plain = [
            item
            for key, item in left.items()
            if key not in expired and not self.table.is_hidden(item) and not self.direct.has(item, self.table)
        ]
        by_name = {entity.name: entity for entity in self.entities}
        untraced = Tracer(self.source, by_name, self.table).untraced(plain)
        found = {finding.item_key: finding for finding in untraced}
        return [self._alone(key, item, expired.get(key), found) for key, item in left.items()]

    def _alone(
        self, key: ItemKey, item: Item, expired: Item | None, found: Mapping[str, Finding]
    ) -> ComparedItem:
        finding = found.get(key_text(self.table, item))
        state: LookState = "unexpected"
        reason = "its row changed during the comparison; run it again"
        if finding is not None:
            state, reason = _state([finding]), finding.reason
        elif self.direct.has(item, self.table):
            state, reason = "direct", ""
        elif self.table.is_hidden(item):
            is_control = item.get(self.table.type_attribute) == CONTROL
            state, reason = "control" if is_control else "tombstone", ""
        elif expired is not None:
            state, reason = "expired", ""
        return ComparedItem(state, key, self.table.root_of(item), expired, item, reason=reason)


def _state(findings: Sequence[Finding]) -> LookState:
    kind = findings[0].kind if findings else "same"
    assert kind in _STATES
    return kind  # type: ignore[return-value]


# ── As it may be shown ──


def shown(looked: Looked, job: str, table: TableDesign, showing: Showing) -> LookReport:
    """The collection, with values and parts of keys masked as set in `showing`."""
    asked, names = looked.asked, [attribute.name for attribute in looked.asked.index.attributes]
    partition = dict(zip(names, asked.partition, strict=False))
    return LookReport(
        job=job,
        table=table.name,
        index=asked.index.name,
        partition=_masked(showing, {name: value_text(value) for name, value in partition.items()}),
        items=[_shown(compared, names, table, showing) for compared in looked.items],
        refused=[
            f"{finding.entity} {showing.key(finding.source_key, finding.source_key)}: {finding.reason}"
            for finding in looked.refused
        ],
        is_cut=looked.is_cut,
        notes=looked.notes,
    )


def _masked(showing: Showing, texts: Mapping[str, str]) -> dict[str, str]:
    cells = [Cell(name, text, None, differs=False) for name, text in texts.items()]
    return {
        cell.attribute: cell.sql or "" for cell in showing.difference(ShownDifference("", cells=cells)).cells
    }


def _shown(compared: ComparedItem, names: Sequence[str], table: TableDesign, showing: Showing) -> LookedItem:
    entity, row = compared.root or ("", "")
    known = compared.made or compared.stored or {}
    made = {} if compared.made is None else showing.item(entity, compared.made)
    stored = {} if compared.stored is None else _stored_texts(compared, entity, table, showing)
    cells = [
        Cell(name, made.get(name), stored.get(name), differs=_differs(compared, name))
        for name in made | stored
    ]
    return LookedItem(
        state=compared.state,
        type=clipped(table.type_of(known)),
        at=_masked(showing, {name: (stored | made).get(name, "null") for name in names}),
        key=showing.key(item_key_text(compared.key), row or "[]"),
        entity=entity,
        row=showing.key(row, row) if row else "",
        cells=[*_type_cell(compared, table), *showing.difference(ShownDifference("", cells=cells)).cells],
        reason=showing.key(compared.reason, row or "[]"),
    )


def _stored_texts(
    compared: ComparedItem, entity: str, table: TableDesign, showing: Showing
) -> dict[str, str]:
    assert compared.stored is not None
    type_ = table.type_of(compared.made or compared.stored)
    return showing.item(entity, {**compared.stored, table.type_attribute: type_})


def _differs(compared: ComparedItem, name: str) -> bool:
    one_side = compared.made is None or compared.stored is None or compared.state == "missing"
    return name in compared.differing or (
        one_side and compared.state != "same" and compared.state not in FINE
    )


def _type_cell(compared: ComparedItem, table: TableDesign) -> list[Cell]:
    if table.type_attribute not in compared.differing or compared.stored is None or compared.made is None:
        return []
    stored = compared.stored.get(table.type_attribute)
    return [
        Cell(
            table.type_attribute,
            value_text(table.type_of(compared.made)),
            None if stored is None else value_text(stored, redacted=True),
            differs=True,
        )
    ]


STATE_WORDS: Mapping[LookState, str] = {
    "same": "stored as its row makes it",
    "different": "an attribute is not what the row makes",
    "missing": "a row makes it, and it is not stored",
    "unexpected": "stored, and no row makes it",
    "foreign": "stored, and not of this job",
    "collision": "another row's item is stored under its key",
    "expired": "its TTL has passed: there or not, both are right",
    "tombstone": "what a delete left, until it is purged",
    "control": "the control item of live change",
    "direct": "the service writes it itself; not compared",
}

# ── on a terminal ──


def print_look(console: Console, report: LookReport, *, everything: bool) -> None:
    console.print(Text(plain(f"{_place(report)}: {_key_text(report.partition)}")))
    for item in report.items:
        _print_item(console, item, everything=everything)
    # The counts last: a terminal that has scrolled shows them first.
    for line in (*(f"refused: {text}" for text in report.refused), *_notes(report), summary(report)):
        console.print(Text(plain(line)), soft_wrap=True)


def summary(report: LookReport) -> str:
    if not report.items:
        return "no item is stored, and no row makes one"
    return ", ".join(f"{count:,} {state}" for state, count in report.counts.items())


def _place(report: LookReport) -> str:
    return f"index {report.index} of table {report.table}" if report.index else f"table {report.table}"


def _notes(report: LookReport) -> list[str]:
    cut = ["more items are stored behind these; --limit shows more, --sk others"] if report.is_cut else []
    return [*cut, *report.notes]


def _key_text(key: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {text}" for name, text in key.items())


def _print_item(console: Console, item: LookedItem, *, everything: bool) -> None:
    head = Text("\n" if everything or item.state not in FINE else "")
    head.append(f"{item.state:<10}", style="green" if item.state in FINE else "bold red")
    of_row = f", row {item.entity} {item.row}" if item.row else ""
    head.append(plain(f" {item.type} {item.key}{of_row}"))
    if item.state != "same":
        head.append(plain(f": {item.reason or STATE_WORDS[item.state]}"))
    console.print(head, soft_wrap=True)
    cells = [cell for cell in item.cells if everything or cell.differs]
    if cells:
        console.print(_cells_table(cells))


def _cells_table(cells: Sequence[Any]) -> Table:
    table = Table("", "attribute", "the row makes", "stored", box=None, pad_edge=False, header_style="dim")
    for column in table.columns:
        column.overflow = "fold"
    for cell in cells:
        sides = (
            Text("–", style="dim") if text is None else Text(plain(text)) for text in (cell.sql, cell.item)
        )
        table.add_row("  ≠" if cell.differs else "   ", Text(plain(cell.attribute)), *sides)
    return table


# ── for programs ──


def look_data(report: LookReport) -> dict[str, Any]:
    """Every attribute of each item; `made` and `stored` are null if missing."""
    data = asdict(report)
    for item in data["items"]:
        item["attributes"] = [
            dict(zip(("name", "made", "stored", "differs"), cell.values(), strict=True))
            for cell in item.pop("cells")
        ]
    return data | {"clean": report.is_clean, "counts": report.counts}


# ── as pages ──


class Pages:
    """Pages of one job, without scripts."""

    def __init__(self, job: str, table: str, indexes: Sequence[str], version: str) -> None:
        self._pages = environment_of_pages()
        self._pages.globals |= {"state_words": STATE_WORDS, "fine": FINE, "summary": summary, "notes": _notes}
        self._style = part_of_page(self._pages, "report.css") + part_of_page(self._pages, "look.css")
        self._common = {"job": job, "table": table, "indexes": indexes, "version": version}

    @property
    def policy(self) -> str:
        """Content security policy: the page's own style, and its form sent back here."""
        return (
            f"default-src 'none'; style-src {digest(self._style)}; form-action 'self'; base-uri 'none'; "
            "frame-ancestors 'none'; require-trusted-types-for 'script'"
        )

    def look(
        self,
        asked: Mapping[str, str],
        report: LookReport | None,
        fault: str = "",
        examples: Sequence[ExampleItem] = (),
    ) -> str:
        """`asked`: the form's fields as sent. `fault`: why a collection is missing. `examples`: if none was
        requested."""
        return self._page("look.html", asked=asked, report=report, fault=fault, examples=examples)

    def status(self, status: Mapping[str, Any] | None, lines: Sequence[str], fault: str = "") -> str:
        """`status`: data of `migrator status`. `lines`: its lines on live change."""
        return self._page("status.html", status=status, lines=lines, fault=fault)

    def refusal(self, what: str) -> str:
        return self._pages.get_template("refusal.html").render(style=self._style, what=what)

    def _page(self, name: str, **given: Any) -> str:
        return self._pages.get_template(name).render(style=self._style, **self._common, **given)


_PATIENCE_S = 10.0
"""How long an unreachable side is retried: a person waits for it."""


class Sides(Struct, frozen=True):
    """`whole_keys`, `whole_values`: parts of keys that may name a person, and values, are shown unmasked."""

    session: JobSession
    whole_keys: bool
    whole_values: bool

    def report(self, partition: tuple[str, ...], sort: str, index: str | None, limit: int) -> LookReport:
        checked, table = self.session.checked, self.session.target.design
        if not partition:
            refuse_no_key(self.session.job, checked.mapping, table, index)
        looked = self._look(limit).look(asked_key(table, index, partition, sort), time.time())
        return shown(looked, self.session.job.name, table, self._showing())

    def examples(self) -> list[ExampleItem]:
        return self._look(1).examples(self._showing())

    def _look(self, limit: int) -> Look:
        checked, target = self.session.checked, self.session.target
        return Look(
            *(self.session.source, target.store, checked.mapping, target.design, checked.entities),
            direct=direct_items(checked, self.session.job.leave),
            items_at_most=limit,
        )

    def _showing(self) -> Showing:
        checked = self.session.checked
        return Showing(
            checked.mapping,
            [entity.plan for entity in checked.read],
            whole_keys=self.whole_keys or self.whole_values,
            whole_values=self.whole_values,
        )


def refuse_no_key(job: Job, mapping: MappingModel, table: TableDesign, index: str | None) -> None:
    design = table.asked(index or None)
    if design is None:
        asked_key(table, index, ())
        return
    whole = " ".join(f"--pk {attribute.name.upper()}" for attribute in design.partition)
    command = f"migrator look {job.path} {whole}" + (f" --index {index}" if index else "")
    raise SettingsError(f"a partition key is missing; {known_forms(mapping, table, design)}; write {command}")


@contextmanager
def open_sides(
    job: Job, command: str, stop: Event, *, whole_keys: bool, whole_values: bool
) -> Iterator[Sides]:
    """`stop`: ends the wait for a side. Raises: TargetError if the table is missing or another one."""
    with JobSession(job.with_patience(_PATIENCE_S), command, workers=1, stop=stop) as session:
        _ = session.checked, session.table_id
        yield Sides(session, whole_keys, whole_values)


def look(job: Path, pattern: str | None, params: tuple[str, ...], explain: bool, **asked: Any) -> int:
    if pattern is None:
        if params or explain:
            raise click.UsageError("-p and --explain go with --pattern")
        return _look(job, **asked)
    if asked["partition"] or asked["sort"] or asked["index"] or asked["everything"]:
        raise click.UsageError("--pattern goes without --pk, --sk, --index and --all")
    return query(job, pattern, params, explain, asked["as_json"])


def _look(
    job: Path,
    partition: tuple[str, ...],
    sort: str,
    index: str | None,
    limit: int,
    everything: bool,
    whole_keys: bool,
    whole_values: bool,
    as_json: bool,
) -> int:
    read = read_job(job, asks_source=bool(partition))
    if not partition:
        # The form of keys is printed even if no side answers.
        mapping = sound_mapping(read.mapping).mapping
        refuse_no_key(read, mapping, design_for(read, mapping.table), index)
    with (
        stop_on_signals() as stop,
        open_sides(read, "look", stop, whole_keys=whole_keys, whole_values=whole_values) as sides,
    ):
        report = sides.report(partition, sort, index, limit)
    if as_json:
        print_json(look_data(report))
    else:
        print_look(stdout(), report, everything=everything)
    return CLEAN if report.is_clean else DIFFERENT
