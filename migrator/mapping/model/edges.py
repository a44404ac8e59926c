"""Ports of the edges: source, item store, table, stripping, control items, exported files and imports of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from msgspec import Struct

from migrator.mapping.model.facts import Column, EntityPlan, Lookup, SchemaFacts, TableFacts
from migrator.mapping.model.mapping import Statement
from migrator.mapping.model.table import EncodedItem, Item, ItemKey, RowTree, SourceKey, Value
from migrator.runtime.values import asdict

# ── The data's edges as the stages see them: a source of row trees, a store of items, a table ──

# ── source ──────────────────────────────────────────────────────────────────────────────────────


class KeyCounts(Struct, frozen=True):
    """Rows of an entity that have a key, and how many different keys those are: by value, and as text."""

    rows: int
    values: int
    texts: int


class RowsSeen(Struct, frozen=True):
    """All rows of a table that this user sees, and their probable number (None if unknown)."""

    rows: int
    at_least: int | None = None


class SourceHealth(Struct, frozen=True):
    """`version`: with the product's name. `clock_s`: seconds since 1970; None for an engine without a server.

    `timeout`: in the server's notation; '0' for none, '' if unknown. `pooling`: how a pooler in between shares the
    server's sessions; '' for none.
    """

    version: str
    clock_s: float | None = None
    replica: bool = False
    timeout: str = ""
    pooling: str = ""


class RawPage(Struct, frozen=True):
    """Row trees, with the server's own text at the places `raw`. `whole`: such a row as `read_page` gives it."""

    rows: Sequence[RowTree]
    raw: frozenset[int] = frozenset()
    whole: Callable[[RowTree], RowTree] = tuple


class WholeRows:
    """The raw part of a reader without another text of its values."""

    def raw_places(self, plan: EntityPlan) -> frozenset[int]:
        return frozenset()

    def read_raw(
        self: Rows,
        plan: EntityPlan,
        raw: frozenset[int],
        after: SourceKey | None,
        upto: SourceKey | None,
        limit: int | None = None,
    ) -> RawPage:
        return RawPage(self.read_page(plan, after, upto, limit))

    def read_raw_rows(
        self: RowReader, plan: EntityPlan, raw: frozenset[int], keys: Sequence[SourceKey]
    ) -> list[RawPage]:
        return [RawPage(self.read_rows(plan, keys))]


class RowReader(Protocol):
    """Reads root rows by key, each call in its own snapshot, in part as the text of the server."""

    def raw_places(self, plan: EntityPlan) -> frozenset[int]:
        """Places of the plan's slots that can be read raw (RAW_KINDS of mapping/items/program.py)."""

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]:
        """Row trees of the given keys, as many as there are, in any order."""

    def read_raw_rows(
        self, plan: EntityPlan, raw: frozenset[int], keys: Sequence[SourceKey]
    ) -> list[RawPage]:
        """As `read_rows`, with these places raw; none of them if the columns have changed their types."""


class RootFinder(RowReader, Protocol):
    """Finds and reads root rows; a source does. Each call is one snapshot, begun after the call."""

    def find_roots(
        self,
        plan: EntityPlan,
        lookup: Lookup,
        values: Sequence[Sequence[Any]],
        after: SourceKey | None,
        limit: int,
    ) -> list[SourceKey]:
        """Keys of roots that the lookup reaches from any of `values`, distinct, in key order, past `after`.

        Rows that `where` leaves out are among them; values with a NULL among them reach nothing.
        """


