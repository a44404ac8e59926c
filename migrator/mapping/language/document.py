"""A YAML file as plain data with the line of every value."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar

import yaml
from msgspec import Struct
from pydantic import ValidationError
from yaml import MappingNode, MarkedYAMLError, Node, ScalarNode, SequenceNode, YAMLError

from migrator.runtime.errors import Fault, MappingError, did_you_mean

Path = tuple[str | int, ...]

MAX_DEPTH = 100
_DEEPEST = 10 * MAX_DEPTH
_ENOUGH_WORDS = 2
_QUOTED = re.compile(r"('.'|'<[^']*'|\".\")|'[^']*'|\"[^\"]*\"")
"""The first group: signs of YAML, which a message keeps."""
MAX_NODES = 1_000_000
"""More than any mapping needs; an alias of aliases of aliases reaches it at once."""


class Ours(Struct, frozen=True):
    """Signs of a job or mapping file: its first word, other words at its top, and the message for other files.

    Nothing of another file is quoted: a symbolic link may lead to one with passwords.
    """

    first: str
    words: frozenset[str]
    otherwise: str

    def is_begun_by(self, data: object) -> bool:
        if not isinstance(data, dict):
            return False
        return self.first in data or len(self.words & data.keys()) >= _ENOUGH_WORDS

    def mistaken(self, data: object) -> str:
        if not isinstance(data, dict) or _OWN_WORDS[self.first] & data.keys():
            return ""
        others = set().union(*(words for kind, words in _OWN_WORDS.items() if kind != self.first))
        return _MISTAKEN[self.first] if others & data.keys() and self.words & data.keys() else ""


def is_job_text(text: str) -> bool:
    try:
        node = _composed(text)
    except (YAMLError, ValueError, RecursionError):
        return False
    pairs = node.value if isinstance(node, MappingNode) else ()
    words = {key.value for key, _ in pairs if isinstance(key, ScalarNode)}
    return bool(_OWN_WORDS["job"] & words) and not _OWN_WORDS["mapping"] & words


_OWN_WORDS = {
    "mapping": frozenset({"table", "entities", "access_patterns"}),
    "job": frozenset({"job", "target"}),
}
"""Words at the top of one kind of file alone, by its first word."""
_MISTAKEN = {
    "mapping": "this is a job, not a mapping; give the file that its `mapping:` names",
    "job": "this is a mapping, not a job; give the job file whose `mapping:` names this one",
}


class Document(Struct, frozen=True):
    """`lines`: by path, from 1."""

    file: str
    data: Any
    lines: dict[Path, int]

    def line(self, path: Sequence[str | int]) -> int:
        for end in range(len(path), -1, -1):
            line = self.lines.get(tuple(path[:end]))
            if line is not None:
                return line
        return 1

    def fault(self, path: Sequence[str | int], what: str, *, warning: bool = False) -> Fault:
        return Fault(self.file, self.line(path), where_of(path), what, warning)


def where_of(path: Sequence[str | int]) -> str:
    """The path in messages, with hidden URLs, which may contain passwords."""
    return ".".join("…" if _may_be_url(part) else str(part) for part in path)


def _may_be_url(part: str | int) -> bool:
    text = str(part)
    return "://" in text or "@" in text[1:]


def load_document(text: str, file: str, ours: Ours) -> Document:
    """Load YAML 1.2 (`NO` is a word), which must be a map.

    Raises: MappingError for text that is not YAML, has too many values, repeats a key or uses aliases in a
    loop; with a single fault for a file that is not ours.
    """
    try:
        node = _composed(text)
    except MarkedYAMLError as error:
        last = len(text.rstrip().splitlines())
        began, line = (
            min(mark.line + 1, last) if mark else 0 for mark in (error.context_mark, error.problem_mark)
        )
        # The parser quotes the offending text.
        what = _QUOTED.sub(
            lambda found: found[1] or "…",
            " ".join(str(error.problem or error.context or "cannot be read").split()),
        )
        context = f" ({error.context}, which begins in line {began})" if 0 < began < line else ""
        raise MappingError([Fault(file, line, "", f"not YAML: {what}{context}")]) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise MappingError([Fault(file, 0, "", f"not YAML: {type(error).__name__}")]) from None
    walk = _Walk(file)
    data = walk.value(node, ()) if node is not None else None
    if mistaken := ours.mistaken(data):
        raise MappingError([Fault(file, 1, "", mistaken)])
    if not ours.is_begun_by(data):
        raise MappingError([Fault(file, 1, "", ours.otherwise)])
    if walk.faults:
        raise MappingError(walk.faults)
    return Document(file, data, walk.lines)


def plain_of(text: str) -> Any:
    """Plain data of YAML 1.2.

    Raises: YAMLError for text that is not YAML; MappingError for too many values, or aliases in a loop.
    """
    node = _composed(text)
    return None if node is None else _Walk("").value(node, ())


# libyaml if the package was built with it, as its wheels are: some 17 times as fast.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.2's core schema, with `_` between digits; all other words are text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def descend_resolver(self, parent: Node | None, place: Any) -> None:
        """Count the depth of each node: compose() recurses in C, and would overflow the stack."""
        self.depth = getattr(self, "depth", 0) + 1
        if self.depth > _DEEPEST:
            mark = parent.start_mark if parent is not None else None
            raise MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=mark)

    def ascend_resolver(self) -> None:
        self.depth -= 1


_TAG = "tag:yaml.org,2002:"
_MEANINGS = {
    "null": (["~", "n", "N", ""], r"~|null|Null|NULL|"),
    "bool": ("tTfF", r"true|True|TRUE|false|False|FALSE"),
    "int": ("-+0123456789", r"[-+]?[0-9][0-9_]*|0o[0-7_]+|0x[0-9a-fA-F_]+"),
    "float": (
        "-+.0123456789",
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    ),
}
"""First characters and form of each kind of word."""
for _name, (_firsts, _words) in _MEANINGS.items():
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"(?:{_words})$"), list(_firsts))


@lru_cache(maxsize=8)
def _composed(text: str) -> Node | None:
    """Cached, because a command or a service reads its mapping more than once; nothing changes the nodes.

    Raises: YAMLError, ValueError.
    """
    node: Node | None = yaml.compose(text, Loader=_Loader)
    return node


def schema_faults(error: ValidationError, document: Document, fields: dict[str, list[str]]) -> list[Fault]:
    """One fault for each error of pydantic, at its line.

    `fields`: names by pydantic model, for did-you-mean.
    """
    words = sorted({name for names in fields.values() for name in names})
    # Each form of a union reports its own problem at the same place; a missing word and a name have places of
    # their own.
    problems: dict[tuple[Path, Path], dict[str, None]] = {}
    found = [
        (real_path(problem["loc"], document), problem)
        for problem in error.errors(include_url=False, include_input=False)
    ]
    # A problem inside a value comes from the form that it is written in; the others do not matter.
    inside = {path[:length] for path, _ in found for length in range(len(path))}
    for path, problem in found:
        loc = problem["loc"]
        if path in inside and problem["type"].endswith("_type"):
            continue
        own = loc[-1:] if problem["type"] == "missing" or loc[-1:] == ("[key]",) else ()
        problems.setdefault((path, own), {})[_sentence(problem, path, words, fields)] = None
    # A misspelled word is not missing as well.
    meant = {
        (path[:-1], match[1])
        for (path, _), sentences in problems.items()
        for sentence in sentences
        if (match := _MEANT.search(sentence))
    }
    problems = {
        place: sentences for place, sentences in problems.items() if (place[0], *place[1]) not in meant
    }
    return [document.fault(path, "; or ".join(sentences)) for (path, _), sentences in problems.items()]


_MEANT = re.compile(r"is not a valid key here; did you mean '(.+)'\?")
_SENTENCES = {
    "bool_parsing": "write true or false here",
    "bool_type": "write true or false here",
    "finite_number": "write a finite number here",
    "float_parsing": "write a number here",
    "float_type": "write a number here",
    "greater_than": "write a value above {gt} here",
    "greater_than_equal": "write a value of at least {ge} here",
    "int_from_float": "write a whole number here",
    "int_parsing": "write a whole number here",
    "int_parsing_size": "write a smaller number here",
    "int_type": "write a whole number here",
    "less_than": "write a value below {lt} here",
    "less_than_equal": "write a value of at most {le} here",
    "list_type": "write a list here: `{name}: […]`",
    "literal_error": "write {expected} here",
    "string_too_long": "write at most {max_length} characters here",
    "string_too_short": "write {min_length} or more characters here",
    "string_type": "write one text here: `{name}: …`",
    "too_long": "write at most {max_length} values here",
    "too_short": "write {min_length} or more values here",
    "tuple_type": "write a list here: `{name}: […]`",
}
"""Advice by pydantic's type of a problem: its own sentences describe only the fault."""
_OTHERWISE = "write a value of another form here; docs/job.md and mappings/README.md describe the forms"


