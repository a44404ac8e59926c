from __future__ import annotations

from typing import Any

from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.settings.definition import creation_request, later_requests, option_differences, wanted_answers
from migrator.settings.job import TableOptions, Units

GSI1 = Index("GSI1", (KeyAttribute("GSI1PK"),))
DESIGN = TableDesign("T", (KeyAttribute("PK"), KeyAttribute("SK")), "type", ttl="expiresAt", indexes=(GSI1,))


def test_a_table_is_on_demand_with_recovery_and_nothing_else() -> None:
    request = creation_request(DESIGN)
    wanted = {"TableName", "BillingMode", "KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes"}
    assert set(request) == wanted
    assert request["BillingMode"] == "PAY_PER_REQUEST"
    assert [operation for operation, _ in later_requests(DESIGN)] == [
        "update_time_to_live",
        "update_continuous_backups",
    ]
    assert len(later_requests(DESIGN, TableOptions(pitr=False))) == 1


def test_every_option_is_requested_in_dynamodbs_words() -> None:
    options = TableOptions(
        deletion_protection=True,
        stream="new_and_old_images",
        tags={"team": "shop"},
        contributor_insights=True,
        warm_throughput=Units(read=12000, write=4000),
        table_class="standard_infrequent_access",
    )
    request = creation_request(DESIGN, options)
    assert request["DeletionProtectionEnabled"] is True
    assert request["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert request["Tags"] == [{"Key": "team", "Value": "shop"}]
    assert request["TableClass"] == "STANDARD_INFREQUENT_ACCESS"
    assert request["WarmThroughput"] == {"ReadUnitsPerSecond": 12000, "WriteUnitsPerSecond": 4000}
    later = dict(later_requests(DESIGN, options))
    assert later["update_contributor_insights"] == {"TableName": "T", "ContributorInsightsAction": "ENABLE"}


def test_provisioned_capacity_applies_to_table_and_each_index() -> None:
    request = creation_request(DESIGN, TableOptions(provisioned=Units(read=5, write=10)))
    units = {"ReadCapacityUnits": 5, "WriteCapacityUnits": 10}
    assert request["BillingMode"] == "PROVISIONED"
    assert request["ProvisionedThroughput"] == units
    assert request["GlobalSecondaryIndexes"][0]["ProvisionedThroughput"] == units


ALL = TableOptions(
    deletion_protection=True,
    stream="new_image",
    tags={"team": "shop"},
    contributor_insights=True,
    warm_throughput=Units(read=12000, write=4000),
    table_class="standard_infrequent_access",
)
DESCRIBED: dict[str, Any] = {
    "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
    "DeletionProtectionEnabled": True,
    "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"},
    "TableClassSummary": {"TableClass": "STANDARD_INFREQUENT_ACCESS"},
    "WarmThroughput": {"ReadUnitsPerSecond": 12000, "WriteUnitsPerSecond": 5000},
}


def answers(pitr: str, insights: str, team: str) -> dict[str, Any]:
    recovery = {"PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": pitr}}
    return {
        "describe_continuous_backups": {"ContinuousBackupsDescription": recovery},
        "describe_contributor_insights": {"ContributorInsightsStatus": insights},
        "list_tags_of_resource": {"Tags": [{"Key": "team", "Value": team}]},
    }


def test_options_that_a_table_lacks_are_named() -> None:
    right = answers("ENABLED", "ENABLING", "shop")
    assert set(right) == set(wanted_answers(ALL))
    assert not list(option_differences(ALL, DESCRIBED, right))
    assert [name for name, _ in option_differences(ALL, {}, answers("DISABLED", "DISABLING", "other"))] == [
        *("pitr", "billing", "deletion_protection", "stream", "contributor_insights"),
        *("table_class", "warm_throughput", "tag team"),
    ]