class Rows(RootFinder, Protocol):
    """Reads row trees, page by page or by key, and finds roots. Every call is one read-only transaction of its own."""

    def facts(self) -> SchemaFacts: ...

    def rows_about(self, plan: EntityPlan) -> int:
        """Rows that take part: counted, or by the database's own estimate if that takes longer than allowed."""

    def rows_expected(self, plan: EntityPlan) -> int:
        """Rows that take part, by the database's own estimate; counted if it has none."""

    def rows_without_key(self, plan: EntityPlan) -> int:
        """Rows with a NULL in their primary key (SQLite allows it): no page can hold them."""

    def twins(self, plan: EntityPlan, at_most: int) -> list[tuple[SourceKey, int]]:
        """Keys that several of the rows that take part have, as the source compares them, and how many rows.

        Raises: TooSlowError.
        """

    def page_bounds(
        self, plan: EntityPlan, page_rows: int, after: SourceKey | None = None, upto: SourceKey | None = None
    ) -> Iterator[SourceKey]:
        """The last key of every full page, in the source's order; rows after the last bound are one more page.

        Of rows with after < key <= upto; None is open.
        """

    def random_keys(self, plan: EntityPlan, number: int, rows: int, seed: int) -> list[SourceKey]:
        """Different keys of rows by chance, `number` or fewer, in the source's order, without going through the table.

        Rows that the entity's `where` leaves out are among them. `rows`: about how many there are.
        """

    def read_page(
        self, plan: EntityPlan, after: SourceKey | None, upto: SourceKey | None, limit: int | None = None
    ) -> list[RowTree]:
        """Row trees with after < key <= upto, both bounds compared by the source; None is open."""

    def read_raw(
        self,
        plan: EntityPlan,
        raw: frozenset[int],
        after: SourceKey | None,
        upto: SourceKey | None,
        limit: int | None = None,
    ) -> RawPage:
        """As `read_page`, with these places raw; none of them if the columns have changed their types."""

    def close(self) -> None: ...


@runtime_checkable
class DocumentRows(Protocol):
    """Rows in tables of DynamoDB; reading them costs read units."""

    def table_ids(self) -> Mapping[str, str]:
        """Names of tables by id."""

    def read_units(self, plans: Sequence[EntityPlan], page_rows: int) -> float:
        """Estimated cost of one pass over all row trees, in pages of so many rows."""

    def read_words(self, plans: Sequence[EntityPlan], page_rows: int) -> Sequence[str]:
        """A line for each table that is read as a whole in addition to the roots, because no index finds its rows."""


class Totals(Protocol):
    """Counts and adds up rows in the source's own way, without a row tree. Every call is a transaction of its own."""

    def count(self, plan: EntityPlan) -> int:
        """Rows that take part, by plain SQL."""

    def count_where(
        self, plan: EntityPlan, conditions: Sequence[tuple[Column, tuple[Value, ...] | None]]
    ) -> int:
        """Rows that take part and hold the conditions (None: the column is not NULL), by plain SQL."""

    def key_counts(self, plan: EntityPlan) -> KeyCounts:
        """Rows that have a key and different keys, compared by the source, in one snapshot."""

    def rows_seen(self, table: TableFacts) -> RowsSeen:
        """Rows of the whole table, counted, next to the catalogue's own statistics."""

    def sums(self, plan: EntityPlan, columns: Sequence[Column]) -> dict[str, Any]:
        """SUM of each column over the rows that take part and have a key, by plain SQL, as the driver gives it."""


class CountedRows(Rows, Totals, Protocol):
    """A source that can be moved and verified: the required protocol of one that is not an SQL database."""


class ComputingSource(Protocol):
    """A source with columns that its own SQL may compute."""

    def facts(self) -> SchemaFacts: ...

    def computed_fault(self, table: TableFacts, column: Column) -> str:
        """The source's error for the SQL of a computed column; '' for none."""

    def volatile_parts(self, column: Column) -> list[str]:
        """The part of that SQL that gives another value for the same row, each with why."""


class QueryCall(Struct, frozen=True):
    """A statement of the user's with the values of its parameters. `schema`: of tables that name none."""

    statement: Statement
    params: Mapping[str, Any] = {}
    schema: str | None = None


