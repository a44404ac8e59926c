from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from migrator.features.exports.definitions import (
    cdk_python,
    cdk_typescript,
    cloudformation,
    cloudformation_file,
    terraform,
    terraform_file,
)
from migrator.mapping.model.table import Index, KeyAttribute, TableDesign
from migrator.runtime.values import replace
from migrator.settings.definition import definition
from migrator.settings.job import TableOptions, Units

PK = KeyAttribute("PK")
INDEXES = (
    Index("GSI1", (KeyAttribute("GSI1PK"),), (KeyAttribute("GSI1SK"),), ("a", "b")),
    Index("Many", (KeyAttribute("m1"), KeyAttribute("m2")), (KeyAttribute("m3"),)),
    Index("Local", (PK,), (KeyAttribute("total", "number"),), "keys", local=True),
)
DESIGN = TableDesign("T", (PK, KeyAttribute("SK")), "type", ttl="expiresAt", indexes=INDEXES)
OPTIONS = TableOptions(
    deletion_protection=True,
    stream="new_image",
    tags={"team": "shop"},
    contributor_insights=True,
    warm_throughput=Units(read=12000, write=4000),
)
WANTED = definition(DESIGN, OPTIONS)


ATTRIBUTES = [
    {"name": one["AttributeName"], "type": one["AttributeType"]} for one in WANTED["AttributeDefinitions"]
]


def read(part: str, wanted: Any = WANTED) -> Any:
    """The arguments that the lines of a part set."""
    return json.loads("{" + "\n".join(terraform(part, wanted)) + "}")


@pytest.mark.parametrize(
    ("part", "arguments"),
    [
        ("ttl", {"ttl": {"attribute_name": "expiresAt", "enabled": True}}),
        ("pitr", {"point_in_time_recovery": {"enabled": True}}),
        ("billing", {"billing_mode": "PAY_PER_REQUEST"}),
        ("deletion_protection", {"deletion_protection_enabled": True}),
        ("stream", {"stream_enabled": True, "stream_view_type": "NEW_IMAGE"}),
        ("tag team", {"tags": {"team": "shop"}}),
        (
            "warm_throughput",
            {"warm_throughput": {"read_units_per_second": 12000, "write_units_per_second": 4000}},
        ),
        (
            "contributor_insights",
            {
                "aws_dynamodb_contributor_insights": {
                    "t": {"table_name": "T", "depends_on": ["aws_dynamodb_table.t"]}
                }
            },
        ),
        ("index gone", {}),
        ("key", {"hash_key": "PK", "range_key": "SK", "attribute": ATTRIBUTES}),
        (
            "index GSI1",
            {
                "attribute": ATTRIBUTES,
                "global_secondary_index": [
                    {
                        "name": "GSI1",
                        "hash_key": "GSI1PK",
                        "range_key": "GSI1SK",
                        "projection_type": "INCLUDE",
                        "non_key_attributes": ["a", "b"],
                    }
                ],
            },
        ),
        (
            "index Local",
            {
                "attribute": ATTRIBUTES,
                "local_secondary_index": [
                    {"name": "Local", "range_key": "total", "projection_type": "KEYS_ONLY"}
                ],
            },
        ),
    ],
)
def test_the_lines_of_a_part_in_terraform_are_json(part: str, arguments: object) -> None:
    assert read(part) == arguments


