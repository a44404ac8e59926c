"""A whole generated module: its own code, and of the functions that it may carry those that this code uses."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from migrator.features.exports.file import comment, construct_name
from migrator.features.exports.model import Model
from migrator.features.exports.python import migration, patterns, rows, spans, table, values, writes
from migrator.features.exports.python.changes import read_backs, writers
from migrator.features.exports.python.expressions import Names, UnsaidError, shown

_CARRIED: dict[bool, tuple[ModuleType | str, ...]] = {
    False: (values, migration.TEXT),
    True: (values, spans, table, writes),
}
"""Code that a module may carry a copy of, by whether it is for the time after the migration."""
_ANSWERS = '''
import asyncio
from dataclasses import dataclass, replace
from collections.abc import Callable
from typing import Generic, TypeVar
import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class Page(Generic[_Record]):
    """One page of an answer. `next`: the cursor of the next page, None where there is none."""

    items: list[_Record]
    next: str | None = None
'''


@dataclass(frozen=True)
class Written:
    """A module's text, and what it cannot say of the mapping, one sentence for each."""

    text: str
    left_out: tuple[str, ...]


def python_module(model: Model, head: Sequence[str], job: str, *, after: bool) -> Written:
    """The module. `head`: what it says of itself; `job`: the job file's name; `after`: whether it is on boto3 alone.

    Raises: UnsaidError naming everything of the access patterns that has no Python.
    """
    shelf = _Shelf(
        [_ANSWERS, *(text if isinstance(text, str) else inspect.getsource(text) for text in _CARRIED[after])]
    )
    own = _Own(model, job, after=after, taken=shelf.names)
    top, bottom = own.top(), own.bottom()
    used = shelf.used_by([*top, *bottom], frozenset(own.constants))
    parts = [
        comment("#", head),
        f'"""{own.title}"""',
        "from __future__ import annotations",
        "\n".join(used.imports),
        "\n".join(f"{name} = {value}" for name, value in own.constants.items()),
        "\n".join(top).strip(),
        *used.definitions,
        "\n".join(bottom).strip(),
    ]
    return Written("\n\n".join(parts) + "\n", tuple(own.left_out))


class _Own:
    """What a module has of its own: what a reader looks for at the top, the table's class at the bottom."""

    def __init__(self, model: Model, job: str, *, after: bool, taken: Iterable[str]) -> None:
        self.model, self.after = model, after
        self.module, self.methods = Names(taken), Names(dir(table._Table))
        design = model.table
        self.table = self.module.one(construct_name({"TableName": design.name}))
        how = "on boto3 alone" if after else "through migrator, while SQL and the table both answer"
        self.title = f"Rows, items and access patterns of the table {shown(design.name)}, {how}."
        self.constants = {"JOB": repr(job)} if not after else _constants(model)
        self.rows = [rows.RowCode(model, row, rows.names_of(row, self.module)) for row in model.rows]
        self.patterns = [
            (pattern, patterns.names_of(pattern, self.module, self.methods)) for pattern in model.patterns
        ]
        self.left_out: list[str] = []

    def top(self) -> list[str]:
        lines = list(rows.item_classes(self.model, self.module))
        for code in self.rows:
            lines += rows.row_classes(code.row, code.names)
        for code in self.rows:
            lines += [*code.builders(self.module), *code.items()]
            if code.names.unwritten:
                self.left_out.append(f"items of {shown(code.row.name)}: {code.names.unwritten}")
        for pattern, names in self.patterns:
            lines += patterns.answer_classes(pattern, names)
        return lines

    def bottom(self) -> list[str]:
        lines = self._questions() if self.after else []
        base = "_Writable" if self.after else "_Table"
        lines += [f"class {self.table}({base}):", f'    """The table {shown(self.model.table.name)}."""', ""]
        for pattern, names in self.patterns:
            lines += patterns.methods(pattern, names)
        if self.after:
            lines += self._writes()
        return lines

    def _questions(self) -> list[str]:
        lines: list[str] = []
        faults = []
        for pattern, names in self.patterns:
            try:
                lines += patterns.question(self.model, pattern, names)
            except UnsaidError as error:
                faults.append(f"{pattern.pattern.name}: {error}")
        if faults:
            raise UnsaidError("\n".join(faults))
        listed = [f"    {pattern.pattern.name!r}: {names.question}," for pattern, names in self.patterns]
        kind = "dict[str, Callable[[Mapping[str, Any]], _Question]]"
        return [*lines, f"_QUESTIONS: {kind} = {{", *listed, "}", *self._attributes(), "", ""]

    def _attributes(self) -> Iterator[str]:
        """Attributes that items of a type may have beside their key, by which a write knows whether one is as it was."""
        ttl = self.model.table.ttl
        found: dict[str, dict[str, None]] = {}
        for item in (item for row in self.model.rows for item in row.items):
            names = found.setdefault(item.name, {})
            names |= {part.attribute.name: None for entry in item.indexes for part in entry.parts}
            names |= {attribute.name: None for attribute in item.attributes}
            names |= {ttl: None} if item.expiry and ttl else {}
        yield "_ATTRIBUTES: dict[str, tuple[str, ...]] = {"
        yield from (f"    {type_!r}: {tuple(names)!r}," for type_, names in found.items())
        yield "}"

    def _writes(self) -> list[str]:
        lines: list[str] = []
        for code in self.rows:
            lines += writers(code, self.methods)
            if code.names.unwritten:
                continue
            try:
                lines += read_backs(code, self.methods)
            except UnsaidError as error:
                lines += [f"    # No read of a row of {shown(code.row.name)}: {error}.", ""]
                self.left_out.append(f"read of a row of {shown(code.row.name)}: {error}")
        return lines


