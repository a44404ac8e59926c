"""Page of column types, from the tables that the code uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from migrator.source.engines.catalogue import TypeRule
from migrator.source.engines.mysql import facts
from migrator.source.engines.postgresql import facts as postgresql_facts
from migrator.source.engines.sqlite import engine as sqlite

HEAD = """\
# Column types

What a value of each SQL type becomes in an item, from the tables that the code uses (`types.toml` of each engine in
`migrator/source/engines/`). Each row has a golden case on a real server. [Types](../types.md) has the rules for all.
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
