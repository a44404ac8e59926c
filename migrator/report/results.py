"""What a stage came to: a table for people, plain data for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from migrator.ports import Tally
from migrator.results import BackfillResult, Explained, Sample, VerifyResult


def backfill_data(result: BackfillResult) -> dict[str, Any]:
    """The result as plain values: entities, total, findings by kind, seconds."""
    return {
        "run": result.run.id,
        "entities": {name: asdict(tally) for name, tally in result.entities.items()},
        "total": asdict(result.total),
        "findings": dict(result.findings),
        "took_s": round(result.took_s, 3),
    }


def verify_data(result: VerifyResult) -> dict[str, Any]:
    """The result as plain values; `clean` is what the exit code says."""
    return {
        "run": result.run.id,
        "looked_since": result.run.started_at,
        "clean": not result.findings,
        "entities": {name: asdict(tally) for name, tally in result.entities.items()},
        "total": asdict(result.total),
        "scanned_items": result.scanned,
        "findings": dict(result.findings),
        "sample": _sample_data(result.sample),
        "not_compared": [asdict(one) for one in result.not_compared],
        "not_proven": [asdict(one) for one in result.not_proven],
        "took_s": round(result.took_s, 3),
    }


def print_backfill(console: Console, result: BackfillResult) -> None:
    table = _tallies("rows", "items", "refused", "expired", "bytes", "write units")
    for name, tally in result.entities.items():
        _row(table, name, tally)
    table.add_section()
    _row(table, "total", result.total)
    console.print(table)
    rate = result.total.rows / result.took_s if result.took_s else 0
    console.print(f"took {result.took_s:.1f} s, {rate:,.0f} rows/s; run {result.run.id}")


def explained_lines(entity: str, plans: Sequence[Explained]) -> Iterator[str]:
    """The source's plans for an entity's page, each with a warning for what it would read as a whole."""
    for one in plans:
        yield f"{entity}, {one.what}:"
        yield from (f"  {line}" for line in one.lines)
        for table in one.whole_tables:
            what = f"every page reads the whole of table {table}"
            yield f"  warning: {what}; let an index begin with the columns that it is read by, or take larger pages"


def print_verify(console: Console, result: VerifyResult) -> None:
    table = _tallies("rows", "items", "refused", "expired", "different")
    for name, tally in [*result.entities.items(), ("total", result.total)]:
        cells = (tally.rows, tally.items, tally.refused, tally.expired, tally.different)
        table.add_row(name, *(f"{cell:,}" for cell in cells))
    console.print(table)
    console.print(_looked_at(result))
    if result.total.different and not result.findings:
        console.print(
            f"{result.total.different:,} that differed at the first look agreed at a later one: changes on their way"
        )
    if result.run.resumed:
        since = f"rows were read since {result.run.started_at}, when this verify began before it was stopped"
        console.print(f"{since}; --restart reads all of them anew", markup=False)
    for one in result.not_compared:
        console.print(f"not compared by plain SQL: {one.what} ({one.why})", markup=False)
    for one in result.not_proven:
        console.print(f"not proven: {one.what}: {one.why}", markup=False)
    if result.findings:
        counted = ", ".join(f"{number:,} {kind}" for kind, number in sorted(result.findings.items()))
        console.print(f"[bold red]not clean[/]: {counted}")
    else:
        seen = " as far as this user sees rows" if result.not_proven else ""
        whole = seen if result.sample is None else " as far as the sample goes"
        console.print(f"[bold green]clean[/]{whole}: rows and items say the same")


def _looked_at(result: VerifyResult) -> str:
    if result.sample is None:
        return f"{result.scanned:,} stored items traced back to their rows; took {result.took_s:.1f} s"
    what = f"a sample ({result.sample}, seed {result.sample.seed}): {result.total.rows:,} rows against their items"
    return f"{what}; the table against its rows, and totals, were not compared; took {result.took_s:.1f} s"


def _sample_data(sample: Sample | None) -> dict[str, Any] | None:
    return None if sample is None else {"of": str(sample), "seed": sample.seed}


def _tallies(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("entity")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _row(table: Table, name: str, tally: Tally) -> None:
    cells = (tally.rows, tally.items, tally.refused, tally.expired, tally.bytes)
    table.add_row(name, *(f"{cell:,}" for cell in cells), f"{tally.write_units:,.0f}")
