"""One night of a job: two killed relays, a full disk of the journal, DynamoDB away, a pause; status is right after each."""

from __future__ import annotations

from pathlib import Path

from tests.journeys.command import STOPPED, Project
from tests.journeys.cutover import cutover_shop, filled
from tests.journeys.test_status import no_room, rename, standings
from tests.support_prometheus import until

LABELS = ["lag", "rate", "left", "failure", "pace", "alive"]


def six_lines(shop: Project) -> dict[str, str]:
    """What status says behind each label; processes after the first one are lines without a label."""
    said = dict.fromkeys(LABELS, "")
    label = ""
    for line in shop.done("status", str(shop.job)).out.splitlines():
        label = line[:9].strip() or label
        if label not in LABELS:
            break
        said[label] += f"{line[9:]}\n"
    return said


def test_status_is_right_after_each_fault_of_a_night(tmp_path: Path, dynamodb_url: str) -> None:
    shop = filled(cutover_shop(tmp_path, dynamodb_url))
    job, usual = str(shop.job), shop.job.read_text()
    rest = six_lines(shop)
    assert rest["lag"].startswith("no change is pending: every captured change")
    assert rest["failure"].startswith("none")

    for _ in range(2):
        relay = shop.start("relay", job)
        until(lambda: "idle" in standings(shop), "the relay is idle")
        relay.kill()
        relay.communicate()
    rename(shop, "Ada")
    killed = six_lines(shop)
    assert killed["lag"].startswith("4 changes of 4 rows wait")
    assert "no relay is running" in killed["lag"]
    assert [line.count("start it again") for line in killed["alive"].splitlines()] == [1, 1]
    assert killed["failure"] == rest["failure"], "a process that is killed keeps no failure"

    with no_room():
        full = six_lines(shop)
    assert full["failure"].startswith("now: ")
    assert "disk" in full["failure"]
    assert "`migrator relay" not in full["lag"], "it would fail now"
    assert full["lag"].startswith("4 changes of 4 rows wait")
    assert six_lines(shop)["failure"] == rest["failure"], "the disk has room again"

    shop.job.write_text(
        usual.replace(shop.endpoint, "http://127.0.0.1:1").replace(
            "tuning: {", "tuning: {give_up_after_s: 0.1, "
        )
    )
    assert shop.run("relay", job, "--once").code == STOPPED
    away = six_lines(shop)
    assert "DynamoDB" in away["failure"]
    assert away["lag"].startswith("4 changes of 4 rows wait")
    assert not away["alive"].count("works")

    shop.job.write_text(usual)
    said = shop.done("pace", job, "--pause", "--reason", "INC-7", "--who", "ops").out
    assert f"`migrator pace {job} --resume" in " ".join(said.split())
    assert "--pause" not in said, "the next command is one that succeeds"
    paused = six_lines(shop)
    assert paused["pace"].startswith("paused by ops")
    assert "INC-7" in paused["pace"]
    assert "DynamoDB" in paused["failure"], "only progress ends a failure"
    assert paused["lag"].startswith("4 changes of 4 rows wait")

    shop.done("pace", job, "--resume")
    with shop.beside("relay", job):
        until(lambda: six_lines(shop)["failure"].startswith("none now"), "progress is reported")
        morning = six_lines(shop)
    assert morning["lag"] == rest["lag"]
    assert "paused" not in morning["pace"]
    assert "start it again" not in morning["alive"], "a living relay replaces the dead ones"
