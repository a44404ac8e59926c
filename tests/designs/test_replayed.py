"""The designs of the articles replayed with parameters drawn from their rows: all that differs really does."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.cli.runs_text import SampleLines
from migrator.runtime.logs import get_logger
from migrator.stages.patterns.replay import Replay, ReplayOptions
from tests.designs.golden import script_of
from tests.designs.moved import moved
from tests.language.conftest import database_on
from tools.pages.golden import NAMES

DIFFERING = {
    # An event that has expired in the table is still there in SQL.
    "iot_events": {
        "latest_events",
        "events_of_last_hour",
        "events_of_type_in_time",
        "events_of_type_on_day",
        "newest_of_type_of_all_shards",
    },
    # Of equal totals SQL gives the first order by number first, the table the newest.
    "orders_by_total": {"largest_orders"},
    # Asked for a node's own depth instead of that below it, the table gives the node and SQL nothing.
    "org_tree": {"children"},
    "org_tree_by_tenant": {"children"},
}
"""Patterns whose two sides agree only on some questions."""


@pytest.mark.parametrize("name", NAMES)
def test_a_design_replays_as_it_is(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, dynamodb_url: str
) -> None:
    url = database_on("sqlite", request, tmp_path)(script_of(name, "sqlite"))
    with moved(name, url, dynamodb_url) as design:
        checked = design.checked
        progress, options = SampleLines(get_logger("migrator")), ReplayOptions(samples=10, seed=1, settle_s=0)
        stage = Replay(
            checked.mapping, checked.entities, design.source, design.store, options, progress=progress
        )
        result = stage.run(list(checked.mapping.patterns.values()))
    assert [one.missing_why for one in result.patterns if one.missing_why] == []
    assert {one.pattern.name for one in result.patterns if one.different} == DIFFERING.get(name, set())
    assert all(one.empty < one.samples for one in result.patterns)
