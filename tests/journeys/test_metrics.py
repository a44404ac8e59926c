"""Metrics of a backfill, a relay and a service of one run; the dashboard and the alert rules are asked of them."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from migrator.api import Migration
from migrator.mapping.model.evidence import Move, PatternPhase, State
from tests.journeys.command import ROOT, Project
from tests.journeys.cutover import PATTERN, cutover_shop, desk_of
from tests.support_prometheus import fetched, free_port, program, prometheus, until
from tests.support_worlds import prepared

# One worker makes the run once.
pytestmark = pytest.mark.xdist_group("metrics")

ALERTS = ROOT / "docs" / "operations" / "alerts.yml"
DASHBOARD = ROOT / "docs" / "operations" / "dashboard.json"
SAMPLE = tuple[str, frozenset[str]]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Project:
    made = cutover_shop(tmp_path_factory.mktemp("metrics"), dynamodb_url)
    job = made.job.read_text()
    job = job.replace("tuning: {", "tuning: {page_rows: 5, max_source_load: 5, source_load_query: SELECT 2, ")
    made.job.write_text(job)
    return prepared(made, "table create", "capture install")


@pytest.fixture(scope="module")
def texts(shop: Project) -> dict[str, str]:
    """What each process serves, at its work's end."""
    return {"backfill": backfill(shop), "relay": relay(shop), "service": service(shop)}


def metrics_of(port: int) -> str:
    code, text = fetched(f"http://127.0.0.1:{port}/metrics")
    assert code == 200
    return text


def value(text: str, name: str, **labels: str) -> float:
    """The sum of the samples of this name that have these labels."""
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    return sum(one.value for one in samples if one.name == name and labels.items() <= one.labels.items())


def backfill(shop: Project) -> str:
    """Paused before its first page, then slowed down after it, and let go."""
    job, port = str(shop.job), free_port()
    shop.done("pace", job, "--pause", "--reason", "tried")
    with shop.beside(
        "backfill", job, "--metrics-port", str(port), "--workers", "1", "--max-write-units", "10"
    ):
        until(lambda: answers(port), "the backfill serves its metrics")
        assert value(metrics_of(port), "migrator_held") == 1
        assert value(metrics_of(port), "migrator_backfill_rows_total") == 0
        assert fetched(f"http://127.0.0.1:{port}/readyz")[0] == 200
        shop.done("pace", job, "--resume")
        until(
            lambda: value(metrics_of(port), "migrator_backfill_rows_total", entity="invoice"), "rows of both"
        )
        text = metrics_of(port)
        shop.done("pace", job, "--max-write-units", "1000000")
    shop.done("pace", job, "--off")
    shop.done_at_last("backfill", job)
    return text


def answers(port: int) -> bool:
    try:
        return fetched(f"http://127.0.0.1:{port}/healthz")[0] == 200
    except OSError:
        return False


def relay(shop: Project) -> str:
    port = free_port()
    with shop.beside("relay", str(shop.job), "--metrics-port", str(port)):
        until(lambda: answers(port), "the relay serves its metrics")
        with closing(sqlite3.connect(shop.folder / "shop.db")) as source:
            source.execute("UPDATE customer SET name = 'Ada' WHERE id < 5")
            source.commit()
        until(lambda: value(metrics_of(port), "migrator_relay_finished_total") >= 4, "four marks are worked")
        return metrics_of(port)


def service(shop: Project) -> str:
    with desk_of(shop) as desk:
        known = desk.phases.all().get(PATTERN, PatternPhase(PATTERN))
        desk.phases.move(Move(PATTERN, known.state, State("shadow"), "a test"), known.version)
        registry, url = CollectorRegistry(), desk.journal.database.url
    job = shop.job.with_name("service.yaml")
    text = shop.job.read_text().replace("${MIGRATOR_SOURCE_URL}", f"sqlite:///{shop.folder}/shop.db")
    job.write_text(f"{text}\nname: shop\njournal: '{url.render_as_string(hide_password=False)}'\n")
    with Migration.load(job, service="shop-api") as migration:
        registry.register(migration.metrics)
        for number in range(1, 6):
            migration.read(PATTERN, id=number)

        def compared() -> float:
            return value(generate_latest(registry).decode(), "migrator_comparisons_total", verdict="same")

        # A shadow that has no room is dropped, so more is asked until some are compared.
        until(lambda: migration.read(PATTERN, id=1) and compared(), "answers are compared")
        return generate_latest(registry).decode()


def test_a_backfill_counts_by_entity(texts: Mapping[str, str]) -> None:
    text = texts["backfill"]
    assert value(text, "migrator_backfill_rows_expected", entity="customer") == 30
    assert value(text, "migrator_backfill_items_total", entity="customer") == 30
    assert value(text, "migrator_consumed_units_total", operation="write") >= 30
    assert value(text, "migrator_write_units_limit") == 10
    assert value(text, "migrator_held_seconds_total") > 0
    assert value(text, "migrator_source_strain", of="load") == 2
    assert value(text, "migrator_journal_seconds_count") > 0


