"""Values as text that may be shown."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from migrator.mapping.show.redaction import json_text, value_text, value_texts

TEXTS = [
    (None, "null"),
    (True, "true"),
    (7, "7"),
    (Decimal("9.90"), "9.90"),
    (Decimal("12345678901234567890.123456789"), "12345678901234567890.123456789"),
    ("9.90", '"9.90"'),
    ("Zoë \u2028</script>", '"Zoë \u2028</script>"'),
    ("\ud800", '"\ud800"'),
    (b"\x00\xff", '{"b64": "AP8="}'),
    ([1, {"a": Decimal("0.1")}], '[1, {"a": 0.1}]'),
    ((), "[]"),
]


@pytest.mark.parametrize(("value", "text"), TEXTS)
def test_a_value_is_json_with_every_digit(value: Any, text: str) -> None:
    assert value_text(value) == text
    assert json.loads(text) is not ...


def test_redacted_values_are_masked_and_null_is_shown() -> None:
    names = ("id", "email", "phone")
    shown = value_texts(names, (1, "ann@x.example", None), {"email", "phone"})
    assert shown[0] == "1"
    assert shown[1].startswith("…")
    assert "ann" not in shown[1]
    assert shown[2] == "null"
    assert value_texts(names, (2, "ann@x.example", 3), {"email"})[1] == shown[1]
    assert value_texts(names, (2, "bob@x.example", 3), {"email"})[1] != shown[1]


def test_numbers_are_numbers_with_every_digit_in_json() -> None:
    value = {
        "total": Decimal("32.38"),
        "text": "32.38",
        "whole": Decimal("9.00"),
        "lines": [{"n": 1}],
        "no": [],
    }
    assert json_text(value) == (
        '{"total": 32.38, "text": "32.38", "whole": 9, "lines": [{"n": 1}], "no": []}'
    )
    assert json_text(Decimal("12345678901234567890.123456789")) == "12345678901234567890.123456789"
    plain = {"a": [1, {"b": None}], "c": {}, "d": "ä"}
    assert json_text(plain, indent=2) == json.dumps(plain, ensure_ascii=False, indent=2)
