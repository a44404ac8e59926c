"""The edges as the stages see them."""

from migrator.ports.edges import (
    ItemStore,
    ObjectStore,
    QueryPage,
    Receipt,
    ScanPage,
    Source,
    TableAdmin,
    TableState,
)
from migrator.ports.journal import (
    Finding,
    FindingKind,
    Journal,
    Lease,
    Page,
    Progress,
    Run,
    RunIdentity,
    RunKind,
    RunState,
    SegmentState,
    Tally,
)

__all__ = [
    "Finding",
    "FindingKind",
    "ItemStore",
    "Journal",
    "Lease",
    "ObjectStore",
    "Page",
    "Progress",
    "QueryPage",
    "Receipt",
    "Run",
    "RunIdentity",
    "RunKind",
    "RunState",
    "ScanPage",
    "SegmentState",
    "Source",
    "TableAdmin",
    "TableState",
    "Tally",
]
