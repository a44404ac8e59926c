"""TypeScript as text: names, literals, types of kinds, and the functions of `runtime.ts` that a text needs."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Sequence
from importlib import resources

from migrator.mapping.model.facts import Kind, KindName

_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_WORD = re.compile(r"[0-9A-Za-z]+")
_RESERVED = """
abstract any arguments as async await boolean break case catch class const continue debugger declare default
delete do else enum eval export extends false finally for from function get if implements import in instanceof
interface is let module namespace never new null number object package private protected public return set
static string super switch symbol this throw true try type typeof undefined unknown var void while with yield
"""
_OF_EVERY_OBJECT = """
__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__ __proto__ constructor hasOwnProperty isPrototypeOf
propertyIsEnumerable toLocaleString toString valueOf
"""
INHERITED = frozenset(_OF_EVERY_OBJECT.split())
"""Names that every object of JavaScript has: libraries that look whether an object has a field find these in all."""

_TYPES: dict[KindName, str] = {
    "integer": "number",
    "number": "number",
    "float": "number",
    "text": "string",
    "boolean": "boolean",
    "date": "string",
    "time": "string",
    "timestamp": "string",
    "uuid": "string",
    "bits": "string",
    "binary": "Uint8Array",
    "set": "string[]",
}


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def literal(value: object) -> str:
    """A scalar of a mapping, a number as JavaScript holds it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    return quoted(value) if isinstance(value, str) else str(value)


def listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, texts))}]"


def property_(name: str) -> str:
    """A name where an object or an interface declares it."""
    return name if _PLAIN_NAME.fullmatch(name) else quoted(name)


def member(of: str, name: str) -> str:
    """The expression of an object's property."""
    return f"{of}.{name}" if _PLAIN_NAME.fullmatch(name) else f"{of}[{quoted(name)}]"


def commented(text: str) -> str:
    """A text within a comment, which it cannot end."""
    return " ".join(text.replace("*/", "*\\/").split())


def block(lines: Sequence[str], by: int = 2) -> list[str]:
    return [f"{' ' * by}{line}" if line else line for line in lines]


class Identifiers:
    """Names of functions and types, each given once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_RESERVED.split(), *taken}

    def type(self, name: str) -> str:
        """Order Item, order_item: OrderItem."""
        words = _WORD.findall(name)
        return self._own("".join(word[0].upper() + word[1:] for word in words) or "Item")

    def function(self, name: str) -> str:
        """get_track: getTrack."""
        first, *others = _WORD.findall(name) or ["ask"]
        return self._own(
            first[0].lower() + first[1:] + "".join(word[0].upper() + word[1:] for word in others)
        )

    def _own(self, wanted: str) -> str:
        base = wanted if wanted[0].isalpha() else f"T{wanted}"
        name = next(
            name for name in (base, *(f"{base}{n}" for n in range(2, 10_000))) if name not in self._taken
        )
        self._taken.add(name)
        return name


def type_of(kind: Kind | None) -> str:
    """How the SDK gives a stored value of this kind; times are their ISO 8601 texts."""
    if kind is None:
        return "unknown"
    if kind.name == "list":
        return f"({type_of(kind.element)} | null)[]" if kind.element else "unknown[]"
    if kind.name == "map" and kind.fields:
        fields = "; ".join(f"{property_(name)}?: {type_of(of)}" for name, of in kind.fields)
        return f"{{ {fields} }}"
    if kind.name == "map":
        return f"Record<string, {type_of(kind.element)}>"
    return _TYPES.get(kind.name, "unknown")


# ── runtime.ts ──

_DECLARED = re.compile(r"^(?:async )?(?:function|interface|type|const|export class) (\w+)", re.MULTILINE)


_MODULE_NAMES = "KEY TYPE TTL PLACES createHash DynamoDBClient Entity entities Entities pages getter Asked"


@functools.lru_cache(maxsize=1)
def _declarations() -> dict[str, str]:
    """The parts of runtime.ts by what they declare, in its order."""
    text = resources.files(__package__).joinpath("runtime.ts").read_text(encoding="utf-8")
    return {found[1]: part for part in text.strip().split("\n\n") if (found := _DECLARED.search(part))}


def runtime_names() -> frozenset[str]:
    """Names that a module has anyway."""
    parts = "\n".join(_declarations().values())
    return frozenset({*_DECLARED.findall(parts), *_MODULE_NAMES.split()})


def helpers_of(code: str) -> list[str]:
    """The parts of runtime.ts that the code uses, and those that they use."""
    parts = _declarations()
    used: set[str] = set()
    waiting = [code]
    while waiting:
        text = waiting.pop()
        found = {name for name, part in parts.items() if name not in used and _uses(text, name, part)}
        used |= found
        waiting += [parts[name] for name in found]
    return [part for name, part in parts.items() if name in used]


def _uses(code: str, name: str, part: str) -> bool:
    """Functions are known by their call, since attributes may have their names."""
    behind = "[(<]" if f"function {name}" in part else r"\b"
    return re.search(rf"(?<![\w$])(?<![\w$)\]?]\.){name}{behind}", code) is not None