def _sentence(problem: Any, path: Path, words: list[str], fields: dict[str, list[str]]) -> str:
    if problem["type"] == "extra_forbidden":
        if _may_be_url(path[-1]):
            return "this looks like a URL, which is not a valid key here; write a name before it, such as `url: `"
        word = str(path[-1])
        if word in words:
            return (
                f"'{word}' is not a valid key here; it belongs elsewhere in the file: check its indentation"
            )
        return f"'{word}' is not a valid key here{did_you_mean(word, words)}"
    if problem["type"] == "missing":
        return f"'{problem['loc'][-1]}' is missing; write it here"
    name = next((part for part in reversed(path) if isinstance(part, str)), "")
    if problem["type"] in ("model_type", "model_attributes_type", "dict_type"):
        has_key = "key" in fields.get(problem.get("ctx", {}).get("class_name", ""), ())
        inner = f" `{name}: {{key: […]}}`" if has_key else f" `{name}: {{name: value}}`" if name else ""
        return f"write names with values here, one a line{inner and ', or'}{inner}"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    if problem["type"] == "shape":
        return str(problem["msg"])
    return _SENTENCES.get(problem["type"], _OTHERWISE).format(name=name, **problem.get("ctx", {}))


def real_path(loc: Sequence[str | int], document: Document) -> Path:
    path: Path = ()
    for part in loc:
        if (*path, part) in document.lines:
            path = (*path, part)
    return path


