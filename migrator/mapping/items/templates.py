"""The template language: `USER#{user_id:06}`, `created_at|iso:s`, parsed to references and filters."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from migrator.mapping.items.filters import FILTERS, StarKind
from migrator.mapping.model.mapping import Filter, Ref, Template
from migrator.runtime.errors import amount, did_you_mean

_FORMAT = re.compile(r"0(?P<width>[1-9][0-9]*)(?:d|\.(?P<decimals>[0-9]+)f)?")
_QUOTED_NAME = re.compile(r'"((?:[^"]|"")+)"')
_NEEDS_QUOTES = re.compile(r"""[,:|{}'"]|^\*|^\s|\s$""")
_QUOTED = re.compile(r"'((?:[^']|'')*)'")


_STARS = (
    "in the partition key of an access pattern's query, and as {*|shard:N} in that of an item and of a get"
)


def parse_template(text: str, *, stars: Collection[StarKind] = ()) -> Template:
    """`{{` and `}}` are literal braces. `stars`: allowed meanings of a `*`. Raises: ValueError with the fault."""
    parts: list[str | Ref] = []
    for literal, inner in _pieces(text):
        if literal:
            parts.append(literal)
        if inner is not None:
            is_star = bool(stars) and inner.startswith("*")
            parts.append(_every(inner, stars) if is_star else parse_ref(inner, formats=True))
    return Template(tuple(parts), text)


def name_in_template(name: str) -> str:
    """The name, in double quotes if a template means something by one of the characters."""
    quoted = name.replace('"', '""')
    return f'"{quoted}"' if _NEEDS_QUOTES.search(name) else name


def parse_ref(text: str, *, formats: bool = False) -> Ref:
    """`path[,path…][:format][|filter[:argument,…]…]`; a format only if `formats`.

    A name with one of `, : | { } '` is in double quotes, a double quote in it twice. Raises: ValueError with
    the fault.
    """
    if text.startswith("*"):
        raise ValueError(f"'{text}': a * is allowed only {_STARS}")
    head, *filter_texts = _split(text, "|")
    names, *formats_given = _split(head, ":")
    colon, format_spec = bool(formats_given), ":".join(formats_given)
    paths = tuple(_unquoted_name(path) for path in _split(names, ","))
    if not all(paths):
        raise ValueError(f"'{text}' does not name a column; write a column, or alias.column")
    if colon and not formats:
        raise ValueError(f"'{text}' has a format outside braces; write \"{{{text}}}\"")
    if colon and not _FORMAT.fullmatch(format_spec):
        raise ValueError(f"the format '{format_spec}' is unknown; write a width such as 06, or 09.2f")
    filters = tuple(_filter(part) for part in filter_texts)
    _check_arity(text, paths, filters)
    places = [place for place, used in enumerate(filters, 1) if FILTERS[used.name].of_array]
    if places and (formats or places[0] < len(filters)):
        used = filters[places[0] - 1].name
        raise ValueError(f"'{text}': a {used} is a whole attribute; write |{used} last, and without braces")
    return Ref(paths, format_spec if colon else None, filters)


def _every(text: str, stars: Collection[StarKind]) -> Ref:
    """A reference with a `*`: `*|shard:10`, `*since,until|bucket:day`, `*lat,lng|geohash:6`."""
    head, *filter_texts = _split(text[1:], "|")
    paths = tuple(path.strip() for path in head.split(",")) if head.strip() else ()
    filters = tuple(_filter(part) for part in filter_texts)
    way = FILTERS[filters[0].name].way if len(filters) == 1 else None
    if way is None or way.of not in stars:
        fan_outs = ", ".join(name for name, spec in FILTERS.items() if spec.way and spec.way.of in stars)
        raise ValueError(f"'{text}': '*' needs one of the filters {fan_outs}")
    if len(paths) != way.values or not all(paths):
        raise ValueError(f"'{text}' names {amount(len(paths), 'parameter')} but it takes {way.values}")
    return Ref(paths, None, filters, every=True)


def format_width(format_spec: str) -> tuple[int, int]:
    match = _FORMAT.fullmatch(format_spec)
    if match is None:
        raise ValueError(format_spec)
    return int(match["width"]), int(match["decimals"] or 0)


def _filter(text: str) -> Filter:
    name, colon, rest = text.strip().partition(":")
    spec = FILTERS.get(name)
    if spec is None:
        raise ValueError(f"filter '{name}' not found{did_you_mean(name, FILTERS)}")
    args = tuple(_unquote(argument) for argument in _split(rest, ",")) if colon else ()
    least, most = spec.args
    if not least <= len(args) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise ValueError(f"the filter '{name}' takes {wanted} arguments, not {len(args)}")
    fault = spec.check(args)
    if fault:
        raise ValueError(f"the filter '{name}': {fault}")
    return Filter(name, args)


def _check_arity(text: str, paths: tuple[str, ...], filters: tuple[Filter, ...]) -> None:
    wanted = FILTERS[filters[0].name].values if filters else 1
    if len(paths) != wanted:
        raise ValueError(f"'{text}' gives {amount(len(paths), 'value')} but it takes {wanted}")
    filled = ""
    for used in filters:
        spec = FILTERS[used.name]
        if spec.values > 1 and used is not filters[0]:
            raise ValueError(
                f"'{text}': {used.name} takes {spec.values} columns; write it as the first filter"
            )
        if filled and (spec.takes or (spec.fixed and not set(filled) <= set(spec.alphabet))):
            raise ValueError(f"'{text}': {used.name} does not take the text '{filled}'; write |or after it")
        filled = used.args[0] if spec.null else filled


def _pieces(text: str) -> Iterator[tuple[str, str | None]]:
    literal, at = "", 0
    while at < len(text):
        char = text[at]
        if char in "{}" and text[at : at + 2] == char * 2:
            literal, at = literal + char, at + 2
        elif char == "{":
            end = _closing(text, at)
            yield literal, text[at + 1 : end]
            literal, at = "", end + 1
        elif char == "}":
            raise ValueError(f"a '}}' without '{{' in '{text}'; write '}}}}' for the character")
        else:
            literal, at = literal + char, at + 1
    if literal:
        yield literal, None


def _closing(text: str, at: int) -> int:
    quote = ""
    for position in range(at + 1, len(text)):
        char = text[position]
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        elif char == "}" and not quote:
            return position
    raise ValueError(f"a '{{' that is not closed in '{text}'; write '{{{{' for the character")


def _split(text: str, separator: str) -> list[str]:
    parts, quote = [""], ""
    for char in text:
        if char in "'\"" and quote in ("", char):
            quote = "" if quote else char
        if char == separator and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _unquoted_name(text: str) -> str:
    match = _QUOTED_NAME.fullmatch(text.strip())
    return match[1].replace('""', '"') if match else text.strip()


def _unquote(text: str) -> str:
    match = _QUOTED.fullmatch(text.strip())
    return match[1].replace("''", "'") if match else text.strip()
