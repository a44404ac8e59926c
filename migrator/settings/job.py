"""A job: which mapping, from which source, into which table, how fast."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from migrator.mapping.language.document import Document, Ours, load_document, schema_faults
from migrator.model.errors import Fault, MappingError, SettingsError
from migrator.runtime.files import small_text
from migrator.settings.cutover import CutoverForm, CutoverSettings, Hook, HookForm, WatchForm, WritesForm
from migrator.settings.reads import ReadSettings, ReadsForm, ShadowForm
from migrator.settings.source import (
    Duration,
    Form,
    Integer,
    Number,
    OptionsForm,
    SourceForm,
    SourceSettings,
    TableOptions,
    UnitsForm,
)

_VARIABLE = re.compile(
    r"(?P<literal>\$\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{"
)
_JOB_NAME = r"[A-Za-z0-9_-]{1,64}"


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """`endpoint`: None is AWS, 'embedded' a server of our own, else a URL. `table` None: the mapping's name.

    `bucket`, `prefix`: where attributes that a mapping keeps in S3 are written; the prefix None: the table's name.
    """

    table: str | None = None
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    bucket: str | None = None
    prefix: str | None = None
    options: TableOptions = TableOptions()
    role_arn: str | None = None
    external_id: str | None = None
    session_name: str | None = None


@dataclass(frozen=True, slots=True)
class Tuning:
    workers: int = 4
    page_rows: int = 500
    attempts: int = 12
    backoff_cap_s: float = 10.0
    give_up_after_s: float = 300.0
    max_refused: int = 0
    scan_segments: int = 4
    max_write_units: int | None = None
    confirm_above: float | None = None
    """US dollars."""
    request_life_s: float = 60.0
    """What one request to DynamoDB may last, from its signature to its effect, beside other writers."""
    silent_s: float = 30.0
    """A writer that could not renew its heartbeat in the journal for so long sends nothing more."""
    lease_s: float = 60.0
    """How long marks that a relay took are kept from others; those of a dead relay come back after it."""


@dataclass(frozen=True, slots=True)
class Job:
    """`journal` is a database URL, 'source' for the source's own database, None for a file beside the job's."""

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
    """Entities that the service writes to the table itself; nobody of ours writes, compares or captures them."""


def _like(pattern: str, advice: str) -> AfterValidator:
    """Lets text pass that is wholly like the pattern; anything else hears the advice."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(advice)
        return text

    return AfterValidator(check)


_Name = Annotated[str, _like(_JOB_NAME, "a job's name has 1 to 64 letters, digits, _ or -")]
_TableName = Annotated[
    str, _like(r"[A-Za-z0-9_.-]{3,255}", "a table's name has 3 to 255 letters, digits, _, . or -")
]
_Endpoint = Annotated[
    str,
    _like(
        r"embedded|https?://.+",
        "write 'embedded' or a URL such as http://127.0.0.1:8000; leave it out for AWS",
    ),
    AfterValidator(lambda text: _no_user(text)),
]


def _no_user(text: str) -> str:
    """Messages name the endpoint, and must not name a password."""
    if "@" in text:
        raise ValueError(
            "an endpoint has no user and no password; credentials come from the environment or a profile"
        )
    return text


_RoleArn = Annotated[
    str, _like(r"arn:aws[a-z-]*:iam::\d{12}:role/.+", "write arn:aws:iam::123456789012:role/name")
]


class _TargetForm(Form):
    table: _TableName | None = None
    endpoint: _Endpoint | None = None
    region: Annotated[str, Field(min_length=1)] | None = None
    profile: Annotated[str, Field(min_length=1)] | None = None
    bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")] | None = None
    prefix: Annotated[str, Field(max_length=500)] | None = None
    options: OptionsForm = OptionsForm()
    role_arn: _RoleArn | None = None
    external_id: Annotated[str, Field(min_length=2, max_length=1224)] | None = None
    session_name: Annotated[str, Field(pattern=r"^[\w+=,.@-]{2,64}$")] | None = None


