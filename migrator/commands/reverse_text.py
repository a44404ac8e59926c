"""What `migrator reverse verify` came to: lines for people, plain data for programs; keys masked unless asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from migrator.cli.inert import plain
from migrator.cli.text import SHOWN
from migrator.mapping.language.redaction import key_templates, masked_keys
from migrator.mapping.model.mapping import Mapping, Template
from migrator.mapping.model.rows import MOST, RowDifference, RowsVerified, Unkept

WORDS = {
    "no item": "no item holds it",
    "no row": "items hold it, and there is no such row",
    "different": "its items say otherwise in",
    "claims": "its items do not fit together",
    "misfit": "an item of it fits no row",
}


def rows_lines(result: RowsVerified, mapping: Mapping, *, whole_keys: bool) -> Iterator[str]:
    rows = sum(result.rows.values())
    yield f"{rows:,} row(s) and {result.items:,} stored item(s) were compared, both ways"
    for (table, kind), number in sorted(result.counts.items()):
        yield f"{kind}: {number:,} of {table or 'no table'}"
    keys = _keys(result.differences[:SHOWN], mapping, whole_keys=whole_keys)
    for one, key in zip(result.differences, keys, strict=False):
        reason = f" {one.why}" if one.kind == "different" else f": {one.why}" if one.why else ""
        yield plain(f"  {one.table or 'item'} {key}: {WORDS[one.kind]}{reason}")
    rest = sum(result.counts.values()) - min(len(result.differences), SHOWN)
    if rest:
        yield f"  … and {rest:,} more"
    if result.is_cut:
        yield f"not all was compared: more than {MOST:,} rows differ"
    yield from unkept_lines(result.unkept)
    if result.is_clean and result.unkept:
        yield "rows are what the items say, and not all of the items is in rows"
    elif result.is_clean:
        yield "clean: rows are what the items say"
    else:
        yield "not clean; `migrator reverse verify JOB --repair` writes rows by their items"
        if result.of_kinds("no item"):
            yield "with --delete-rows, too, it deletes rows that no item holds"


def unkept_lines(unkept: Unkept) -> Iterator[str]:
    """By name and number, never a value."""
    for (type_, attribute), number in sorted(unkept.extra.items()):
        yield plain(f"no row keeps {type_}.{attribute}: {number:,} items have it, and no column does")
    for (type_, attribute), number in sorted(unkept.forms.items()):
        yield plain(
            f"no row keeps {type_}.{attribute} as it is: in {number:,} items it has another type or form"
        )
    if unkept.extra:
        names = ", ".join(sorted({attribute for _, attribute in unkept.extra}))
        yield plain(
            f"name what services set themselves in the job, and it stays: `writes: {{keep: [{names}]}}`"
        )


def unkept_data(unkept: Unkept) -> list[dict[str, Any]]:
    return [
        {"type": type_, "attribute": attribute, "items": number, "why": why}
        for why, counts in (("no column", unkept.extra), ("other form", unkept.forms))
        for (type_, attribute), number in sorted(counts.items())
    ]


def rows_data(result: RowsVerified, mapping: Mapping, *, whole_keys: bool) -> dict[str, Any]:
    counts = [
        {"table": table, "kind": kind, "rows": number}
        for (table, kind), number in sorted(result.counts.items())
    ]
    keys = _keys(result.differences, mapping, whole_keys=whole_keys)
    found = [
        {"table": one.table, "kind": one.kind, "key": key, "why": one.why}
        for one, key in zip(result.differences, keys, strict=True)
    ]
    return {
        "clean": result.is_clean,
        "rows": dict(result.rows),
        "items": result.items,
        "differences": counts,
        "keys": found,
        "all_compared": not result.is_cut,
        "unkept": unkept_data(result.unkept),
    }


def _keys(differences: Sequence[RowDifference], mapping: Mapping, *, whole_keys: bool) -> list[str]:
    if whole_keys:
        return [one.key for one in differences]
    templates: Sequence[Template] = key_templates(mapping)
    return [masked_keys(one.key, () if one.table else templates) for one in differences]
