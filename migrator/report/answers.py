"""Answers of access patterns, and what was asked for them: for people, and as plain data for programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from migrator.mapping.requests import Request
from migrator.mapping.shown_values import json_ready, json_text
from migrator.report.inert import plain
from migrator.results import Answer, PartAnswer

_ROWS_SHOWN = 10
_CALLS = {"query": "Query", "get": "GetItem", "batch_get": "BatchGetItem"}


def answer_data(answer: Answer) -> dict[str, Any]:
    """The answer as plain values, with each request and what both sides took."""
    return {
        "pattern": answer.pattern.name,
        "same": answer.same,
        "parts": [
            {
                "part": one.part.name,
                "attributes": list(one.part.attributes),
                "items": json_ready(one.items),
                "rows": json_ready(one.rows),
                "same": one.same,
            }
            for one in answer.parts
        ],
        "operation": _CALLS[answer.request.operation],
        "requests": json_ready(answer.request.sent),
        "round_trips": answer.table.round_trips,
        "read_units": answer.read_units,
        "reported_read_units": answer.reported_units or None,
        "took_ms": answer.table.ms,
        "sql_round_trips": answer.sql.round_trips,
        "sql_took_ms": answer.sql.ms,
    }


def print_answer(console: Console, answer: Answer) -> None:
    """DynamoDB's answer beside SQL's, part by part, the first rows of each."""
    for one in answer.parts:
        console.print(_answer_table(answer, one))
        if max(len(one.items), len(one.rows)) > _ROWS_SHOWN:
            console.print(f"… {len(one.items):,} items, {len(one.rows):,} rows in all")
        if one.several:
            console.print("more than one, though the part says one: true", markup=False)
    verdict = "[bold green]the same[/]" if answer.same else "[bold red]not the same[/]"
    order = "" if answer.pattern.order == "exact" else " (compared as sets)"
    console.print(f"{answer.pattern.name}: {verdict}{order}; {answer.table.round_trips} request(s)")


def print_explanation(console: Console, answer: Answer) -> None:
    """Each request, and what both sides took."""
    for line in explanation(answer):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def explanation(answer: Answer) -> Iterator[str]:
    """One line a request (a batch: one line a key), then one line a side."""
    if not answer.request.sent:
        yield "no request: nothing can lie in the range that the parameters give"
    for sent in answer.request.sent:
        yield from _EXPLAINED[answer.request.operation](sent)
    yield from _afterwards(answer.request)
    table, sql = answer.table, answer.sql
    yield f"DynamoDB: {table.round_trips} round trip(s), {_units(answer)}, {table.ms:,.1f} ms"
    yield f"SQL: {sql.round_trips} round trip(s), {sql.ms:,.1f} ms"


def _units(answer: Answer) -> str:
    """Both numbers: an emulator may count in another way than DynamoDB bills."""
    about = "about " if answer.dropped else ""
    dropped = f", with {answer.dropped:,} that the filter dropped" if answer.dropped else ""
    # Every read costs half a unit at least: nothing means that the endpoint did not say.
    reported = f"{answer.reported_units:,g}" if answer.reported_units else "none"
    return f"{about}{answer.read_units:,g} read unit(s) by item sizes{dropped} ({reported} reported by the endpoint)"


def _query(sent: Mapping[str, Any]) -> Iterator[str]:
    condition = _filled(sent["KeyConditionExpression"], sent)
    words = [f"Query on {sent.get('IndexName', 'the table')}: {condition}"]
    if "FilterExpression" in sent:
        words.append(f"filter {_filled(sent['FilterExpression'], sent)}")
    if not sent["ScanIndexForward"]:
        words.append("descending")
    yield "; ".join([*words, *_consistent(sent)])


def _get(sent: Mapping[str, Any]) -> Iterator[str]:
    yield "; ".join([f"GetItem: {_key(sent['Key'])}", *_consistent(sent)])


def _batch_get(sent: Mapping[str, Any]) -> Iterator[str]:
    yield "; ".join([f"BatchGetItem: {len(sent['Keys'])} key(s)", *_consistent(sent)])
    for key in sent["Keys"]:
        yield f"  {_key(key)}"


_EXPLAINED = {"query": _query, "get": _get, "batch_get": _batch_get}


def _afterwards(request: Request) -> Iterator[str]:
    if len(request.sent) > 1 and request.operation == "query" and request.near is None:
        yield f"merged by {', '.join(request.sort) or 'nothing: there is no sort key'}"
    if request.near is not None:
        yield f"then cut to {request.near.within_m:g} m and sorted by distance"
    if request.limit is not None:
        yield f"limit {request.limit}"


def _consistent(sent: Mapping[str, Any]) -> list[str]:
    return ["consistent"] if sent.get("ConsistentRead") else []


def _key(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_literal(value)}" for name, value in key.items())


def _filled(expression: str, sent: Mapping[str, Any]) -> str:
    """The expression with names and values in their places."""
    names, bound = sent["ExpressionAttributeNames"], sent["ExpressionAttributeValues"]
    pieces = {**names, **{name: _literal(value) for name, value in bound.items()}}
    return re.sub(r"[#:]\w+", lambda match: pieces[match[0]], expression)


def _literal(value: Any) -> str:
    return json_text(value)


def _answer_table(answer: Answer, one: PartAnswer) -> Table:
    title = f"{answer.pattern.name} {one.part.name}".strip()
    table = Table(title=title, title_justify="left")
    names = " | ".join(one.part.attributes)
    table.add_column(f"DynamoDB: {names}", overflow="fold")
    table.add_column(f"SQL: {names}", overflow="fold")
    for number in range(min(_ROWS_SHOWN, max(len(one.items), len(one.rows)))):
        table.add_row(_cell(one.items, number), _cell(one.rows, number))
    return table


def _cell(rows: Sequence[tuple[Any, ...]], number: int) -> str:
    if number >= len(rows):
        return ""
    text = " | ".join("–" if value is None else _shown(value) for value in rows[number])
    return plain(text).replace("[", r"\[")


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
