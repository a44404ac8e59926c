"""Cursors: what is in them comes back, and nothing that was not signed."""

from __future__ import annotations

import base64
from decimal import Decimal

import pytest

from migrator.mapping.patterns.requests import Cursor, opened, signed
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from tests import pins

KEY = "0123456789abcdef"
CURSOR = Cursor(
    "recent",
    "aa",
    "rev",
    "table",
    1234.5,
    40,
    ({"PK": "Ü#1", "n": 5, "x": Decimal("1E-130"), "b": b"\x00\xff", "big": 10**37}, None),
    "row",
)


def test_a_cursor_comes_back_as_it_was() -> None:
    text = signed(CURSOR, KEY)
    assert opened(text, KEY) == CURSOR
    # Goes into a URL as it is.
    assert not set(text) - set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert opened(signed(replace(CURSOR, starts=()), KEY), KEY).starts == ()


def test_another_key_another_letter_or_another_end_is_refused() -> None:
    text = signed(CURSOR, KEY)
    broken = [text[:-2], text + "AAAA", "", "x", "ünsinn", text[10:], "A" * 200, text.lower()]
    turned = "B" if text[40] == "A" else "A"
    for one in [*broken, text[:40] + turned + text[41:]]:
        with pins.refused(SettingsError):
            opened(one, KEY)
    with pytest.raises(SettingsError, match=r"reads\.cursor_key"):
        opened(text, KEY + "!")


def test_content_without_a_signature_is_refused() -> None:
    body = base64.urlsafe_b64decode(signed(CURSOR, KEY) + "==")[16:]
    with pytest.raises(SettingsError):
        opened(base64.urlsafe_b64encode(b"\0" * 16 + body).decode(), KEY)
