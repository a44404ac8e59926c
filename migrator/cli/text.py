"""Results as text: tables that are never cut, short results as JSON, faults, findings, costs, capture scripts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.style import Style, StyleType
from rich.table import Column, Table
from rich.text import Text

from migrator.cli.inert import plain
from migrator.mapping.items.wire import Estimate, Price
from migrator.mapping.language.redaction import integers_of, json_text, masked_keys
from migrator.mapping.model.facts import CollectionPlan, EntityPlan, Slot
from migrator.mapping.model.journal import Finding
from migrator.mapping.model.live import Step, Unkept
from migrator.mapping.model.mapping import Template
from migrator.mapping.model.results import Forgotten, RowTraces, UndoCounts
from migrator.mapping.model.table import Item, RowTree
from migrator.runtime.errors import amount, verb
from migrator.runtime.values import replace

if TYPE_CHECKING:
    from rich.console import RenderableType


_BETWEEN = 2
"""Blanks of padding of each column, without a box."""
_FOLDED = 16
"""A longer word may be folded."""
_SHORT = 10
"""A cell no wider is never folded: a number with its unit, an age."""
_NAME = 8
"""Names of the first column are not cut, so that they can be copied: one that is wider than its column has a line of its
own."""


OTHER_MAPPING = "the job's writers work by another mapping than the job's file; see `migrator capture status`"


class FittedTable(Table):
    """A table without a box. Numbers, which are right-aligned, are never folded."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        texts = [[_text(console, cell) for cell in (column.header, *column.cells)] for column in self.columns]
        narrowest = [
            _narrowest(column, cells, is_name=at == 0)
            for at, (column, cells) in enumerate(zip(self.columns, texts, strict=True))
        ]
        room = options.max_width - _BETWEEN * len(narrowest)
        for_names = room - sum(narrowest[1:])
        if for_names < min(narrowest[0], _NAME):
            yield from self._blocks(texts)
            return
        narrowest[0] = min(narrowest[0], for_names)
        widest = [max(cell.cell_len for cell in cells) for cells in texts]
        yield from self._rows(texts, _widths(narrowest, widest, room))

    def _rows(self, columns: Sequence[Sequence[Text]], widths: Sequence[int]) -> RenderResult:
        yield self._part(widths)
        for at, row in enumerate(self.rows, 1):
            name, *others = (cells[at] for cells in columns)
            if name.cell_len > widths[0]:
                styles = (Style.parse(str(of.style or "none")) for of in (row, name))
                yield Text(name.plain, Style.combine(styles))
                name = Text("")
            yield self._part(widths, (name, *others), row.style)

    def _part(
        self, widths: Sequence[int], cells: Sequence[Text] = (), style: StyleType | None = None
    ) -> Table:
        part = Table(
            title=None if cells else self.title, title_justify="left", show_header=not cells, box=None
        )
        part.pad_edge, part.header_style, part.title_style = False, self.header_style, self.title_style
        for column, width in zip(self.columns, widths, strict=True):
            part.add_column(column.header, justify=column.justify, width=width, overflow="fold")
        if cells:
            part.add_row(*cells, style=style)
        return part

    def _blocks(self, columns: Sequence[Sequence[Text]]) -> RenderResult:
        if self.title:
            yield Text(str(self.title), self.title_style or "")
        (_, *names), *others = columns
        for at, name in enumerate(names, 1):
            told = [Text.assemble(cells[0], " ", cells[at]) for cells in others if cells[at].plain]
            yield name
            yield Padding(Text("; ").join(told), (0, 0, 0, 2))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[object]], **look: Any) -> FittedTable:
    """Column names that end in a blank mark numbers. Cells are text, never markup. `look`: as rich's Table."""
    table = FittedTable(box=None, pad_edge=False, **look)
    for name in columns:
        table.add_column(name.strip(), justify="right" if name.endswith(" ") else "left")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(plain(cell)) for cell in row))
    return table


