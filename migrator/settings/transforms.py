"""`transform` functions found and checked for purity, and DynamoDB prices by region."""

from __future__ import annotations

import builtins
import hashlib
import importlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ruamel.yaml import YAML

from migrator.mapping.heart.rows import Transform
from migrator.mapping.heart.sizes import Price
from migrator.mapping.language.parse import ParsedMapping, examine_mapping
from migrator.model.errors import Fault, SettingsError, did_you_mean
from migrator.runtime.files import small_text

# ──
# A mapping read from its file, and the functions that its entities name in `transform`: found, and checked
# to be pure.

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
    """The mapping of a file, faults in it included.

    Raises: SettingsError when the file cannot be read as text.
    """
    try:
        text = small_text(path)
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise SettingsError(f"{path}: this is a folder; name a mapping file in it") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: this is no UTF-8 text, so no mapping") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None
    return _parsed(text, str(path))


@lru_cache(maxsize=4)
def _parsed(text: str, file: str) -> ParsedMapping:
    """Parsed once, however many parts of a command ask: the same text of the same file is the same mapping."""
    return examine_mapping(text, file)


def load_transforms(parsed: ParsedMapping) -> tuple[ParsedMapping, dict[str, Transform]]:
    """The mapping under a revision that knows the functions' code, and the functions by module:function.

    Modules are looked for where Python looks, then beside the mapping's file. A function that cannot be had, or is not
    pure, is one more fault of the mapping.
    """
    named = {one.transform: one.written for one in parsed.mapping.entities.values() if one.transform}
    found: dict[str, Transform] = {}
    faults: list[Fault] = []
    for text, entity in named.items():
        function, what = _function(text, Path(parsed.document.file).resolve().parent)
        if function is not None:
            what = next(_impurities(text, function, set()), "")
        if what or function is None:
            faults.append(parsed.document.fault(("entities", entity, "transform"), what))
        else:
            found[text] = function
    mapping = replace(parsed.mapping, revision=_revision(parsed, found))
    return replace(parsed, mapping=mapping, faults=(*parsed.faults, *faults)), found


def _function(text: str, folder: Path) -> tuple[FunctionType | None, str]:
    """The function, or what is wrong with its name."""
    module_name, _, name = text.partition(":")
    if str(folder) not in sys.path:
        # At the end: a file beside the mapping must not stand in for a module of Python's own.
        sys.path.append(str(folder))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        what = f"there is no module '{error.name}'; install it, or put it beside the mapping"
        return None, what
    except Exception as error:  # a user's module may raise anything while it is imported
        return None, f"importing {module_name} raised {type(error).__name__}; mend the module"
    function = getattr(module, name, None)
    if not isinstance(function, FunctionType):
        known = [one for one, value in vars(module).items() if isinstance(value, FunctionType)]
        return None, f"{module_name} has no function '{name}'{did_you_mean(name, known)}"
    return function, ""


def _impurities(text: str, function: FunctionType, seen: set[str]) -> Iterator[str]:
    """What the function, or one of its module that it calls, uses and a pure one does not."""
    seen.add(function.__name__)
    for name in _names(function.__code__):
        value = function.__globals__.get(name, getattr(builtins, name, None))
        if name in _IMPURE_NAMES or _is_impure(value):
            yield f"{text} uses '{name}'; a transform must be pure: no clock, no chance, no file, no network"
        is_own = isinstance(value, FunctionType) and value.__module__ == function.__module__
        if isinstance(value, FunctionType) and is_own and name not in seen:
            yield from _impurities(text, value, seen)


def _is_impure(value: Any) -> bool:
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    known_callable = isinstance(value, ModuleType) or (callable(value) and not isinstance(value, type))
    return known_callable and isinstance(name, str) and name.partition(".")[0] in _IMPURE_MODULES


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _revision(parsed: ParsedMapping, found: dict[str, Transform]) -> str:
    """The mapping's revision, changed where a module with a transform has other text than before."""
    if not found:
        return parsed.mapping.revision
    digest = hashlib.sha256(parsed.mapping.revision.encode())
    for text in sorted(found):
        module = inspect.getmodule(found[text])
        digest.update(inspect.getsource(module).encode() if module else b"")
    return digest.hexdigest()[:12]


# ── What DynamoDB costs in a region, by the dated file beside this module ──

FILE = "prices.yaml"
_NAMES = ("write", "read", "storage")


def price_of(region: str | None, table_class: str | None = None) -> Price | None:
    """The on-demand prices of a region for tables of a class (None: standard); None where the file has none."""
    found = _read()
    prices = found["regions"].get(region)
    if region is None or prices is None:
        return None
    rare = table_class == "standard_infrequent_access"
    times = found["infrequent_access"] if rare else dict.fromkeys(_NAMES, 1)
    write, read, storage = (Decimal(str(prices[name])) * Decimal(str(times[name])) for name in _NAMES)
    return Price(region, write, read, storage, f"{found['as_of']}, {found['source']}", infrequent=rare)


def known_regions() -> list[str]:
    return sorted(_read()["regions"])


@cache
def _read() -> Any:
    text = (files("migrator.settings") / FILE).read_text(encoding="utf-8")
    return YAML(typ="safe", pure=True).load(text)
