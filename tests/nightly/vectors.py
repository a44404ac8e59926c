"""Vectors, which MariaDB and MySQL have since 11.7 and 9.0, and name by functions of their own."""

from __future__ import annotations

import json

import pytest

from migrator.runtime.errors import MappingError
from tests.language.context import HEAD, checked, items
from tests.support_mysql import run_script

ENTITY = (
    "entities: {t: {columns: {%s}, items: {T: {key: ['T#{id}', M], keep: {except: [v]}, attributes: {%s}}}}}"
)


def assert_its_text_is_what_check_says(url: str, made_by: str) -> None:
    """`made_by`: the server's function for a vector of a text."""
    run_script(
        url,
        f"CREATE TABLE t (id integer PRIMARY KEY, v vector(3)); INSERT INTO t VALUES (1, {made_by}('[1,2.5,-3]'))",
    )
    with pytest.raises(MappingError) as caught:
        checked(url, HEAD + "entities: {t: {items: {T: {key: ['T#{id}', M], keep: all}}}}")
    said = "\n".join(map(str, caught.value.faults))
    (sql,) = [name for name in ("VEC_ToText(v)", "VECTOR_TO_STRING(v)") if name in said]
    (found,) = items(url, HEAD + ENTITY % (f"text: {{sql: '{sql}', type: text}}", "v: text"))
    assert json.loads(str(found["v"])) == [1, 2.5, -3]
