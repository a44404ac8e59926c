"""What each word of a mapping file means, with an example: for editors, which show them beside the JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Word(NamedTuple):
    """`about`: one or two sentences. `example`: a value of the word."""

    about: str
    example: Any


def described(schema: dict[str, Any], words: Mapping[str, Word], root: str) -> dict[str, Any]:
    """The schema with a description and an example for every word; `words` by form and word, `root`: the form at the top.

    Raises: KeyError for a word that nothing is said of.
    """
    forms = {root: schema, **schema.get("$defs", {})}
    for form, definition in forms.items():
        # Names and docstrings are the code's, for its readers.
        definition.pop("title", None)
        definition.pop("description", None)
        for name, place in definition.get("properties", {}).items():
            word = words[f"{form}.{name}"]
            place.pop("title", None)
            # Beside a $ref these words count, too (JSON Schema 2020-12).
            place |= {"description": word.about, "examples": [word.example]}
        others = definition.get("additionalProperties")
        if isinstance(others, dict) and f"{form}.*" in words:
            word = words[f"{form}.*"]
            others |= {"description": word.about, "examples": [word.example]}
    return schema


_RANGE = {
    "begins_with": Word("Keys that begin with this.", "ORDER#"),
    "between": Word("Keys from the first to the second, both included.", ["2026-01-01", "2026-02-01"]),
    "ge": Word("Keys from this on.", "2026-01-01"),
    "gt": Word("Keys behind this.", "2026-01-01"),
    "le": Word("Keys up to this, included.", "2026-12-31"),
    "lt": Word("Keys before this.", "2026-12-31"),
}
_VALUES = "a column (status), one with filters (status|map:status), a template ('{id} of {user_id}'), const, map or each"
_WHEN = "a column that must have a value, a list of such columns, or {column: value or list of values}"

WORDS: Mapping[str, Word] = {
    # ── the file ──
    "MappingForm.mapping": Word("The version of this format.", 1),
    "MappingForm.source": Word("How schemas and times of the source are read.", {"timezone": "UTC"}),
    "MappingForm.table": Word(
        "The DynamoDB table: its key, its indexes, and the attributes that have a meaning.",
        {
            "name": "Shop",
            "key": ["PK", "SK"],
            "type": "type",
            "indexes": {"GSI1": {"key": ["GSI1PK", "GSI1SK"]}},
        },
    ),
    "MappingForm.maps": Word(
        "Tables for the filter map: what stands in an item for a value of a row.",
        {"status": {"P": "pending", "S": "shipped"}},
    ),
    "MappingForm.entities": Word(
        "Tables, and the items that their rows become; by a name of your choice, which _src carries.",
        {"user": {"table": "users", "items": {"User": {"key": ["USER#{id}", "PROFILE"], "keep": "all"}}}},
    ),
    "MappingForm.access_patterns": Word(
        "Questions of the application, each as a request to DynamoDB and as SQL: so that both answers can be compared.",
        {
            "user_by_id": {
                "params": {"id": "integer"},
                "get": {"key": ["USER#{id}", "PROFILE"]},
                "returns": ["name"],
                "sql": "SELECT name FROM users WHERE id = :id",
            }
        },
    ),
    "SourceForm.timezone": Word(
        "The zone of timestamps that have none; UTC when it is not said.", "Europe/Berlin"
    ),
    "SourceForm.schemas": Word(
        "Schemas that hold the same tables, one for every tenant.", ["tenant_a", "tenant_b"]
    ),
    "SourceForm.tables": Word(
        "The old tables, where the source is tables of DynamoDB's: each with its key and the types of its columns.",
        {"Users": {"key": ["id"], "columns": {"id": "text", "address.city": "text", "tags": "set(text)"}}},
    ),
    "DocumentTableForm.key": Word("The table's key attributes: partition key, and sort key.", ["id"]),
    "DocumentTableForm.columns": Word(
        "Attributes that entities may read, each with its type; a dot leads into a map. Types: those of columns, and list,"
        " map, set(text), set(number), set(binary), any.",
        {"id": "text", "address.city": "text", "total": "number(2)", "tags": "set(text)"},
    ),
    # ── the table ──
    "TableForm.name": Word("The table's name; a job can take another one.", "Shop"),
    "TableForm.key": Word("Names of the key attributes: the partition key, and the sort key.", ["PK", "SK"]),
    "TableForm.type": Word("The attribute that says what an item is.", "type"),
    "TableForm.ttl": Word("The attribute with DynamoDB's time to live, in epoch seconds.", "expiresAt"),
    "TableForm.separator": Word(
        "What stands between the parts of a key; # unless it is said otherwise.", "#"
    ),
    "TableForm.indexes": Word(
        "Global and local indexes, by name; a list is the key of one.",
        {"GSI1": {"key": ["GSI1PK", "GSI1SK"]}},
    ),
    "TableForm.own": Word(
        "Names of migrator's own attributes in each item.",
        {"source": "_src", "ticket": "_tk", "revision": "_rev"},
    ),
    "OwnForm.source": Word("The attribute that names an item's row: entity and key.", "_src"),
    "OwnForm.ticket": Word("The attribute with the ticket of the reading that made the item.", "_tk"),
    "OwnForm.revision": Word("The attribute with the revision of the mapping that made the item.", "_rev"),
    "IndexForm.key": Word(
        "Partition and sort key of the index; up to four attributes each, in a list.", ["GSI1PK", "GSI1SK"]
    ),
    "IndexForm.project": Word(
        "What the index holds of an item: all, keys, or these attributes besides the keys.",
        ["status", "total"],
    ),
    "IndexForm.local": Word(
        "A local index: of the table's partition key, and made with the table only.", True
    ),
    "TypedKeyForm.name": Word("The key attribute's name.", "score"),
    "TypedKeyForm.type": Word("Its type: text, number or binary.", "number"),
    # ── entities ──
    "EntityForm.table": Word(
        "The table or view, if the entity has another name; sales.orders names the schema.", "users"
    ),
    "EntityForm.key": Word("The columns that name a row, where the source declares no primary key.", ["id"]),
    "EntityForm.columns": Word(
        "Columns made by SQL of the source, by name.",
        {"total": {"sql": "price * quantity", "type": "number(2)"}},
    ),
    "EntityForm.where": Word(f"Rows that take part: {_WHEN}.", {"deleted_at": None}),
    "EntityForm.changes": Word(
        "Of an entity that reads a view: the tables that change it, and their columns with the key of its row.",
        {"orders": "id", "order_lines": "order_id"},
    ),
    "EntityForm.join": Word(
        "Parents, by an alias: the foreign key column, or {table: …, on: {…}} where none is declared.",
        {"customer": "customer_id"},
    ),
    "EntityForm.collect": Word(
        "Children, by an alias: a list, or one number made of them.",
        {"lines": {"of": "order_lines", "by": "order_id"}},
    ),
    "EntityForm.climb": Word(
        "The row and all its ancestors, the topmost first, by an alias: the column that points to the parent.",
        {"line": "parent_id"},
    ),
    "EntityForm.transform": Word(
        "A function of yours that makes values of a row: module:function.", "shop.rows:order"
    ),
    "EntityForm.version": Word(
        "The column by which the application locks, so that items are locked by it, too.", "version"
    ),
    "EntityForm.attributes": Word("Attributes of every item of the entity.", {"userId": "id"}),
    "EntityForm.items": Word(
        "The items that a row becomes; the name is the item's type.",
        {"User": {"key": ["USER#{id}", "PROFILE"]}},
    ),
    "VersionAsForm.attribute": Word("The attribute that holds the version.", "version"),
    "VersionAsForm.from": Word("The column that it is made of.", "lock_version"),
    "OnForm.table": Word("The parent table.", "users"),
    "OnForm.on": Word(
        "The row's columns and those of the parent, which must be a key of it.", {"user_id": "id"}
    ),
    "CollectForm.of": Word("The child table.", "order_lines"),
    "CollectForm.by": Word("Its column, or columns, that point to the row.", "order_id"),
    "CollectForm.join": Word("Parents of a child, by an alias.", {"product": "product_id"}),
    "CollectForm.order_by": Word(
        "The order of the list; the child's primary key unless it is said.", ["position"]
    ),
    "CollectForm.at_most": Word("A row with more children is refused.", 100),
    "CollectForm.first": Word("Only the first so many are kept, on purpose.", 10),
    "CollectForm.count": Word("How many children there are, instead of a list.", "all"),
    "CollectForm.sum": Word("The sum of this column, instead of a list; NULL of no children.", "quantity"),
    "CollectForm.min": Word("The least value of this column, instead of a list.", "price"),
    "CollectForm.max": Word("The largest value of this column, instead of a list.", "price"),
    "ColumnForm.sql": Word("An expression over the row's columns.", "price * quantity"),
    "ColumnForm.type": Word(
        "The type of what it gives: integer, number(2), text, boolean, date, timestamp, uuid, binary, json and others.",
        "number(2)",
    ),
    # ── items ──
    "ItemForm.key": Word("Templates of the table's key, in its order.", ["USER#{user_id}", "ORDER#{id:010}"]),
    "ItemForm.when": Word(f"Whether there is such an item: {_WHEN}.", {"status": ["pending", "paid"]}),
    "ItemForm.keep": Word(
        "Columns that are attributes under their own names: all, a list, or {except: […]}.", ["name", "email"]
    ),
    "ItemForm.attributes": Word(
        f"More attributes, by name: {_VALUES}.", {"status": "status|map:status", "label": "{id} of {user_id}"}
    ),
    "ItemForm.ttl": Word(
        "When DynamoDB may delete the item: a column, or {from: column, days: 90}.", "expires_at"
    ),
    "ItemForm.*": Word(
        "The name of an index: templates of its key, or {key: […], when: …} where only some items are in it.",
        ["STATUS#{status}", "{created_at|iso:s}"],
    ),
    "PairForm.key": Word("Templates of the index's key, in its order.", ["ACTIVE", "{created_at|iso:s}"]),
    "PairForm.when": Word(f"Whether the item is in the index: {_WHEN}.", {"status": "paid"}),
    "ExceptForm.except": Word("Columns that are no attributes; all others are.", ["password_hash"]),
    "ExpiryForm.from": Word("A timestamp, date or epoch column.", "created_at"),
    "ExpiryForm.days": Word("So many days later.", 90),
    "ExpiryForm.unit": Word("What a whole number counts since 1970.", "milliseconds"),
    "ExpiryForm.zero": Word(
        "What a whole number 0 means: the item never expires, or it has expired.", "never"
    ),
    # ── values ──
    "ConstForm.const": Word("The value as it stands here.", "web"),
    "MapForm.map": Word("A map of attributes.", {"street": "street", "city": "city"}),
    "EachForm.each": Word("The alias of a list under collect: one map for each of its rows.", "lines"),
    "EachForm.attributes": Word(
        "The attributes of each.", {"productId": "product_id", "quantity": "quantity"}
    ),
    "StoredForm.from": Word(f"The value: {_VALUES}.", "body"),
    "StoredForm.to": Word("It is kept in S3, and the item points to it.", "s3"),
    "StoredForm.over": Word("Only where it takes more bytes than this.", 100_000),
    # ── access patterns ──
    "PatternForm.params": Word(
        "Parameters and their types: integer, number, text, boolean, date, timestamp, uuid, binary; 'list of …'.",
        {"user_id": "integer"},
    ),
    "PatternForm.query": Word(
        "A Query: items of one partition.", {"key": ["USER#{user_id}", {"begins_with": "ORDER#"}]}
    ),
    "PatternForm.get": Word("A GetItem: one item by its whole key.", {"key": ["USER#{user_id}", "PROFILE"]}),
    "PatternForm.batch_get": Word(
        "A BatchGetItem: items by their whole keys, with one list among the parameters.",
        {"key": ["PRODUCT#{product_ids}", "META"]},
    ),
    "PatternForm.near": Word(
        "Places around one, of a query whose partition key has a geohash.",
        {"from": ["lat", "lng"], "at": ["latitude", "longitude"], "within_m": 500},
    ),
    "PatternForm.returns": Word(
        "The attributes that the answer has, or parts of it by item type.", ["orderId", "total"]
    ),
    "PatternForm.order": Word("exact: the order of the answer counts; any: it does not.", "any"),
    "PatternForm.compare": Word(
        "What makes two values the same although they differ.", {"tolerance": {"total": 0.01}}
    ),
    "PatternForm.redact": Word("Attributes and parameters whose values are never shown.", ["email"]),
    "PatternForm.atomic": Word(
        "The answer must be of one moment: its items are written in one transaction.", True
    ),
    "PatternForm.schema": Word("The parameter that names the tenant's schema.", "tenant"),
    "PatternForm.budget": Word("How long an answer may take, for a move of the pattern.", {"p99_ms": 20}),
    "PatternForm.frequency": Word("How often it is asked: 12.5/s, 300/min, 40/h or 5/day.", "12.5/s"),
    "PatternForm.sql": Word(
        "The same question to the source; a SELECT with :name for each parameter, or one for each part.",
        'SELECT id AS "orderId", total FROM orders WHERE user_id = :user_id ORDER BY created_at',
    ),
    "PatternForm.old": Word(
        "The same question to old tables of DynamoDB: a Query, a GetItem or a BatchGetItem, or one for each part.",
        {
            "query": {"table": "Orders", "index": "by_user", "key": {"user_id": "{user_id}"}},
            "returns": ["id", "total"],
        },
    ),
    "OldForm.query": Word(
        "A Query of an old table, or of one of its indexes.",
        {"table": "Orders", "index": "by_user", "key": {"user_id": "{user_id}"}},
    ),
    "OldForm.get": Word("A GetItem of an old table.", {"table": "Users", "key": {"id": "{user_id}"}}),
    "OldForm.batch_get": Word(
        "A BatchGetItem of an old table: its key has one list among the parameters.",
        {"table": "Products", "key": {"id": "{product_ids}"}},
    ),
    "OldForm.join": Word(
        "Parents of each document, as of an entity.", {"user": {"table": "Users", "on": {"user_id": "id"}}}
    ),
    "OldForm.returns": Word(
        "The columns of the answer, one for each attribute that the pattern returns and in their order; those of the"
        " same names unless it is said.",
        ["id", "user.name"],
    ),
    "OldQueryForm.table": Word("The old table, by the name that source: tables: has for it.", "Orders"),
    "OldQueryForm.key": Word(
        "The partition key and, where it is asked, a condition on the sort key.",
        {"user_id": "{user_id}", "placed": {"ge": "{since|iso}"}},
    ),
    "OldQueryForm.index": Word("The index that is asked; the table unless it is said.", "by_user"),
    "OldQueryForm.descending": Word("The largest sort key first.", True),
    "OldQueryForm.limit": Word("Documents at most: a number, or a parameter.", 10),
    "OldQueryForm.consistent": Word("A consistent read, of the table or of a local index.", True),
    "OldQueryForm.filter": Word("Conditions on attributes that are no keys.", {"status": "status"}),
    "OldGetForm.table": Word("The old table, by the name that source: tables: has for it.", "Users"),
    "OldGetForm.key": Word("The whole key of the old table.", {"id": "{user_id}"}),
    "OldGetForm.consistent": Word("A consistent read.", True),
    "OldBatchGetForm.table": Word("The old table, by the name that source: tables: has for it.", "Products"),
    "OldBatchGetForm.key": Word(
        "The whole key of the old table, with one list among the parameters.", {"id": "{product_ids}"}
    ),
    "OldBatchGetForm.consistent": Word("Consistent reads.", True),
    "BudgetForm.p99_ms": Word("Milliseconds that 99 of 100 answers stay below.", 20),
    "QueryForm.key": Word(
        "The partition key, and a condition on the sort key.", ["USER#{user_id}", {"begins_with": "ORDER#"}]
    ),
    "QueryForm.index": Word("The index that is asked; the table unless it is said.", "GSI1"),
    "QueryForm.descending": Word("The largest sort key first.", True),
    "QueryForm.limit": Word("Items at most: a number, or a parameter.", 10),
    "QueryForm.consistent": Word("A consistent read, of the table or of a local index.", True),
    "QueryForm.filter": Word(
        "Conditions on attributes that are no keys; every item is read and paid for all the same.",
        {"status": "status"},
    ),
    "GetForm.key": Word("Templates of the whole key.", ["USER#{user_id}", "PROFILE"]),
    "GetForm.consistent": Word("A consistent read.", True),
    "BatchGetForm.key": Word(
        "Templates of the whole key, with one list among the parameters.", ["PRODUCT#{ids}", "META"]
    ),
    "BatchGetForm.consistent": Word("Consistent reads.", True),
    "NearForm.from": Word("The parameters with latitude and longitude.", ["lat", "lng"]),
    "NearForm.at": Word("The attributes with an item's latitude and longitude.", ["latitude", "longitude"]),
    "NearForm.within_m": Word("Metres: a number, or a parameter.", 500),
    "PartForm.type": Word("The type of the part's items.", "Order"),
    "PartForm.one": Word("The part is one item, and no list.", True),
    "PartForm.attributes": Word("The attributes that the part has.", ["orderId", "total"]),
    "CompareForm.ignore": Word("Attributes that are not compared.", ["updatedAt"]),
    "CompareForm.tolerance": Word("How far numbers may be apart, by attribute.", {"total": 0.01}),
    "CompareForm.normalise": Word(
        "What is made of an attribute's value on both sides before they are compared.", {"name": "trim"}
    ),
    "PlainForm.const": Word("The value as it stands here.", "paid"),
    **{f"SortForm.{name}": word for name, word in _RANGE.items()},
    **{
        f"RangeForm.{name}": Word(
            word.about.replace("Keys", "Values"), ["since", "until"] if name == "between" else "since"
        )
        for name, word in _RANGE.items()
    },
}
