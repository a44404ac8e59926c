"""A role's rights as a policy of AWS IAM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

MARK = '"Sid": "Migrator'
"""What a policy of ours has in it: JSON has no comments, so the names of its statements say what it was made of."""
_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov", "eusc-": "aws-eusc"}


class Rights(Struct, frozen=True):
    """What a role may do. `table`: rights on the table, `indexes`: those that it queries, `objects`: rights of S3 on the
    job's bucket, `files`: on the place of exported items, `logs`: of CloudWatch on the log of imports, `stream`: on the
    table's stream. `old_tables`, `old_streams`: on each old table that is the source, and on its stream; `old_indexes`: of
    them, by their names in the mapping."""

    table: Sequence[str]
    indexes: Sequence[str] = ()
    objects: Sequence[str] = ()
    files: Sequence[str] = ()
    logs: Sequence[str] = ()
    stream: Sequence[str] = ()
    old_tables: Sequence[str] = ()
    old_indexes: Sequence[tuple[str, str]] = ()
    old_streams: Sequence[str] = ()


class Place(Struct, frozen=True):
    """Where the table is. `account`: 12 digits, or * for any, which is the role's own.

    `bucket`: of the job, with the prefix of its objects; '' where it has none. `items_at`: bucket and prefix of exported
    items, as bucket/prefix; '' where they are in a folder. `old`: the place of each old table by its name in the mapping.
    """

    table: str
    region: str
    account: str = "*"
    bucket: str = ""
    prefix: str = ""
    items_at: str = ""
    old: Mapping[str, Place] = {}

    @property
    def partition(self) -> str:
        return next((name for begin, name in _PARTITIONS.items() if self.region.startswith(begin)), "aws")

    @property
    def table_arn(self) -> str:
        return f"arn:{self.partition}:dynamodb:{self.region}:{self.account}:table/{self.table}"


def policy(role: str, rights: Rights, place: Place, revision: str) -> str:
    """The policy as JSON. `revision`: of the mapping, shortened."""
    of_table = [right for right in rights.table if right not in _OF_IMPORTS]
    of_imports = [right for right in rights.table if right in _OF_IMPORTS]
    indexes = [f"{place.table_arn}/index/{index}" for index in rights.indexes]
    old_indexes = [f"{place.old[table].table_arn}/index/{index}" for table, index in rights.old_indexes]
    old_tables = [old.table_arn for _, old in sorted(place.old.items())]
    log = f"arn:{place.partition}:logs:{place.region}:{place.account}:log-group:/aws-dynamodb/*"
    statements = [
        ("Table", _named(of_table), [place.table_arn]),
        ("Indexes", ["dynamodb:Query"], indexes),
        ("Imports", _named(of_imports), [place.table_arn, f"{place.table_arn}/import/*"]),
        *_of_bucket("", rights.objects, place, f"{place.bucket}/{place.prefix}" if place.bucket else ""),
        *_of_bucket("Items", rights.files, place, place.items_at),
        ("Logs", list(rights.logs), [log]),
        ("Stream", list(rights.stream), [f"{place.table_arn}/stream/*"]),
        ("OldTables", _named(rights.old_tables), old_tables),
        ("OldIndexes", ["dynamodb:Query"], old_indexes),
        ("OldStreams", list(rights.old_streams), [f"{table}/stream/*" for table in old_tables]),
    ]
    # Letters and digits alone are allowed in a Sid.
    made = f"{role.title().replace('-', '')}{revision}"
    listed = [
        {"Sid": f"Migrator{what}{made}", "Effect": "Allow", "Action": actions, "Resource": places}
        for what, actions, places in statements
        if actions and places
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": listed}, indent=2) + "\n"


_OF_IMPORTS = ("DescribeImport", "ListImports")
"""Rights on imports, whose ARNs are below the table's."""


def _named(rights: Sequence[str]) -> list[str]:
    return [f"dynamodb:{right}" for right in rights]


def _of_bucket(
    what: str, rights: Sequence[str], place: Place, path: str
) -> Iterator[tuple[str, list[str], list[str]]]:
    """`path`: bucket/prefix; '' for no bucket."""
    if not path:
        return
    bucket = f"arn:{place.partition}:s3:::{path.partition('/')[0]}"
    of_bucket = [right for right in rights if right == "s3:ListBucket"]
    of_objects = [right for right in rights if right != "s3:ListBucket"]
    yield f"{what}Bucket", of_bucket, [bucket]
    yield f"{what}Objects", of_objects, [f"arn:{place.partition}:s3:::{path}*"]
