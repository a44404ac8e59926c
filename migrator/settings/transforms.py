"""A job's mapping, read and checked against its source, without its direct entities; `transform` functions; prices."""

from __future__ import annotations

import builtins
import hashlib
import importlib
import inspect
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.items.changes import captured_name, captured_tables
from migrator.mapping.items.transforms import Transform
from migrator.mapping.items.wire import Price
from migrator.mapping.language.document import plain_of
from migrator.mapping.language.parse import ParsedMapping, examine_mapping
from migrator.mapping.model.edges import ComputingSource
from migrator.mapping.model.facts import SchemaFacts
from migrator.runtime.errors import Fault, MappingError, MigratorError, SettingsError, did_you_mean
from migrator.runtime.values import replace
from migrator.settings.job import Job, text_of

# A mapping read from its file, and the functions that its entities name in `transform`: loaded, and checked to be pure.

_IMPURE_MODULES = frozenset(
    {
        "time",
        "random",
        "secrets",
        "os",
        "io",
        "socket",
        "subprocess",
        "threading",
        "shutil",
        "tempfile",
        "http",
    }
    | {"urllib", "requests", "httpx", "boto3", "sqlalchemy", "psycopg", "pymysql", "sqlite3"}
)
_IMPURE_NAMES = frozenset({"now", "utcnow", "today", "uuid1", "uuid4", "open", "input", "urandom"})


def read_mapping(path: Path) -> ParsedMapping:
    """Parse a mapping, faults included.

    Raises: SettingsError if the file cannot be read as text.
    """
    return _parsed(text_of(path, "mapping"), str(path))


def sound_mapping(path: Path) -> ParsedMapping:
    """Raises: as read_mapping does; MappingError if the form has faults."""
    parsed = read_mapping(path)
    if parsed.faults:
        raise MappingError(parsed.faults)
    return parsed


def table_of(job: Job) -> str:
    with suppress(MigratorError):
        return job.target.table or sound_mapping(job.mapping).mapping.table.name
    return ""


@lru_cache(maxsize=4)
def _parsed(text: str, file: str) -> ParsedMapping:
    return examine_mapping(text, file)


def load_transforms(parsed: ParsedMapping) -> tuple[ParsedMapping, dict[str, Transform]]:
    """The mapping with a revision that includes the functions' code, and the functions by module:function.

    Modules are looked up on Python's path, then next to the mapping's file. A function that cannot be loaded,
    or is not pure, is a fault of the mapping.
    """
    named = {
        entity.transform: entity.written for entity in parsed.mapping.entities.values() if entity.transform
    }
    functions: dict[str, Transform] = {}
    faults: list[Fault] = []
    for text, entity in named.items():
        function, what = _function(text, Path(parsed.document.file).resolve().parent)
        if function is not None:
            what = next(_impurities(text, function, set()), "")
        if what or function is None:
            faults.append(parsed.document.fault(("entities", entity, "transform"), what))
        else:
            functions[text] = function
    mapping = replace(parsed.mapping, revision=_revision(parsed, functions))
    return replace(parsed, mapping=mapping, faults=(*parsed.faults, *faults)), functions


