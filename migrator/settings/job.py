"""A job's settings, read from its file: source, target, tuning, reads, cutover and hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from migrator.mapping.language.document import Document, Ours, is_job_text, load_document, schema_faults
from migrator.mapping.language.value_forms import TableName, like, written_as
from migrator.mapping.model.durations import seconds_of
from migrator.runtime.errors import Fault, MappingError, SettingsError
from migrator.runtime.system import small_text
from migrator.runtime.values import replace

# ── A job's `source:` — the database's location, and limits of reading it ──

_DAY_S = 86_400
_VARIABLE_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def no_switch(value: Any) -> Any:
    """The value; rejects true and false, which Python counts as numbers."""
    if isinstance(value, bool):
        raise ValueError("write a number, not true or false")  # noqa: TRY004 - pydantic reports ValueError
    return value


def duration_s(value: Any) -> Any:
    return seconds_of(value) if isinstance(value, str) else no_switch(value)


def place(text: str) -> str:
    """The text; if it begins like an env:, file: or secret: reference, the name must follow."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "env" and not re.fullmatch(_VARIABLE_NAME, rest):
        raise ValueError("write env: and the name of an environment variable, such as env:SHOP_URL")
    if colon and kind == "file" and not rest.strip():
        raise ValueError(
            "write file: and the path of a file that holds the URL, relative to the job's folder"
        )
    if colon and kind == "secret" and not rest.strip():
        raise ValueError("write secret: and the ARN or the name of a secret of AWS Secrets Manager")
    return text


def _limit(limit_s: float) -> float:
    """Seconds; 0 for no limit."""
    if limit_s and not 0.001 <= limit_s <= _DAY_S:
        raise ValueError("write a duration from 0.001 (seconds) to 1d; 0 for no limit of ours")
    return limit_s