def test_a_key_of_several_attributes_has_a_block_for_each() -> None:
    (index,) = read("index Many")["global_secondary_index"]
    assert [one["attribute_name"] for one in index["key_schema"]] == ["m1", "m2", "m3"]


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        ("ttl", {"TimeToLiveSpecification": {"Enabled": True, "AttributeName": "expiresAt"}}),
        ("stream", {"StreamSpecification": {"StreamViewType": "NEW_IMAGE"}}),
        ("tag team", {"Tags": [{"Key": "team", "Value": "shop"}]}),
        ("contributor_insights", {"ContributorInsightsSpecification": {"Enabled": True}}),
        (
            "index GSI1",
            {
                "AttributeDefinitions": WANTED["AttributeDefinitions"],
                "GlobalSecondaryIndexes": [WANTED["GlobalSecondaryIndexes"][0]],
            },
        ),
        ("key", {"KeySchema": WANTED["KeySchema"], "AttributeDefinitions": WANTED["AttributeDefinitions"]}),
    ],
)
def test_the_lines_of_a_part_in_cloudformation_are_yaml(part: str, wanted: object) -> None:
    text = "\n".join(cloudformation(part, WANTED))
    assert yaml.safe_load(text) == wanted


def test_index_of_a_provisioned_table_has_its_capacity() -> None:
    wanted = definition(DESIGN, TableOptions(provisioned=Units(read=7, write=9)))
    (index,) = read("index GSI1", wanted)["global_secondary_index"]
    assert (index["read_capacity"], index["write_capacity"]) == (7, 9)
    (local,) = read("index Local", wanted)["local_secondary_index"]
    assert "read_capacity" not in local


def test_every_option_has_lines_in_both() -> None:
    for part in ("warm_throughput", "contributor_insights", "deletion_protection", "pitr", "billing"):
        assert terraform(part, WANTED), part
        assert cloudformation(part, WANTED), part


def test_template_has_every_property_and_retains_the_table() -> None:
    template = yaml.safe_load(cloudformation_file(WANTED, ["made"]))
    (table,) = template["Resources"].values()
    assert table["Properties"] == {**WANTED, "StreamSpecification": {"StreamViewType": "NEW_IMAGE"}}
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert list(template["Outputs"]) == ["TableName", "TableArn", "StreamArn"]


@pytest.mark.parametrize(
    ("design", "options", "version"),
    [
        (DESIGN, TableOptions(), "6.37.0"),
        (replace(DESIGN, indexes=()), OPTIONS, "6.13.0"),
        (replace(DESIGN, indexes=INDEXES[:1]), TableOptions(), "5.0.0"),
    ],
)
def test_terraform_names_the_oldest_provider_for_the_table(
    design: TableDesign, options: TableOptions, version: str
) -> None:
    written = json.loads(terraform_file(definition(design, options), ["made"]))
    assert written["terraform"]["required_providers"]["aws"]["version"] == f">= {version}"


def test_names_become_those_of_resources_and_classes() -> None:
    wanted = definition(replace(DESIGN, name="2nd.shop-orders"), OPTIONS)
    assert "_2nd_shop_orders" in json.loads(terraform_file(wanted, []))["resource"]["aws_dynamodb_table"]
    assert "  T2ndShopOrdersTable:" in cloudformation_file(wanted, [])
    assert "export class T2ndShopOrdersTable extends CfnInclude {" in cdk_typescript(wanted, [])
    assert "class T2ndShopOrdersTable(CfnInclude):" in cdk_python(wanted, [])
    assert "class ShopTable(" in cdk_python(definition(replace(DESIGN, name="ShopTable"), OPTIONS), [])


def test_no_text_of_a_mapping_is_read_as_code() -> None:
    strange = '"); ${boom} %{if}\n'
    index = Index("GSI1", (KeyAttribute(strange),), (), (strange,))
    wanted = definition(replace(DESIGN, indexes=(index,)), OPTIONS)
    (table,) = json.loads(terraform_file(wanted, []))["resource"]["aws_dynamodb_table"].values()
    assert table["attribute"][-1]["name"] == '"); $${boom} %%{if}\n'
    read_back = yaml.safe_load(cloudformation_file(wanted, []))
    assert strange in [
        name["AttributeName"]
        for name in next(iter(read_back["Resources"].values()))["Properties"]["AttributeDefinitions"]
    ]
    compile(cdk_python(wanted, []), "table.py", "exec")
