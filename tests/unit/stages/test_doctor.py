from __future__ import annotations

import pytest

from migrator.runtime.errors import MigratorError, SettingsError, TargetError
from migrator.stages.doctor import Checkup, check_on_record


def test_an_error_that_is_not_ours_fails_its_check_alone() -> None:
    def fails() -> None:
        raise TypeError("s3cret")

    found = Checkup()
    assert found.ask("source server", fails, "fine") is None
    assert found.ask("journal", lambda: 1, "fine") == 1
    first, second = found.checks
    assert (first.name, first.state, second.state) == ("source server", "failed", "ok")
    assert "TypeError" in first.what
    assert "s3cret" not in first.what + first.mend


@pytest.mark.parametrize(
    ("error", "state"), [(None, "ok"), (SettingsError("older"), "failed"), (TargetError("denied"), "warning")]
)
def test_check_on_record_leaves_unreachable_table_to_its_checks(
    error: MigratorError | None, state: str
) -> None:
    def look() -> None:
        if error is not None:
            raise error

    checkup = Checkup()
    check_on_record(checkup, look)
    assert [check.state for check in checkup.checks] == [state]
