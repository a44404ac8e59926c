"""Reference pages made from the code: commands, words of mappings and jobs, metrics, log lines."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from migrator.main import cli
from tools.pages import column_types, designs, packages

ROOT = Path(__file__).resolve().parents[2]
CODE = ROOT / "migrator"
SCHEMAS = {
    "mappings/mapping.schema.json": ("words-mapping", "Words of a mapping"),
    "jobs/job.schema.json": ("words-job", "Words of a job file"),
}
LEVELS = ("debug", "info", "warning", "error")
_EVERYWHERE = frozenset({"verbose", "quiet", "log_format", "log_file", "help"})


def pages() -> dict[str, str]:
    words = {
        name: _schema_page(title, json.loads((ROOT / file).read_text(encoding="utf-8")))
        for file, (name, title) in SCHEMAS.items()
    }
    return {
        "commands": _commands_page(),
        "designs": designs.page(),
        **words,
        "column-types": column_types.page(),
        "metrics": _metrics_page(),
        "log-lines": _log_page(),
        "packages": packages.page(),
    }


# ── Commands ──


def _commands_page() -> str:
    head = (
        "# Commands\n\nEvery command with its options, from the command line's own help. All of them take `-v`, `-q`, "
        "`--log-format`, `--log-file` and `--help`, too. [Exit codes](../scripts.md#exit-codes) are the same everywhere.\n"
    )
    # A command keeps the option of help that its first context asks for.
    root = click.Context(cli, info_name="migrator", **cli.context_settings)
    return "\n".join([head, *(part for name in cli.list_commands(root) for part in _command(root, name))])


def _command(parent: click.Context, name: str) -> Iterator[str]:
    group = parent.command
    assert isinstance(group, click.Group)
    command = group.get_command(parent, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'##' if parent.parent is None else '###'} {context.command_path}\n"
    yield "\n\n".join(plain(" ".join(part.split())) for part in (command.help or "").split("\n\n")) + "\n"
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield from _command(context, below)
        return
    example = getattr(command, "example", "")
    yield f"```\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    options = [_option(param, context) for param in command.params if param.name not in _EVERYWHERE]
    yield from _table(("option", "meaning"), [row for row in options if row and row[1]])
    yield f"Example: `{context.command_path} {example}`\n" if example else ""


def _option(param: click.Parameter, context: click.Context) -> tuple[str, str] | None:
    record = param.get_help_record(context)
    return record and (f"`{record[0].replace(' RANGE', '')}`", plain(record[1]))


# ── Words of a mapping and of a job ──


def _schema_page(title: str, schema: Mapping[str, Any]) -> str:
    parts = {"The file": schema, **schema.get("$defs", {})}
    lines = [f"# {title}\n", "Made from the JSON Schema by which editors complete the file.\n"]
    for name, part in parts.items():
        if "properties" in part:
            lines.append(f"## {_words_of(name)}\n")
            lines += _table(
                ("word", "what it takes", "meaning"),
                [
                    (f"`{word}`" + (" (required)" if word in part.get("required", ()) else ""), *_told(place))
                    for word, place in part["properties"].items()
                ],
            )
    return "\n".join(lines)


def _told(place: Mapping[str, Any]) -> tuple[str, str]:
    examples = ", ".join(f"`{json.dumps(one, ensure_ascii=False)}`" for one in place.get("examples", ()))
    said = [plain(place.get("description", "")), f"Example: {examples}." if examples else ""]
    default = place.get("default")
    # A part's defaults stand with its own words.
    is_told = not isinstance(default, dict) and default not in (None, [], "")
    said.append(f"Default: `{json.dumps(default)}`." if is_told else "")
    return _kind(place), " ".join(filter(None, said))


def _kind(place: Mapping[str, Any]) -> str:
    if "$ref" in place:
        return f"[{_words_of(_name(place))}](#{_words_of(_name(place)).lower().replace(' ', '-')})"
    if "enum" in place or "const" in place:
        return ", ".join(f"`{json.dumps(one)}`" for one in place.get("enum", [place.get("const")]))
    choices = place.get("anyOf") or place.get("oneOf")
    if choices:
        return " or ".join(dict.fromkeys(_kind(one) for one in choices if one.get("type") != "null"))
    if place.get("type") == "array":
        return f"list of {_kind(place.get('items', {}))}"
    below = place.get("additionalProperties")
    if place.get("type") == "object" and isinstance(below, Mapping):
        return f"map of {_kind(below)}"
    kind: str = place.get("type", "anything")
    return {"string": "text", "object": "map", "boolean": "true or false"}.get(kind, kind)


def _name(place: Mapping[str, Any]) -> str:
    return str(place["$ref"]).rpartition("/")[2]


def _words_of(name: str) -> str:
    """`BatchGetForm` as a heading: Batch get."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.strip("_").removesuffix("Form")).capitalize()