def _constants(model: Model) -> dict[str, str]:
    design = model.table
    return {
        "TABLE": repr(design.name),
        "_KEY: tuple[str, ...]": repr(tuple(attribute.name for attribute in design.key)),
        "_TYPE": repr(design.type_attribute),
        "_TTL: str | None": repr(design.ttl),
        "_REVISION": repr(model.revision),
        "_OWN": repr((design.source_attribute, design.revision_attribute)),
    }


# ── what is carried ──


@dataclass(frozen=True)
class _Definition:
    text: str
    uses: frozenset[str]


@dataclass(frozen=True)
class _Used:
    imports: list[str]
    definitions: list[str]


class _Shelf:
    """Definitions and imports that a module may carry, by their names, in the order in which they may stand."""

    def __init__(self, sources: Sequence[str]) -> None:
        self._imports: dict[str, str] = {}
        self._definitions: dict[str, _Definition] = {}
        for source in sources:
            self._read(source)

    @property
    def names(self) -> set[str]:
        return {*self._imports, *self._definitions}

    def _read(self, source: str) -> None:
        last = ""
        for node in ast.parse(source).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._imports |= dict(_imported(node))
            elif isinstance(node, ast.Expr):
                # What is said of a constant stands below it; of the module, above all.
                if last:
                    said = self._definitions[last]
                    self._definitions[last] = _Definition(f"{said.text}\n{_text(source, node)}", said.uses)
            else:
                last = _name(node)
                self._definitions[last] = _Definition(_text(source, node), _uses(node))

    def used_by(self, lines: Sequence[str], constants: frozenset[str]) -> _Used:
        """What the lines need, and what that needs. `constants`: names that the module gives itself."""
        own = {name.partition(":")[0] for name in constants} | {"_QUESTIONS", "_ATTRIBUTES"}
        wanted = set(_uses(ast.parse("\n".join(lines))))
        needed: set[str] = set()
        while more := (wanted & self.names) - needed - own:
            needed |= more
            wanted |= {
                used for name in more if name in self._definitions for used in self._definitions[name].uses
            }
        return _Used(
            _sorted(self._imports[name] for name in needed if name in self._imports),
            [one.text for name, one in self._definitions.items() if name in needed],
        )


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """By the local name the line that imports it; nothing of this package's own carried code."""
    for alias in node.names:
        renamed = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
        if isinstance(node, ast.Import):
            yield alias.asname or alias.name, f"import {renamed}"
        elif node.module != "__future__" and not (node.module or "").startswith(__package__ or "-"):
            yield alias.asname or alias.name, f"from {node.module} import {renamed}"


def _sorted(imports: Iterable[str]) -> list[str]:
    """Imports in the usual order: modules, names of each module in one line; migrator's behind the standard library's."""
    whole: list[str] = []
    names: dict[str, list[str]] = {}
    for line in sorted(set(imports)):
        module, _, name = line.removeprefix("from ").partition(" import ")
        if line.startswith("import "):
            whole.append(line)
        else:
            names.setdefault(module, []).append(name)
    listed = [f"from {module} import {', '.join(found)}" for module, found in names.items()]
    own = [line for line in listed if "migrator" in line]
    return [*whole, *(line for line in listed if line not in own), *(["", *own] if own else [])]


def _name(node: ast.stmt) -> str:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return node.name
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return next(target.id for target in targets if isinstance(target, ast.Name))


def _text(source: str, node: ast.stmt) -> str:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(decorator.lineno for decorator in decorators)])
    return "\n".join(source.split("\n")[first - 1 : node.end_lineno])


def _uses(tree: ast.AST) -> frozenset[str]:
    """Names that code reads."""
    return frozenset(
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )
