"""Parameters drawn from rows: real ones, spread, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from migrator.mapping.model.facts import Alike, Kind, SchemaFacts
from migrator.mapping.patterns.requests import Requests
from migrator.runtime.values import replace
from migrator.stages.patterns.param_sampling import (
    PLACES,
    ROWS_A_PLACE,
    ParamSet,
    RowSample,
    SampledParams,
    draw,
)
from tests import pins
from tests.fakes.source import MemorySource
from tests.golden import heart
from tests.golden.patterns import HEAD, SCHEMA, START, checked, row, text

ONE = 'params: {tenant: text, id: integer}\nget: {key: ["EVENT#{tenant}", "E#{id:04}"]}'
RANGE = """
params: {tenant: text, from: integer, to: optional integer, most: integer}
query: {key: ["EVENT#{tenant}", {between: ["E#{from:04}", "E#{to:04|or:'~'}"]}], limit: most}
"""
SOME = 'params: {tenant: text, ids: list of integer}\nbatch_get: {key: ["EVENT#{tenant}", "E#{ids:04}"]}'
NEAR = """
params: {y: number, x: number, r: number}
query: {index: ByCell, key: ["G#{*y,x|geohash:6}"]}
near: {from: [y, x], at: [lat, lng], within_m: r}
"""
HOURS = 'params: {since: timestamp, until: timestamp}\nquery: {index: ByDay, key: ["D#{*since,until|date}"]}'
DAY = 'params: {start: timestamp, end: timestamp}\nquery: {index: ByDay, key: ["D#{start|date}"]}'
OTHERS = """
params: {tenant: text, a: number, b: text, c: boolean, d: date, e: uuid, f: binary, g: timestamp, h: list of text}
query: {key: ["EVENT#{tenant}"]}
"""


class Watched(MemorySource):
    """A source that counts the rows that are read of it."""

    read = 0

    def read_page(self, *words: Any) -> list[tuple[Any, ...]]:
        found = super().read_page(*words)
        self.read += len(found)
        return found


def events(count: int, hours: int = 6) -> Watched:
    rows = [_event(number, hours) for number in range(count)]
    return Watched(SCHEMA, {"events": rows})


def _event(number: int, hours: int) -> dict[str, Any]:
    place = {"lat": 35 + number / 1000, "lng": 139.5}
    made = {**row(0), "id": number, "n": number, "tenant": f"t{number % 3}", **place}
    return {**made, "seen": START + timedelta(hours=hours * number)}


def drawn(
    pattern: str, samples: int = 100, *, rows: int = 60, seed: int = 1, hours: int = 6
) -> SampledParams:
    made = checked(pattern)
    pool = RowSample(events(rows, hours), made.entities, seed)
    return draw(made.mapping, made.mapping.patterns["p"], pool, samples, seed)


def real(found: SampledParams) -> list[ParamSet]:
    return [one for one in found.draws if not one.absent]


def test_all_of_a_key_comes_from_one_row() -> None:
    found = drawn(ONE)
    assert len(found.draws) == 100
    assert all(one.values["tenant"] == f"t{one.values['id'] % 3}" for one in real(found))
    assert found.origins == {"tenant": "events.tenant", "id": "events.id"}


def drawn_of_tenant(rows: int, **changes: Any) -> SampledParams:
    """Parameters of ONE where the column `tenant` has `changes`."""
    made = checked(ONE)
    events_table = SCHEMA.tables["events"]
    columns = tuple(replace(one, **changes) if one.name == "tenant" else one for one in events_table.columns)
    schema = replace(SCHEMA, tables={**SCHEMA.tables, "events": replace(events_table, columns=columns)})
    context = heart.check(text(ONE), schema, HEAD)
    pool = RowSample(events(rows), context.entities, 1)
    return draw(made.mapping, made.mapping.patterns["p"], pool, 200, 1)


def test_no_text_is_made_up_for_a_type_that_refuses_it() -> None:
    strict = Kind("text", strict=True)
    found = drawn_of_tenant(60, kind=strict)
    assert {one.values["tenant"] for one in found.draws} == {"t0", "t1", "t2"}
    assert any(one.absent for one in found.draws)
    assert not drawn_of_tenant(0, kind=strict).draws
    assert drawn_of_tenant(0).draws


def test_texts_equal_in_the_source_are_sometimes_respelled() -> None:
    ways: tuple[Alike, ...] = ("case", "trailing spaces")
    found = drawn_of_tenant(60, alike=ways)
    spelled = {one.values["tenant"] for one in real(found)}
    assert {"t0", "T0", "t0 "} <= spelled
    assert {one.strip().lower() for one in spelled} == {"t0", "t1", "t2"}
    plain = {one.values["tenant"] for one in real(drawn(ONE, 200))}
    assert plain == {"t0", "t1", "t2"}


def test_a_letter_that_becomes_two_is_not_respelled() -> None:
    made = checked(ONE)
    events_table = SCHEMA.tables["events"]
    columns = tuple(replace(one, alike=("case",)) for one in events_table.columns)
    schema = replace(SCHEMA, tables={**SCHEMA.tables, "events": replace(events_table, columns=columns)})
    source = MemorySource(schema, {"events": [{**_event(1, 6), "tenant": "İzmir"}]})
    pool = RowSample(source, heart.check(text(ONE), schema, HEAD).entities, 1)
    found = draw(made.mapping, made.mapping.patterns["p"], pool, 50, 1)
    assert {one.values["tenant"] for one in real(found)} == {"İzmir"}


def test_the_same_seed_draws_the_same() -> None:
    assert drawn(ONE).draws == drawn(ONE).draws
    assert drawn(ONE).draws != drawn(ONE, seed=2).draws


def test_rows_are_spread_over_the_table_which_is_not_read_whole() -> None:
    made = checked(ONE)
    source = events(5000)
    found = draw(made.mapping, made.mapping.patterns["p"], RowSample(source, made.entities, 1), 400, 1)
    ids = {one.values["id"] // 500 for one in real(found)}
    assert ids == set(range(10))
    assert source.read <= 2 * PLACES * ROWS_A_PLACE


def test_some_ask_for_what_is_not_there() -> None:
    absent = [one for one in drawn(ONE, 400).draws if one.absent]
    assert 10 <= len(absent) <= 80
    assert all(one.values["tenant"] not in ("t0", "t1", "t2") or one.values["id"] >= 60 for one in absent)


def test_optional_parameters_are_set_in_half_of_the_samples() -> None:
    kinds = Counter(params.kind for params in drawn(RANGE, 400).draws)
    assert set(kinds) == {(), ("to",)}
    assert all(150 <= count <= 250 for count in kinds.values())


def test_bounds_are_in_their_order_and_a_limit_is_small() -> None:
    found = drawn(RANGE, 200)
    assert all(one.values["to"] is None or one.values["from"] <= one.values["to"] for one in found.draws)
    assert {one.values["most"] for one in found.draws} == set(range(1, 21))
    assert found.origins["most"] == "made up"


def test_a_list_has_one_to_ten_values() -> None:
    found = real(drawn(SOME, 200))
    assert {len(one.values["ids"]) for one in found} >= {1, 5, 10}
    assert max(len(one.values["ids"]) for one in found) == 10
    assert all({f"t{number % 3}" for number in one.values["ids"]} == {one.values["tenant"]} for one in found)


def test_a_distance_is_one_that_the_cells_cover() -> None:
    made = checked(NEAR)
    found = drawn(NEAR)
    assert len(found.draws) == 100
    for one in found.draws:
        assert Requests(made.mapping, made.mapping.patterns["p"]).of(one.values).near is not None


def test_a_range_is_not_longer_than_a_question_may_be() -> None:
    found = drawn(HOURS, rows=4000)  # a thousand days, of which 400 may be asked at once
    assert len(found.draws) == 100
    assert all(one.values["until"] - one.values["since"] <= timedelta(days=400) for one in found.draws)
    assert max(one.values["until"] - one.values["since"] for one in found.draws) > timedelta(days=100)


def test_of_rows_that_lie_too_far_apart_one_gives_both_bounds() -> None:
    found = drawn(HOURS, rows=2000, hours=24 * 500)
    assert len(found.draws) == 100
    assert {one.values["until"] - one.values["since"] for one in found.draws} == {timedelta(0)}


def test_bucket_is_queried_from_its_beginning_to_its_end() -> None:
    found = drawn(DAY)
    for one in found.draws:
        assert one.values["end"] - one.values["start"] == timedelta(days=1)
        assert (one.values["start"] - START).seconds == 0
    assert found.origins == {"start": "events.seen", "end": pins.text()}


def test_parameter_that_no_column_gives_is_invented_and_reported() -> None:
    found = drawn(OTHERS, 20)
    assert len(found.draws) == 20
    assert {name for name, text in found.origins.items() if text == "made up"} == set("abcdefgh")


def test_of_an_empty_table_everything_is_made_up() -> None:
    found = drawn(ONE, 5, rows=0)
    assert len(found.draws) == 5
    assert set(found.origins.values()) == {"made up"}
    assert not any(one.absent for one in found.draws)


@pytest.mark.parametrize("broken", [{"tenant": 5}, {"tenant": None}])
def test_rows_that_do_not_fit_are_passed_over(broken: dict[str, Any]) -> None:
    made = checked(ONE)
    source = events(10)
    source.rows["events"][4].update(broken)
    found = draw(made.mapping, made.mapping.patterns["p"], RowSample(source, made.entities, 1), 50, 1)
    assert len(found.draws) == 50
    assert 4 not in {one.values["id"] for one in found.draws}


def test_one_value_without_a_form_does_not_stop_other_draws() -> None:
    pattern = 'params: {t: text, r: text, k: text, n: integer}\nquery: {index: ByTenant, key: [["{t}", "{r}"], ["{k}", "{n}"]]}'
    made = checked(pattern)
    source = events(30)
    source.rows["events"][4]["n"] = "no number"
    found = draw(made.mapping, made.mapping.patterns["p"], RowSample(source, made.entities, 1), 200, 1)
    assert len(found.draws) == 200
    assert any(one.absent and one.values["n"] > 29 for one in found.draws)


def test_no_fitting_row_is_reported() -> None:
    made = checked(NEAR)
    source = events(3)
    for one in source.rows["events"]:
        one["lat"] = 91  # on no cell
    found = draw(made.mapping, made.mapping.patterns["p"], RowSample(source, made.entities, 1), 5, 1)
    assert found.draws == ()
    assert pins.said(found.why)


TENANTS = """
entities:
  user:
    table: users
    items:
      User: {key: ["TENANT#{@schema}#USER#{id}", PROFILE], keep: [name]}
