from __future__ import annotations

from migrator.stages.doctor import Checkup


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
