"""Items that no row makes."""

from __future__ import annotations

from typing import cast

from migrator.model.edges import Rows
from migrator.model.table import KeyAttribute, TableDesign
from migrator.stages.verify.scan import Tracer
from tests import pins


def test_a_foreign_item_has_a_next_step() -> None:
    no_rows = cast("Rows", None)  # an item that names no row asks for none
    table = TableDesign("Shop", (KeyAttribute("PK"), KeyAttribute("SK")), "type")
    (finding,) = Tracer(no_rows, {}, table).untraced([{"PK": "a", "SK": "b"}])
    assert (finding.kind, pins.said(finding.reason, "next")) == ("foreign", True)
