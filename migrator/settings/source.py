"""A job's `source:` and the options of its table, and the base of all settings."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from migrator.mapping.language.value_forms import TableName, like, written_as
from migrator.mapping.model.durations import seconds_of

# ── A job's `source:` — where the database is, and how gently it is to be read ──

_DAY_S = 86_400
_VARIABLE_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def no_switch(value: Any) -> Any:
    """The value; true and false are no numbers, though Python counts with them."""
    if isinstance(value, bool):
        raise ValueError("write a number, not true or false")  # noqa: TRY004 - pydantic reports ValueError
    return value


def duration_s(value: Any) -> Any:
    """The seconds of a duration that is text; what is no text stays as it is, for a number is seconds."""
    return seconds_of(value) if isinstance(value, str) else no_switch(value)


def place(text: str) -> str:
    """The text; one that begins like the place of a URL must name it."""
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
"""Of a list; pydantic's own min_length finds one with a wrong value in it empty, too."""


def _empty_is(value: Any) -> WrapValidator:
    """Takes the value for a word that is left empty."""

    def check(written: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        return value if written is None else handler(written)

    return WrapValidator(check)


class Settings(BaseModel):
    """A part of a job, as it is written and as it is used: no word that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


ENDPOINT = r"embedded|dynoxide|https?://.+"


def _no_user(text: str) -> str:
    """Messages name the endpoint, and must not name a password."""
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
"""The word by which a JSON Schema that is made of settings knows a duration."""
Duration = Annotated[float, BeforeValidator(duration_s), Field(json_schema_extra={IS_DURATION: True})]
"""Of any setting that says how long, whether its name ends in _s or not: see durations.py."""
_Timeout = Annotated[Duration, AfterValidator(_limit)]


class DocumentSettings(Settings):
    """Old tables of DynamoDB's, by the names that the account has for them, or by the mapping's names with those beside.

    `endpoint`: None is AWS, 'embedded' or 'dynoxide' a server of our own, else a URL. `max_read_units`: a second, over all
    that is read.
    """

    tables: Annotated[tuple[TableName, ...], NOT_EMPTY] | dict[TableName, TableName]
    region: Annotated[str, Field(min_length=1)] | None = None
    profile: Annotated[str, Field(min_length=1)] | None = None
    endpoint: Endpoint | None = None
    max_read_units: Annotated[Number, Field(gt=0, le=1e9)] | None = None

    @property
    def real_names(self) -> dict[str, str]:
        """By the name that a mapping has for it, what each table is called."""
        return dict(self.tables) if isinstance(self.tables, dict) else {name: name for name in self.tables}

    @property
    def aws_options(self) -> str:
        """By which `aws` finds the part of the account, with a space before each."""
        options = {"region": self.region, "profile": self.profile}
        return "".join(f" --{name} {value}" for name, value in options.items() if value)

    @property
    def identity(self) -> str:
        """What tells these tables from others; two jobs that name the same ones have the same source."""
        where = self.endpoint or self.region or self.profile or "AWS"
        return f"dynamodb {where} {','.join(sorted(self.real_names.values()))}"


class SourceSettings(Settings):
    """`url` and `read_url`: a database's URL, a file's path, or where the URL is found (env:, file:, secret:).

    `command`: a program whose output is the URL, or the password of `url` where that is given too.
    `read_url`: a replica that pages are read from. `max_connections`: of each of the two servers at once; reads, marks and
    tickets, and a journal in the source have a part each, of one connection at least.
    A limit that is None is not set, but for `statement_timeout_s`: ten minutes where the server itself has none; 0 is off.
    `dynamodb`: old tables of DynamoDB's instead of a database.
    Whatever may hold a secret is never shown.
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
            what = f"{', '.join(written)} is of a database, and dynamodb: says that there is none"
            raise ValueError(f"{what}; leave one of the two out")

    def connections(self, wanted: int, *, apart: int = 1) -> int:
        """How many of `wanted` connections reads may have beside so many parts for other work."""
        limit = self.max_connections
        return wanted if limit is None else max(1, min(wanted, limit - apart * self._part(limit)))

    def connections_apart(self, wanted: int, *, at_least: int = 1) -> int:
        """How many of `wanted` connections work beside the reads may have."""
        limit = self.max_connections
        return wanted if limit is None else max(at_least, min(wanted, self._part(limit)))

    @staticmethod
    def _part(limit: int) -> int:
        return max(1, limit // 4)


# ── What a job says of its table beside keys and indexes: recovery, protection, stream, tags, capacity ──


class Units(Settings):
    """Units a second."""

    read: Annotated[int, Field(ge=1)]
    write: Annotated[int, Field(ge=1)]


class TableOptions(Settings):
    """What a new table gets (`target: {options: …}`). `provisioned` None is on demand."""

    pitr: bool = True
    deletion_protection: bool = False
    stream: Literal["new_image", "old_image", "new_and_old_images", "keys_only"] | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    contributor_insights: bool = False
    warm_throughput: Units | None = None
    provisioned: Units | None = None
    table_class: Literal["standard", "standard_infrequent_access"] | None = None