def _text(console: Console, cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else console.render_str(str(cell))


def _narrowest(column: Column, cells: Sequence[Text], *, is_name: bool) -> int:
    header, *values = cells
    heading = _longest_word(header)
    if is_name or column.no_wrap or column.justify == "right":
        return max([heading, *(value.cell_len for value in values)])
    least = (
        value.cell_len if value.cell_len <= _SHORT else min(_FOLDED, _longest_word(value)) for value in values
    )
    return max([heading, *least])


def _longest_word(text: Text) -> int:
    return max((Text(word).cell_len for word in text.plain.split()), default=0)


def _widths(narrowest: Sequence[int], widest: Sequence[int], room: int) -> list[int]:
    widths = list(narrowest)
    while growing := [at for at, width in enumerate(widths) if width < widest[at]]:
        left = room - sum(widths)
        if left <= 0:
            break
        for at in growing:
            more = min(max(1, left // len(growing)), widest[at] - widths[at], room - sum(widths))
            widths[at] += more
    return widths


# ── Row trees and items as text that a person reads ──


def row_tree_lines(plan: EntityPlan, row: RowTree) -> Iterator[str]:
    yield "one row, which is always there" if plan.is_single else f"row of {plan.table.real}"
    yield from _slots(plan.slots, row, "  ")
    for collection, value in zip(plan.collections, row[len(plan.slots) :], strict=True):
        yield from _collection(collection, value)


def item_text(item: Item) -> str:
    """The item as indented JSON; numbers stay exact, bytes become {"b64": …}."""
    return json_text(item, indent=2)


def _slots(slots: Sequence[Slot], row: Sequence[Any], indent: str) -> Iterator[str]:
    for slot, value in zip(slots, row, strict=False):
        yield f"{indent}{slot.path} = {value!r}   ({slot.column.declared or slot.column.kind.name})"


def _collection(plan: CollectionPlan, value: Any) -> Iterator[str]:
    alias = plan.collection.alias
    if not plan.collection.is_list:
        yield f"  {alias} = {value!r}   ({plan.collection.kind} of {plan.table.real})"
        return
    yield f"  {alias}: {amount(len(value), 'row')} of {plan.table.real}"
    for child in value:
        yield "    -"
        yield from _slots(plan.slots, child, "      ")


# ── Findings for people and for programs, with or without the parts of keys that could name a person ──

SHOWN = 20
"""How many findings a command prints by default."""


def masked(finding: Finding, templates: Sequence[Template]) -> Finding:
    integers = integers_of(finding.source_key)
    return replace(
        finding,
        source_key=masked_keys(finding.source_key, ()),
        item_key=masked_keys(finding.item_key, templates, integers),
        reason=masked_keys(finding.reason, templates, integers),
        owner=masked_keys(finding.owner, (), integers),
    )


def finding_line(finding: Finding) -> str:
    parts = [f"{finding.kind}:", finding.entity, finding.source_key]
    if finding.item_key or finding.item_type:
        parts += ["item", finding.item_type, finding.item_key]
    if finding.attribute:
        parts += ["attribute", finding.attribute]
    return plain(f"{' '.join(part for part in parts if part)}: {finding.reason}")


# ── What undo counted or deleted: a table for people, plain data for programs ──


def undo_data(counts: UndoCounts) -> dict[str, Any]:
    types = [{"entity": name, "type": kind, "items": n} for (name, kind), n in sorted(counts.types.items())]
    return {"types": types, "items": counts.items, "deleted": counts.gone, "left_alone": counts.others}


def print_undo(console: Console, counts: UndoCounts, *, dry_run: bool) -> None:
    rows = ((name, kind, f"{number:,}") for (name, kind), number in sorted(counts.types.items()))
    console.print(table_of(("entity", "type", "items "), rows))
    others = f"{amount(counts.others, 'item')} of others {verb(counts.others, 'are')} left alone"
    if dry_run:
        console.print(f"{amount(counts.items, 'item')} would be deleted; {others}")
        return
    changed = counts.items - counts.gone
    changed_note = f"; {changed:,} changed meanwhile and stayed" if changed else ""
    console.print(f"{amount(counts.gone, 'item')} deleted{changed_note}; {others}")


# ──
# What forgetting a row counted, took away and leaves: lines for people, plain data for programs; no key of
# the row.


def traces_lines(traces: RowTraces) -> Iterator[str]:
    yield f"kept of the row: {_listed(traces.counts)}"


def hint_lines(traces: RowTraces) -> Iterator[str]:
    # Samples do not depend on the row.
    own = [number for kind, number in traces.counts.items() if kind != "samples"]
    if not any((*own, traces.items, traces.is_there)):
        yield "If you expected something: is the key written as `migrator status --findings --show-keys` shows it?"


def forgotten_lines(done: Forgotten) -> Iterator[str]:
    yield f"forgotten: {_listed(done.gone)}"
    if done.young:
        what = f"{amount(done.young, 'tombstone')} must stay until no late writer can bring an item back"
        yield f"{what}; run the same command again in {done.ripe_in_s:,.0f} s, or when older work has ended"
    if done.is_late:
        what = "a writer still writes what it read before, or the row has come back: remembered keys stay"
        yield f"{what}; run the same command again when it is done"


def remaining_lines(remaining: Sequence[str]) -> Iterator[str]:
    yield "What this command cannot take away:"
    yield from (f"  - {line}" for line in remaining)


def what_remains(traces: RowTraces, *, in_s3: bool) -> list[str]:
    remaining = [
        "point-in-time recovery of the table (up to 35 days), its backups, exports and stream (24 hours)",
        "backups, replicas and binary logs of the source, and of the journal's database; pages of them that are not"
        " overwritten yet (VACUUM)",
        "items and rows of others that quote the row, and your own logs",
    ]
    if in_s3:
        remaining.append("objects in S3 that its items pointed to, and their older versions")
    if traces.page_bounds:
        remaining.append(
            f"{amount(traces.page_bounds, 'page')} of runs in the journal with a bound at the row's key"
        )
    if traces.is_there:
        remaining.append("the row itself, its items, and what the relay needs as long as the row is there")
    elif traces.items:
        remaining.append(f"{amount(traces.items, 'item')} of the row in the table")
    return remaining


def forget_data(traces: RowTraces, done: Forgotten | None, remaining: Sequence[str]) -> dict[str, Any]:
    """`forgotten` is null if only counts were requested."""
    return {
        "row_in_source": traces.is_there,
        "items": traces.items,
        "found": traces.counts,
        "forgotten": None if done is None else dict(done.gone),
        "tombstones_left": len(traces.tombstones) if done is None else done.young,
        "again_in_s": 0 if done is None else round(done.ripe_in_s),
        "writers_late": False if done is None else done.is_late,
        "left": list(remaining),
    }


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {kind}" for kind, number in counts.items() if number) or "nothing"


# ── The end of a job: its steps in order, with the SQL of each, and what strip came to ──


class EndStep(Struct, frozen=True):
    """`command` of migrator, or `sql` for the source; migrator runs neither."""

    what: str
    command: str = ""
    sql: tuple[str, ...] = ()


def end_steps(
    job: str,
    open_patterns: Sequence[str],
    *,
    one_way: bool,
    read_only: Iterable[str],
    uninstall: Iterable[str],
    drop: Iterable[str],
) -> list[EndStep]:
    """All steps in order; repeating one is harmless.

    `one_way`: without rollback.
    `read_only`, `uninstall`, `drop`: SQL for the source, or commands of `aws`: revoke the right to write,
      remove capture, drop the old tables.
    """
    words = "--yes --one-way" if one_way else "--yes"
    moves = [
        EndStep(f"complete {name}", f"migrator cutover advance {job} {name} {words}")
        for name in open_patterns
    ]
    last_steps = [
        EndStep("apply the pending changes", f"migrator relay {job} --once"),
        EndStep("compare everything for the last time", f"migrator verify {job}"),
        *moves,
    ]
    return [
        EndStep("pause writes: services without dual_write, the source read-only", sql=tuple(read_only)),
        *(last_steps if moves else ()),
        EndStep(
            "let services write again; they read the table themselves, without `Migration`, which needs the source"
        ),
        EndStep("take capture out of the source", f"migrator capture uninstall {job}", tuple(uninstall)),
        EndStep("take our attributes out of the items", f"migrator clean {job} --attributes"),
        EndStep("keep a backup of the source; its old tables go last", sql=tuple(drop)),
    ]


def step_lines(steps: Sequence[EndStep]) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield f"{number}. {step.what}{f': {step.command}' if step.command else ''}"
        for statement in step.sql:
            text = statement.strip().rstrip(";")
            # SQL begins with a word in capitals; a comment, a command of a shell and a sentence do not.
            end = ";" if text.partition(" ")[0].isupper() else ""
            yield from (f"     {line}" for line in f"{text}{end}".splitlines())


# ── An estimate in words and as plain data ──

_MB = 1024**2


def estimate_data(cost_estimate: Estimate, price: Price | None) -> dict[str, Any]:
    return {
        "rows": cost_estimate.rows,
        "items": cost_estimate.items,
        "write_units": cost_estimate.write_units,
        "index_write_units": cost_estimate.index_units,
        "stored_bytes": cost_estimate.stored_bytes,
        "write_usd": None if price is None else float(cost_estimate.write_cost(price)),
        "storage_usd_a_month": None if price is None else float(cost_estimate.storage_cost(price)),
        "region": None if price is None else price.region,
        "prices": None if price is None else price.source,
    }


def estimate_line(cost_estimate: Estimate, price: Price | None, unpriced: str) -> str:
    units = f"{cost_estimate.write_units:,} write units, {cost_estimate.index_units:,} of them for indexes"
    stored_mb = cost_estimate.stored_bytes / _MB
    amounts = f"{cost_estimate.rows:,} rows make about {cost_estimate.items:,} items and {units}; {stored_mb:,.1f} MB stored"
    if price is None:
        return f"estimate: {amounts}; {unpriced}"
    write, month = usd(cost_estimate.write_cost(price)), usd(cost_estimate.storage_cost(price))
    where = f"{price.region}, infrequent access," if price.infrequent else price.region
    costs = f"on demand in {where} {write} to write, {month} a month to keep"
    return f"estimate: {amounts}; {costs} (prices of {price.source})"


def usd(amount: Decimal) -> str:
    return f"USD {amount:,.2f}" if amount >= Decimal("0.01") or amount == 0 else "less than USD 0.01"


# ── Steps of capture as files for the people that change the source: SQL, or a migration of Alembic ──

_END = "//migrator//"
"""Nothing that a name of a table would hold."""


def sql_text(steps: Sequence[Step]) -> str:
    """Statements with semicolons, a comment before each transaction.

    Delimiters mark the end of triggers with semicolons for clients of MariaDB and MySQL.
    """
    parts = [f"-- {step.table or 'our own'}\n{''.join(map(_ended, step.statements))}" for step in steps]
    return "\n".join(parts)


def alembic_text(steps: Sequence[Step], job: str) -> str:
    from migrator.cli.template import text_template  # here: no other text waits for Jinja

    up = [statement for step in steps for statement in step.statements]
    down = [statement for step in reversed(steps) for statement in step.undo]
    revision = hashlib.sha256("\0".join(up).encode()).hexdigest()[:12]
    template = text_template("migrator.cli", "templates/alembic.py.j2", repr=repr)
    return f"{template.render(job=job, revision=revision, up=up, down=down)}\n"


def _ended(statement: str) -> str:
    if statement.startswith("CREATE TRIGGER `") and ";" in statement:
        return f"DELIMITER {_END}\n{statement}\n{_END}\nDELIMITER ;\n"
    return f"{statement};\n"


def unkept_lines(unkept: Unkept) -> Iterator[str]:
    """Lines by name and number, never a value."""
    for (type_, attribute), number in sorted(unkept.extra.items()):
        has = f"{amount(number, 'item', 'have')} it, and no column does"
        yield plain(f"no row keeps {type_}.{attribute}: {has}")
    for (type_, attribute), number in sorted(unkept.forms.items()):
        has = f"in {amount(number, 'item')} it has another type or form"
        yield plain(f"no row keeps {type_}.{attribute} as it is: {has}")
    if unkept.extra:
        names = ", ".join(sorted({attribute for _, attribute in unkept.extra}))
        keep = f"`writes: {{keep: [{names}]}}`"
        yield plain(f"name what services set themselves in the job, and it stays: {keep}")


def unkept_data(unkept: Unkept) -> list[dict[str, Any]]:
    return [
        {"type": type_, "attribute": attribute, "items": number, "why": why}
        for why, counts in (("no column", unkept.extra), ("other form", unkept.forms))
        for (type_, attribute), number in sorted(counts.items())
    ]