class Questions(Protocol):
    """Answers the statements of a mapping's patterns. Each call is one transaction, if the source has transactions."""

    def query(
        self,
        statement: Statement,
        params: Mapping[str, Any],
        schema: str | None = None,
        *,
        at_most: int | None = None,
        what: str = "a query of the mapping",
    ) -> list[tuple[Any, ...]]:
        """Rows of a statement of the user's, with the parameters' values. `schema`: of tables that name none.

        `at_most`: how many are read; if there are more, one more is returned, and the others stay in the database.
        `what`: errors call it so.
        """

    def query_faults(self, calls: Sequence[QueryCall]) -> list[str]:
        """The source's objections by call of `query`, which is not run; '' for none."""


class Source(CountedRows, Questions, Protocol):
    """All three, as a relational database is."""


class Database(Source, Protocol):
    """A source for our own SQL statements."""

    def first_row_of_each(self, selects: Sequence[str], what: str) -> list[tuple[Any, ...]]:
        """The first row of each of our own SELECTs, () for none. `what`: names them in errors."""


# ── target ──────────────────────────────────────────────────────────────────────────────────────


class Receipt(Struct, frozen=True):
    """Result of a write: requests sent (retries included), bytes of items stored, write units consumed.

    `unwritten`: keys that the table refused while it took others, each with the reason. `owned_by_other`: keys of foreign
    items, each with its source ('' if it has none).
    """

    items: int = 0
    bytes: int = 0
    write_units: float = 0.0
    requests: int = 0
    unwritten: Mapping[ItemKey, str] = {}
    owned_by_other: Mapping[ItemKey, str] = {}


WiredItem: TypeAlias = dict[str, Any]
"""An item in DynamoDB's form: {"S": …}, {"N": …}; binary values as base64 text."""
Found = TypeVar("Found")


class ScanPage(Struct, Generic[Found], frozen=True):
    """Items of one request of a scan, or the result for each, and the start of the next one (None: the segment is done)."""

    items: list[Found]
    next_start: ItemKey | None


class QueryPage(Struct, frozen=True):
    """Result of a read: `next_start` is where a Query continues (None: it is done), `requests` includes retries.
    `read_units`: as reported by the endpoint. `dropped`: items that a filter left out after they were read."""

    items: list[Item]
    next_start: Mapping[str, Any] | None = None
    read_units: float = 0.0
    requests: int = 1
    dropped: int = 0


class ItemStore(Protocol):
    """The items of one table. Each call retries transient failures, and raises StoppedError if they persist."""

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        """Store every item, batch by batch, UnprocessedItems again; returns when all are stored, or are `unwritten`.

        Raises: ItemRefusedError if all are refused as they are, and the table never took any other.
        """

    def delete(self, keys: Sequence[ItemKey]) -> None: ...

    def delete_own(self, items: Sequence[Item]) -> int:
        """Delete each item with an unchanged source attribute; returns how many there were."""

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        """The stored items among `keys`, read consistently."""

    def scan(self, segment: int, segments: int, start: ItemKey | None = None) -> Iterator[ScanPage[Item]]: ...

    def scan_encoded(
        self, segment: int, segments: int, each: Callable[[WiredItem], Found], start: ItemKey | None = None
    ) -> Iterator[ScanPage[Found]]:
        """Results of `each` for every item in DynamoDB's form."""

    def scan_texts(
        self, segment: int, segments: int, see: Callable[[list[bytes], bytes], list[Found]]
    ) -> Iterator[ScanPage[Found]]:
        """Results of `see` for the texts of each page's items."""

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        """One page of a Query. `request`: plain values, see mapping/patterns/requests.py; its table name is filled in."""

    def start_after(self, request: Mapping[str, Any], position: Item) -> Mapping[str, Any]:
        """Where a Query continues after an item, which may be deleted by now. `position`: its key attributes, those of
        the table and of the queried index."""

    def get_item(self, request: Mapping[str, Any]) -> QueryPage:
        """The item of `Key`, or none. `request` as above."""

    def batch_get(self, request: Mapping[str, Any]) -> QueryPage:
        """The stored items among up to 100 `Keys`, in any order; UnprocessedKeys are requested again."""


