from __future__ import annotations

import pytest

from migrator.source.adapter.statement import Fragment, StatementStyle, escaped, numbered, placeholder

FORMATS = StatementStyle("postgresql", True)
DOLLARS = StatementStyle("postgresql")
SQLITE = StatementStyle("sqlite")


@pytest.mark.parametrize(
    ("spoken", "text", "wanted", "places"),
    [
        (FORMATS, "a = %s AND b = %(x)s AND c = %b", "a = migrator_p0 AND b = migrator_p1 AND c = migrator_p2", (0, "x", 2)),
        (FORMATS, "a LIKE 'x%%' AND b = %s", "a LIKE 'x%' AND b = migrator_p0", (0,)),
        (FORMATS, "a = '%s' AND b = %s", "a = 'migrator_p0' AND b = migrator_p1", (0, 1)),
        (FORMATS, "a = 1 -- %s\nAND b = %s", "a = 1 -- migrator_p0\nAND b = migrator_p1", (0, 1)),
        (FORMATS, "a ? 'k' AND b = %s", "a ? 'k' AND b = migrator_p0", (0,)),
        (DOLLARS, "a = $2 AND b = '$1' AND c = x$1", "a = migrator_p0 AND b = '$1' AND c = x$1", (1,)),
        (DOLLARS, "a = $q$ $1 $q$ AND b = E'\\'$1' AND c = $1", "a = $q$ $1 $q$ AND b = E'\\'$1' AND c = migrator_p0", (0,)),
        (DOLLARS, "a LIKE'\\' AND b = $1", "a LIKE'\\' AND b = migrator_p0", (0,)),
        (DOLLARS, "a LIKE '%s'", "a LIKE '%s'", ()),
        (SQLITE, "a = ? AND b = '?' AND c = \"?\" AND d = [?] AND e = `?` AND f = ?", "a = migrator_p0 AND b = '?' AND c = \"?\" AND d = [?] AND e = `?` AND f = migrator_p1", (0, 1)),
        (SQLITE, "a = ?2 /* ? */ AND b = :x AND c = @y AND d = $z", "a = migrator_p0 /* ? */ AND b = migrator_p1 AND c = migrator_p2 AND d = migrator_p3", (1, "x", "y", "z")),
        (SQLITE, "a LIKE '%s%%'", "a LIKE '%s%%'", ()),
    ],
)  # fmt: skip
def test_placeholders_get_names_and_what_only_looks_like_one_stays(
    spoken: StatementStyle, text: str, wanted: str, places: tuple[int | str, ...]
) -> None:
    found = numbered(text, spoken)
    assert (found.text, found.places) == (wanted, places)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("DELETE FROM t WHERE a = %s AND b = %(x)s RETURNING id", Fragment((" a = ", " AND b = ", " "), (0, "x"))),
        ("WITH x AS (SELECT 1 WHERE 2 = 2) DELETE FROM t WHERE a = 1", Fragment((" a = 1",))),
        ("UPDATE t SET a = (SELECT 1 WHERE true) WHERE b IN (SELECT 2 ORDER BY 1 LIMIT 3)", Fragment((" b IN (SELECT 2 ORDER BY 1 LIMIT 3)",))),
        ("DELETE FROM t WHERE a = ' WHERE b'; ", Fragment((" a = ' WHERE b'",))),
    ],
)  # fmt: skip
def test_where_is_the_outermost_one(text: str, where: Fragment) -> None:
    assert numbered(text, FORMATS).where(FORMATS) == where


def test_what_is_written_for_a_driver_that_formats_doubles_the_percent_sign() -> None:
    assert [placeholder(style, 1) for style in ("pyformat", "format", "qmark", "numeric_dollar")] == [
        "%s", "%s", "?", "$2",
    ]  # fmt: skip
    assert [escaped("100%", style) for style in ("pyformat", "qmark")] == ["100%%", "100%"]
