"""Which item types are written together, and what a pattern that says `atomic: true` is warned of."""

from __future__ import annotations

import pytest

from migrator.mapping.check.keys import written_together
from migrator.mapping.check.values import is_closed
from migrator.mapping.model.facts import Alike, Column, Kind, TableFacts
from migrator.mapping.model.mapping import Filter, Ref
from migrator.runtime.errors import MappingError
from tests import pins
from tests.golden.heart import check, facts, table

SCHEMA = facts(
    table("users", {"id": "integer!", "name": "text"}),
    table("orders", {"id": "integer!", "user_id": "integer!", "total": "integer"}),
)
HEAD = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: t, indexes: {GSI1: {key: [GSI1PK, GSI1SK]}}}
"""
TEXT = """
entities:
  user:
    table: users
    items:
      User: {key: ["USER#{id}", PROFILE], keep: [name]}
      Badge: {key: ["USER#{id}", BADGE], keep: [name], GSI1: [BADGES, "{id:06}"]}
      Alias: {key: ["ALIAS#{id}", ALIAS], keep: [name]}
  order:
    table: orders
    items:
      Order: {key: ["USER#{user_id}", "ORDER#{id:06}"], keep: [total]}
access_patterns:
"""
USER = 'params: {id: integer}, query: {key: ["USER#{id}"]}'
BADGES = "query: {index: GSI1, key: [BADGES]}, returns: [name], sql: SELECT 1"
PARTS = {
    "user": "user: {type: User, attributes: [name]}",
    "badge": "badge: {type: Badge, attributes: [name]}",
    "order": "order: {type: Order, attributes: [total]}",
}


def pattern(*parts: str, key: str = USER, atomic: str = "true") -> str:
    sql = ", ".join(f"{part}: SELECT 1" for part in parts)
    returns = ", ".join(PARTS[part] for part in parts)
    return f"{{{key}, returns: {{{returns}}}, sql: {{{sql}}}, order: any, atomic: {atomic}}}"


def together(*patterns: str) -> dict[str, set[str]]:
    text = TEXT + "".join(f"  p{number}: {one}\n" for number, one in enumerate(patterns))
    return {name: set(types) for name, types in written_together(check(text, SCHEMA, HEAD).mapping).items()}


def warnings(*patterns: str, text: str = TEXT) -> list[str]:
    text += "".join(f"  p{number}: {one}\n" for number, one in enumerate(patterns))
    return [str(one) for one in check(text, SCHEMA, HEAD).warnings if ".atomic" in one.where]


def test_only_patterns_that_say_so_are_atomic() -> None:
    assert together(pattern("user", "badge", atomic="false")) == {}


def test_types_that_the_answer_names_are_written_together() -> None:
    assert together(pattern("user", "badge")) == {"user": {"User", "Badge"}}


def test_without_named_types_all_that_the_key_can_give_are() -> None:
    plain = f"{{{USER}, returns: [name], sql: SELECT 1, atomic: true}}"
    assert together(plain) == {"user": {"User", "Badge"}, "order": {"Order"}}


def test_two_patterns_that_read_one_entity_make_one_group() -> None:
    alias = 'params: {id: integer}, get: {key: ["ALIAS#{id}", ALIAS]}, returns: [name], sql: SELECT 1'
    assert together(pattern("user"), f"{{{alias}, atomic: true}}") == {"user": {"User", "Alias"}}


def test_pattern_over_several_entities_warns_of_its_limits() -> None:
    (warning,) = warnings(pattern("user", "order"))
    assert pins.said(warning)
    assert warning.startswith("m.yaml:17: warning: ")


def test_pattern_of_one_item_per_row_warns_of_little_gain() -> None:
    (warning,) = warnings(pattern("order"))
    assert pins.said(warning)


def test_global_index_warning_names_its_delay() -> None:
    found = warnings(f"{{{BADGES}, atomic: true}}")
    assert pins.said(found)


def test_a_pattern_that_can_be_had_is_not_warned_of() -> None:
    assert warnings(pattern("user", "badge")) == []


@pytest.mark.parametrize(("count", "is_told"), [(50, False), (51, True), (100, True), (101, True)])
def test_more_items_than_a_transaction_accepts_are_reported(count: int, *, is_told: bool) -> None:
    items = "".join(
        f'      N{n}: {{key: ["MANY#{{id}}", "N#{n:03}"], keep: [total]}}\n' for n in range(count)
    )
    text = TEXT.replace(
        "access_patterns:", f"  many:\n    table: orders\n    items:\n{items}access_patterns:"
    )
    many = 'params: {id: integer}, query: {key: ["MANY#{id}"]}, returns: [total], sql: SELECT 1'
    found = warnings(f"{{{many}, atomic: true}}", text=text)
    assert len(found) == is_told
    assert not is_told or pins.said(found)


USERS = table(
    "users",
    {
        "id": "integer!",
        "a": "text!",
        "b": "text!",
        "email": "text",
        "at": "timestamp!",
        "token": "uuid!",
        "day": "date!",
        "n": "integer!",
    },
    unique=[("a", "b"), ("email",), ("day", "n"), ("at", "n")],
)
USERS_SCHEMA = facts(USERS, table("other", {"id": "integer!", "n": "integer!"}))
ONE = "entities: {{users: {{items: {{U: {{key: [{pk}, {sk}]}}}}}}}}"

CASES: list[tuple[str, str, bool]] = [
    ('"U#{id}"', "META", True),
    ('"U#{id:06}"', "META", True),
    ('"U#{id|escape}"', "META", True),
    ("U", '"{id:06}"', True),
    ('"U#{at|date}"', '"{at|iso}#{id:06}"', True),
    ('"U#{a}"', '"{b}"', True),  # each attribute is read back by itself
    ('"U#{a}#{b|escape}"', "META", True),
    ('"U#{id}{token}"', "META", True),  # a UUID has one width
    ('"U#{id}{at}"', "META", False),  # nothing between them
    ('"U#{a}"', "META", False),  # a alone is not unique
    ('"U#{email}"', "META", True),  # rows with NULL have no item
    ('"U#{email|or:none}"', "META", False),  # rows with NULL have the same key
    ('"U#{email|lower}"', "META", False),
    ('"U#{id|hash}"', "META", False),
    ('"U#{a|lower}"', '"{b}"', False),
    ('"U#{at|iso:s}"', "META", False),
    ('"U#{day|date}"', '"{n:06}"', True),  # all of a date
    ('"U#{day|bucket:day}"', '"{n:06}"', True),
    ('"U#{day|month}"', '"{n:06}"', False),
    ('"U#{at|date}"', '"{n:06}"', False),
]


@pytest.mark.parametrize(("pk", "sk", "proved"), CASES)
def test_a_key_is_proved_or_claimed(pk: str, sk: str, proved: bool) -> None:
    unproved = check(ONE.format(pk=pk, sk=sk), USERS_SCHEMA).unproved
    assert (unproved["users"] == frozenset()) is proved


@pytest.mark.parametrize(
    ("first", "second", "apart"),
    [
        ('["A#{id}", M]', '["B#{id}", M]', True),
        ('["A#{id}", M]', '["A#{id}", N]', True),
        ('["A#{id}", M]', '["A#{id}", "N#{n}"]', True),
        ('["A#{id}", M]', '["A#{id}", "M#{n}"]', True),
        ('["A#{id}", "M#{id}"]', '["A#{id}", "M#{n}"]', False),
        ('["A#{id}", M]', '["A#{id}", M]', False),
        ('["{id}", M]', '["A#{id}", M]', True),  # no separator, and one
        ('["A#{id}", "M#{id}"]', '["A#{id}#{n}", "M#{id}"]', True),
        ('["{a}", M]', '["A#{id}", M]', False),  # a text may hold a separator
        ('["A#{a}", "M#{id}"]', '["A#{id}#{n}", "M#{id}"]', False),
        ('["A#{a|escape}", "M#{id}"]', '["A#{id}#{n}", "M#{id}"]', True),
    ],
)
def test_items_differ_by_constant_prefixes_and_separators(first: str, second: str, apart: bool) -> None:
    text = f"entities: {{users: {{items: {{U: {{key: {first.replace('n', 'id')}}}}}}}, other: {{items: {{O: {{key: {second}}}}}}}}}"
    unproved = check(text, USERS_SCHEMA).unproved
    assert (not unproved["users"]) is apart
    assert (not unproved["other"]) is apart


def test_date_is_open_if_its_own_signs_are_the_separator() -> None:
    text = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, separator: "%s"}
entities: {users: {items: {U: {key: ["U", "{a}%s{at|date}%s{id}"]}}}}
"""
    assert check(text.replace("%s", "#"), USERS_SCHEMA, "").unproved == {"users": frozenset()}
    with pins.refused(MappingError):
        check(text.replace("%s", "-"), USERS_SCHEMA, "")