class _Walk:
    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Path, int] = {}
        self.faults: list[Fault] = []

    def value(self, node: Node, path: Path) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        if len(self.lines) > MAX_NODES:
            raise MappingError(
                [Fault(self.file, 0, "", f"more than {MAX_NODES} values; too many for a mapping")]
            )
        if len(path) > MAX_DEPTH:
            self._fault(node, path[:3], f"nested deeper than {MAX_DEPTH} levels")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(child, (*path, number)) for number, child in enumerate(node.value)]
        return self._scalar(node, path) if isinstance(node, ScalarNode) else None

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._fault(key_node, path, "a name must be one word, not a list or a map")
                continue
            name = str(key_node.value)
            if name in result:
                self._fault(key_node, (*path, name), "appears twice; keep one")
            self.lines[(*path, name)] = key_node.start_mark.line + 1
            result[name] = self.value(value_node, (*path, name))
        return result

    def _scalar(self, node: ScalarNode, path: Path) -> Any:
        make = _SCALARS.get(str(node.tag))
        if make is None:
            self._fault(node, path, "this tag is not supported; write plain text")
            return None
        try:
            return make(node.value)
        except ValueError:
            return str(node.value)

    def _fault(self, node: Node, path: Path, what: str) -> None:
        self.faults.append(Fault(self.file, node.start_mark.line + 1, where_of(path), what))


def _integer(text: str) -> int:
    plain = text.replace("_", "")
    return int(plain, 0) if plain.lstrip("+-").lower().startswith(("0x", "0o")) else int(plain)


_SCALARS: dict[str, Any] = {
    f"{_TAG}str": str,
    f"{_TAG}null": lambda text: None,
    f"{_TAG}bool": lambda text: text.lower() == "true",
    f"{_TAG}int": _integer,
    f"{_TAG}float": float,
}


_PLAIN = re.compile(r"[A-Za-z_]\w*")


_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])


def text_of(value: object) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{text_of(name)}: {text_of(one)}' for name, one in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.isascii() and value.lower() not in _WORDS:
        return value
    return quoted(value)


_NOT_PRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def quoted(value: object) -> str:
    """JSON that is also YAML: letters beyond the BMP are not escaped, since YAML allows no surrogates."""
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_PRINTED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
