"""Lines of Python as ruff lays them out: one that is too long has what stands in its brackets on lines of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

WIDTH = 100
_TOKENS = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<comma>,)"""
    r"""|(?P<for>\ (?=for\ ))|(?P<if>\ (?=(?:if|else)\ ))|(?P<or>\ (?=or\ ))|(?P<and>\ (?=and\ ))"""
    r"""|(?P<is>\ (?=(?:is|==|!=)\ ))"""
    r"""|(?P<plus>\ (?=\+\ ))|(?P<lambda>lambda\b)""",
    re.VERBOSE,
)
_STATEMENT = re.compile(r"(if|return|\w+ \|=) ")
_OPERATORS = ("for", "if", "or", "and", "is", "plus")
"""What a text is split before, the loosest first."""


def laid(code: str) -> str:
    """The code, every statement of which is one line, with no line longer than it must be."""
    return "\n".join(line for whole in code.split("\n") for line in _lines(whole))


def _lines(line: str) -> Iterator[str]:
    text = line.lstrip()
    if len(line) <= WIDTH or text.startswith(("#", '"""')):
        yield line
        return
    indent = line[: -len(text)]
    word = _STATEMENT.match(text)
    if word is not None and _cuts(whole := text[word.end() :].removesuffix(":")):
        yield f"{indent}{word[0]}("
        yield from _inside(whole, f"{indent}    ")
        yield f"{indent}){':' if text.endswith(':') else ''}"
        return
    yield from _in_brackets(text, indent)


def _in_brackets(text: str, indent: str) -> Iterator[str]:
    """The text with its last brackets opened, of a function's head its first."""
    pairs = list(_pairs(text))
    start, end = (
        next(iter(pairs), (0, 0)) if re.match(r"(async )?def ", text) else (pairs or [(0, 0)])[-1]
    )
    body = text[start + 1 : end]
    if not body:
        yield indent + text
        return
    yield indent + text[: start + 1]
    inner = f"{indent}    "
    commas = [match.start() for match in _outer(body) if match.lastgroup == "comma"]
    is_call = start > 0 and (text[start - 1].isalnum() or text[start - 1] in "_)]")
    if len(inner + body) <= WIDTH and (is_call or not commas):
        yield inner + body
    elif commas:
        for part in _parts(body, commas, 1):
            yield from _inside(f"{part.strip()},", inner)
    else:
        yield from _inside(f"{body}{',' if _is_list(body, is_call) else ''}", inner)
    yield indent + text[end:]


def _is_list(body: str, is_call: bool) -> bool:
    """Whether what stands in the brackets, alone, takes a comma behind it."""
    return (
        is_call
        and not any(match.lastgroup == "for" for match in _outer(body))
        and body[0] not in "[{("
    )


def _inside(text: str, indent: str) -> Iterator[str]:
    """A text that stands in brackets."""
    if len(indent + text) <= WIDTH:
        yield indent + text
    elif cuts := _cuts(text):
        for part in _parts(text, cuts, 0):
            yield from _inside(part.strip(), indent)
    else:
        yield from _in_brackets(text, indent)


def _cuts(text: str) -> list[int]:
    """Where the loosest operator outside of brackets stands."""
    found = list(_outer(text))
    if any(match.lastgroup == "lambda" for match in found):
        return []
    listed = (
        [match.start() for match in found if match.lastgroup == operator] for operator in _OPERATORS
    )
    return next(filter(None, listed), [])


def _parts(text: str, cuts: list[int], width: int) -> list[str]:
    starts = [0, *(cut + width for cut in cuts)]
    return [text[start:end] for start, end in zip(starts, [*cuts, len(text)], strict=True)]


def _outer(text: str) -> Iterator[re.Match[str]]:
    """Tokens outside of brackets."""
    depth = 0
    for match in _TOKENS.finditer(text):
        depth -= match.lastgroup == "close"
        if depth == 0:
            yield match
        depth += match.lastgroup == "open"


def _pairs(text: str) -> Iterator[tuple[int, int]]:
    """Outermost brackets, from and to."""
    start = 0
    for match in _outer(text):
        if match.lastgroup == "open":
            start = match.start()
        elif match.lastgroup == "close":
            yield start, match.start()
