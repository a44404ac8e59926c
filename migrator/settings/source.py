"""A job's `source:` and the options of its table, and the base of all settings forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from migrator.model.durations import seconds_of

# ── A job's `source:` — where the database is, and how gently it is to be read ──

_DAY_S = 86_400
_VARIABLE_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """`url` and `read_url`: a database's URL, a file's path, or where the URL is found (env:, file:, secret:).

    `command`: a program whose output is the URL, or the password of `url` where that is given too.
    `read_url`: a replica that pages are read from. `max_connections`: of each of the two servers at once; reads, marks and
    tickets, and a journal in the source have a part each, of one connection at least.
    A limit that is None is not set, but for `statement_timeout_s`: ten minutes where the server itself has none; 0 is off.
    Whatever may hold a secret is never shown.
    """

    url: str = field(default="", repr=False)
    read_url: str = field(default="", repr=False)
    command: tuple[str, ...] = field(default=(), repr=False)
    max_connections: int | None = None
    statement_timeout_s: float | None = None
    max_rows_per_s: float | None = None

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


class Form(BaseModel):
    """A part of a job as it is written: no word that is not known."""

    model_config = ConfigDict(extra="forbid", frozen=True)


_Place = Annotated[str, Field(min_length=1), AfterValidator(place)]
_Word = Annotated[str, Field(min_length=1)]
Integer = Annotated[int, BeforeValidator(no_switch)]
Number = Annotated[float, BeforeValidator(no_switch)]
Duration = Annotated[float, BeforeValidator(duration_s)]
"""Of any setting that says how long, whether its name ends in _s or not: see durations.py."""


class SourceForm(Form):
    url: _Place | None = None
    read_url: _Place | None = None
    command: Annotated[list[_Word], Field(min_length=1)] | None = None
    max_connections: Annotated[Integer, Field(ge=1, le=1000)] | None = None
    statement_timeout_s: Annotated[Duration, AfterValidator(_limit)] | None = None
    max_rows_per_s: Annotated[Number, Field(gt=0, le=1e9)] | None = None

    @model_validator(mode="after")
    def _has_a_url(self) -> Self:
        if self.url is None and self.command is None:
            raise ValueError("'url' is missing; write it here, or a command: whose output it is")
        return self

    def settings(self) -> SourceSettings:
        given = {name: value for name, value in self.model_dump().items() if value is not None}
        if "statement_timeout_s" in self.model_fields_set:
            given.setdefault("statement_timeout_s", 0.0)
        return SourceSettings(**given | {"command": tuple(self.command or ())})


# ── What a job says of its table beside keys and indexes: recovery, protection, stream, tags, capacity ──


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a new table gets; pairs are (read, write) units a second. `provisioned` None is on demand."""

    pitr: bool = True
    deletion_protection: bool = False
    stream: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    contributor_insights: bool = False
    warm_throughput: tuple[int, int] | None = None
    provisioned: tuple[int, int] | None = None
    table_class: str | None = None


class UnitsForm(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    read: Annotated[int, Field(ge=1)]
    write: Annotated[int, Field(ge=1)]


class OptionsForm(BaseModel):
    """`target: {options: …}` as it is written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pitr: bool = True
    deletion_protection: bool = False
    stream: Literal["new_image", "old_image", "new_and_old_images", "keys_only"] | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    contributor_insights: bool = False
    warm_throughput: UnitsForm | None = None
    provisioned: UnitsForm | None = None
    table_class: Literal["standard", "standard_infrequent_access"] | None = None

    def options(self) -> TableOptions:
        pairs = {name: getattr(self, name) for name in ("warm_throughput", "provisioned")}
        units = {name: None if one is None else (one.read, one.write) for name, one in pairs.items()}
        return TableOptions(**(self.model_dump() | units))