KINDS = table(
    "kinds",
    {
        "id": "integer!",
        "n": "number(2)",
        "at": "timestamp",
        "token": "uuid",
        "bits": "bits",
        "many": "list",
        "x": "plain",
    },
)


@pytest.mark.parametrize(
    ("path", "separator", "closed"),
    [
        ("id", "#", True),
        ("n", "-", False),
        ("n", "T", True),
        ("at", "T", False),
        ("token", "a", False),
        ("token", "#a", True),
        ("bits", "#", True),
        ("bits", "1", False),
        ("many", "#", False),
        ("x", "#", False),
        ("n|text", "#", True),
        ("n|text", "N", False),  # NaN
        ("at|text", "B", False),  # 0044-03-15 BC
        ("at|text", "/", False),
    ],
)
def test_kind_is_closed_if_its_text_cannot_contain_the_separator(
    path: str, separator: str, closed: bool
) -> None:
    text = "entities: {kinds: {items: {K: {key: ['K#{id}', M], keep: all}}}}"
    plan = check(text, facts(KINDS)).entities[0].plan
    name, *filters = path.split("|")
    ref = Ref((name,), None, tuple(Filter(one, ()) for one in filters))
    assert is_closed(ref, plan, separator) is closed


@pytest.mark.parametrize(
    ("separator", "key"), [("-", "{a}-{n|epoch}"), ("%", "{a|escape}%{b|escape}"), ("0", "{a}0{id|shard:4}")]
)
def test_filter_result_is_open_if_it_can_contain_the_separator(separator: str, key: str) -> None:
    text = f"""
mapping: 1
table: {{name: Shop, key: [PK, SK], type: type, separator: "{separator}"}}
entities: {{users: {{items: {{U: {{key: ["U", "{key.replace("{n|", "{at|")}"]}}}}}}}}
"""
    with pins.refused(MappingError):
        check(text, USERS_SCHEMA, "")


