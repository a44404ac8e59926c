"""`migrator plan`: capacity of a mapping's table, measured on its source's rows before the table exists."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from decimal import Decimal
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import Any

import click
from markupsafe import Markup
from msgspec import Struct
from rich.console import Console
from rich.table import Table
from rich.text import Text

from migrator.cli import page
from migrator.cli.command_line import print_json
from migrator.cli.cost import write_limit
from migrator.cli.inert import plain
from migrator.cli.options import print_folded, say, stdout, stop_on_signals
from migrator.cli.text import table_of
from migrator.commands.mapping_source import null_doubts
from migrator.mapping.items.changes import unread_tables
from migrator.mapping.model.capacity import Capacity, PatternReads, Rewrite, Spread, Way, WriteRates
from migrator.mapping.model.report import SampleItem, ShownCollection, View
from migrator.runtime.errors import CLEAN, DIFFERENT, MigratorError, SettingsError, amount
from migrator.runtime.values import asdict, replace
from migrator.settings.job import Job, SourceSettings, TargetSettings, Tuning, is_job
from migrator.settings.transforms import USUAL_REGION, known_regions, price_of
from migrator.stages.design.capacity import CapacityContext, capacity_of
from migrator.stages.design.shown import Showing
from migrator.stages.design.sizing import SampleBounds, Sizing
from migrator.stages.design.views import Views
from migrator.stages.process import MOST_UNASKED, usable_cores
from migrator.stages.session.job import ONCE, read_job, region_of, source_name
from migrator.stages.session.session import JobSession
from migrator.stages.session.workload import Workload

# ── Item collections as people think in them: keys and attributes of real rows ──


_NARROWEST = 12
"""Letters that a column needs to be read; with less, an item's attributes are listed."""

# ── on a terminal ──


def print_views(console: Console, views: Sequence[View]) -> None:
    for view in views:
        console.print()
        console.print(Text(plain(_title(view)), style="bold"))
        console.print(_facets(view))
        for found in view.collections:
            _print_collection(console, view, found)
        if view.more:
            console.print(
                Text(f"  {amount(view.more, 'more item collection')} from the rows read", style="dim")
            )


def _title(view: View) -> str:
    keys = " · ".join(filter(None, (", ".join(view.partition), ", ".join(view.sort))))
    return f"index {view.name}: {keys}, projects {view.projection}" if view.name else f"the table: {keys}"


def _facets(view: View) -> Table:
    table = Table("  type", *view.partition, *view.sort, "other attributes", box=None, pad_edge=False)
    table.header_style = "dim"
    for facet in view.facets:
        keys = [Text(plain(form)) for form in facet.keys.values()]
        table.add_row(
            Text(plain(f"  {facet.type}")), *keys, Text(plain(", ".join(facet.attributes)), style="dim")
        )
    return table


def _print_collection(console: Console, view: View, found: ShownCollection) -> None:
    console.print(Text(plain(f"  {', '.join(view.partition)} {found.partition}"), style="cyan"))
    for type_, run in groupby(found.items, key=lambda item: item.type):
        items = list(run)
        columns = [*view.sort, *view.columns(type_)]
        if (len(columns) + 1) * _NARROWEST <= console.width:
            console.print(_items_table(view, type_, columns, items))
        else:
            for line in _item_lines(view, items):
                console.print(Text(plain(line)), soft_wrap=True)
    if found.more:
        console.print(Text(f"    and {found.more:,} more from the rows read", style="dim"))


