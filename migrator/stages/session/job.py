"""Opens a job's source with capture, journal and table, and checks that they belong together."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from migrator.dynamodb.admin import DynamoTableAdmin
from migrator.dynamodb.client import (
    EMBEDDED,
    TIMEOUT_S,
    AssumedRole,
    default_region,
    dynamodb_client,
    endpoint_of,
    service_client,
)
from migrator.dynamodb.control import DynamoStripping, control_state
from migrator.dynamodb.failures import in_words
from migrator.dynamodb.objects import DynamoImports, FolderFiles, S3Files, S3Objects
from migrator.dynamodb.store import DynamoStore, reads_only
from migrator.dynamodb.throttle import Sent, WriteLimit
from migrator.journal.identity import JournalLocation, SqlIdentity, file_of, location_of
from migrator.journal.operations import refuse_absent
from migrator.journal.phases import SqlPhases
from migrator.journal.runs import SqlJournal
from migrator.mapping.model.edges import AT_ONCE, PARTS, Files, NameKind, TableImports, WiredItem
from migrator.mapping.model.evidence import ROUTES
from migrator.mapping.model.instances import Lifetimes
from migrator.mapping.model.live import Capture, MarkedBy, SlotLag
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import Item, TableDesign
from migrator.runtime import logs
from migrator.runtime.errors import MigratorError, SettingsError
from migrator.runtime.retry import Backoff, Retry
from migrator.runtime.system import HOME
from migrator.runtime.values import replace
from migrator.settings.definition import import_parameters
from migrator.settings.job import IN_SOURCE, DocumentSettings, Job, load_job
from migrator.settings.transforms import sound_mapping, table_of
from migrator.source.capture.install import SqlActivity, SqlCapture
from migrator.source.capture.log.opening import open_captured
from migrator.source.capture.marks import SqlMarks, SqlTickets
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.engines.connect import address_of, extra_for, identity_of, journal_engine, of_kind
from migrator.source.sql.transactions import Writing
from migrator.stages.core import ownership as stage
from migrator.stages.core.ownership import OnRecord, take_names
from migrator.stages.cutover.moves import WriteOwnership
from migrator.stages.session.source import JobSource, secret_providers

if TYPE_CHECKING:
    from migrator.journal.source_capture import JournalTickets
    from migrator.source.dynamodb.marks import StreamMarks
    from migrator.source.dynamodb.opening import StreamActivity, StreamCapture
    from migrator.source.reader import SqlSource

JOURNAL_CONNECTIONS = 15
_log = logs.get_logger("journal")


def read_job(path: Path, *, asks_source: bool = True) -> Job:
    """Load the job, which log lines name from now on; see load_job()."""
    job = load_job(path, os.environ, asks_source=asks_source)
    logs.name_job(job.name)
    return job


def sampled(
    settings: DocumentSettings, number: int
) -> Iterator[tuple[str, Mapping[str, str], list[WiredItem]]]:
    """Name, key and up to `number` documents of each old table."""
    from migrator.source.dynamodb.opening import open_reader, sample_of  # only old tables need it

    reader, most = open_reader(settings, 1, Retry())
    with closing(reader.client):
        for name, real in settings.real_names.items():
            yield name, reader.describe(real).key, sample_of(reader, real, most, number)


@contextmanager
def open_journal(
    job: Job, stop: Callable[[], bool] = lambda: False, patience: Backoff | None = None
) -> Iterator[SqlJournal]:
    """The job's journal; `journal: source` is in the source's own database.

    `patience`: for an unreachable server; by default the job's.
    Raises: SettingsError if the source is an SQLite file, which has one writer at a time; AnotherJobError if
    the journal knows this name with another table or source.
    """
    with _any_journal(job, Retry(patience or backoff_of(job), stop)) as journal:
        identity = SqlIdentity(journal.database, job.name)
        take_names(job.name, str(job.path), _names(job), identity, journal.name)
        yield journal


def keep_names(job: Job) -> dict[NameKind, str]:
    """Names of table and source, which the journal records from now on."""
    names = _names(job)
    with _any_journal(job, Retry(backoff_of(job))) as journal:
        for kind, name in names.items():
            SqlIdentity(journal.database, job.name).add_name(kind, name)
    return names


@contextmanager
def _any_journal(job: Job, retry: Retry) -> Iterator[SqlJournal]:
    with closing(_journal(job, retry)) as journal:
        if journal.database.is_new:
            _log.warning("journal_made", journal=journal.name, job=job.name)
        yield journal


def _journal(job: Job, retry: Retry) -> SqlJournal:
    if job.journal == IN_SOURCE:
        return _journal_in_source(job, retry)
    return SqlJournal(_location(job), retry)


def _location(job: Job) -> JournalLocation:
    return location_of(job.journal, job.name, job.path.parent, os.environ.get(HOME))


def refuse_absent_journal(job: Job) -> None:
    """Raises: SettingsError if the journal is missing, for a run to be joined on this host. Creates nothing."""
    refuse_absent(_location(job), job.name)


def answered_by_table(job: Job) -> list[str]:
    """Patterns the journal records as answered by DynamoDB; none if it is missing or unreachable."""
    file = "" if job.journal == IN_SOURCE else file_of(_location(job))
    if file and not os.path.exists(file):
        return []
    try:
        with closing(_journal(job, Retry(Backoff(attempts=1)))) as journal:
            phases = SqlPhases(journal.database, job.name).all()
    except MigratorError:
        return []
    return sorted(name for name, phase in phases.items() if ROUTES[phase.state.phase].in_share == "table")


def _names(job: Job) -> dict[NameKind, str]:
    """Those that are known."""
    names: dict[NameKind, str] = {"table": table_of(job)}
    # A journal in the source moves with the source: it need not distinguish it from others.
    if job.journal != IN_SOURCE:
        names["source"] = source_name(job)
    return {kind: name for kind, name in names.items() if name}


def source_name(job: Job) -> str:
    """A unique name of this source; "" if unknown. Does not read the source."""
    if job.source.dynamodb:
        return job.source.dynamodb.identity
    return identity_of(job.source.url, secret_providers(job.path.parent))


def _journal_in_source(job: Job, retry: Retry) -> SqlJournal:
    settings = job.source
    address = address_of(settings.url, settings.command, secret_providers(job.path.parent, job.target))
    # Two at least: the lease's heartbeat must not wait for another transaction.
    size = settings.connections_apart(JOURNAL_CONNECTIONS, at_least=2)
    name, limit_s = name_of(job.name, "journal"), settings.statement_timeout_s
    return SqlJournal(
        journal_engine(address, ConnectionOptions(name, size, statement_timeout_s=limit_s)), retry
    )


class Target(Struct, frozen=True):
    """One job's table under its name, and its bucket, if any. Read-only until `fenced`."""

    design: TableDesign
    admin: DynamoTableAdmin
    store: DynamoStore
    objects: S3Objects | None = None

    def table_id(self) -> str:
        return self.admin.existing(self.design)

    def pages(self) -> Iterator[list[Item]]:
        return (page.items for page in self.store.scan(0, 1))

    def stripping(self) -> DynamoStripping:
        return DynamoStripping(self.store)

    def fenced(self, check: Callable[[], None]) -> Target:
        """The target for a writer. `check`: called before each request; raises when sending must stop."""
        return replace(self, store=self.store.fenced(check))