class ObjectStore(Protocol):
    """Objects that items point to. Each call retries transient failures, and raises StoppedError if they persist."""

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Store each object under its name; one that is there already stays as it is."""

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """The bytes of each object among `names` that is stored."""


class TableState(Struct, frozen=True):
    """A table that exists. `differences`: sentences about differences from the mapping's design. `parts`: the part of
    each difference (key, ttl, index NAME). `unlike`, reported after a creation: options that differ from the job's, and
    prevent no run. `extra`: those of `differences` that prevent none either: global indexes that the mapping does not
    have."""

    table_id: str
    status: str
    differences: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


class ActionProbe(Struct, frozen=True):
    """An action that the credentials may do (on an index, if one is named), or why it was `refused`.

    Not `tried`: a try would leave something behind, which `refused` names.
    """

    action: str
    refused: str = ""
    index: str = ""
    tried: bool = True


# ── Our attributes and items, deleted from a table for good ──


class Stripping(Protocol):
    """Raises, from every method: StoppedError when DynamoDB gave up, with any part of it done."""

    def strip(self, items: Sequence[Item]) -> int:
        """Remove our attributes from each item with an unchanged source; returns how many had them."""

    def remove(self, own: Sequence[Item]) -> int:
        """Deletes each tombstone and control item that still is one; how many were."""


# ──
# What the table itself keeps of a migration, in case the source or the journal is lost.

NameKind = Literal["table", "source"]


class KeptPhase(Struct, frozen=True):
    """A pattern's phase in words, and the version of its move (see mapping/model/evidence.py)."""

    phase: str
    version: int


class Kept(Struct, frozen=True):
    """State that a fresh journal of one job must not contradict.

    `journal`: the id of the journal that knows the rest; `phases`: of patterns that are, or were, live or complete;
    `direct`: entities that the service writes itself, as recorded by run `direct_run` of the journal (0: none ever did).
    """

    journal: str
    phases: Mapping[str, KeptPhase] = {}
    direct: frozenset[str] = frozenset()
    direct_run: int = 0


class ControlState(Struct, frozen=True):
    """The control item. `ticket`: the highest known; `table_id`: of the table that it was written into, '' if not known;
    `jobs`: kept state by job; `version`: counts the item's changes, 0 if none is kept; `is_there`: whether the item
    exists."""

    ticket: int = 0
    table_id: str = ""
    jobs: Mapping[str, Kept] = {}
    version: int = 0
    is_there: bool = False


class Control(Protocol):
    """The table's control item (rule 8)."""

    def read_control(self) -> ControlState:
        """Raises: TargetError if its key is another's."""

    def raise_control(self, ticket: int) -> int:
        """The highest ticket is this one from now on, unless another one is as high: that one, or 0.

        Raises: TargetError if the item was seen before and is gone.
        """

    def keep(self, table_id: str, job: str, kept: Kept) -> None:
        """This is kept of the job from now on, in the table of that id; the ticket stays."""


UNREPAIRED = 2**62
"""Ticket in a table with changes that the source has lost: no writer has a ticket this high, so none continues before the
repair."""


UNIMPORTED = UNREPAIRED - 1
"""Ticket in a table during an import: keys of its rows are not remembered yet."""


class Identity(Protocol):
    """Which journal this is, and which tables it knows. Every method is one transaction."""

    def journal_id(self) -> str:
        """Drawn when the journal was made; a copy has the same."""

    def seen(self, table_id: str) -> int | None:
        """A ticket that the table's control item was seen to hold; None if this journal never wrote into it."""

    def see(self, table_id: str, table: str, ticket: int) -> None:
        """The control item of the table, which has that name, holds the ticket; a higher one that was seen stays."""

    def repaired(self, table_id: str, table: str, ticket: int) -> None:
        """The table is repaired; what was observed before no longer counts."""

    def tables_named(self, table: str) -> frozenset[str]:
        """Ids of tables that had that name when they were seen."""