def test_a_relay_counts_from_the_change_to_its_items(texts: Mapping[str, str]) -> None:
    text = texts["relay"]
    assert value(text, "migrator_change_to_item_seconds_count", table="customer", entity="customer") == 4
    assert value(text, "migrator_change_to_item_seconds_sum", table="customer") > 0
    assert value(text, "migrator_process_info", job="shop", process="relay") == 1


def test_a_service_counts_by_pattern_and_side(texts: Mapping[str, str]) -> None:
    text = texts["service"]
    assert value(text, "migrator_read_seconds_count", pattern=PATTERN, side="sql") >= 5
    assert value(text, "migrator_pattern_phase", pattern=PATTERN, phase="shadow") == 1
    assert value(text, "migrator_pattern_phase", pattern=PATTERN) == 1
    assert value(text, "migrator_consumed_units_total", operation="read", process="shop-api") > 0


def test_every_sample_has_its_job_and_its_process(texts: Mapping[str, str]) -> None:
    for text in texts.values():
        samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
        assert samples
        assert {one.labels["job"] for one in samples} == {"shop"}
        assert len({one.labels["process"] for one in samples}) == 1


# ── the dashboard and the rules ──


def rules() -> Iterator[Mapping[str, Any]]:
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        yield from group["rules"]


def shown() -> Iterator[str]:
    """The queries of the dashboard, for one job."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$job", "shop")


def exposed(texts: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """By metric the labels that its samples have; of one that has none yet, its family's."""
    found: dict[str, set[str]] = {}
    for text in texts.values():
        for family in text_string_to_metric_families(text):
            names = {family.name, f"{family.name}_total"} if family.type == "counter" else {family.name}
            if family.type == "histogram":
                names = {f"{family.name}_{end}" for end in ("bucket", "count", "sum")}
            for name in names:
                found.setdefault(name, {"job", "process"}).update(
                    label for one in family.samples if one.name == name for label in one.labels
                )
    return {name: frozenset(labels) for name, labels in found.items()}


def test_dashboard_and_rules_ask_for_metrics_that_are_there(texts: Mapping[str, str]) -> None:
    there = exposed(texts)
    queries = [*shown(), *(rule["expr"] for rule in rules())]
    assert len(list(rules())) == 9
    for query in queries:
        for name, selector in re.findall(r"\b(migrator_\w+)(?:\{([^}]*)\})?", query):
            assert name in there, query
            asked = set(re.findall(r"(\w+)\s*[=!]", selector))
            is_empty = there[name] == {"job", "process"}
            assert asked <= there[name] or is_empty, (query, there[name])


@pytest.mark.nightly
def test_promtool_takes_the_rules() -> None:
    checked = subprocess.run(
        [program("promtool"), "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "9 rules found" in checked.stdout


EMPTY = ("refused", "dropped", "errors", "open_findings", "ramp_percent", "failures", "throttled")
"""What this run has none of, so that a query of it may have no answer."""


@pytest.mark.nightly
def test_prometheus_answers_every_query_of_this_run(texts: Mapping[str, str], tmp_path: Path) -> None:
    with prometheus(tmp_path, list(texts.values()), ALERTS) as server:
        for query in shown():
            found = server.asked("query", query=query)["result"]
            assert found or any(word in query for word in EMPTY), query
        for rule in rules():
            server.asked("query", query=rule["expr"])

        def health() -> list[str]:
            groups = server.asked("rules")["groups"]
            return [rule["health"] for group in groups for rule in group["rules"]]

        until(lambda: health() == ["ok"] * 9, "each rule was evaluated without an error")


def test_the_page_of_metrics_names_every_metric(texts: Mapping[str, str]) -> None:
    page = (ROOT / "docs" / "operations" / "metrics.md").read_text()
    named = set(re.findall(r"`(migrator_\w+)`", page))
    named |= {f"migrator_{of}_{end}" for of, end in _shortened(page)}
    families = {
        family.name: family.type for text in texts.values() for family in text_string_to_metric_families(text)
    }
    assert {f"{name}_total" if kind == "counter" else name for name, kind in families.items()} == named


def _shortened(page: str) -> Iterator[tuple[str, str]]:
    """Of names that a row begins with `…`, with what stands before them in it."""
    for line in page.splitlines():
        if line.startswith("| `migrator_") and "`…_" in line:
            first = re.search(r"`migrator_([a-z]+)_", line)
            assert first is not None
            yield from ((first[1], end) for end in re.findall(r"`…_(\w+)`", line))