class RequestLimits(Struct, frozen=True):
    connections: int
    timeout_s: float
    backoff: Backoff

    @classmethod
    def of(cls, job: Job) -> RequestLimits:
        return cls(max(job.tuning.workers, AT_ONCE) + 2, TIMEOUT_S, backoff_of(job))


def open_target(
    job: Job,
    design: TableDesign,
    stop: Callable[[], bool] = lambda: False,
    requests: RequestLimits | None = None,
    sent: Sent | None = None,
) -> Target:
    """Open the job's table; starts the embedded DynamoDB if the job names it. `sent`: an existing request counter."""
    settings, request_limits, named = job.target, requests or RequestLimits.of(job), design_for(job, design)
    endpoint = endpoint_of(settings.endpoint)
    client = dynamodb_client(
        region=settings.region,
        profile=settings.profile,
        endpoint=endpoint,
        connections=request_limits.connections,
        role=_role(job),
        timeout_s=request_limits.timeout_s,
    )
    # Even without a limit in the job: `migrator pace` may set one during the run.
    wait = Retry(request_limits.backoff, stop).wait
    limit = WriteLimit(job.tuning.max_write_units, named.global_indexes, wait=wait)
    store = DynamoStore(client, named, reads_only, request_limits.backoff, stop, limit, sent)
    objects = _objects(job, named, request_limits.backoff, stop)
    return Target(named, DynamoTableAdmin(client, stop=stop), store, objects)


