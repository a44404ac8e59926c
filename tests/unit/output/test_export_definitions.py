from __future__ import annotations

from dataclasses import replace

import pytest
from ruamel.yaml import YAML

from migrator.model.table import Index, KeyAttribute, TableDesign
from migrator.output.export.cdk import cdk_python, cdk_typescript
from migrator.output.export.cloudformation import cloudformation, cloudformation_file
from migrator.output.export.terraform import terraform, terraform_file
from migrator.settings.source import TableOptions, Units
from migrator.target.admin.create import definition
from tests import pins

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


@pytest.mark.parametrize(
    ("part", "lines"),
    [
        ("ttl", ["ttl {", '  attribute_name = "expiresAt"', "  enabled        = true", "}"]),
        ("pitr", ["point_in_time_recovery {", "  enabled = true", "}"]),
        ("billing", ['billing_mode = "PAY_PER_REQUEST"']),
        ("deletion_protection", ["deletion_protection_enabled = true"]),
        ("stream", ["stream_enabled   = true", 'stream_view_type = "NEW_IMAGE"']),
        ("tag team", ["tags = {", '  "team" = "shop"', "}"]),
        ("index gone", []),
        (
            "index GSI1",
            [
                "attribute {",
                '  name = "GSI1PK"',
                '  type = "S"',
                "}",
                "attribute {",
                '  name = "GSI1SK"',
                '  type = "S"',
                "}",
                "global_secondary_index {",
                '  name               = "GSI1"',
                '  hash_key           = "GSI1PK"',
                '  range_key          = "GSI1SK"',
                '  projection_type    = "INCLUDE"',
                '  non_key_attributes = ["a", "b"]',
                "}",
            ],
        ),
        (
            "index Local",
            [
                "attribute {",
                '  name = "total"',
                '  type = "N"',
                "}",
                "local_secondary_index {",
                '  name            = "Local"',
                '  range_key       = "total"',
                '  projection_type = "KEYS_ONLY"',
                "}",
            ],
        ),
    ],
)
def test_the_lines_of_a_part_in_terraform(part: str, lines: list[str]) -> None:
    assert terraform(part, WANTED) == lines


def test_a_key_of_several_attributes_has_a_block_for_each() -> None:
    lines = terraform("index Many", WANTED)
    assert lines.count("  key_schema {") == 3
    assert terraform("key", WANTED)[:2] == ['hash_key  = "PK"', 'range_key = "SK"']


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
    assert YAML(typ="safe").load(text) == wanted


def test_an_index_of_a_provisioned_table_says_its_capacity() -> None:
    lines = terraform("index GSI1", definition(DESIGN, TableOptions(provisioned=Units(read=7, write=9))))
    assert {"  read_capacity      = 7", "  write_capacity     = 9"} <= set(lines)
    assert lines[-1] == "}"
    local = terraform("index Local", definition(DESIGN, TableOptions(provisioned=Units(read=7, write=9))))
    assert not any("capacity" in line for line in local)


def test_every_option_has_lines_in_both() -> None:
    for part in ("warm_throughput", "contributor_insights", "deletion_protection", "pitr", "billing"):
        assert terraform(part, WANTED), part
        assert cloudformation(part, WANTED), part


def test_a_whole_template_has_every_property_and_outlives_its_stack() -> None:
    template = YAML(typ="safe").load(cloudformation_file(WANTED, ["made"]))
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
def test_terraform_says_the_oldest_provider_that_knows_the_table(
    design: TableDesign, options: TableOptions, version: str
) -> None:
    assert f'version = ">= {version}"' in terraform_file(definition(design, options), ["made"])


def test_names_become_those_of_resources_and_classes() -> None:
    wanted = definition(replace(DESIGN, name="2nd.shop-orders"), OPTIONS)
    assert 'resource "aws_dynamodb_table" "_2nd_shop_orders" {' in terraform_file(wanted, [])
    assert "  T2ndShopOrdersTable:" in cloudformation_file(wanted, [])
    assert pins.said(cdk_typescript(wanted, []))
    assert "class T2ndShopOrdersTable(dynamodb.Table):" in cdk_python(wanted, [])
    assert "class ShopTable(" in cdk_python(definition(replace(DESIGN, name="ShopTable"), OPTIONS), [])


def test_no_text_of_a_mapping_is_read_as_code() -> None:
    strange = '"); ${boom} %{if}\n'
    index = Index("GSI1", (KeyAttribute(strange),), (), (strange,))
    wanted = definition(replace(DESIGN, indexes=(index,)), OPTIONS)
    written = terraform_file(wanted, [])
    assert pins.said(written, "boom")
    read = YAML(typ="safe").load(cloudformation_file(wanted, []))
    assert strange in [
        name["AttributeName"]
        for name in next(iter(read["Resources"].values()))["Properties"]["AttributeDefinitions"]
    ]
    assert pins.said(cdk_typescript(wanted, []), "boom-2")
    compile(cdk_python(wanted, []), "table.py", "exec")
