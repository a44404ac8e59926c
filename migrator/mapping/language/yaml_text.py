"""Values as the text of a YAML document."""

from __future__ import annotations

import json
import re

_PLAIN = re.compile(r"[A-Za-z_]\w*")


_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null"])


def text_of(value: object) -> str:
    """A YAML scalar, or a flow sequence of such."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.isascii() and value.lower() not in _WORDS:
        return value
    return quoted(value)


_NOT_PRINTED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def quoted(value: object) -> str:
    """A value as JSON that is also YAML: letters beyond the BMP stand for themselves, as YAML takes no half of a pair."""
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_PRINTED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