def backoff_of(job: Job) -> Backoff:
    tuning = job.tuning
    return Backoff(tuning.attempts, cap_s=tuning.backoff_cap_s, limit_s=tuning.give_up_after_s)


def _objects(job: Job, design: TableDesign, backoff: Backoff, stop: Callable[[], bool]) -> S3Objects | None:
    settings = job.target
    if settings.bucket is None:
        return None
    objects = S3Objects(
        client_of(job, "s3"), settings.bucket, settings.prefix_for(design.name), backoff, stop
    )
    if settings.endpoint == EMBEDDED:
        objects.make_bucket()
    return objects


def extras_of(job: Job) -> list[tuple[str, str]]:
    """Extras that the job needs, each with its module."""
    extras = {extra_for(job.source.url)}
    if (job.target.endpoint or "").startswith(EMBEDDED):
        extras.add(("local", "ministack"))
    return sorted(extra for extra in extras if extra is not None)


def client_of(job: Job, service: str, policy: str = "") -> Any:
    """Client of another AWS service, with the job's region, credentials and endpoint.

    `policy`: of the session of the job's role; '' for all its rights.
    """
    settings, role = job.target, _role(job)
    return service_client(
        service,
        region=settings.region,
        profile=settings.profile,
        endpoint=endpoint_of(settings.endpoint),
        connections=job.tuning.workers + 2,
        role=replace(role, policy=policy) if role else None,
    )


@contextmanager
def own_words(client: Any, table: str) -> Iterator[None]:
    """For a block that sends requests by a client of client_of. `table`: its name for the table.

    Raises: StoppedError, TargetError for boto's errors.
    """
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("botocore") and not hasattr(error, "operation_name"):
            raise
        operation = getattr(error, "operation_name", "a request")
        raise in_words(error, operation, table, client.meta.endpoint_url) from None


def _role(job: Job) -> AssumedRole | None:
    settings = job.target
    if settings.role_arn is None:
        return None
    return AssumedRole(
        settings.role_arn, settings.session_name or f"migrator-{job.name}"[:64], settings.external_id
    )


def region_of(job: Job) -> str | None:
    return default_region(job.target.region, job.target.profile)


def design_for(job: Job, design: TableDesign) -> TableDesign:
    return replace(design, name=job.target.table or design.name, kept=frozenset(job.keep))


# ── Whether source, journal and table belong together ──


def jobs_of(target: Target) -> frozenset[str]:
    return frozenset(control_state(target.store).jobs)


def on_record(job: Job, journal: SqlJournal) -> OnRecord:
    database = journal.database
    identity, phases = SqlIdentity(database, job.name), SqlPhases(database, job.name)
    return stage.on_record(identity.journal_id(), phases.all(), journal.runs(job.name))


def write_ownership(job: Job, mapping: MappingModel, journal: SqlJournal) -> WriteOwnership:
    phases = SqlPhases(journal.database, job.name)
    return WriteOwnership(mapping, job.direct, phases, lambda: on_record(job, journal).direct)


_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>.*))?")


def files_at(job: Job, place: str, stop: Callable[[], bool]) -> Files:
    """`place`: s3://bucket/prefix, or a folder. Raises: SettingsError."""
    if not place.startswith("s3:"):
        return FolderFiles(Path(place).absolute())
    matched = _S3.fullmatch(place)
    if matched is None:
        raise SettingsError(f"invalid S3 location '{place}': use s3://bucket/prefix")
    prefix = (matched["prefix"] or "").strip("/")
    s3 = client_of(job, "s3")
    files = S3Files(s3, matched["bucket"], f"{prefix}/" if prefix else "", backoff_of(job), stop)
    if job.target.endpoint == EMBEDDED:
        files.make_bucket()
    return files


def import_request(job: Job, design: TableDesign, files: Files) -> dict[str, Any]:
    """ImportTable's parameters for all parts of an export in a bucket, without the token."""
    assert isinstance(files, S3Files)
    return {
        "S3BucketSource": {"S3Bucket": files.bucket, "S3KeyPrefix": f"{files.prefix}{PARTS}"},
        "InputFormat": "DYNAMODB_JSON",
        "InputCompressionType": "GZIP",
        "TableCreationParameters": import_parameters(design, job.target.options),
    }


