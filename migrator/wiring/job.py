"""Opens a job: settings, mapping, source, journal and table, each made once and handed to stages."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from migrator.journal.identity import SqlIdentity
from migrator.journal.lease import RunLease
from migrator.journal.place import place_of, settle
from migrator.journal.runs import SqlJournal
from migrator.mapping.check.check import Checked, check_mapping
from migrator.mapping.language.parse import ParsedMapping
from migrator.mapping.live.direct import without_direct
from migrator.model.edges import NameKind
from migrator.model.errors import Fault, MappingError, MigratorError, SettingsError
from migrator.model.table import TableDesign
from migrator.runtime.files import HOME
from migrator.runtime.logs import get_logger
from migrator.runtime.retry import Backoff, Retry
from migrator.settings.job import Job, TargetSettings, Tuning, load_job
from migrator.settings.source import SourceSettings
from migrator.settings.transforms import load_transforms, read_mapping
from migrator.source.connect import RateLimit, SecretProviders, address_of, identity_of, write_engine
from migrator.source.engines.base import ConnectionOptions, name_of
from migrator.source.engines.table import engine_for_scheme, engine_of
from migrator.source.explain import SourceHealth, source_health
from migrator.source.reader import SqlSource
from migrator.stages.ownership import refuse_other_job
from migrator.stages.patterns.question import AT_ONCE
from migrator.target import embedded
from migrator.target.client import Role, default_region, dynamodb_client, read_secret, service_client
from migrator.target.objects import S3Objects
from migrator.target.store import DynamoStore, reads_only
from migrator.target.table import DynamoTableAdmin
from migrator.target.throttle import WriteLimit

EMBEDDED = "embedded"
IN_SOURCE = "source"
JOURNAL_CONNECTIONS = 15
_log = get_logger("journal")


def read_job(path: Path) -> Job:
    return load_job(path, os.environ)


@dataclass(frozen=True)
class Work:
    """What a command is about to do with the source: under which name, how many at once, and how patiently.

    `apart`: how many other pools share the limit of connections.
    """

    name: str = name_of()
    workers: int = 1
    retry: Retry = Retry()
    secret_providers: SecretProviders | None = None
    apart: int = 1


def secret_providers(folder: Path, target: TargetSettings | None = None) -> SecretProviders:
    """Who is asked for a URL; files stand below `folder`, secrets are read with the target's profile."""
    region, profile = (target.region, target.profile) if target else (None, None)
    return SecretProviders(folder, os.environ, partial(read_secret, region=region, profile=profile))


@contextmanager
def open_source(settings: SourceSettings, parsed: ParsedMapping, work: Work = Work()) -> Iterator[SqlSource]:
    mapping, asked = parsed.mapping, work.secret_providers or secret_providers(Path())
    source = SqlSource(
        address_of(settings.url, settings.command, asked),
        mapping.names,
        ConnectionOptions(
            name=work.name,
            pool_size=settings.connections(work.workers + 1, apart=work.apart),
            statement_timeout_s=settings.statement_timeout_s,
        ),
        schemas=mapping.schemas_read,
        pace=RateLimit(settings.max_rows_per_s, work.retry.stop),
        retry=work.retry,
        replica=address_of(settings.read_url, (), asked) if settings.read_url else None,
    )
    try:
        yield source
    finally:
        source.close()


@contextmanager
def open_journal(
    job: Job, stop: Callable[[], bool] = lambda: False, patience: Backoff | None = None
) -> Iterator[SqlJournal]:
    """The job's journal; `journal: source` is one in the source's own database.

    `patience`: how long a server that is away is waited for; as the job says otherwise. `stop`: whether to give up.
    Raises: SettingsError where the source is an SQLite file, which has one writer at a time; AnotherJobError where it is
    a job with another table or source that the journal knows by this name.
    """
    with _any_journal(job, Retry(patience or backoff_of(job), stop), _refuse_other) as journal:
        identity = SqlIdentity(journal.database, job.name)
        names = {kind: name for kind, name in _names(job).items() if name}
        known = {kind: identity.names(kind) for kind in names}
        _refuse_other(job, known, journal.name)
        if not all(known.values()):
            # Nothing is kept of a job that is refused.
            kept = {kind: identity.first_name(kind, name) for kind, name in names.items()}
            _refuse_other(job, kept, journal.name)
        yield journal


class CommandJob:
    """What all parts of one command share of a job: its file, read once, and its journal, opened once.

    Neither is asked for before a part needs it. The journal is closed as the block ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open_until = ExitStack()
        self._journal: SqlJournal | None = None
        self._stop: Callable[[], bool] = _never

    @cached_property
    def job(self) -> Job:
        return read_job(self.path)

    def journal(self, stop: Callable[[], bool] | None = None) -> SqlJournal:
        """`stop`: whether to give up waiting for it, from now on. Raises: as open_journal does."""
        self._stop = stop or _never
        if self._journal is None:
            opening = open_journal(self.job, lambda: self._stop())
            self._journal = self._open_until.enter_context(opening)
        return self._journal

    def __enter__(self) -> CommandJob:
        return self

    def __exit__(self, *ended: object) -> None:
        self._open_until.close()


def _never() -> bool:
    return False


_Names = Mapping[NameKind, frozenset[str]]


def _refuse_other(job: Job, known: _Names, journal: str) -> None:
    """`known`: by the journal, of the job's table and source. Raises: AnotherJobError."""
    for kind, name in _names(job).items():
        if known.get(kind):
            refuse_other_job(job.name, str(job.path), kind, name, known[kind], journal)