class _TuningForm(Form):
    workers: Annotated[Integer, Field(ge=1, le=64)] = 4
    page_rows: Annotated[Integer, Field(ge=1, le=100_000)] = 500
    attempts: Annotated[Integer, Field(ge=1, le=1000)] = 12
    backoff_cap_s: Annotated[Duration, Field(gt=0, le=300)] = 10.0
    give_up_after_s: Annotated[Duration, Field(gt=0, le=86_400)] = 300.0
    max_refused: Annotated[Integer, Field(ge=0)] = 0
    scan_segments: Annotated[Integer, Field(ge=1, le=1000)] = 4
    max_write_units: Annotated[Integer, Field(ge=1)] | None = None
    confirm_above: Annotated[Number, Field(ge=0)] | None = None
    request_life_s: Annotated[Duration, Field(gt=0, le=3600)] = 60.0
    silent_s: Annotated[Duration, Field(ge=1, le=3600)] = 30.0
    lease_s: Annotated[Duration, Field(ge=1, le=3600)] = 60.0


class _JobForm(Form):
    job: Literal[1]
    name: _Name | None = None
    mapping: Annotated[str, Field(min_length=1)]
    source: SourceForm
    target: _TargetForm = _TargetForm()
    journal: Annotated[str, Field(min_length=1)] | None = None
    tuning: _TuningForm = _TuningForm()
    cutover: CutoverForm = CutoverForm()
    hooks: tuple[HookForm, ...] = ()
    reads: ReadsForm = ReadsForm()
    writes: WritesForm = WritesForm()


_OURS = Ours(
    "job", frozenset(_JobForm.model_fields), "this is no job; start it with 'job: 1' (see README.md)"
)
_NO_VARIABLE = "'${' begins no variable here; write ${NAME} or ${NAME:-default}, and $${ for a plain ${"
_WORDS = {
    form.__name__: list(form.model_fields)
    for form in (
        *(_JobForm, SourceForm, _TargetForm, OptionsForm, UnitsForm, _TuningForm),
        *(CutoverForm, WatchForm, HookForm, ReadsForm, ShadowForm, WritesForm),
    )
}


def load_job(path: Path, environ: Mapping[str, str]) -> Job:
    """The job that a file describes, with ${NAME} and ${NAME:-default} taken from `environ`.

    Raises: SettingsError when the file cannot be read; MappingError with every fault in it at once.
    """
    document = load_document(_text(path), str(path), _OURS)
    faults: list[Fault] = []
    data = _short_forms(_filled(document.data, (), environ, document, faults))
    try:
        form = _JobForm.model_validate(data)
    except ValidationError as error:
        found = schema_faults(error, document, _WORDS)
        faults += [fault for fault in found if not _told(fault, faults)]
        raise MappingError(faults) from None
    if form.name is None and not re.fullmatch(_JOB_NAME, _stem(path)):
        faults.append(
            document.fault(("name",), "the file's name is no job name; write name: and 1 to 64 letters")
        )
    if faults:
        raise MappingError(faults)
    return _job(path, form)


def _job(path: Path, form: _JobForm) -> Job:
    return Job(
        name=form.name or _stem(path),
        path=path,
        mapping=path.parent / form.mapping,
        source=form.source.settings(),
        target=TargetSettings(
            **form.target.model_dump(exclude={"options"}), options=form.target.options.options()
        ),
        tuning=Tuning(**form.tuning.model_dump()),
        journal=form.journal,
        cutover=form.cutover.settings(),
        hooks=tuple(one.hook() for one in form.hooks),
        reads=form.reads.settings(),
        direct=tuple(dict.fromkeys(form.writes.direct)),
    )


def _stem(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", path.stem)


def _text(path: Path) -> str:
    try:
        return small_text(path)
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such job file") from None
    except IsADirectoryError:
        raise SettingsError(f"{path}: this is a folder; name a job file in it") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: this is no UTF-8 text, so no job") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None


def _short_forms(data: Any) -> Any:
    """`source: URL` and `target: embedded` written out; a part that is left empty left out."""
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
    """`value` with its variables replaced; one that is not set is a fault at its line."""
    if isinstance(value, dict):
        return {name: _filled(one, (*path, name), environ, document, faults) for name, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, (*path, number), environ, document, faults) for number, one in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replacement(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["literal"]:
            return "${"
        if name is None:
            faults.append(document.fault(path, _NO_VARIABLE))
            return "unset"
        found = environ.get(name) or default
        if found is None:
            faults.append(
                document.fault(path, f"the variable {name} is not set; export {name}=… before the command")
            )
            return "unset"
        return found

    return _VARIABLE.sub(replacement, value)


def _told(fault: Fault, faults: list[Fault]) -> bool:
    """Whether the place is already told of: a variable that is not set makes a wrong value, too."""
    return any(fault.where.startswith(one.where) or one.where.startswith(fault.where) for one in faults)