def _function(text: str, folder: Path) -> tuple[FunctionType | None, str]:
    module_name, _, name = text.partition(":")
    if str(folder) not in sys.path:
        # At the end: a file next to the mapping must not replace one of Python's own modules.
        sys.path.append(str(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        what = f"module '{error.name}' not found; install it, or put it next to the mapping"
        return None, what
    except Exception as error:  # a user's module may raise anything while it is imported
        return None, f"importing {module_name} raised {type(error).__name__}; fix the module"
    function = getattr(module, name, None)
    if not isinstance(function, FunctionType):
        names = [
            function_name for function_name, value in vars(module).items() if isinstance(value, FunctionType)
        ]
        return None, f"{module_name} has no function '{name}'{did_you_mean(name, names)}"
    return function, ""


def _impurities(text: str, function: FunctionType, visited: set[str]) -> Iterator[str]:
    """Impure uses in the function, or in functions of its module that it calls."""
    visited.add(function.__name__)
    for name in _names(function.__code__):
        value = function.__globals__.get(name, getattr(builtins, name, None))
        if name in _IMPURE_NAMES or _is_impure(value):
            yield f"{text} uses '{name}'; a transform must be pure: no clock, no chance, no file, no network"
        is_own = isinstance(value, FunctionType) and value.__module__ == function.__module__
        if isinstance(value, FunctionType) and is_own and name not in visited:
            yield from _impurities(text, value, visited)


def _is_impure(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    known_callable = isinstance(value, ModuleType) or (callable(value) and not isinstance(value, type))
    return known_callable and isinstance(name, str) and name.partition(".")[0] in _IMPURE_MODULES


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _revision(parsed: ParsedMapping, functions: dict[str, Transform]) -> str:
    """The revision, which also changes with the text of a module that has a transform."""
    if not functions:
        return parsed.mapping.revision
    digest = hashlib.sha256(parsed.mapping.revision.encode())
    for text in sorted(functions):
        module = inspect.getmodule(functions[text])
        digest.update(inspect.getsource(module).encode() if module else b"")
    return digest.hexdigest()[:12]


# ── DynamoDB prices by region, from the dated file in this folder ──

FILE = "prices.yaml"
USUAL_REGION = "us-east-1"
"""Region of the prices shown if none is set, such as for an embedded DynamoDB."""
_NAMES = ("write", "read", "storage", "write_hour", "read_hour")
_ONCE = ("import", "glue_worker", "emr_worker")
"""Prices of filling a table; a region may lack them."""


def price_of(region: str | None, table_class: str | None = None) -> Price | None:
    table = _read()
    prices = table["regions"].get(region)
    if region is None or prices is None:
        return None
    rare = table_class == "standard_infrequent_access"
    times = table["infrequent_access"] if rare else dict.fromkeys(_NAMES, 1)
    source = f"{table['as_of']}, {table['source']}"
    write, read, storage, *hour = (Decimal(str(prices[name])) * Decimal(str(times[name])) for name in _NAMES)
    once = [Decimal(str(prices[name])) if name in prices else None for name in _ONCE]
    return Price(
        *(region, write, read, storage, source),
        infrequent=rare,
        write_hour=hour[0],
        read_hour=hour[1],
        import_gb=once[0],
        glue_worker_hour=once[1],
        emr_worker_hour=once[2],
    )


def known_regions() -> list[str]:
    return sorted(_read()["regions"])


@cache
def _read() -> Any:
    text = (files("migrator.settings") / FILE).read_text(encoding="utf-8")
    return plain_of(text)


# ── A mapping laid over its open source: with the faults and doubts that only the source can tell ──


def checked_on(source: ComputingSource, parsed: ParsedMapping, facts: SchemaFacts | None = None) -> Checked:
    """Check the mapping against an open source, with its transforms. `facts`: its schema, if already read.

    Raises: MappingError with every fault, including those that the source finds in the SQL of computed
    columns.
    """
    revised, transforms = load_transforms(parsed)
    checked = check_mapping(revised, facts or source.facts(), transforms)
    faults = [
        parsed.document.fault(("entities", plan.entity.written, "columns", slot.path), what)
        for plan in checked.plans
        for table, slot in plan.computed
        if (what := source.computed_fault(table, slot.column))
    ]
    if faults:
        raise MappingError([*checked.warnings, *faults])
    return checked


def volatile_warnings(source: ComputingSource, parsed: ParsedMapping, checked: Checked) -> list[Fault]:
    """A warning for each computed column whose value can change without a change that could leave a mark."""
    return [
        parsed.document.fault(("entities", plan.entity.written, "columns", slot.path), what, warning=True)
        for plan in checked.plans
        for _, slot in plan.computed
        if (parts := source.volatile_parts(slot.column))
        for what in [f"{'; '.join(parts)}. {_VOLATILE}"]
    ]


_VOLATILE = (
    "No change of the row shows when the value changes, so items keep the value of when they were written, and verify finds"
    " them different; make the value of columns alone (a function that is: declare it IMMUTABLE, DETERMINISTIC), or in"
    " the service"
)


def with_writes(checked: Checked, names: Sequence[str], keep: Collection[str] = ()) -> Checked:
    """Move the named entities to `direct`, so that no stage reads or writes them.

    `keep`: attributes that services set themselves. Raises: SettingsError with every fault of the names.
    """
    entity_names = list(checked.mapping.entities)
    faults = [
        f"writes.direct: the mapping has no entity '{name}'{did_you_mean(name, entity_names)}"
        for name in names
        if name not in entity_names
    ]
    direct = tuple(plan for plan in checked.plans if plan.entity.written in names)
    left = tuple(plan for plan in checked.plans if plan.entity.written not in names)
    written = {captured_name(plan.table): plan.entity.written for plan in direct}
    for plan in left:
        for table in sorted(set(captured_tables([plan])) & set(written)):
            reader = plan.entity.written
            faults.append(
                f"writes.direct: entity {reader} reads table {table}, which grows old once {written[table]} is written"
                f" past SQL; also name {reader}"
            )
    for name in sorted(checked.attributes.intersection(keep)):
        faults.append(
            f"writes.keep: '{name}' is an attribute that the mapping makes, so no service's own; take it out"
        )
    if faults:
        raise SettingsError("\n".join(dict.fromkeys(faults)))
    design = replace(checked.mapping.table, kept=frozenset(keep))
    return replace(checked, mapping=replace(checked.mapping, table=design), plans=left, direct_plans=direct)
