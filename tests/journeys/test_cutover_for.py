"""`migrator cutover ramp --for`: a ramp that is for somebody, as operators give it, look at it and take it away."""

from __future__ import annotations

import pytest

from tests import pins
from tests.journeys.command import Project
from tests.journeys.cutover import OTHER, force, phase


def aimed(shop: Project) -> list[str]:
    (view,) = shop.done("cutover", "status", str(shop.job), OTHER, "--json").data["patterns"]
    found: list[str] = view["for"]
    return found


def test_ramp_for_callers_advances_on_evidence_and_back_without(bare: Project) -> None:
    job = str(bare.job)
    force(bare, "advance", job, OTHER)
    ramp = ["cutover", "ramp", job, OTHER]
    assert bare.run(*ramp, "0", "--for", "customer_id=42").code == 1
    against = ["--override", "of a test"]
    moved = bare.done(*ramp, "0", "--for", "customer_id=42", *against)
    assert f"{OTHER}: shadow -> ramp 0 % for customer_id=42 (version 2)" in moved.out
    assert aimed(bare) == ["customer_id=42"]
    assert "ramp 0 % for customer_id=42" in " ".join(bare.done("cutover", "status", job, OTHER).out.split())
    # One more needs evidence again; the share alone changes nothing of whom it is for.
    assert bare.run(*ramp, "0", "--for", "customer_id=7").code == 1
    bare.done(*ramp, "0", "--for", "customer_id=7", *against)
    bare.done(*ramp, "5", *against)
    assert aimed(bare) == ["customer_id=42", "customer_id=7"]
    bare.done(*ramp, "5", "--not-for", "customer_id=42")
    assert aimed(bare) == ["customer_id=7"]
    bare.done("cutover", "rollback", job, OTHER)
    assert (phase(bare, OTHER), aimed(bare)) == ("shadow", [])
    history = bare.done("cutover", "status", "--history", job, OTHER, "--json").data
    assert [line["to"] for line in history] == [
        "shadow",
        "ramp 0 % for customer_id=42",
        "ramp 0 % for customer_id=42, customer_id=7",
        "ramp 5 % for customer_id=42, customer_id=7",
        "ramp 5 % for customer_id=7",
        "shadow",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["0"],
        ["0", "--for", "customer=42"],
        ["0", "--for", "customer_id=Ada"],
        ["0", "--for", "customer_id"],
        ["5", "--not-for", "customer_id=42"],
        ["-1", "--for", "customer_id=42"],
        ["5", *(word for n in range(101) for word in ("--for", f"customer_id={n}"))],
    ],
    ids=[
        "ramp-percent",
        "mean-customer",
        "customer-integer",
        "parameter-user",
        "customer-shadow",
        "percent",
        "case",
    ],
)
def test_what_is_no_audience_is_refused(bare: Project, words: list[str]) -> None:
    force(bare, "advance", str(bare.job), OTHER)
    ended = bare.run("cutover", "ramp", *words[1:], "--", str(bare.job), OTHER, words[0])
    assert ended.code == 2
    assert pins.said(" ".join(ended.err.split()))
    assert phase(bare, OTHER) == "shadow"