def imports_of(job: Job, design: TableDesign, files: Files, stop: Callable[[], bool]) -> TableImports:
    assert isinstance(files, S3Files)
    clients = (client_of(job, "dynamodb"), client_of(job, "logs"))
    return DynamoImports(*clients, import_request(job, design, files), files.prefix, backoff_of(job), stop)


# ── What live change and cutover need of the source: capture, marks, tickets, activity ──


DDL_LOCK_WAIT_S = 1.0
"""A change of a table that waits for its lock makes the service's writes wait behind it."""
DDL_PATIENCE = Backoff(attempts=30, base_s=1.0, cap_s=5.0, limit_s=120.0)
ONCE = Backoff(attempts=1)


class Live(Struct, frozen=True):
    capture: Capture
    marks: SqlMarks | StreamMarks
    tickets: SqlTickets | JournalTickets
    activity: SqlActivity | StreamActivity

    @property
    def sql_capture(self) -> SqlCapture:
        return of_kind(self.capture, SqlCapture)

    @property
    def stream_capture(self) -> StreamCapture:
        return cast("StreamCapture", self.capture)

    @property
    def sql_marks(self) -> SqlMarks:
        return of_kind(self.marks, SqlMarks)

    @property
    def exact_marks(self) -> SqlMarks | StreamMarks:
        """Marks counted with all changes committed before: for evidence."""
        return self.marks.exact() if isinstance(self.marks, SqlMarks) else self.marks

    def slot_lag(self) -> SlotLag | None:
        return self.marks.lag() if isinstance(self.marks, SqlMarks) else None

    def marked_by(self) -> MarkedBy:
        installation = self.capture.installation()
        return "log" if installation is not None and installation.marked_by == "log" else "triggers"


@contextmanager
def open_live(
    job: Job,
    command: str,
    *,
    stop: Callable[[], bool] = lambda: False,
    patience: Backoff = DDL_PATIENCE,
    source: JobSource | None = None,
    answer_within_s: float | None = None,
) -> Iterator[Live]:
    """`source`: its connections read capture; None for an own one. Write connections open at the first write.

    `answer_within_s`: timeout of a statement, and then of a silent server; None: the job's.
    """
    settings = job.source
    if settings.dynamodb is not None:
        with _open_old_live(job, settings.dynamodb, Retry(patience, stop), source) as live:
            yield live
        return
    address = address_of(settings.url, settings.command, secret_providers(job.path.parent, job.target))
    connection_options = ConnectionOptions(
        name=name_of(job.name, command),
        pool_size=settings.connections_apart(job.tuning.workers + 1),
        lock_wait_s=DDL_LOCK_WAIT_S,
        statement_timeout_s=settings.statement_timeout_s,
    )
    connection_options = connection_options.answering_within(answer_within_s)
    retry = Retry(patience, stop)
    reading = None if source is None else cast("SqlSource", source).engine
    writing = Writing(address, connection_options, retry, reading)
    capture, marks, activity = open_captured(
        job.name, writing, address, connection_options.name, retry.wait, partial(_is_over, job)
    )
    with closing(marks):
        yield Live(capture, marks, SqlTickets(writing), activity)


def _is_over(job: Job, journal: SqlJournal | None = None) -> bool:
    if journal is not None:
        return write_ownership(job, sound_mapping(job.mapping).mapping, journal).is_service()
    with open_journal(job) as opened:
        return _is_over(job, opened)


@contextmanager
def _open_old_live(
    job: Job, tables: DocumentSettings, retry: Retry, source: JobSource | None
) -> Iterator[Live]:
    from migrator.journal.source_capture import JournalTickets  # only old tables need these
    from migrator.source.dynamodb.opening import open_document_live

    with open_journal(job, retry.stop, retry.backoff) as journal:
        is_over = partial(_is_over, job, journal)
        database = journal.database
        capture, marks, activity = open_document_live(job, tables, database, retry, source, is_over)
        with closing(marks):
            yield Live(capture, marks, JournalTickets(database, job.name), activity)


def lifetimes_of(job: Job) -> Lifetimes:
    return Lifetimes(job.tuning.request_life_s, job.tuning.silent_s)