access_patterns:
  get_user:
    params: {tenant: text, id: integer}
    schema: tenant
    get: {key: ["TENANT#{tenant}#USER#{id}", PROFILE]}
    returns: [name]
    sql: SELECT name FROM users WHERE id = :id
"""


def test_a_question_is_of_the_schema_that_its_row_is_from() -> None:
    users = heart.table("users", {"id": "integer!", "name": "text"})
    tables = {f"{one}.users": replace(users, schema=one, real=f"{one}_users") for one in ("acme", "bolt")}
    facts = SchemaFacts("postgresql", tables, ("acme", "bolt"), loosely_typed=False)
    head = "mapping: 1\nsource: {schemas: [acme, bolt]}\ntable: {name: Tab, key: [PK, SK], type: type}\n"
    made = heart.check(TENANTS, facts, head)
    source = MemorySource(facts, {"acme_users": [{"id": n} for n in range(9)], "bolt_users": [{"id": 77}]})
    pattern = made.mapping.patterns["get_user"]
    found = draw(made.mapping, pattern, RowSample(source, made.entities, 1), 60, 1)
    assert {one.values["tenant"] for one in found.draws} == {"acme", "bolt"}
    assert {one.values["id"] for one in real(found) if one.values["tenant"] == "bolt"} == {77}
