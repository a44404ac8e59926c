"""What tells that a store went back, or was lost, taken away one at a time: the simulation must find every one."""

from __future__ import annotations

from migrator.runtime.errors import SettingsError
from migrator.runtime.values import replace
from migrator.stages.session.adoption import Adoption
from tests.simulation import table as tables
from tests.simulation.actors import Cast, run
from tests.simulation.broken import found_out
from tests.simulation.world import Parts


class Unraised(tables.Table):
    """The table is not told of tickets, so that a source that goes back with its journal is the newest."""

    def raise_control(self, ticket: int) -> int:
        self.schedule.step()
        return 0


def test_a_source_that_takes_its_journal_back_is_found_out() -> None:
    found_out(parts=Parts(table=Unraised))


class RaisedAtTimes(tables.Table):
    """As it was when a relay raised the ticket every ten seconds: what went back a little is not told."""

    def raise_control(self, ticket: int) -> int:
        return super().raise_control(ticket) if self.schedule.chance(0.1) else 0


def test_tickets_reported_only_at_times_are_detected() -> None:
    found_out(parts=Parts(table=RaisedAtTimes))


class EqualIsFine(tables.Table):
    def raise_control(self, ticket: int) -> int:
        ticket_there = super().raise_control(ticket)
        return 0 if ticket_there == ticket else ticket_there


class OneTicketLost(Cast):
    """What goes back lacks the last ticket alone, its counter gives it once more, and no writer checks before it draws."""

    def guard(self) -> None:
        return

    def go_back(self, what: str) -> None:
        super().go_back("source and journal")

    def meanwhile(self) -> None:
        last = self.database.highest() + 1
        while self.database.highest() < last and self.schedule.steps < 2000:
            self.schedule.run(limit=1)
            self.schedule.steps += 1
        for _ in range(60):
            if self.database.highest() == last:
                self.schedule.run(limit=1)


def test_a_ticket_that_is_drawn_twice_is_found_out() -> None:
    found_out(OneTicketLost, Parts(table=EqualIsFine))


def test_ticket_drawn_twice_is_harmless_if_the_table_knows_it() -> None:
    assert [run(seed, OneTicketLost).differences() for seed in range(200)] == [[]] * 200


class Unasked(Cast):
    """No writer compares the stores before it begins. Only a journal is lost."""

    lost = "journal"

    def guard(self) -> None:
        return

    def go_back(self, what: str) -> None:
        super().go_back(self.lost)


class UnaskedTable(Unasked):
    lost = "table"


def test_a_journal_that_is_lost_and_not_missed_is_found_out() -> None:
    found_out(Unasked)


def test_table_restored_without_a_check_is_detected() -> None:
    found_out(UnaskedTable)


class Unremembered(Cast):
    """A journal becomes the table's, and does not look what the former one must have known."""

    def adoption(self) -> Adoption:
        return replace(super().adoption(), remembered=frozenset())


def test_journal_taking_over_without_memory_is_detected() -> None:
    found_out(Unremembered, first=1000)


class Unrepaired(Cast):
    """The advice is followed by half."""

    def repair(self) -> None:
        return


def test_an_advice_without_the_repair_is_found_out() -> None:
    found_out(Unrepaired)


class Refused(Cast):
    """A writer that notices stops, and nothing is mended."""

    def mend(self, error: SettingsError) -> None:  # type: ignore[override]
        raise error


def test_stores_that_go_back_are_noticed() -> None:
    """Else the schedules would show nothing."""
    noticed = set()
    for seed in range(1500):
        try:
            run(seed, Refused)
        except SettingsError as error:
            noticed.add(type(error).__name__)
        if len(noticed) == 3:
            return
    raise AssertionError(f"only these were: {noticed}")
