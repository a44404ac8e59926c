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
    """Rows with a key, and different keys: by value, and as text."""

    rows: int
    values: int
    texts: int


class RowsSeen(Struct, frozen=True):
    """Rows of a table that this user sees, and their probable number."""

    rows: int
    at_least: int | None = None


class SourceHealth(Struct, frozen=True):
    """`version`: with the product's name.
    `clock_s`: seconds since 1970; None without a server.
    `timeout`: in the server's notation; '0' for none, '' if unknown.
    `pooling`: kind of a pooler; '' for none.
    """

    version: str
    clock_s: float | None = None
    replica: bool = False
    timeout: str = ""
    pooling: str = ""


class RawPage(Struct, frozen=True):
    """Row trees with the server's own text at the places `raw`. `whole`: converts such a row."""

    rows: Sequence[RowTree]
    raw: frozenset[int] = frozenset()
    whole: Callable[[RowTree], RowTree] = tuple


class WholeRows:
    """The raw part of a reader without raw texts."""

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
        self: RootFinder, plan: EntityPlan, raw: frozenset[int], keys: Sequence[SourceKey]
    ) -> list[RawPage]:
        return [RawPage(self.read_rows(plan, keys))]


class RootFinder(Protocol):
    """Finds root rows, and reads them by key. Each call is one snapshot, begun after the call."""

    def raw_places(self, plan: EntityPlan) -> frozenset[int]:
        """Places of slots that can be read raw (RAW_KINDS of mapping/items/program.py)."""

    def read_rows(self, plan: EntityPlan, keys: Sequence[SourceKey]) -> list[RowTree]:
        """Existing row trees, in any order."""

    def read_raw_rows(
        self, plan: EntityPlan, raw: frozenset[int], keys: Sequence[SourceKey]
    ) -> list[RawPage]:
        """`read_rows` with these places raw; none if columns have changed their types."""

    def find_roots(
        self,
        plan: EntityPlan,
        lookup: Lookup,
        values: Sequence[Sequence[Any]],
        after: SourceKey | None,
        limit: int,
    ) -> list[SourceKey]:
        """Keys of roots that the lookup reaches, distinct, in key order, past `after`.

        Includes rows that `where` leaves out; values with NULL reach nothing.
        """


class Rows(RootFinder, Protocol):
    """Reads row trees and finds roots. Every call is one read-only transaction."""

    def facts(self) -> SchemaFacts: ...

    def rows_about(self, plan: EntityPlan) -> int:
        """Selected rows: counted, or the database's estimate if that takes longer than allowed."""

    def rows_expected(self, plan: EntityPlan) -> int:
        """The database's estimate of selected rows; counted if it has none."""

    def rows_without_key(self, plan: EntityPlan) -> int:
        """Rows with NULL in their primary key (SQLite allows it): no page contains them."""

    def twins(self, plan: EntityPlan, at_most: int) -> list[tuple[SourceKey, int]]:
        """Keys shared by several selected rows, as the source compares them, and the number of rows.

        Raises: TooSlowError.
        """

    def page_bounds(
        self, plan: EntityPlan, page_rows: int, after: SourceKey | None = None, upto: SourceKey | None = None
    ) -> Iterator[SourceKey]:
        """The last key of every full page with after < key <= upto (None is open); one more page follows the
        last bound.
        """

    def random_keys(self, plan: EntityPlan, number: int, rows: int, seed: int) -> list[SourceKey]:
        """At most `number` random keys, in the source's order, without a scan.

        Includes rows that the entity's `where` leaves out. `rows`: their approximate number.
        """

    def read_page(
        self, plan: EntityPlan, after: SourceKey | None, upto: SourceKey | None, limit: int | None = None
    ) -> list[RowTree]:
        """Row trees with after < key <= upto, compared by the source; None is open."""

    def read_raw(
        self,
        plan: EntityPlan,
        raw: frozenset[int],
        after: SourceKey | None,
        upto: SourceKey | None,
        limit: int | None = None,
    ) -> RawPage:
        """`read_page` with these places raw; none if columns have changed their types."""

    # ── counts and sums, in the source's own way ──

    def count(self, plan: EntityPlan) -> int: ...

    def count_where(
        self, plan: EntityPlan, conditions: Sequence[tuple[Column, tuple[Value, ...] | None]]
    ) -> int:
        """Selected rows that match the conditions (None: the column is not NULL)."""

    def key_counts(self, plan: EntityPlan) -> KeyCounts:
        """Rows with a key and different keys, compared by the source, in one snapshot."""

    def rows_seen(self, table: TableFacts) -> RowsSeen: ...

    def sums(self, plan: EntityPlan, columns: Sequence[Column]) -> dict[str, Any]:
        """SUM of each column over selected rows with a key, as the driver returns it."""

    def close(self) -> None: ...