def _items_table(view: View, type_: str, columns: Sequence[str], items: Sequence[SampleItem]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (f"    {type_}", *columns):
        table.add_column(Text(plain(name)), overflow="fold")
    for item in items:
        texts = {**item.attributes, **{name: item.key[name] for name in view.sort}}
        cells = (texts.get(name) for name in columns)
        table.add_row("", *(Text("–", style="dim") if text is None else Text(plain(text)) for text in cells))
    return table


def _item_lines(view: View, items: Sequence[SampleItem]) -> Iterator[str]:
    for item in items:
        key = " ".join(item.key[name] for name in view.sort)
        pairs = ", ".join(f"{name}: {text}" for name, text in item.attributes.items())
        yield f"    {item.type} {key}  {pairs}".rstrip()


# ── for programs, and as a part of a page ──


def views_fragment(views: Sequence[View]) -> Markup:
    """Part of a page in the report's style (report.css). Values of rows in it are text, never markup."""
    return Markup(page.environment_of_pages().get_template("collections.html").render(views=views))


HOT_SHOWN = 3
"""Hot keys of each place on a terminal; the page and the JSON have ten."""
WEIGHTS = {"misfit": "does not fit", "warning": "warning", "advice": "advice"}


# ── Words shared by all forms ──


def would_do(capacity: Capacity) -> str:
    indexes = amount(len(capacity.indexes), "index")
    # Old DynamoDB tables have streams of changes.
    triggers = f"install {amount(capacity.triggers, 'trigger')} on {amount(capacity.captured, 'table')}, "
    items = f"{page.about(capacity.exact)}{amount(capacity.items, 'item')} of {amount(capacity.rows, 'row')}"
    installs = triggers if capacity.triggers else ""
    return f"would create table {capacity.table} with {indexes}, {installs}and write {items}"


def known(exact: bool) -> str:
    return "exact" if exact else "estimated"


def spread_text(spread: Spread, *, sizes: bool = False) -> str:
    numbers = (spread.p50, spread.p99, spread.most)
    return " / ".join(page.size_text(number) if sizes else f"{number:,}" for number in numbers)


def place_name(index: str) -> str:
    return index or "the table"


def monthly(capacity: Capacity, reads: PatternReads) -> str:
    return page.money(reads.usd_a_month(capacity.usd_a_million_reads))


def measured_text(reads: PatternReads) -> str:
    if not reads.calls:
        return f"not measured: {reads.why}"
    return f"{known(reads.exact)}, {reads.calls} calls"


def rewritten(rewrite: Rewrite) -> str:
    return "not counted" if rewrite.roots is None else spread_text(rewrite.roots)


def load_text(capacity: Capacity) -> str:
    load = capacity.load
    # Old DynamoDB tables are read by scans, whose tables are not counted.
    selects = f" of SELECTs over {amount(load.tables, 'table')}" if load.tables else ""
    work = f"{amount(load.pages, 'page')}{selects} read {amount(load.rows, 'row')}"
    time = f"{page.hours_text(load.hours)} at least, with {load.units_per_s:,.0f} write units a second ({load.limit})"
    return f"{work}; {load.write_units:,} write units, {page.money(capacity.bills.backfill)}; {time}"


def way_time(way: Way) -> str:
    hours = page.hours_text(way.hours)
    return f"{hours}, and the import" if way.is_open_ended else hours


def way_money(way: Way) -> str:
    return "–" if way.impossible else page.money(way.usd)


def way_remarks(way: Way) -> str:
    return "; ".join([way.impossible] if way.impossible else [way.bound, *way.against])


def ways_text(ways: Sequence[Way], cheapest: Way | None, fastest: Way | None) -> str:
    """The cheapest way to fill the table, and the fastest one with a known time."""
    costs = "not known" if cheapest is None else f"{cheapest.name} ({page.money(cheapest.usd)})"
    takes = (
        "not known"
        if fastest is None
        else f"{fastest.name} ({page.hours_text(fastest.hours)}; {fastest.bound})"
    )
    named = {way.name: way for way in (cheapest, fastest) if way is not None and way.against}
    remarks = [f"{name} {way.against[0]}" for name, way in named.items()]
    remarks += [f"no {way.name}: {way.impossible}" for way in ways if way.impossible]
    unpriced = [way.name for way in ways if way.usd is None and not way.impossible]
    remarks += [f"no price is known here of {', '.join(unpriced)}"] if unpriced else []
    return "; ".join([f"cheapest: {costs}", f"fastest: {takes}", *remarks])


def bill_lines(capacity: Capacity) -> Iterator[tuple[str, str]]:
    bills = capacity.bills
    yield "reads, on demand", page.money(bills.reads)
    yield "writes, on demand", page.money(bills.writes)
    yield "storage", page.money(bills.storage)
    yield "reads and writes, provisioned for 70 % of use", page.money(bills.provisioned)


def choice_text(capacity: Capacity) -> str:
    bills = capacity.bills
    if bills.on_demand is None or bills.provisioned is None:
        return ""
    way = "provisioned capacity" if bills.provisioned < bills.on_demand else "on demand"
    return f"At an even rate {way} costs less; provisioned capacity is paid for whether it is used or not."


def unmapped_lines(capacity: Capacity) -> Iterator[str]:
    if capacity.unmapped_tables:
        yield f"tables that no entity reads: {', '.join(capacity.unmapped_tables)}"
    for table, columns in capacity.unmapped_columns.items():
        yield f"columns of {table} that no entity reads: {', '.join(columns)}"


# ── Two designs side by side ──


class ComparedFigure(Struct, frozen=True):
    """One figure of both designs. `less`: the design that has less of it, '' for neither."""

    label: str
    first: str
    second: str
    less: str


_counted = "{:,}".format
_FIGURES: tuple[tuple[str, Callable[[Capacity], Any], Callable[[Any], str]], ...] = (
    ("items", lambda one: one.items, _counted),
    ("indexes", lambda one: len(one.indexes), _counted),
    ("triggers", lambda one: one.triggers, _counted),
    ("write units to fill it", lambda one: one.write_units, _counted),
    ("bytes stored", lambda one: one.stored_bytes, page.size_text),
    (
        "largest item collection",
        lambda one: max((of.sizes.most for of in one.places), default=0),
        page.size_text,
    ),
    ("what does not fit", lambda one: len(one.misfits), _counted),
    ("reads a month, on demand", lambda one: one.bills.reads, page.money),
    ("writes a month, on demand", lambda one: one.bills.writes, page.money),
    ("storage a month", lambda one: one.bills.storage, page.money),
)


def compared(first: Capacity, second: Capacity) -> Iterator[ComparedFigure]:
    for label, of, shown in _FIGURES:
        one, other = of(first), of(second)
        yield ComparedFigure(label, shown(one), shown(other), _less(one, other))
    others = {reads.pattern: reads for reads in second.patterns}
    for reads in first.patterns:
        if reads.pattern in others:
            yield _units(reads, others.pop(reads.pattern))
        else:
            yield ComparedFigure(_asked(reads), _call_units(reads), "pattern not found", "")
    for reads in others.values():
        yield ComparedFigure(_asked(reads), "pattern not found", _call_units(reads), "")


def _units(first: PatternReads, second: PatternReads) -> ComparedFigure:
    less = _less(first.units, second.units) if first.calls and second.calls else ""
    return ComparedFigure(_asked(first), _call_units(first), _call_units(second), less)


def _asked(reads: PatternReads) -> str:
    return f"{reads.pattern}, read units a call"


def _call_units(reads: PatternReads) -> str:
    return page.number_text(reads.units) if reads.calls else "not measured"


def _less(first: Any, second: Any) -> str:
    return "" if None in (first, second) or first == second else "first" if first < second else "second"


# ── A terminal ──


def print_plan(console: Console, capacities: Sequence[Capacity]) -> None:
    capacity = capacities[0]
    console.print(Text(would_do(capacity)))
    for part in (_patterns, _places, _hot, _rewrites, _costs, _advice, _left_out):
        for block in part(capacity):
            console.print(Text(block) if isinstance(block, str) else block)
    if len(capacities) > 1:
        console.print(_side_by_side(capacities[0], capacities[1]))
    misfits = len(capacity.misfits)
    console.print(Text(f"\ndoes not fit: {misfits:,} to fix" if misfits else "\nfits"))


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    return table_of(columns, rows, title=title, title_justify="left", title_style="bold")


def _patterns(capacity: Capacity) -> Iterator[str | Table]:
    yield ""
    if not capacity.patterns:
        yield "The mapping has no access patterns."
        return
    columns = ("pattern", "asks", "key condition", "pages ", "read units ", "most ", "frequency ", "a month ")
    rows = (_pattern_cells(capacity, reads) for reads in capacity.patterns)
    yield _table("Access patterns", (*columns, "figures"), rows)


def _pattern_cells(capacity: Capacity, reads: PatternReads) -> tuple[str, ...]:
    figures = map(page.number_text, (reads.pages, reads.units, reads.most_units))
    return (
        *(reads.pattern, place_name(reads.index), reads.condition, *(figures if reads.calls else ("–",) * 3)),
        *(page.rate_text(reads.calls_per_s), monthly(capacity, reads), measured_text(reads)),
    )


def _places(capacity: Capacity) -> Iterator[str | Table]:
    yield ""
    columns = (
        "of",
        "entries ",
        "collections ",
        "bytes p50 / p99 / max ",
        "items p50 / p99 / max ",
        "figures",
    )
    rows = (
        (
            *(place_name(place.index), f"{place.entries:,}", f"{place.collections:,}"),
            *(spread_text(place.sizes, sizes=True), spread_text(place.counts), known(place.exact)),
        )
        for place in capacity.places
    )
    yield _table("Item collections", columns, rows)


def _hot(capacity: Capacity) -> Iterator[str | Table]:
    columns = ("of", "partition key", "items ", "size ", "share ", "write units/s ", "types")
    rows = [
        (
            *(
                place_name(place.index),
                hot.key,
                f"{hot.items:,}",
                page.size_text(hot.bytes),
                f"{hot.share:.1%}",
            ),
            "–" if hot.write_units_per_s is None else page.number_text(hot.write_units_per_s),
            ", ".join(hot.types),
        )
        for place in capacity.places
        for hot in place.hottest[:HOT_SHOWN]
    ]
    if rows:
        yield ""
        yield _table("The largest of each", columns, rows)


def _rewrites(capacity: Capacity) -> Iterator[str | Table]:
    columns = ("a row of", "in", "rows p50 / p99 / max ", "items (p99) ", "write units (p99) ", "figures")
    if capacity.rewrites:
        yield ""
        yield _table("What one change rewrites", columns, map(_rewrite_cells, capacity.rewrites))


def _rewrite_cells(rewrite: Rewrite) -> tuple[str, ...]:
    shown = known(rewrite.exact) if rewrite.roots else f"not counted: {rewrite.why}"
    counted = (
        (page.number_text(rewrite.items), page.number_text(rewrite.units)) if rewrite.roots else ("–", "–")
    )
    return rewrite.table, rewrite.entity, rewritten(rewrite), *counted, shown


def _costs(capacity: Capacity) -> Iterator[str | Table]:
    yield ""
    yield _table("A month", ("", "US dollars "), bill_lines(capacity))
    for line in (choice_text(capacity), capacity.bills.why, f"prices: {capacity.bills.source}"):
        if line and line != "prices: ":
            yield line
    stored = f"{page.size_text(capacity.stored_bytes)} stored, indexes and AWS's overhead included"
    yield f"{stored}; writes a second: {capacity.writes.source or 'not known'}"
    yield f"Filling it: {load_text(capacity)}"
    yield ""
    yield _ways(capacity)
    yield ways_text(capacity.ways, capacity.cheapest, capacity.fastest)


def _ways(capacity: Capacity) -> Table:
    files = page.size_text(capacity.load.json_bytes)
    title = f"Ways to fill it (an import: of {files} of files)"
    rows = (
        (way.name, "–" if way.impossible else way_time(way), way_money(way), way_remarks(way))
        for way in capacity.ways
    )
    return _table(title, ("way", "at least", "US dollars ", "because"), rows)


def _advice(capacity: Capacity) -> Iterator[str | Table]:
    if capacity.advice:
        yield ""
    for advice in capacity.advice:
        yield plain(f"{WEIGHTS[advice.weight]}: {advice.where}: {advice.what}; {advice.way_out}")


def _left_out(capacity: Capacity) -> Iterator[str | Table]:
    lines = [*unmapped_lines(capacity), *capacity.notes]
    if lines:
        yield ""
    yield from map(plain, lines)


def _side_by_side(first: Capacity, second: Capacity) -> Table:
    names = {"": "", "first": plain(first.mapping), "second": plain(second.mapping)}
    columns = ("", f"{names['first']} ", f"{names['second']} ", "less")
    rows = ((line.label, line.first, line.second, names[line.less]) for line in compared(first, second))
    return _table("\nSide by side", columns, rows)


# ── JSON ──


def plan_data(capacities: Sequence[Capacity]) -> dict[str, Any]:
    data = _data(capacities[0])
    return data | {"other": _data(capacities[1])} if len(capacities) > 1 else data


def _data(capacity: Capacity) -> dict[str, Any]:
    """Mappings become lists, so that all plans have the same keys."""
    data = _plain(asdict(capacity))
    assert isinstance(data, dict)
    price, writes = capacity.usd_a_million_reads, capacity.writes
    for reads, shown in zip(capacity.patterns, data["patterns"], strict=True):
        amount = reads.usd_a_month(price)
        shown["usd_a_month"] = None if amount is None else float(amount)
    for size in data["types"]:
        size["index_units"] = [
            {"index": index, "units": units} for index, units in sorted(size["index_units"].items())
        ]
    data["writes"]["per_s"] = [
        {"table": table, "per_s": rate} for table, rate in sorted(writes.per_s.items())
    ]
    data["writes"]["updates_per_s"] = [
        {"table": table, "column": column, "per_s": rate}
        for (table, column), rate in sorted(writes.updates_per_s.items())
    ]
    data["unmapped_columns"] = [
        {"table": table, "columns": list(columns)} for table, columns in capacity.unmapped_columns.items()
    ]
    best = {"cheapest": capacity.cheapest, "fastest": capacity.fastest}
    data |= {name: None if way is None else way.name for name, way in best.items()}
    return data | {"fits": not capacity.misfits, "would": would_do(capacity)}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return float(value) if isinstance(value, Decimal) else value


# ── A page ──


def plan_page(capacities: Sequence[Capacity], collections: Markup | None = None) -> str:
    """The page, without network or script. Values of rows in it are text, never markup.

    `collections`: an unescaped fragment of sample item collections, from templates that escape texts.
    """
    environment = page.environment_of_pages()
    environment.filters |= {
        "spread": spread_text,
        "place": place_name,
        "known": known,
        "rewritten": rewritten,
        "way_time": way_time,
        "way_money": way_money,
        "way_remarks": way_remarks,
    }
    environment.globals |= {"weights": WEIGHTS, "monthly": monthly}
    style = Markup(
        page.part_of_page(environment, "report.css") + "\n" + page.part_of_page(environment, "plan.css")
    )
    capacity, other = capacities[0], capacities[1] if len(capacities) > 1 else None
    return environment.get_template("plan.html").render(
        plan=capacity,
        other=other,
        compared=list(compared(capacity, other)) if other else [],
        would=would_do(capacity),
        bills=list(bill_lines(capacity)),
        choice=choice_text(capacity),
        load=load_text(capacity),
        ways=ways_text(capacity.ways, capacity.cheapest, capacity.fastest),
        left_out=list(unmapped_lines(capacity)),
        collections=collections or "",
        style=style,
        policy=page.policy_of(style, ""),
        version=version("single-table-migrator"),
    )


_TRIGGER = re.compile(r"\bCREATE (?:OR REPLACE )?TRIGGER\b")
_OURS = '<meta name="generator" content="migrator '


def plan(
    design: Path,
    other: Path | None,
    html: Path | None,
    show: str | None,
    as_json: bool,
    source: str | None,
    whole_keys: bool,
    **measured: Any,
) -> int:
    if show is not None:
        if other is not None or html is not None:
            raise click.UsageError("--pk goes with neither OTHER nor --out")
        return _show(_job_of(design, source), show, whole_keys=whole_keys, as_json=as_json)
    if html is not None:
        _refuse_other_file(html)
    jobs = [_job_of(path, source) for path in (design, other) if path is not None]
    _refuse_other_source(jobs)
    with ExitStack() as until:
        stop = until.enter_context(stop_on_signals())
        sessions = [until.enter_context(_session(job, stop)) for job in jobs]
        # Faults of the second design are reported before the rows of the first one are read.
        _ = [session.checked for session in sessions]
        capacities = [_capacity(session, **measured, whole_keys=whole_keys) for session in sessions]
        for name, what in null_doubts(sessions[0].source, sessions[0].checked):
            say(f"warning: {name}: {what}")
        collections = _collections(sessions[0], whole_keys=whole_keys) if html is not None else None
    if html is not None:
        page.write_page(html, plan_page(capacities, collections))
        say(f"{html}: written")
    if as_json:
        print_json(plan_data(capacities))
    else:
        print_plan(stdout(), capacities)
    return DIFFERENT if capacities[0].misfits else CLEAN


# ── designs to plan ──


def _session(job: Job, stop: Event | None = None) -> JobSession:
    return JobSession(job, "plan", workers=1, live_patience=ONCE, stop=stop)


def _job_of(path: Path, url: str | None) -> Job:
    if is_job(path):
        return read_job(path)
    if url is None:
        what = f"{path}: a mapping has no source"
        raise SettingsError(f"{what}; add --source URL, set MIGRATOR_SOURCE_URL, or name a job")
    source = SourceSettings.model_construct(url=url)
    return Job("plan", path, path, source, TargetSettings(), Tuning())


def _refuse_other_source(jobs: Sequence[Job]) -> None:
    if len({source_name(job) for job in jobs}) > 1:
        what = f"{jobs[1].path} reads another source than {jobs[0].path}"
        raise SettingsError(f"{what}: two designs can be compared of the same rows alone; name one source")


def _refuse_other_file(path: Path) -> None:
    """Raises: SettingsError if the page cannot be written, or would replace another program's file."""
    page.refuse_unwritable(path)
    if path.exists() and _OURS not in path.read_bytes()[:4_096].decode("utf-8", "replace"):
        raise SettingsError(f"--out {path}: there already, and no page of migrator's; name another file")


# ── item collections of real rows ──


def _views(session: JobSession, *, whole_keys: bool) -> tuple[Views, Showing]:
    mapping, plans = session.checked.mapping, session.plans
    showing = Showing(mapping, plans, whole_keys=whole_keys, whole_values=False)
    return Views(mapping, session.checked.entities, showing, session.source), showing


def _collections(session: JobSession, *, whole_keys: bool) -> Markup:
    views, showing = _views(session, whole_keys=whole_keys)
    return views_fragment([showing.view(view) for view in views.all()])


def _show(job: Job, key: str, *, whole_keys: bool, as_json: bool) -> int:
    with _session(job) as session:
        views, showing = _views(session, whole_keys=whole_keys)
        found, notes = views.under(key, time.time())
        shown = [showing.view(view) for view in found]
    if as_json:
        print_json({"views": [asdict(view) for view in shown], "notes": notes})
    else:
        print_views(stdout(), shown)
        print_folded("" if shown else "no row makes an item under this partition key")
        notes += [] if shown else views.key_forms()
    for note in notes:
        say(note)
    return CLEAN if shown else DIFFERENT


# ── figures ──


def _capacity(
    session: JobSession, rows_exact: int, region: str | None, statements: Path | None, *, whole_keys: bool
) -> Capacity:
    checked, source = session.checked, session.source
    around = _around(session, region, _writes(session, statements), whole_keys=whole_keys)
    bounds = SampleBounds(rows_exact, min(rows_exact, SampleBounds.sampled))
    sized = Sizing(source, checked.mapping, checked.entities, bounds, time.time()).sized()
    if checked.mapping.documents:
        return capacity_of(checked, sized, around)
    counted = _workload(session).fan_outs(checked.plans, sized.rows, rows_exact)
    return capacity_of(checked, sized, replace(around, fan_outs=counted))


def _around(
    session: JobSession, region: str | None, writes: WriteRates, *, whole_keys: bool
) -> CapacityContext:
    job, source = session.job, session.source
    options = job.target.options
    set_region = region or region_of(job)
    region = set_region or USUAL_REGION
    price = price_of(region, options.table_class)
    known = ", ".join(known_regions())
    triggers, notes = _triggers(session)
    if not set_region:
        notes.append(f"no region is set: prices are those of {USUAL_REGION}; pass --region for others")
    units_per_s, limit = write_limit(job)
    return CapacityContext(
        mapping=str(job.mapping),
        triggers=triggers,
        unread_tables=unread_tables(source.facts(), session.plans, source.views()),
        fan_outs=(),
        writes=writes,
        page_rows=job.tuning.page_rows,
        units_per_s=units_per_s,
        limit=limit,
        price=price,
        cores=min(usable_cores(), MOST_UNASKED),
        is_journal_on_server=job.journal is not None,
        unpriced="" if price else f"no price is known for the region {region}; known: {known}; pass --region",
        notes=tuple(notes),
        whole_keys=whole_keys,
    )


def _triggers(session: JobSession) -> tuple[int, list[str]]:
    """(triggers that capture would install, why they are unknown)."""
    try:
        stage = replace(session.capture, marked_by=session.live.marked_by())
        steps = stage.steps(session.plans)
    except MigratorError as error:
        return 0, [f"the triggers of capture are not counted: {error}"]
    return sum(len(_TRIGGER.findall(statement)) for step in steps for statement in step.statements), []


def _writes(session: JobSession, statements: Path | None) -> WriteRates:
    if statements is None:
        return WriteRates(why="no write rates given: pass --statements FILE")
    return _workload(session).writes(statements)


def _workload(session: JobSession) -> Workload:
    return Workload(session.sql, session.source.facts())
