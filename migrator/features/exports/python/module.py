"""A whole generated module: its own code, and of the functions that it may carry those that this code uses."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from migrator.features.exports.file import comment, construct_name, template
from migrator.features.exports.model import Model
from migrator.features.exports.python import spans, table, values, writes
from migrator.features.exports.python.changes import writes_of
from migrator.features.exports.python.expressions import (
    Names,
    UnsaidError,
    literal,
    shown,
    tuple_of,
)
from migrator.features.exports.python.layout import laid
from migrator.features.exports.python.patterns import PatternCode, Question, question
from migrator.features.exports.python.rows import RowCode, item_records, names_of

_OWN_IMPORTS = """
import asyncio
import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any
from uuid import UUID
"""
_CARRIED = "# ── carried ──\n"
"""Where in the template carried code stands."""


@dataclass(frozen=True)
class Written:
    """A module's text, and what it cannot say of the mapping, one sentence for each."""

    text: str
    left_out: tuple[str, ...]


def python_module(model: Model, head: Sequence[str], job: str, *, after: bool) -> Written:
    """The module. `head`: what it says of itself; `job`: the job file's name; `after`: whether it is on boto3 alone.

    Raises: UnsaidError naming everything of the access patterns that has no Python.
    """
    shelf = _shelf(after=after)
    module, methods = Names(shelf.names), Names(dir(table._Table))
    name = module.one(construct_name({"TableName": model.table.name}))
    codes = [RowCode(model, row, names_of(row, module)) for row in model.rows]
    patterns = [PatternCode(pattern, module, methods) for pattern in model.patterns]
    records = list(item_records(model, module))
    rows = [(code, list(code.builders(module)), code.items()) for code in codes]
    written = {
        code.row.name: writes_of(code, methods) for code in codes if after and not code.unwritten
    }
    constants = _constants(model) if after else {"JOB": literal(job)}
    top, _, bottom = laid(
        template(__package__, "module.py.j2", literal=literal, shown=shown).render(
            {"name": name, "table": model.table, "after": after, "records": records, "rows": rows}
            | {"patterns": patterns, "questions": _questions(model, patterns) if after else []}
            | {"attributes": _attributes(model), "writes": written}
        )
    ).partition(_CARRIED)
    how = "on boto3 alone" if after else "through migrator, while SQL and the table both answer"
    imports, definitions = shelf.used_by(
        top + bottom, {named.partition(":")[0] for named in constants}
    )
    said = f"Rows, items and access patterns of the table {shown(model.table.name)}, {how}."
    given = "\n".join(f"{named} = {value}" for named, value in constants.items())
    first = f'{comment("#", head)}\n\n"""{said}"""\n\nfrom __future__ import annotations\n\n{imports}\n\n{given}'
    text = "\n\n\n".join(filter(None, (first.strip(), top.strip(), definitions, bottom.strip())))
    left_out = [
        f"items of {shown(code.row.name)}: {code.unwritten}" for code in codes if code.unwritten
    ]
    left_out += [
        f"read of a row of {shown(of)}: {one.read}"
        for of, one in written.items()
        if isinstance(one.read, str)
    ]
    return Written(f"{text}\n", tuple(left_out))


def _questions(model: Model, patterns: Sequence[PatternCode]) -> list[Question]:
    found, faults = [], []
    for asked in patterns:
        try:
            found.append(question(model, asked))
        except UnsaidError as error:
            faults.append(f"{asked.pattern.name}: {error}")
    if faults:
        raise UnsaidError("\n".join(faults))
    return found


def _attributes(model: Model) -> dict[str, str]:
    """Attributes that items of a type may have beside their key, by which a write knows whether one is as it was."""
    ttl = model.table.ttl
    found: dict[str, dict[str, None]] = {}
    for item in (item for row in model.rows for item in row.items):
        names = found.setdefault(item.name, {})
        names |= {part.attribute.name: None for entry in item.indexes for part in entry.parts}
        names |= {attribute.name: None for attribute in item.attributes}
        names |= {ttl: None} if item.expiry and ttl else {}
    return {literal(type_): tuple_of(names) for type_, names in found.items()}