def _some(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if not values:
        raise ValueError("write at least one value here")
    return values


NOT_EMPTY = AfterValidator(_some)
"""For a list; pydantic's own min_length also reports one as empty if it contains an invalid value."""


def _empty_is(value: Any) -> WrapValidator:
    """Use the value for a key that is left empty."""

    def check(written: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        return value if written is None else handler(written)

    return WrapValidator(check)


class Settings(BaseModel):
    """A section of a job, as written and as used: unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


ENDPOINT = r"embedded|dynoxide|https?://.+"


def _no_user(text: str) -> str:
    """Reject a user in an endpoint: messages show the endpoint, and must not show a password."""
    if "@" in text:
        raise ValueError(
            "an endpoint has no user and no password; credentials come from the environment or a profile"
        )
    return text


Endpoint = Annotated[
    str,
    like(
        ENDPOINT, "write 'embedded', 'dynoxide' or a URL such as http://127.0.0.1:8000; leave it out for AWS"
    ),
    AfterValidator(_no_user),
    written_as(ENDPOINT),
]
_Place = Annotated[str, Field(min_length=1), AfterValidator(place), _empty_is("")]
_Word = Annotated[str, Field(min_length=1)]
Integer = Annotated[int, BeforeValidator(no_switch)]
Number = Annotated[float, BeforeValidator(no_switch)]
IS_DURATION = "x-duration"
Duration = Annotated[float, BeforeValidator(duration_s), Field(json_schema_extra={IS_DURATION: True})]
"""Any setting for a length of time, with or without _s in its name: see durations.py."""
_Timeout = Annotated[Duration, AfterValidator(_limit)]


class DocumentSettings(Settings):
    """Old DynamoDB tables, by their names in the AWS account, or by the mapping's names, each with the account's.

    `endpoint`: None is AWS, 'embedded' or 'dynoxide' our own server, else a URL. `max_read_units`: a second, over all
    reads.
    """

    tables: Annotated[tuple[TableName, ...], NOT_EMPTY] | dict[TableName, TableName]
    region: Annotated[str, Field(min_length=1)] | None = None
    profile: Annotated[str, Field(min_length=1)] | None = None
    endpoint: Endpoint | None = None
    max_read_units: Annotated[Number, Field(gt=0, le=1e9)] | None = None

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        """Marks and services find a table by its name in the account, and a stream is read once."""
        names: dict[str, list[str]] = {}
        for name, real in self.real_names.items():
            names.setdefault(real, []).append(name)
        twice = [f"{' and '.join(of)} are both the table {real}" for real, of in names.items() if len(of) > 1]
        if twice:
            advice = "name it once, with all columns; entities select documents by where:"
            raise ValueError(f"tables: {'; '.join(twice)}: {advice}, and a column of several types is 'any'")
        return self

    @property
    def real_names(self) -> dict[str, str]:
        return dict(self.tables) if isinstance(self.tables, dict) else {name: name for name in self.tables}

    @property
    def aws_options(self) -> str:
        """Options for `aws` that select the account, each after a space."""
        options = {"region": self.region, "profile": self.profile}
        return "".join(f" --{name} {value}" for name, value in options.items() if value)

    @property
    def identity(self) -> str:
        """Identity of these tables; two jobs with the same tables have the same source."""
        where = self.endpoint or self.region or self.profile or "AWS"
        return f"dynamodb {where} {','.join(sorted(self.real_names.values()))}"


class SourceSettings(Settings):
    """The source's connections and limits.

    `url` and `read_url`: a database's URL, a file's path, or a reference to the URL (env:, file:, secret:).
    `command`: prints the URL, or the password if `url` is also set.
    `read_url`: a replica.
    `max_connections`: limit for each of the two servers; reads, marks and tickets, and a journal in the source each get a
    part of it, of one connection at least.
    `statement_timeout_s`: None is ten minutes if the server sets none; 0 is off. Other limits of None are not set.

    Settings that may contain a secret are never shown.
    """

    url: _Place = Field("", repr=False)
    read_url: _Place = Field("", repr=False)
    command: Annotated[tuple[_Word, ...], NOT_EMPTY, _empty_is(())] = Field((), repr=False)
    max_connections: Annotated[Integer, Field(ge=1, le=1000)] | None = None
    statement_timeout_s: Annotated[_Timeout | None, _empty_is(0.0)] = None
    max_rows_per_s: Annotated[Number, Field(gt=0, le=1e9)] | None = None
    dynamodb: DocumentSettings | None = None

    @model_validator(mode="after")
    def _has_a_url(self) -> Self:
        if self.dynamodb is not None:
            self._refuse_words_of_a_database()
        elif not self.url and not self.command:
            what = "'url' is missing; write it here, or a command: whose output it is"
            raise ValueError(
                f"{what}; or dynamodb: {{tables: […]}}, where the old side is tables of DynamoDB's"
            )
        return self

    def _refuse_words_of_a_database(self) -> None:
        of_databases = ("url", "read_url", "command", "max_connections", "statement_timeout_s")
        written = [name for name in of_databases if getattr(self, name) not in ("", (), None)]
        if written:
            what = f"{', '.join(written)} is for databases, and cannot be used with dynamodb:"
            raise ValueError(f"{what}; leave one of the two out")

    def connections(self, wanted: int, *, apart: int = 1) -> int:
        limit = self.max_connections
        return wanted if limit is None else max(1, min(wanted, limit - apart * self._part(limit)))

    def connections_apart(self, wanted: int, *, at_least: int = 1) -> int:
        limit = self.max_connections
        return wanted if limit is None else max(at_least, min(wanted, self._part(limit)))

    @staticmethod
    def _part(limit: int) -> int:
        return max(1, limit // 4)


# ── A job's table options: recovery, protection, stream, tags, capacity ──


class Units(Settings):
    """Units a second."""

    read: Annotated[int, Field(ge=1)]
    write: Annotated[int, Field(ge=1)]


class TableOptions(Settings):
    """Options of a new table (`target: {options: …}`). `provisioned` None is on demand."""

    pitr: bool = True
    deletion_protection: bool = False
    stream: Literal["new_image", "old_image", "new_and_old_images", "keys_only"] | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    contributor_insights: bool = False
    warm_throughput: Units | None = None
    provisioned: Units | None = None
    table_class: Literal["standard", "standard_infrequent_access"] | None = None


# ── `cutover:` and `hooks:`: evidence that a move needs, limits of the watch, programs to run ──

EventKind = Literal["run_failed", "rolled_back", "lag_high"]

_Age = Annotated[Duration, Field(gt=0, le=366 * 86_400)]
_Share = Annotated[Number, Field(ge=0, le=1)]
_Limit = Annotated[Number, Field(gt=0, lt=1)]
_Count = Annotated[Integer, Field(ge=1, le=10**9)]
_Factor = Annotated[Number, Field(ge=1, le=1000)]


class WatchSettings(Settings):
    """When a pattern is moved back automatically. Shares are of calls, 0 to 1; a share counts as exceeded if its
    probability by chance is below one in a million.

    `every_s`: interval of the checks.
    `answers_min`: minimum answers to judge p99.
    `lately_s`: besides all calls since the move, those of this last period are judged separately, so that good hours do not
    hide a late fault.
    `watched_s`: how long a pattern is watched after its move.
    """

    every_s: Annotated[Duration, Field(ge=0.1, le=3600)] = 10.0
    answers_min: _Count = 100
    lately_s: _Age = Field(600.0, alias="lately")
    watched_s: _Age = Field(7 * 86_400.0, alias="watched")
    mismatch_max: _Limit = 0.005
    error_max: _Limit = 0.01
    p99_factor: _Factor = 3.0


class CutoverSettings(Settings):
    """Requirements of a move forward. Ages and lags in seconds, shares 0 to 1.

    `comparisons_min`: answers compared since the last move.
    `kinds_min`: compared share of the parameter kinds that a pattern can have.
    `mismatch_max`, `error_max`: limits whose excess must have a probability below one in twenty: 0.003 is none in 1,000.
    `p99_factor`: of SQL's p99, for a pattern without a budget.
    `quiet_s`: time without a change in the source before a pattern may be complete.
    `leave`: tables that are not migrated on purpose; a * matches anything.
    """

    verify_max_age_s: _Age = Field(86_400.0, alias="verify_max_age")
    lag_max_s: Annotated[Duration, Field(gt=0, le=3600)] = 10.0
    comparisons_min: _Count = 1000
    kinds_min: _Share = 0.5
    mismatch_max: _Limit = 0.003
    error_max: _Limit = 0.003
    p99_factor: _Factor = 1.5
    evidence_max_age_s: _Age = Field(86_400.0, alias="evidence_max_age")
    quiet_s: _Age = Field(10.0, alias="quiet")
    leave: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    watch: WatchSettings = WatchSettings()


def _command_words(command: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if not command or not (command if isinstance(command, str) else command[0]).strip():
        raise ValueError("write the program and its words as a list, or one text for the shell")
    return command


class Hook(Settings):
    """A program that is run at events. `command`: its words, or one text for the shell. Never shown: it may contain a
    secret.
    """

    on: Annotated[tuple[EventKind, ...], NOT_EMPTY]
    command: Annotated[str | tuple[str, ...], AfterValidator(_command_words)] = Field(repr=False)
    wait_s: Annotated[Duration, Field(gt=0, le=300)] = Field(10.0, alias="wait")


# ── `reads:`: how services read, and the share compared with the other side ──


class ShadowSettings(Settings):
    """Limits of shadow reads.

    `sample`: share of calls that are compared, 0 to 1.
    `at_once`: concurrent shadow reads of a process, `per_s`: started per second; more are dropped.
    `deadline_s`: a longer shadow read counts as an error.
    `max_rows`: larger answers are not compared.
    `breaker_after`: so many consecutive errors of a pattern stop its shadow reads for `breaker_pause_s`.
    `settle_s`: time for both sides to reach the same answer.
    """

    sample: Annotated[Number, Field(ge=0, le=1)] = 1.0
    at_once: Annotated[Integer, Field(ge=1, le=64)] = 4
    deadline_s: Annotated[Duration, Field(gt=0, le=300)] = 2.0
    per_s: Annotated[Number, Field(gt=0, le=10_000)] = 20.0
    max_rows: Annotated[Integer, Field(ge=1, le=100_000)] = 1000
    breaker_after: Annotated[Integer, Field(ge=1, le=1_000_000)] = 10
    breaker_pause_s: Annotated[Duration, Field(gt=0, le=86_400)] = 30.0
    settle_s: Annotated[Duration, Field(gt=0, le=3600)] = 10.0


class ReadSettings(Settings):
    """How services read.

    `phase_cache_s`: maximum age of a phase in a service.
    `connections`: to SQL, for the callers of one process.
    `patience_s`: how long a call waits for an answer, and retries a side that fails temporarily.
    `cursor_key`: signs cursors, the same in all processes.
    `cursor_life_s`: maximum age of a cursor.
    """

    phase_cache_s: Annotated[Duration, Field(ge=0.05, le=3600)] = 5.0
    connections: Annotated[Integer, Field(ge=1, le=1000)] = 10
    patience_s: Annotated[Duration, Field(gt=0, le=300)] = 5.0
    cursor_key: Annotated[str, Field(min_length=16)] | None = Field(None, repr=False)
    cursor_life_s: Annotated[Duration, Field(gt=0, le=31_536_000)] = 86_400.0
    shadow: ShadowSettings = ShadowSettings()

    @property
    def seen_within_s(self) -> float:
        """Time after which every living reader uses a new phase."""
        return self.phase_cache_s + 1.0


# ── The job file ──

_VARIABLE = re.compile(
    r"(?P<literal>\$\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{"
)
_JOB_NAME = r"[A-Za-z0-9_-]{1,64}"
IN_SOURCE = "source"
"""Value of `journal:` for a journal in the source's own database."""


_Name = Annotated[
    str, like(_JOB_NAME, "a job's name has 1 to 64 letters, digits, _ or -"), written_as(_JOB_NAME)
]
_ROLE = r"arn:aws[a-z-]*:iam::\d{12}:role/.+"
_RoleArn = Annotated[str, like(_ROLE, "write arn:aws:iam::123456789012:role/name"), written_as(_ROLE)]


_ACCOUNT = r"\d{12}"
_Account = Annotated[
    str, like(_ACCOUNT, "an AWS account has 12 digits, such as 123456789012"), written_as(_ACCOUNT)
]
_BUCKET = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_Bucket = Annotated[
    str, like(_BUCKET, "a bucket's name has 3 to 63 small letters, digits, . or -"), written_as(_BUCKET)
]
_SESSION = r"[\w+=,.@-]{2,64}"
_SessionName = Annotated[
    str, like(_SESSION, "a session's name has 2 to 64 letters, digits, or _+=,.@-"), written_as(_SESSION)
]


class TargetSettings(Settings):
    """`endpoint`: None is AWS, 'embedded' or 'dynoxide' our own server, else a URL. `table` None: the mapping's name.

    `bucket`, `prefix`: where attributes that a mapping keeps in S3 are written; the prefix None: the table's name.
    `managed_elsewhere`: another tool manages the table, so migrate-mapping neither adds nor removes an index.
    """

    table: TableName | None = None
    endpoint: Endpoint | None = None
    region: Annotated[str, Field(min_length=1)] | None = None
    profile: Annotated[str, Field(min_length=1)] | None = None
    bucket: _Bucket | None = None
    prefix: Annotated[str, Field(max_length=500)] | None = None
    options: TableOptions = TableOptions()
    managed_elsewhere: bool = False
    account: _Account | None = None
    role_arn: _RoleArn | None = None
    external_id: Annotated[str, Field(min_length=2, max_length=1224)] | None = None
    session_name: _SessionName | None = None

    def prefix_for(self, table: str) -> str:
        return f"{table}/" if self.prefix is None else self.prefix


class Tuning(Settings):
    """Processes, limits and waits of runs.

    `processes`: of a backfill or a verify on the host that starts it; None: as many as the number of rows justifies.
    `relay_processes`: relays that one relay starts, itself included.
    `confirm_above`: US dollars.
    `request_life_s`: maximum time from a request's signature to its effect on the table.
    `silent_s`: a writer without a successful heartbeat for so long stops sending.
    `lease_s`: a relay's lease on the marks it took; those of a dead relay are free afterwards.
    `max_source_load`, `max_replica_lag_s`: above them backfills and relays wait; the two queries, SELECTs of one number,
    replace the engine's own.
    """

    workers: Annotated[Integer, Field(ge=1, le=64)] = 4
    processes: Annotated[Integer, Field(ge=1, le=64)] | None = None
    relay_processes: Annotated[Integer, Field(ge=1, le=64)] = 1
    page_rows: Annotated[Integer, Field(ge=1, le=100_000)] = 2000
    attempts: Annotated[Integer, Field(ge=1, le=1000)] = 12
    backoff_cap_s: Annotated[Duration, Field(gt=0, le=300)] = 10.0
    give_up_after_s: Annotated[Duration, Field(gt=0, le=86_400)] = 300.0
    max_refused: Annotated[Integer, Field(ge=0)] = 0
    part_mb: Annotated[Integer, Field(ge=1, le=4096)] = 256
    scan_segments: Annotated[Integer, Field(ge=1, le=1000)] = 4
    max_write_units: Annotated[Integer, Field(ge=1)] | None = None
    confirm_above: Annotated[Number, Field(ge=0)] | None = None
    request_life_s: Annotated[Duration, Field(gt=0, le=3600)] = 60.0
    silent_s: Annotated[Duration, Field(ge=1, le=3600)] = 30.0
    metrics_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    lease_s: Annotated[Duration, Field(ge=1, le=3600)] = 60.0
    max_source_load: Annotated[Number, Field(ge=0)] | None = None
    source_load_query: Annotated[str, Field(min_length=1)] | None = None
    max_replica_lag_s: Annotated[Duration, Field(gt=0, le=86_400)] | None = None
    replica_lag_query: Annotated[str, Field(min_length=1)] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """`journal` is a database URL, 'source' for the source's own database, None for a file next to the job."""

    name: str
    path: Path
    mapping: Path
    source: SourceSettings
    target: TargetSettings
    tuning: Tuning
    journal: str | None = field(default=None, repr=False)
    cutover: CutoverSettings = CutoverSettings()
    hooks: tuple[Hook, ...] = ()
    reads: ReadSettings = ReadSettings()
    direct: tuple[str, ...] = ()
    """Entities that the service writes to the table itself; migrator neither writes, compares nor captures them."""
    leave: tuple[str, ...] = ()
    """Prefixes of partition keys of the service's own items, such as counters: `verify` expects no rows for them."""
    keep: tuple[str, ...] = ()
    """Attributes that services set themselves; our writes leave them unchanged."""

    @property
    def pools_apart(self) -> int:
        return 2 if self.journal == IN_SOURCE else 1

    def tuned(self, **changes: object) -> Job:
        return replace(self, tuning=self.tuning.model_copy(update=changes))

    def limited(self, max_write_units: int | None) -> Job:
        return self if max_write_units is None else self.tuned(max_write_units=max_write_units)

    def with_patience(self, most_s: float) -> Job:
        return self.tuned(give_up_after_s=min(self.tuning.give_up_after_s, most_s))

    def read_from(self, url: str) -> Job:
        """The job with its rows read from another URL, under the same limits, never from its own replica."""
        read = {"url": url, "command": (), "read_url": ""}
        return replace(self, source=self.source.model_copy(update=read))

    def with_sessions(self, sessions: int | None) -> Job:
        """The same job with a connection for marks and tickets for each of so many sessions that may commit concurrently.

        stages/live/service.py checks first that the source allows so many.
        """
        if sessions is None:
            return self
        tuned = self.tuned(workers=max(sessions, self.tuning.workers))
        return replace(tuned, source=self.source.model_copy(update={"max_connections": None}))


class Writes(Settings):
    """What the service writes to the table itself. `direct`: entities, by name in the mapping; `leave`: prefixes of
    partition keys of items without an entity; `keep`: attributes without a column, which every write leaves unchanged.
    """

    direct: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    leave: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    keep: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class JobFile(Settings):
    """A job file; each field is already validated on its own."""

    job: Literal[1]
    name: _Name | None = None
    mapping: Annotated[str, Field(min_length=1)]
    source: SourceSettings
    target: TargetSettings = TargetSettings()
    journal: Annotated[str, Field(min_length=1)] | None = None
    tuning: Tuning = Tuning()
    cutover: CutoverSettings = CutoverSettings()
    hooks: tuple[Hook, ...] = ()
    reads: ReadSettings = ReadSettings()
    writes: Writes = Writes()


_OURS = Ours(
    "job", frozenset(JobFile.model_fields), "not a job file; begin it with 'job: 1' (see docs/job.md)"
)
_NO_VARIABLE = "'${' begins no variable here; write ${NAME} or ${NAME:-default}, and $${ for a plain ${"
_WORDS = {
    part.__name__: [field.alias or name for name, field in part.model_fields.items()]
    for part in Settings.__subclasses__()
}


def is_job(path: Path) -> bool:
    """Whether the file is a job, not a mapping. Raises: SettingsError if it cannot be read."""
    return is_job_text(text_of(path, "job or mapping"))


def load_job(path: Path, environ: Mapping[str, str], *, asks_source: bool = True) -> Job:
    """The job in a file, with ${NAME} and ${NAME:-default} taken from `environ`.

    `asks_source` False: variables of the source need not be set, and the source cannot be used.

    Raises: SettingsError if the file cannot be read; MappingError with all its faults.
    """
    document = load_document(text_of(path, "job"), str(path), _OURS)
    faults: list[Fault] = []
    of_source = faults if asks_source else list[Fault]()
    filled = {
        name: _filled(value, (name,), environ, document, of_source if name == "source" else faults)
        for name, value in document.data.items()
    }
    data = _short_forms(filled)
    try:
        form = JobFile.model_validate(data)
    except ValidationError as error:
        form_faults = schema_faults(error, document, _WORDS)
        faults += [fault for fault in form_faults if not _is_reported(fault, faults)]
        raise MappingError(faults) from None
    if form.name is None and not re.fullmatch(_JOB_NAME, _stem(path)):
        faults.append(
            document.fault(("name",), "the file's name is not a job name; write name: and 1 to 64 letters")
        )
    if form.journal == IN_SOURCE and form.source.dynamodb is not None:
        what = "the source is tables of DynamoDB's, and a journal is in a database"
        faults.append(document.fault(("journal",), f"{what}; write its URL, or leave it out for a file"))
    faults += [document.fault(("target", "table"), what) for what in _twice(form)]
    if faults:
        raise MappingError(faults)
    return _job(path, form)


def _twice(form: JobFile) -> Iterator[str]:
    old, target = form.source.dynamodb, form.target
    if old is None or target.table not in old.real_names.values():
        return
    if (old.endpoint, old.region or target.region) == (target.endpoint, target.region or old.region):
        yield f"{target.table} is one of the old tables, and items must not be written among what they are made of"


def mapping_named(path: Path, environ: Mapping[str, str]) -> Path:
    """The mapping that a job file names, regardless of the file's other content.

    Raises: SettingsError if the file cannot be read; MappingError if it names none.
    """
    document = load_document(text_of(path, "job"), str(path), _OURS)
    faults: list[Fault] = []
    named = str(_filled(document.data.get("mapping") or "", ("mapping",), environ, document, faults))
    if not named:
        faults.append(document.fault(("mapping",), "name a mapping's file"))
    if faults:
        raise MappingError(faults)
    return path.parent / named


def _job(path: Path, form: JobFile) -> Job:
    return Job(
        name=form.name or _stem(path),
        path=path,
        mapping=path.parent / form.mapping,
        source=form.source,
        target=form.target,
        tuning=form.tuning,
        journal=form.journal,
        cutover=form.cutover,
        hooks=form.hooks,
        reads=form.reads,
        direct=tuple(dict.fromkeys(form.writes.direct)),
        leave=form.writes.leave,
        keep=form.writes.keep,
    )


def _stem(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", path.stem)


def text_of(path: Path, what: str) -> str:
    """The text of a file that is a `what`. Raises: SettingsError if it cannot be read as text."""
    try:
        return small_text(path)
    except FileNotFoundError:
        raise SettingsError(f"{path}: {what} file not found") from None
    except IsADirectoryError:
        raise SettingsError(f"{path}: this is a folder; name a {what} file in it") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not UTF-8 text, so not a {what}") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None


def _short_forms(data: Any) -> Any:
    """The data with `source: URL` and `target: embedded` expanded, and empty sections removed."""
    data = {name: value for name, value in data.items() if value is not None}
    if isinstance(data.get("source"), str):
        data["source"] = {"url": data["source"]}
    if isinstance(data.get("target"), str):
        data["target"] = {"endpoint": data["target"]}
    return data


def _filled(
    value: Any,
    path: tuple[str | int, ...],
    environ: Mapping[str, str],
    document: Document,
    faults: list[Fault],
) -> Any:
    if isinstance(value, dict):
        return {name: _filled(item, (*path, name), environ, document, faults) for name, item in value.items()}
    if isinstance(value, list):
        return [
            _filled(item, (*path, number), environ, document, faults) for number, item in enumerate(value)
        ]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["literal"]:
            return "${"
        if name is None:
            faults.append(document.fault(path, _NO_VARIABLE))
            return "unset"
        text = environ.get(name) or default
        if text is None:
            faults.append(
                document.fault(path, f"the variable {name} is not set; export {name}=… before the command")
            )
            return "unset"
        return text

    return _VARIABLE.sub(replacement, value)


def _is_reported(fault: Fault, faults: list[Fault]) -> bool:
    """Whether the place has a fault already: an unset variable also makes an invalid value."""
    return any(fault.where.startswith(other.where) or other.where.startswith(fault.where) for other in faults)