# ── Metrics ──


@dataclass(frozen=True)
class Metric:
    name: str
    kind: str
    meaning: str


def metrics() -> list[Metric]:
    """Every metric of the code, by its Prometheus name."""
    found = {
        metric.name: metric
        for file in sorted(CODE.rglob("*.py"))
        if "migrator_" in (text := file.read_text(encoding="utf-8"))
        for metric in metrics_of(ast.parse(text))
    }
    return [found[name] for name in sorted(found)]


def metrics_of(tree: ast.Module) -> Iterator[Metric]:
    tables = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and _is_literal(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1):
        kind = re.sub(r"metricfamily$", "", ast.unparse(call.func).rpartition(".")[2].lower())
        name, meaning = call.args[0], call.args[1]
        if kind not in ("gauge", "counter", "histogram"):
            continue
        suffix = "_total" if kind == "counter" else ""
        if isinstance(name, ast.Constant) and isinstance(meaning, ast.Constant):
            yield Metric(f"{str(name.value).removesuffix('_total')}{suffix}", kind, str(meaning.value))
        elif isinstance(name, ast.JoinedStr) and isinstance(name.values[0], ast.Constant):
            for table in _tables_of(call, tree, tables):
                for word, told in table.items():
                    yield Metric(f"{name.values[0].value!s}{word}{suffix}", kind, told)


def _tables_of(
    call: ast.Call, tree: ast.Module, tables: Mapping[str, Mapping[str, str]]
) -> Iterator[Mapping[str, str]]:
    """The table that a loop around the call iterates."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.comprehension)) and (
            not isinstance(node, ast.For) or call in ast.walk(node)
        ):
            name = ast.unparse(node.iter).removesuffix(".items()")
            if name in tables and all(isinstance(told, str) for told in tables[name].values()):
                yield tables[name]


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _metrics_page() -> str:
    head = "# Metrics\n\nWhat `--metrics-port` serves to Prometheus, from the code that makes it.\n"
    rows = [(f"`{one.name}`", one.kind, plain(one.meaning)) for one in metrics()]
    return "\n".join([head, *_table(("metric", "kind", "meaning"), rows)])


# ── Lines of the log ──


@dataclass(frozen=True)
class LogLine:
    event: str
    level: str
    fields: tuple[str, ...]
    package: str


def log_lines() -> list[LogLine]:
    """Every logged line, with all possible fields."""
    found = [
        line
        for file in sorted(CODE.rglob("*.py"))
        for line in _lines_of(ast.parse(file.read_text(encoding="utf-8")), _package(file))
    ]
    found.sort(key=lambda line: (line.event, line.level, line.package))
    return [
        LogLine(*key[:2], tuple(dict.fromkeys(name for line in lines for name in line.fields)), key[2])
        for key, group in groupby(found, key=lambda line: (line.event, line.level, line.package))
        if (lines := list(group))
    ]


def _lines_of(tree: ast.Module, package: str) -> Iterator[LogLine]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        method = call.func
        if not isinstance(method, ast.Attribute) or method.attr not in LEVELS or not call.args:
            continue
        if ast.unparse(method.value).endswith("log"):
            event = call.args[0]
            if isinstance(event, ast.Constant) and isinstance(event.value, str):
                fields = tuple(word.arg or "counts" for word in call.keywords)
                yield LogLine(event.value, method.attr, fields, package)


def _package(file: Path) -> str:
    return file.relative_to(CODE).parts[0].removesuffix(".py")


def _log_page() -> str:
    head = (
        "# Log lines\n\nA line is an event with fields: text on standard error, JSON in a `--log-file` and with "
        "`--log-format json`. Every line has `event`, `level`, `timestamp` and, within a run, `run`. Lines of JSON also "
        "have `room` (the package that logs), `job`, `host`, `pid` and `version`, which tell processes apart where their "
        "lines are gathered. Text has warnings and errors, JSON also events; `--verbose` adds all others. No line holds a value of a row. *counts* are fields by the names "
        "of what is counted.\n"
    )
    rows = [
        (f"`{line.event}`", line.level, ", ".join(f"`{name}`" for name in line.fields), line.package)
        for line in log_lines()
    ]
    return "\n".join([head, *_table(("event", "level", "fields", "package"), rows)])


# ── Markdown ──


def plain(text: str) -> str:
    """Escape the text for Markdown."""
    return re.sub(r"([\\*_\[\]<>])", r"\\\1", text).replace("\n", " ")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table; none without rows."""
    if rows:
        yield "| " + " | ".join(head) + " |"
        yield "|" + "---|" * len(head)
        yield from ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
        yield ""
