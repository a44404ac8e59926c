"""Writes docs/types.md from the tables that the code uses. Run: .ci/pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from migrator.source.engines.catalogue import TypeRule
from migrator.source.engines.mysql import facts
from migrator.source.engines.postgresql import facts as postgresql_facts
from migrator.source.engines.sqlite import engine as sqlite

PAGE = Path(__file__).with_name("types.md")

HEAD = """\
# Types

What a value of each SQL type becomes in an item. This page is made from the tables that the code uses
(`migrator/source/engines/`) by `.ci/pages`; each row has a golden case on a real server.

DynamoDB's types: N number, S text, B binary, BOOL, L list, M map. Examples of items are written as JSON.

## For every type

- NULL: the attribute is missing. In a list it is DynamoDB's NULL.
- Numbers are exact, never through a float: DynamoDB holds 38 digits from 1E-130 to 9.99E+125.
- A value that its type's form cannot hold (NaN, a 39th digit, a date BC, a zero date) **refuses its own row**, which
  becomes a finding; nothing is rounded, clipped or left out. `|text` keeps such a value, whole:
  `attributes: {total: total|text}`. It must stand directly behind the name (an `|or:` may come first).
- A type that has **no form** is refused by `mapping check`, which says the SQL to write instead, as a column of the
  entity: `columns: {geom_text: {sql: "ST_AsText(geom)", type: text}}`.
- Text is not touched: no trimming, no normalising, no change of case.
- Lists, maps and sets stand in attributes. In a key or a template they take `|json`, which is one text for one value;
  they cannot be a condition, a TTL, or what names a row. `|set` stores an array, or MySQL's SET, as one of DynamoDB's
  sets (SS, NS or BS).
- Times sort as text within one column. `|iso`, `|date`, `|week`, `|month`, `|quarter`, `|year`, `|epoch` and
  `|bucket` take dates and timestamps only. A timestamp without a zone has none in the item either; where `|epoch` or
  a TTL needs one, it is the mapping's `source: {timezone: …}`. Of an hour that a change of clocks repeats the first is meant; one that it
  leaves out is counted with the offset before the change.
- *Names rows* says whether a column of the type may be a row's key (the primary key, or what `key:` names): whether the
  source compares a value that was read, and written down, as equal to the one that it holds. `check` refuses the others.
- Bytes stand in attributes, and in keys of `type: binary`. In a template they take `|hash` (and `|shard`): the first 32
  hexadecimal digits of SHA-256 of the bytes themselves; of any other value, of its text in UTF-8. It never changes.
- In a key, numbers, dates, times, UUIDs, booleans and bits are closed (they cannot hold the separator), all others open.
"""

SECTIONS = (
    (
        "PostgreSQL",
        (*postgresql_facts.KINDS.rules, *postgresql_facts.KINDS.shapes),
        "A partitioned table is read once, at the parent; its partitions are not read separately.",
    ),
    ("MariaDB and MySQL", (*facts.KINDS.rules, *facts.KINDS.shapes), "A partitioned table is read once."),
    (
        "SQLite",
        (*sqlite.KINDS.rules, *sqlite.KINDS.shapes),
        (
            "SQLite lets any column hold any value; the declared name is the intended type, and a value that does not "
            "fit it refuses its row. STRICT tables have the same rules."
        ),
    ),
)


def page() -> str:
    """The text of docs/types.md."""
    return "\n".join(
        [HEAD, *(line for title, rules, note in SECTIONS for line in _section(title, rules, note))]
    )


def _section(title: str, rules: Iterable[TypeRule], note: str) -> Iterator[str]:
    yield from (f"## {title}", "", note, "")
    yield from ("| type | in the item | rule | SQL → item | names rows |", "|---|---|---|---|---|")
    yield from (_row(rule) for rule in rules)
    yield ""


def _row(rule: TypeRule) -> str:
    names = ", ".join(_name(name) for name in rule.names)
    cells = [names, _form(rule), rule.rule, _example(rule), _as_key(rule)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _name(name: str) -> str:
    if not name:
        return "no type at all"
    return name if name.islower() or name.startswith("any other") else f"`{name.lower()}`"


def _form(rule: TypeRule) -> str:
    if rule.form != "none":
        return rule.form
    return f"refused: write `{rule.kind.instead.replace('{column}', 'x')}`"


def _example(rule: TypeRule) -> str:
    literal, item = rule.example
    return f"`{literal}` → `{item}`" if literal else ""


def _as_key(rule: TypeRule) -> str:
    if rule.form == "none":
        return "no: it has no form"
    if rule.no_key:
        return f"no: {rule.no_key}"
    return "as its type" if rule.form.startswith("as its") else "yes"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