def keep_names(job: Job) -> dict[NameKind, str]:
    """What the job calls its table and source; its journal takes them for those of the job that it knows, from now on."""
    names = {kind: name for kind, name in _names(job).items() if name}
    with _any_journal(job, Retry(backoff_of(job)), lambda job, known, journal: None) as journal:
        for kind, name in names.items():
            SqlIdentity(journal.database, job.name).add_name(kind, name)
    return names


@contextmanager
def _any_journal(job: Job, retry: Retry, check: Callable[[Job, _Names, str], None]) -> Iterator[SqlJournal]:
    """`check`: of what a journal knows of the job, before it is moved to the job's folder."""
    if job.journal == IN_SOURCE:
        journal = _journal_in_source(job, retry)
    else:
        place = place_of(job.journal, job.name, job.path.parent, os.environ.get(HOME))
        if os.path.isfile(job.path.name) and not os.path.samefile(job.path.name, job.path):
            # Another job file of this name stands under the working directory, and the journal there is its own.
            place = replace(place, former=None)
        if settle(place, job.name, lambda known: check(job, known, str(place.former))):
            why = "beside the job file it is the same from every working directory"
            _log.warning("journal_moved", before=str(place.former), now=place.file, why=why)
        journal = SqlJournal(place.url, retry)
    try:
        if journal.database.is_new:
            _log.warning("journal_made", journal=journal.name, job=job.name)
        yield journal
    finally:
        journal.close()


def _names(job: Job) -> dict[NameKind, str]:
    """What the job's table and source are called, '' where that cannot be known. Neither is asked."""
    table = job.target.table
    if table is None:
        with suppress(MigratorError):
            parsed = read_mapping(job.mapping)
            table = None if parsed.faults else parsed.mapping.table.name
    if job.journal == IN_SOURCE:
        return {"table": table or ""}
    source = identity_of(job.source.url, secret_providers(job.path.parent))
    return {"table": table or "", "source": source}


def _journal_in_source(job: Job, retry: Retry) -> SqlJournal:
    settings = job.source
    address = address_of(settings.url, settings.command, secret_providers(job.path.parent, job.target))
    if engine_of(address.url().get_backend_name()).is_file:
        what = "journal: source needs a server, and the source is an SQLite file"
        raise SettingsError(f"{what}; leave journal out, or write the URL of another database")
    # Two at least: the lease's heartbeat must not wait for another transaction.
    size = settings.connections_apart(JOURNAL_CONNECTIONS, at_least=2)
    name, limit_s = name_of(job.name, "journal"), settings.statement_timeout_s
    return SqlJournal(
        write_engine(address, ConnectionOptions(name, size, statement_timeout_s=limit_s)), retry
    )


def extra_for(url: str) -> tuple[str, str] | None:
    """The extra that a source's URL needs, and the module that it brings; None where it needs none, or does not say."""
    engine = engine_for_scheme(url.partition(":")[0])
    return None if engine is None else engine.connecting.extra


@dataclass(frozen=True)
class Target:
    """One job's table: its design under the job's name, its edges, and the bucket beside it where the job names one.

    As it is opened it can only be read; a writer takes what `fenced` gives.
    """

    design: TableDesign
    admin: DynamoTableAdmin
    store: DynamoStore
    objects: S3Objects | None = None

    def fenced(self, check: Callable[[], None]) -> Target:
        """The same for a writer; `check` raises when nothing more must be sent, and is asked before every request."""
        return replace(self, store=self.store.fenced(check))


@dataclass(frozen=True)
class Requests:
    """How many requests there may be at once, how long each may take, and how patiently they are sent again."""

    connections: int
    timeout_s: float
    backoff: Backoff


def open_target(
    job: Job, design: TableDesign, stop: Callable[[], bool], requests: Requests | None = None
) -> Target:
    """The job's table; starts the embedded DynamoDB where the job says so."""
    settings, tuning = job.target, job.tuning
    endpoint = settings.endpoint
    if endpoint == EMBEDDED:
        endpoint = embedded.ensure_running(embedded.folder())
    client = dynamodb_client(
        region=settings.region,
        profile=settings.profile,
        endpoint=endpoint,
        connections=requests.connections if requests else max(tuning.workers, AT_ONCE) + 2,
        role=_role(job),
        **({"timeout_s": requests.timeout_s} if requests else {}),
    )
    named = design_for(job, design)
    backoff = requests.backoff if requests else backoff_of(job)
    admin = DynamoTableAdmin(client, stop=stop)
    limit = _limit(tuning, named, Retry(backoff, stop))
    store = DynamoStore(client, named, reads_only, backoff, stop, limit)
    return Target(named, admin, store, _objects(job, endpoint, named, backoff, stop))


