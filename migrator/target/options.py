"""How a table's options differ from those that the job asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from migrator.table_options import TableOptions

_ON = ("ENABLED", "ENABLING")


def option_differences(
    asked: TableOptions, found: dict[str, Any], told: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """(option, sentence). `found`: DescribeTable's answer; `told`: those of the operations that `wanted_answers` names."""
    for name, wanted, there in _pairs(asked, found, told):
        if wanted != there:
            yield name, f"{name} is {wanted} in the job and {there} in the table"


def wanted_answers(asked: TableOptions) -> list[str]:
    """Operations whose answers are needed to compare; each needs a permission, so no more than needed."""
    wanted = {
        "describe_continuous_backups": True,
        "describe_contributor_insights": asked.contributor_insights,
    }
    wanted["list_tags_of_resource"] = bool(asked.tags)
    return [operation for operation, needed in wanted.items() if needed]


def _pairs(
    asked: TableOptions, found: dict[str, Any], told: dict[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """(option, as asked for, as it is); what the job does not name is left as it is."""
    backups = told.get("describe_continuous_backups", {}).get("ContinuousBackupsDescription", {})
    pitr = backups.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
    yield "pitr", _switch(asked.pitr), _switch(pitr in _ON)
    yield "billing", *_billing(asked, found)
    if asked.deletion_protection:
        yield "deletion_protection", "on", _switch(bool(found.get("DeletionProtectionEnabled")))
    if asked.stream:
        yield "stream", asked.stream, _stream(found)
    if asked.contributor_insights:
        insights = told.get("describe_contributor_insights", {}).get("ContributorInsightsStatus")
        yield "contributor_insights", "on", _switch(insights in _ON)
    if asked.table_class:
        there = (found.get("TableClassSummary") or {}).get("TableClass", "STANDARD")
        yield "table_class", asked.table_class, str(there).lower()
    if asked.warm_throughput:
        yield "warm_throughput", *_warm(asked.warm_throughput, found.get("WarmThroughput") or {})
    tags = {one["Key"]: one["Value"] for one in told.get("list_tags_of_resource", {}).get("Tags", [])}
    for name, value in asked.tags.items():
        yield f"tag {name}", value, tags.get(name, "not set")


def _billing(asked: TableOptions, found: dict[str, Any]) -> tuple[str, str]:
    there = (found.get("BillingModeSummary") or {}).get("BillingMode", "PROVISIONED")
    wanted = "PROVISIONED" if asked.provisioned else "PAY_PER_REQUEST"
    return wanted.lower(), str(there).lower()


def _stream(found: dict[str, Any]) -> str:
    stream = found.get("StreamSpecification") or {}
    return str(stream.get("StreamViewType", "off")).lower() if stream.get("StreamEnabled") else "off"


def _warm(wanted: tuple[int, int], found: dict[str, Any]) -> tuple[str, str]:
    """As asked for, where the table is as warm or warmer: AWS only ever raises it."""
    there = (int(found.get("ReadUnitsPerSecond", 0)), int(found.get("WriteUnitsPerSecond", 0)))
    shown = there if there[0] < wanted[0] or there[1] < wanted[1] else wanted
    return f"{wanted[0]}/{wanted[1]}", f"{shown[0]}/{shown[1]}"


def _switch(on: bool) -> str:
    return "on" if on else "off"
