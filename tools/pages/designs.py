"""Page of the designs in mappings/designs, for the site; run as a program, it writes
mappings/designs/README.md.

Items and requests are made by the product; answers are those of the golden files, which tests check on both sides.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from migrator.cli.page import environment_of_pages, part_of_page
from migrator.features.plan.work import views_fragment
from migrator.mapping.check.check import Checked
from migrator.mapping.items.items import CompiledEntity, items_for
from migrator.mapping.items.values import attribute, decoder
from migrator.mapping.language.redaction import json_text
from migrator.mapping.model.facts import ForeignKey, SchemaFacts, Slot, TableFacts
from migrator.mapping.model.mapping import Pattern
from migrator.mapping.model.results import Request
from migrator.mapping.model.table import Item, RowTree, TableDesign
from migrator.mapping.patterns.params import read_params
from migrator.mapping.patterns.requests import Requests
from migrator.runtime.errors import amount
from migrator.settings.job import SourceSettings
from migrator.settings.transforms import checked_on, read_mapping
from migrator.source.reader import SqlSource
from migrator.stages.design.shown import Showing
from migrator.stages.design.views import Views
from migrator.stages.session.source import open_source
from tools.pages.golden import DESIGNS, NAMES, GoldenQuery, read_golden

HERE = Path(__file__).parent
LISTED = DESIGNS / "README.md"

_LISTED_HEAD = """\
<!-- Written by `.ci/pages`. -->

# Designs that are tested

The tests move each of these designs from SQLite, PostgreSQL and MariaDB into DynamoDB. They compare its items and the answers of
its access patterns with values written by hand (`tests/golden/designs`). Each has a mapping, a small source (`.sql`) and a page that says
when to use it. Begin with the one that is most like yours. `make docs` makes a page with the items and requests of all of them.
"""
_PICTURE = """\
{% extends "frame.html" %}
{% block title %}The table{% endblock %}
{% block body %}<main class="alone">{{ views }}</main>{% endblock %}
"""
_ROWS_SHOWN = 3
_ANSWERS_SHOWN = 5
_CALLS = {"query": "Query", "get": "GetItem", "batch_get": "BatchGetItem"}

Table = tuple[list[str], list[list[str]]]
"""Heads and rows of a markdown table, as markdown."""


@dataclass(frozen=True)
class EntityView:
    name: str
    table: str
    rows: Table
    items: Table


@dataclass(frozen=True)
class AnswerView:
    name: str
    sql: str
    rows: Table
    more: int


@dataclass(frozen=True)
class PatternView:
    """A pattern with the parameters of its first golden query. `more`: requests not shown."""

    name: str
    params: str
    call: str
    request: str
    more: int
    afterwards: str
    parts: list[AnswerView]


@dataclass(frozen=True)
class DesignView:
    name: str
    title: str
    source: str
    text: str
    schema: Table
    entities: list[EntityView]
    patterns: list[PatternView]
    mapping: str


def page() -> str:
    """Text of the page; the same designs give the same text."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # it writes markdown, out of files of this repository
    )
    environment.filters["table"] = _markdown
    return environment.get_template("designs.md.j2").render(designs=[_design(name) for name in NAMES])


def listed() -> str:
    described = {name: _description((DESIGNS / f"{name}.md").read_text(encoding="utf-8")) for name in NAMES}
    rows = [
        [f"[{title}]({name}.md)", f"[mapping]({name}.yaml)", source]
        for name, (title, source, _) in described.items()
    ]
    return f"{_LISTED_HEAD}\n{_markdown((['design', 'file', 'from'], rows))}\n"


def pictures() -> dict[str, str]:
    """By design, an HTML page of its table and indexes with items of the example rows, as in `migrator plan`."""
    environment = environment_of_pages()
    style = Markup(part_of_page(environment, "report.css"))
    template = environment.from_string(_PICTURE)
    found = {}
    for name in NAMES:
        with _opened(name) as (source, checked):
            mapping, plans = checked.mapping, [entity.plan for entity in checked.entities]
            showing = Showing(mapping, plans, whole_keys=True, whole_values=True)
            views = Views(mapping, checked.entities, showing, source).all()
            fragment = views_fragment([showing.view(view) for view in views])
        found[name] = template.render(style=style, views=fragment)
    return found


@contextmanager
def _opened(name: str) -> Generator[tuple[SqlSource, Checked]]:
    """The design's example rows and its checked mapping."""
    parsed = read_mapping(DESIGNS / f"{name}.yaml")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "source.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript((DESIGNS / f"{name}.sql").read_text(encoding="utf-8"))
            connection.commit()
        with open_source(SourceSettings(url=f"sqlite:///{file}"), parsed) as opened:
            assert isinstance(opened, SqlSource)
            yield opened, checked_on(opened, parsed)