MANIFEST = "manifest.json"
PARTS = "data/"
"""Before the names of the parts: an import reads every object behind this prefix, so nothing else has it."""
PAGES = "pages/"
"""Before the names of pages, which are merged into parts and then removed."""
FORMAT = 1


class Files(Protocol):
    """A folder, or a prefix of a bucket. Each call raises StoppedError for transient failures, else SettingsError,
    TargetError."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    def write(self, name: str, data: bytes) -> None:
        """The whole file or nothing of it; one that is there is replaced."""

    def read(self, name: str) -> bytes | None:
        """The content; None if the file does not exist."""

    def sizes_below(self, below: str = "") -> dict[str, int]:
        """The bytes of every file with this prefix."""

    def remove(self, names: Collection[str]) -> None: ...


class PartFile(Struct, frozen=True):
    """One object of an import. `md5`: of its bytes as they are stored; `json_bytes`: without gzip, by which AWS bills."""

    name: str
    md5: str
    items: int
    bytes: int
    json_bytes: int


class Manifest(Struct, frozen=True):
    """Contents of an export. `run`: of the journal; `revision`: digest of mapping, columns and capture of the run.

    `table`: the parameters of CreateTable, for people; an import takes the mapping's.
    """

    job: str
    journal: str
    run: int
    mapping: str
    revision: str
    table: Mapping[str, Any]
    parts: Sequence[PartFile]

    @property
    def items(self) -> int:
        return sum(part.items for part in self.parts)

    @property
    def json_bytes(self) -> int:
        return sum(part.json_bytes for part in self.parts)

    def data(self) -> bytes:
        """The file's content: the same for equal manifests."""
        fields = {"format": FORMAT, **asdict(self), "items": self.items, "json_bytes": self.json_bytes}
        return (json.dumps(fields, indent=2, sort_keys=True) + "\n").encode()

    @classmethod
    def read(cls, data: bytes) -> Manifest:
        """Raises: ValueError if the data is not a manifest of migrator."""
        try:
            fields = json.loads(data)
            if fields.pop("format") != FORMAT:
                raise ValueError("unsupported format")
            parts = [PartFile(**part) for part in fields.pop("parts")]
            del fields["items"], fields["json_bytes"]
            return cls(**fields, parts=parts)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(type(error).__name__) from None


def manifest_digest(data: bytes) -> str:
    """The journal's digest of a published manifest, to notice edits."""
    return hashlib.sha256(data).hexdigest()


ImportStatus = Literal["IN_PROGRESS", "COMPLETED", "CANCELLING", "CANCELLED", "FAILED"]


class ImportState(Struct, frozen=True):
    """An import, as DynamoDB describes it. `token`: the client token of its request."""

    arn: str
    table_id: str
    token: str
    status: ImportStatus
    processed: int = 0
    imported: int = 0
    errors: int = 0
    failure: str = ""

    @property
    def is_over(self) -> bool:
        return self.status not in ("IN_PROGRESS", "CANCELLING")


class ImportFault(Struct, frozen=True):
    """An item that an import did not take: the file's name, the number of its line from 0, and why."""

    name: str
    line: int
    why: str


class TableImports(Protocol):
    """ImportTable for one table, from one place."""

    def begin(self, token: str) -> ImportState: ...

    def state(self, arn: str) -> ImportState: ...

    def asked_with(self, token: str) -> ImportState | None:
        """The import of the table that is there, if it was requested with this token."""

    def faults(self, arn: str, at_most: int) -> tuple[list[ImportFault], str]:
        """The faults in the log of an import, and why it could not be read ('')."""


class Imported(Struct, frozen=True):
    """How an import ended. `replaced`: how many items the table has less than were imported: keys that changed hands while
    rows were exported; `remembered`: keys that were remembered for the relay."""

    run: int
    table: str
    items: int
    replaced: int = 0
    remembered: int = 0