def _constants(model: Model) -> dict[str, str]:
    design = model.table
    return {
        "TABLE": literal(design.name),
        "_KEY: tuple[str, ...]": tuple_of(attribute.name for attribute in design.key),
        "_TYPE": literal(design.type_attribute),
        "_TTL: str | None": literal(design.ttl),
        "_REVISION": literal(model.revision),
        "_OWN": tuple_of((design.source_attribute, design.revision_attribute)),
    }


# ── what is carried ──


@dataclass
class _Shelf:
    """Imports, by the names that they give, and definitions that a module may carry, in the order in which they may
    stand: of each its text, the names that it uses, and whether it is a class or a function."""

    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    uses: dict[str, frozenset[str]] = field(default_factory=dict)
    blocks: set[str] = field(default_factory=set)

    @property
    def names(self) -> set[str]:
        return {*self.imports, *self.texts}

    def add(self, source: str) -> None:
        lines, last = source.split("\n"), ""
        for node in ast.parse(source).body:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            text = "\n".join(lines[first - 1 : node.end_lineno])
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                module = getattr(node, "module", "")
                if module != "__future__" and not module.startswith(__package__):
                    self.imports |= {
                        one.asname or one.name: (module, _named(one)) for one in node.names
                    }
            elif not isinstance(node, ast.Expr):
                last = _name(node)
                self.texts[last], self.uses[last] = text, _uses(node)
                self.blocks |= (
                    {last} if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else set()
                )
            elif last:
                # What is said of a constant stands below it; of the module, above all.
                self.texts[last] += f"\n{text}"

    def used_by(self, code: str, own: set[str]) -> tuple[str, str]:
        """The imports and the definitions that the code needs. `own`: names that the module gives itself."""
        wanted, needed = set(_uses(ast.parse(code))), set[str]()
        while more := (wanted & self.names) - needed - own - {"_QUESTIONS", "_ATTRIBUTES"}:
            needed |= more
            wanted |= {used for name in more for used in self.uses.get(name, ())}
        definitions = ""
        for name, text in ((name, text) for name, text in self.texts.items() if name in needed):
            apart = "\n\n\n" if name in self.blocks or definitions.endswith("\n\n\n") else "\n"
            definitions = f"{definitions.rstrip()}{apart}{text}" + (
                "\n\n\n" if name in self.blocks else ""
            )
        return _sorted(
            self.imports[name] for name in needed if name in self.imports
        ), definitions.strip()


@cache
def _shelf(*, after: bool) -> _Shelf:
    through = resources.files(__package__).joinpath("migration.py.txt").read_text(encoding="utf-8")
    shelf = _Shelf()
    carried = map(inspect.getsource, (values, spans, table, writes) if after else (values,))
    for source in (_OWN_IMPORTS, *carried, *([] if after else [through])):
        shelf.add(source)
    return shelf


def _name(node: ast.stmt) -> str:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return next(target.id for target in targets if isinstance(target, ast.Name))


def _named(one: ast.alias) -> str:
    return f"{one.name} as {one.asname}" if one.asname else one.name


def _sorted(imports: Iterable[tuple[str, str]]) -> str:
    """Imports in the usual order: modules, names of each module in one line; migrator's behind the standard library's."""
    names: dict[str, list[str]] = {}
    for module, name in sorted(set(imports), key=_order):
        names.setdefault(module, []).append(name)
    lines = [f"import {name}" for name in names.pop("", [])]
    lines += [
        f"from {module} import {', '.join(found)}"
        for module, found in names.items()
        if module[:8] != "migrator"
    ]
    own = [
        f"from {module} import {', '.join(found)}"
        for module, found in names.items()
        if module[:8] == "migrator"
    ]
    return "\n".join([*lines, *(["", *own] if own else [])])


def _order(one: tuple[str, str]) -> tuple[str, int, str]:
    """Constants, classes, functions."""
    module, name = one
    return module, 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name


def _uses(tree: ast.AST) -> frozenset[str]:
    """Names that code reads."""
    return frozenset(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