def _design(name: str) -> DesignView:
    title, source, text = _description((DESIGNS / f"{name}.md").read_text(encoding="utf-8"))
    with _opened(name) as (opened, checked):
        entities = [_entity(opened, one, number) for number, one in enumerate(checked.entities)]
        schema = _schema(opened.facts())
    return DesignView(
        name=name,
        title=title,
        source=source,
        text=text,
        schema=schema,
        entities=entities,
        patterns=_patterns(name, checked),
        mapping=(DESIGNS / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[2].rstrip(),
    )


def _description(text: str) -> tuple[str, str, str]:
    """(title, the article's title, the rest with its headings one level down)."""
    title, _, rest = text.partition("\n")
    source, _, body = rest.strip().partition("\n")
    return title.removeprefix("# "), source.removeprefix("Source: "), body.strip().replace("## ", "### ")


# ── the source ──────────────────────────────────────────────────────────────────────────────────


def _schema(facts: SchemaFacts) -> Table:
    tables = sorted(facts.tables.values(), key=lambda table: table.name)
    return ["table", "columns"], [
        [f"`{table.name}`", ", ".join(_column(table, column.name) for column in table.columns)]
        for table in tables
    ]


def _column(table: TableFacts, name: str) -> str:
    column = table.column(name)
    declared = column.declared.replace(", ", ",").lower() if column else ""
    shown = f"**`{name}`**" if name in table.primary_key else f"`{name}`"
    return f"{shown} {declared}" + "".join(_reference(key, name) for key in table.foreign_keys)


def _reference(key: ForeignKey, name: str) -> str:
    if name not in key.columns:
        return ""
    return f" → {key.table}.{dict(zip(key.columns, key.referred, strict=True))[name]}"


def _entity(source: SqlSource, entity: CompiledEntity, number: int) -> EntityView:
    """Some rows of the first entity, one of the others."""
    rows = source.read_page(entity.plan, None, None, _ROWS_SHOWN if number == 0 else 1)
    items = [item for row in rows for item in items_for(entity, row)]
    heads = [slot.path for slot in entity.plan.slots] + [
        one.collection.alias for one in entity.plan.collections
    ]
    return EntityView(
        name=entity.name,
        table=entity.plan.table.name,
        rows=([f"`{head}`" for head in heads], [_row(entity, row) for row in rows]),
        items=_items(entity.table, items),
    )


def _row(entity: CompiledEntity, row: RowTree) -> list[str]:
    plan = entity.plan
    plain = _plain(plan.slots, row)
    for one, value in zip(plan.collections, row[len(plan.slots) :], strict=True):
        children = value if one.collection.is_list else []
        paths = [slot.path for slot in one.slots]
        listed = [dict(zip(paths, _plain(one.slots, child), strict=True)) for child in children]
        plain.append(listed if one.collection.is_list else value)
    return [_cell(value) for value in plain]


def _plain(slots: Sequence[Slot], row: Sequence[Any]) -> list[Any]:
    return [attribute(decoder(slot.column.kind)(value)) for slot, value in zip(slots, row, strict=False)]


# ── the items ───────────────────────────────────────────────────────────────────────────────────


def _items(table: TableDesign, items: Sequence[Item]) -> Table:
    keys = [*table.key, *(one for index in table.indexes for one in index.own_attributes(table))]
    columns = [
        name for name in dict.fromkeys(key.name for key in keys) if any(name in item for item in items)
    ]
    hidden = {*table.own_attributes, *columns}
    heads = [f"`{name}`" for name in columns] + ["attributes"]
    rows = [[*(_cell(item.get(name)) for name in columns), _attributes(item, hidden)] for item in items]
    return heads, rows


def _attributes(item: Item, hidden: set[str]) -> str:
    return ", ".join(f"{name} {_cell(value)}" for name, value in item.items() if name not in hidden)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json_text(value)
    return f"`{text}`" if text else "(empty)"


# ── the access patterns ─────────────────────────────────────────────────────────────────────────


def _patterns(name: str, checked: Checked) -> list[PatternView]:
    queries = read_golden(name).queries
    return [
        _pattern(checked, pattern, _telling(pattern, queries))
        for pattern in checked.mapping.patterns.values()
    ]


def _telling(pattern: Pattern, queries: Sequence[GoldenQuery]) -> GoldenQuery:
    """The pattern's first golden query with an answer, or its first one."""
    found = [query for query in queries if query.pattern == pattern.name]
    return next((query for query in found if any(query.answer.values())), found[0])


def _pattern(checked: Checked, pattern: Pattern, query: GoldenQuery) -> PatternView:
    request = Requests(checked.mapping, pattern).of(read_params(pattern, query.params))
    shown = {"TableName": checked.mapping.table.name, **request.sent[0]} if request.sent else {}
    return PatternView(
        name=pattern.name,
        params=", ".join(f"`{name} = {value}`" for name, value in query.params.items()),
        call=_CALLS[request.operation],
        request=_json(shown),
        more=max(len(request.sent) - 1, 0),
        afterwards=", ".join(_steps(request)),
        parts=[_answer(pattern, number, query) for number in range(len(pattern.parts))],
    )


def _json(request: Mapping[str, Any]) -> str:
    lines = [f"  {json.dumps(name)}: {json_text(value)}" for name, value in request.items()]
    return "\n".join(["{", ",\n".join(lines), "}"])


def _steps(request: Request) -> Iterator[str]:
    """Steps after the requests return items."""
    if request.near is not None:
        yield f"cut to a circle of {request.near.within_m:g} m, the nearest first"
    elif len(request.sent) > 1 and request.sort:
        yield f"merged by {', '.join(request.sort)}"
    if request.limit is not None:
        yield f"{amount(request.limit, 'item')} at most"


def _answer(pattern: Pattern, number: int, query: GoldenQuery) -> AnswerView:
    part = pattern.parts[number]
    rows = query.answer[part.name]
    return AnswerView(
        name=part.name,
        sql=str(pattern.statements[part.name]).strip(),
        rows=(
            list(part.attributes),
            [[_cell(value) for value in row] for row in islice(rows, _ANSWERS_SHOWN)],
        ),
        more=max(len(rows) - _ANSWERS_SHOWN, 0),
    )


def _markdown(table: Table) -> str:
    heads, rows = table
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|")


if __name__ == "__main__":
    LISTED.write_text(listed(), encoding="utf-8")