@pytest.mark.parametrize(
    ("kind", "proved"), [("uuid!", False), ("timestamp!", False), ("date!", False), ("integer!", True)]
)
def test_value_that_sqlite_spells_in_two_ways_proves_no_key(kind: str, proved: bool) -> None:
    text = "entities: {t: {items: {T: {key: ['T#{id}', M]}}}}"
    made = table("t", {"id": kind})
    assert check(text, facts(made)).unproved == {"t": frozenset()}
    on_sqlite = check(text, facts(made, dialect="sqlite")).unproved["t"]
    assert on_sqlite == (frozenset() if proved else frozenset({"T"}))


_SPACES: Alike = "trailing spaces"


@pytest.mark.parametrize(
    ("key", "length", "alike", "proved"),
    [
        ("{id|rtrim}", 1, (_SPACES,), True),
        ("{id|rtrim|escape}", 2, (_SPACES,), True),
        ("{id|rtrim}", None, (_SPACES,), True),
        ("{id|lower|rtrim}", 1, (_SPACES,), False),
        ("{id|trim}", 2, (_SPACES,), False),  # ' a' and 'a '
        ("{id|rtrim}", 1, (), False),  # '' and ' ' of VARCHAR(1)
    ],
)
def test_trim_of_padding_proves_its_key(
    key: str, length: int | None, alike: tuple[Alike, ...], proved: bool
) -> None:
    column = Column("id", "id", Kind("text", length=length), nullable=False, alike=alike)
    made = TableFacts("t", "t", (column,), ("id",))
    text = f"entities: {{t: {{items: {{T: {{key: ['T#{key}', M]}}}}}}}}"
    assert (check(text, facts(made)).unproved["t"] == frozenset()) is proved
    assert check(text, facts(made, dialect="sqlite")).unproved["t"]


@pytest.mark.parametrize(
    ("sql", "warned"),
    [
        ("name LIKE :n || '%'", False),
        ("name LIKE :n::text || '%'", False),
        ("name LIKE CONCAT(:n, '%%')", False),
        ("name LIKE :n", True),
        ("name = :n AND id = :m || '%'", True),
    ],
)
def test_prefix_that_sql_also_takes_is_not_reported(sql: str, warned: bool) -> None:
    text = f"""
entities: {{users: {{items: {{User: {{key: [USER, "NAME#{{name}}#{{id}}"], keep: [id]}}}}}}}}
access_patterns:
  p:
    params: {{n: text, m: text}}
    query: {{key: [USER, {{begins_with: "NAME#{{n}}"}}]}}
    returns: [id]
    order: any
    sql: "SELECT id FROM users WHERE {sql}"
"""
    found = [str(one) for one in check(text, SCHEMA, HEAD).warnings if "longer names" in one.what]
    assert bool(found) is warned