def backoff_of(job: Job) -> Backoff:
    tuning = job.tuning
    return Backoff(tuning.attempts, cap_s=tuning.backoff_cap_s, limit_s=tuning.give_up_after_s)


def _limit(tuning: Tuning, design: TableDesign, retry: Retry) -> WriteLimit | None:
    if tuning.max_write_units is None:
        return None
    indexes = [index.name for index in design.indexes if not index.local]
    return WriteLimit(tuning.max_write_units, indexes, wait=retry.wait)


def _objects(
    job: Job, endpoint: str | None, design: TableDesign, backoff: Backoff, stop: Callable[[], bool]
) -> S3Objects | None:
    settings = job.target
    if settings.bucket is None:
        return None
    client = service_client(
        "s3",
        region=settings.region,
        profile=settings.profile,
        endpoint=endpoint,
        connections=job.tuning.workers + 2,
        role=_role(job),
    )
    prefix = f"{design.name}/" if settings.prefix is None else settings.prefix
    objects = S3Objects(client, settings.bucket, prefix, backoff, stop)
    if settings.endpoint == EMBEDDED:
        objects.make_bucket()
    return objects


def _role(job: Job) -> Role | None:
    settings = job.target
    if settings.role_arn is None:
        return None
    return Role(settings.role_arn, settings.session_name or f"migrator-{job.name}"[:64], settings.external_id)


def region_of(job: Job) -> str | None:
    """The region that the job's table is in, or would be; None where none is set."""
    return default_region(job.target.region, job.target.profile)


def design_for(job: Job, design: TableDesign) -> TableDesign:
    """The mapping's table under the name that the job gives it."""
    return replace(design, name=job.target.table or design.name)


@dataclass(frozen=True)
class JobContext:
    """A job's mapping laid over its open source."""

    job: Job
    checked: Checked
    source: SqlSource


@contextmanager
def open_job(
    job: Job, command: str, *, workers: int | None = None, stop: Callable[[], bool] = lambda: False
) -> Iterator[JobContext]:
    """The job's mapping, checked against its source, which stays open inside of the block.

    `command`: what the source's administrator sees beside the job's name. `stop`: whether to give up waiting.
    """
    parsed = read_mapping(job.mapping)
    asked, retry = secret_providers(job.path.parent, job.target), Retry(backoff_of(job), stop)
    apart = 2 if job.journal == IN_SOURCE else 1
    work = Work(name_of(job.name, command), workers or job.tuning.workers, retry, asked, apart)
    with open_source(job.source, parsed, work) as source:
        yield JobContext(job, without_direct(checked_on(source, parsed), job.direct), source)


def sound_mapping(path: Path) -> ParsedMapping:
    """The mapping of a file.

    Raises: MappingError when its form has faults.
    """
    parsed = read_mapping(path)
    if parsed.faults:
        raise MappingError(parsed.faults)
    return parsed


def revision_of(job: Job) -> str:
    """The revision of the job's mapping, as it is now. Raises: MappingError, SettingsError."""
    return load_transforms(sound_mapping(job.mapping))[0].mapping.revision


def health_of(context: JobContext) -> SourceHealth:
    return source_health(context.source.dialect, context.source.query, context.source.pooling())


def try_journal(job: Job) -> str:
    """The journal's name, once the job's lease was taken and given back, and what is done with each of our tables tried."""
    with open_journal(job, patience=Backoff(attempts=1)) as journal, RunLease(journal, job.name):
        journal.probe()
        return journal.name


def volatile_warnings(source: SqlSource, parsed: ParsedMapping, checked: Checked) -> list[Fault]:
    """A warning for each computed column whose SQL gives another value though nothing changes that could leave a mark."""
    return [
        parsed.document.fault(
            ("entities", entity.plan.entity.written, "columns", one.path), what, warning=True
        )
        for entity in checked.entities
        for one in entity.plan.computed
        if (parts := source.volatile_parts(one.column))
        for what in [f"{'; '.join(parts)}. {_VOLATILE}"]
    ]


_VOLATILE = (
    "No change of the row tells when the value changes, so items keep what it was when they were written, and verify finds"
    " them different; make the value of columns alone (a function that is: declare it IMMUTABLE, DETERMINISTIC), or in"
    " the service"
)


def checked_on(source: SqlSource, parsed: ParsedMapping) -> Checked:
    """The mapping checked against an open source, its transforms loaded."""
    revised, transforms = load_transforms(parsed)
    checked = check_mapping(revised, source.facts(), transforms)
    faults = [
        parsed.document.fault(("entities", entity.plan.entity.written, "columns", one.path), what)
        for entity in checked.entities
        for one in entity.plan.computed
        if (what := source.computed_fault(one.table, one.column))
    ]
    if faults:
        raise MappingError([*checked.warnings, *faults])
    return checked