@runtime_checkable
class DocumentRows(Protocol):
    """Rows in tables of DynamoDB; reading them costs read units."""

    def table_ids(self) -> Mapping[str, str]: ...

    def read_units(self, plans: Sequence[EntityPlan], page_rows: int) -> float: ...

    def read_words(self, plans: Sequence[EntityPlan], page_rows: int) -> Sequence[str]:
        """A line for each table that is read as a whole because no index finds its rows."""


class ComputingSource(Protocol):
    def facts(self) -> SchemaFacts: ...

    def computed_fault(self, table: TableFacts, column: Column) -> str:
        """The source's error for the SQL; '' for none."""

    def volatile_parts(self, column: Column) -> list[str]:
        """Parts of the SQL whose value may change for the same row, each with the reason."""


class QueryCall(Struct, frozen=True):
    """A user's statement with parameters. `schema`: of tables without one."""

    statement: Statement
    params: Mapping[str, Any] = {}
    schema: str | None = None


class Questions(Protocol):
    """Answers statements of patterns. Each call is one transaction, if the source has transactions."""

    def query(
        self,
        statement: Statement,
        params: Mapping[str, Any],
        schema: str | None = None,
        *,
        at_most: int | None = None,
        what: str = "a query of the mapping",
    ) -> list[tuple[Any, ...]]:
        """Rows of a user's statement. `schema`: of tables without one.

        `at_most`: maximum rows, plus one if there are more; the rest stays in the database. `what`: its name
        in errors.
        """

    def query_faults(self, calls: Sequence[QueryCall]) -> list[str]:
        """The source's error for each call, which is not run; '' for none."""


class Source(Rows, Questions, Protocol):
    """A relational database, or old DynamoDB tables."""


class Database(Source, Protocol):
    def first_row_of_each(self, selects: Sequence[str], what: str) -> list[tuple[Any, ...]]: ...


# ── target ──────────────────────────────────────────────────────────────────────────────────────


class Receipt(Struct, frozen=True):
    """Result of a write: requests (with retries), stored bytes, write units.

    `unwritten`: rejected keys, each with the reason.
    `owned_by_other`: keys of foreign items, each with its source or ''.
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
    """Results of one scan request, and the start of the next one (None: the segment is done)."""

    items: list[Found]
    next_start: ItemKey | None


class QueryPage(Struct, frozen=True):
    """Result of a read.

    `next_start`: where a Query continues (None: it is done).
    `requests`: with retries.
    `read_units`: from the endpoint.
    `dropped`: items that a filter left out after they were read.
    """

    items: list[Item]
    next_start: Mapping[str, Any] | None = None
    read_units: float = 0.0
    requests: int = 1
    dropped: int = 0


AT_ONCE = 8
"""Requests of one question that run in parallel at most."""


class ItemStore(Protocol):
    """The items of one table. Calls retry transient failures, and raise StoppedError if they persist."""

    def put(self, items: Sequence[EncodedItem]) -> Receipt:
        """Store items in batches, and retry UnprocessedItems until all are stored or `unwritten`.

        Raises: ItemRefusedError if the table rejects all, and never took any other.
        """

    def delete(self, keys: Sequence[ItemKey]) -> None: ...

    def delete_own(self, items: Sequence[Item]) -> int:
        """Delete items with an unchanged source attribute; returns how many are gone."""

    def get(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Item]:
        """Read items consistently."""

    def scan(self, segment: int, segments: int, start: ItemKey | None = None) -> Iterator[ScanPage[Item]]: ...

    def scan_encoded(
        self, segment: int, segments: int, each: Callable[[WiredItem], Found], start: ItemKey | None = None
    ) -> Iterator[ScanPage[Found]]: ...

    def scan_text(
        self, segment: int, segments: int, see: Callable[[bytes], list[Found]]
    ) -> Iterator[ScanPage[Found]]: ...

    def query(self, request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> QueryPage:
        """One page of a Query. `request`: plain values without the table's name, see mapping/patterns/requests.py."""

    def start_after(self, request: Mapping[str, Any], position: Item) -> Mapping[str, Any]:
        """Where a Query continues after an item, which may be deleted by now. `position`: its key attributes of
        table and index.
        """

    def get_item(self, request: Mapping[str, Any]) -> QueryPage: ...

    def batch_get(self, request: Mapping[str, Any]) -> QueryPage:
        """Stored items among up to 100 `Keys`, in any order; retries UnprocessedKeys."""


class ObjectStore(Protocol):
    """Objects that items point to. Calls retry transient failures, and raise StoppedError if they persist."""

    def put(self, objects: Mapping[str, bytes]) -> None:
        """Store new objects by name; existing ones stay."""

    def sizes(self, names: Sequence[str]) -> dict[str, int]: ...


class TableState(Struct, frozen=True):
    """An existing table.

    `differences`: sentences about differences from the design.
    `parts`: their parts (key, ttl, index NAME).
    `unlike`: options that differ from the job's, which prevent no run.
    `extra`: global indexes that the mapping does not have, which prevent none either.
    """

    table_id: str
    status: str
    differences: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


