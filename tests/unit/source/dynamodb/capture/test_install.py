"""Capture by streams: what an install does, refuses and finds."""

from __future__ import annotations

import pytest

from migrator.mapping.model.live import Step
from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.stages.live.capture import CaptureStage
from tests import pins
from tests.unit.source.dynamodb.capture.world import TABLES, Documents

HOUR_S = 3600.0


def states(documents: Documents) -> list[str]:
    return [table.state for table in documents.capture.states(documents.tables)]


def test_an_install_switches_streams_on_and_begins_with_them() -> None:
    documents = Documents()
    documents.fakes["users"].switch_off()
    assert states(documents) == ["unread", "unread"]
    steps = documents.capture.install_steps(documents.tables, "shop")
    on = (
        "aws dynamodb update-table --table-name users"
        " --stream-specification StreamEnabled=true,StreamViewType=NEW_AND_OLD_IMAGES"
    )
    assert [(step.table, step.statements) for step in steps] == [
        ("", (pins.text("installation"),)),
        ("orders", (pins.text("orders"),)),
        ("users", (on, pins.text("users"))),
    ]
    documents.install()
    assert states(documents) == ["captured", "captured"]
    assert documents.capture.install_steps(documents.tables, "shop") == []
    installation = documents.capture.installation()
    assert installation is not None
    assert (installation.job, installation.marked_by) == ("shop", "triggers")


def test_changes_from_the_install_on_are_followed() -> None:
    documents = Documents()
    documents.write("users", 1, name="Ann")
    documents.fakes["users"].switch_off()
    documents.install()
    documents.write("users", 2, name="Eve")
    documents.drain()
    assert {key[0] for key in documents.live()} == {"USER#2"}


def test_a_stream_of_keys_only_is_refused_by_its_name() -> None:
    documents = Documents()
    documents.fakes["orders"].view = "KEYS_ONLY"
    (refusal,) = documents.capture.refusals(documents.tables)
    assert pins.said(refusal, "needed")
    assert pins.said(refusal, "switch")


def test_a_table_that_is_not_there_is_refused_by_its_name() -> None:
    documents = Documents()
    documents.fakes["orders"].table = "renamed"
    (refusal,) = documents.capture.refusals(documents.tables)
    assert pins.said(refusal, "orders")
    assert pins.said(refusal, "install")


def test_services_leave_no_marks() -> None:
    documents = Documents()
    (refusal,) = documents.capture.refusals(documents.tables, "services")
    assert pins.said(refusal, "install")
    with pins.refused(SettingsError):
        documents.capture.refuse_steps([table.table for table in documents.tables])


@pytest.mark.parametrize("happens", ["switch_off", "create_anew"])
def test_lost_stream_makes_a_new_installation_needing_a_verify(happens: str) -> None:
    documents = Documents()
    documents.install()
    before = documents.tickets.generation()
    getattr(documents.fakes["users"], happens)()
    assert states(documents) == ["captured", "unread"]
    first, second = documents.capture.install_steps(documents.tables, "shop")
    assert (first.table, second.table) == ("", "users")
    documents.capture.do(first)
    assert states(documents) == ["captured", "unread"], "killed here, it is done once more"
    documents.install()
    assert states(documents) == ["captured", "captured"]
    assert documents.tickets.generation()[0] != before[0]


def test_pause_of_25_hours_needs_an_install_and_22_hours_none() -> None:
    documents = Documents()
    documents.install()
    documents.write("users", 1, name="Ann")
    relay, marks = documents.relay()
    documents.work(relay)
    marks.close()
    documents.pass_by(22 * HOUR_S)
    assert states(documents) == ["captured", "captured"]
    documents.pass_by(3 * HOUR_S)
    assert states(documents) == ["unread", "unread"]
    before = documents.tickets.generation()
    documents.install()
    assert states(documents) == ["captured", "captured"]
    assert documents.tickets.generation()[0] != before[0]
    documents.write("users", 1, name="Eve")
    documents.drain()
    assert documents.live() == documents.expected()


def test_checkpoint_that_the_stream_still_has_is_not_a_loss() -> None:
    """The rule of a reader: it goes on where the service knows the record of its checkpoint, however long ago it asked."""
    documents = Documents()
    documents.install()
    documents.write("users", 1, name="Ann")
    documents.write("orders", 1, user_id=1)
    relay, marks = documents.relay()
    documents.work(relay)
    marks.close()
    documents.pass_by(23.5 * HOUR_S)
    assert states(documents) == ["captured", "captured"]
    documents.drain()
    assert documents.live() == documents.expected()


def test_reinstall_begins_again_and_tickets_continue() -> None:
    documents = Documents()
    documents.install()
    documents.write("users", 1, name="Ann")
    ticket = documents.tickets.draw()
    assert documents.marks().look(0, 10) != []
    (step,) = documents.capture.uninstall_steps()
    documents.capture.do(step)
    assert documents.capture.installation() is None
    assert documents.capture.uninstall_steps() == []
    assert documents.kept.look(0, 10) == []
    documents.install()
    assert states(documents) == ["captured", "captured"]
    assert documents.tickets.draw() == ticket + 1
    assert all(fake.is_on for fake in documents.fakes.values()), "others may read them"


def test_capture_stage_installs_compares_and_uninstalls_by_port() -> None:
    documents = Documents()
    plans = [entity.plan for entity in documents.shop.checked.entities]
    stage = CaptureStage(documents.capture, "shop", documents.shop.checked.mapping.table)
    installed = stage.install(plans)
    assert (set(installed.tables), set(installed.changed), installed.new) == (set(TABLES), set(TABLES), True)
    assert stage.status(plans).whole
    assert stage.need_installation(plans).job == "shop"
    documents.write("users", 1, name="Ann")
    with pins.refused(SettingsError, "wait"):
        stage.uninstall(documents.marks(), discard_marks=False)
    documents.drain()
    documents.fakes["orders"].view = "KEYS_ONLY"
    (orders, _) = stage.status(plans).tables
    assert (orders.state, stage.status(plans).whole) == ("unread", False)
    with pins.refused(SettingsError, "orders"):
        stage.need_installation(plans)
    documents.fakes["orders"].view = "NEW_AND_OLD_IMAGES"
    assert stage.uninstall(documents.marks(), discard_marks=False) == [Step("", stage_forgets())]
    with pins.refused(SettingsError, "installed"):
        stage.need_installation(plans)


def stage_forgets() -> tuple[str, ...]:
    return ("remove the record of capture and the pending changes from the journal",)


def test_marks_of_a_lost_stream_are_discarded_if_requested() -> None:
    documents = Documents()
    documents.install()
    documents.write("users", 1, name="Ann")
    documents.pass_by(25 * HOUR_S)
    stage = CaptureStage(documents.capture, "shop", documents.shop.checked.mapping.table)
    assert len(stage.uninstall(documents.marks(), discard_marks=True)) == 1


def test_table_added_to_the_mapping_is_begun_alone() -> None:
    documents = Documents()
    users = [table for table in documents.tables if table.name == "users"]
    for step in documents.capture.install_steps(users, "shop"):
        documents.capture.do(step)
    before = documents.tickets.generation()
    assert states(documents) == ["unread", "captured"]
    (step,) = documents.capture.install_steps(documents.tables, "shop")
    assert step == replace(step, table="orders", statements=("begin with the stream of orders",))
    documents.capture.do(step)
    assert states(documents) == ["captured", "captured"]
    assert documents.tickets.generation() == before
