"""A job: which mapping, from which source, into which table, how fast."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from migrator.errors import Fault, MappingError, SettingsError
from migrator.mapping.document import Document, load_document, schema_faults

_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_JOB_NAME = r"^[A-Za-z0-9_-]{1,64}$"


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """The source's URL; it may hold a password, so it is never shown."""

    url: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """`endpoint`: None is AWS, 'embedded' a server of our own, else a URL. `table` None: the mapping's name."""

    table: str | None = None
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class Tuning:
    workers: int = 4
    page_rows: int = 500
    attempts: int = 12
    backoff_cap_s: float = 10.0
    give_up_after_s: float = 300.0
    max_refused: int = 0
    scan_segments: int = 4


@dataclass(frozen=True, slots=True)
class Job:
    """`journal` is a database URL, None for a file of the job's own under the home folder."""

    name: str
    path: Path
    mapping: Path
    source: SourceSettings
    target: TargetSettings
    tuning: Tuning
    journal: str | None = field(default=None, repr=False)


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _SourceForm(_Form):
    url: Annotated[str, Field(min_length=1)]


class _TargetForm(_Form):
    table: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{3,255}$")] | None = None
    endpoint: Annotated[str, Field(pattern=r"^(embedded|https?://.+)$")] | None = None
    region: Annotated[str, Field(min_length=1)] | None = None
    profile: Annotated[str, Field(min_length=1)] | None = None


class _TuningForm(_Form):
    workers: Annotated[int, Field(ge=1, le=64)] = 4
    page_rows: Annotated[int, Field(ge=1, le=100_000)] = 500
    attempts: Annotated[int, Field(ge=1, le=1000)] = 12
    backoff_cap_s: Annotated[float, Field(gt=0, le=300)] = 10.0
    give_up_after_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    max_refused: Annotated[int, Field(ge=0)] = 0
    scan_segments: Annotated[int, Field(ge=1, le=1000)] = 4


class _JobForm(_Form):
    job: Literal[1]
    name: Annotated[str, Field(pattern=_JOB_NAME)] | None = None
    mapping: Annotated[str, Field(min_length=1)]
    source: _SourceForm
    target: _TargetForm = _TargetForm()
    journal: Annotated[str, Field(min_length=1)] | None = None
    tuning: _TuningForm = _TuningForm()


_WORDS = {
    form.__name__: list(form.model_fields) for form in (_JobForm, _SourceForm, _TargetForm, _TuningForm)
}


def load_job(path: Path, environ: Mapping[str, str]) -> Job:
    """The job that a file describes, with ${NAME} and ${NAME:-default} taken from `environ`.

    Raises: SettingsError when the file cannot be read; MappingError with every fault in it at once.
    """
    document = load_document(_text(path), str(path))
    if not isinstance(document.data, dict):
        raise MappingError(
            [Fault(str(path), 1, "", "this is no job; start it with 'job: 1' (see README.md)")]
        )
    faults: list[Fault] = []
    data = _short_forms(_filled(document.data, (), environ, document, faults))
    try:
        form = _JobForm.model_validate(data)
    except ValidationError as error:
        faults += [fault for fault in schema_faults(error, document, _WORDS) if not _told(fault, faults)]
        raise MappingError(faults) from None
    if faults:
        raise MappingError(faults)
    return _job(path, form)


def hide_password(url: str) -> str:
    """The URL without its password; text that only might hold one is cut behind its scheme."""
    scheme, marker, rest = url.partition("://")
    if not marker:
        return "…"
    authority, slash, path = rest.partition("/")
    if "@" not in rest:
        return f"{scheme}://{rest.partition('?')[0]}"
    if "@" not in authority or "@" in path:
        return f"{scheme}://…"
    user, _, host = authority.rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}:***@{host}{slash}{path.partition('?')[0]}"


def _job(path: Path, form: _JobForm) -> Job:
    name = form.name or re.sub(r"[^A-Za-z0-9_-]", "-", path.stem)
    return Job(
        name=name,
        path=path,
        mapping=path.parent / form.mapping,
        source=SourceSettings(form.source.url),
        target=TargetSettings(**form.target.model_dump()),
        tuning=Tuning(**form.tuning.model_dump()),
        journal=form.journal,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such job file") from None
    except IsADirectoryError:
        raise SettingsError(f"{path}: this is a folder; name a job file in it") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: this is no UTF-8 text, so no job") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror})") from None


def _short_forms(data: Any) -> Any:
    """`source: URL` and `target: embedded` written out."""
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
        if name is None:
            return "${"
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