class ActionProbe(Struct, frozen=True):
    """An action that the credentials may do (on an index, if given), or why it was `refused`.

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
        """Remove our attributes from items with an unchanged source; returns how many have none now."""

    def remove(self, own: Sequence[Item]) -> int:
        """Delete unchanged tombstones and control items; returns how many are gone."""


# ──
# What the table itself keeps of a migration, in case the source or the journal is lost.

NameKind = Literal["table", "source"]


class KeptPhase(Struct, frozen=True):
    """A pattern's phase in words, and the version of its move (see mapping/model/evidence.py)."""

    phase: str
    version: int


class Kept(Struct, frozen=True):
    """State that a fresh journal of one job must not contradict.

    `journal`: id of the full journal.
    `phases`: of patterns that are, or were, live or complete.
    `direct`: entities that the service writes itself, by run `direct_run` (0: none ever).
    """

    journal: str
    phases: Mapping[str, KeptPhase] = {}
    direct: frozenset[str] = frozenset()
    direct_run: int = 0


class ControlState(Struct, frozen=True):
    """The control item.

    `ticket`: the highest known.
    `table_id`: of the table that it was written into, '' if unknown.
    `jobs`: kept state by job.
    `version`: counts changes, 0 if none is kept.
    """

    ticket: int = 0
    table_id: str = ""
    jobs: Mapping[str, Kept] = {}
    version: int = 0
    is_there: bool = False


class Control(Protocol):
    def read_control(self) -> ControlState:
        """Raises: TargetError if its key is another's."""

    def raise_control(self, ticket: int) -> int:
        """Set the highest ticket, unless another one is as high: returns that one, or 0.

        Raises: TargetError if the item was seen before and is gone.
        """

    def keep(self, table_id: str, job: str, kept: Kept) -> None:
        """Keep this state of the job in the table of that id; the ticket stays."""


UNREPAIRED = 2**62
"""Ticket in a table with changes that the source has lost: no writer has a ticket this high, so none continues before the
repair."""


UNIMPORTED = UNREPAIRED - 1
"""Ticket in a table during an import: keys of its rows are not remembered yet."""


class Identity(Protocol):
    """The journal's identity, and tables that it knows. Every method is one transaction."""

    def journal_id(self) -> str:
        """The id, drawn when the journal was made; a copy has the same."""

    def seen(self, table_id: str) -> int | None:
        """A known ticket of the table's control item; None if this journal never wrote into it."""

    def see(self, table_id: str, table: str, ticket: int) -> None:
        """Record the ticket of a table's control item, if it is the highest seen."""

    def repaired(self, table_id: str, table: str, ticket: int) -> None:
        """The table is repaired: earlier observations no longer count."""

    def tables_named(self, table: str) -> frozenset[str]: ...


MANIFEST = "manifest.json"
PARTS = "data/"
"""Before the names of the parts: an import reads every object behind this prefix, so nothing else has it."""
PAGES = "pages/"
"""Before the names of pages, which are merged into parts and then removed."""
FORMAT = 1


class Files(Protocol):
    """A folder, or a prefix of a bucket. Raises StoppedError for transient failures, else SettingsError,
    TargetError.
    """

    @property
    def name(self) -> str: ...

    def write(self, name: str, data: bytes) -> None:
        """Replace the file as a whole or not at all."""

    def read(self, name: str) -> bytes | None: ...

    def sizes_below(self, below: str = "") -> dict[str, int]: ...

    def remove(self, names: Collection[str]) -> None: ...


class PartFile(Struct, frozen=True):
    """One object of an import. `md5`: of its stored bytes. `json_bytes`: without gzip, by which AWS bills."""

    name: str
    md5: str
    items: int
    bytes: int
    json_bytes: int


class Manifest(Struct, frozen=True):
    """Contents of an export.

    `revision`: digest of mapping, columns and capture of the run.
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
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(type(error).__name__) from None


def manifest_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


ImportStatus = Literal["IN_PROGRESS", "COMPLETED", "CANCELLING", "CANCELLED", "FAILED"]


class ImportState(Struct, frozen=True):
    """An import, as DynamoDB describes it. `token`: of its request."""

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
    """An item that an import rejected: the file's name, the line from 0, and why."""

    name: str
    line: int
    why: str


class TableImports(Protocol):
    def begin(self, token: str) -> ImportState: ...

    def state(self, arn: str) -> ImportState: ...

    def asked_with(self, token: str) -> ImportState | None: ...

    def faults(self, arn: str, at_most: int) -> tuple[list[ImportFault], str]: ...


class Imported(Struct, frozen=True):
    """How an import ended.

    `replaced`: how many items the table lacks: keys that changed hands while rows were exported.
    `remembered`: keys for the relay.
    """

    run: int
    table: str
    items: int
    replaced: int = 0
    remembered: int = 0
