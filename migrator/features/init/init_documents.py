"""`migrator init JOB`: a mapping for a job's old tables of DynamoDB's, by a sample of their documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from migrator.cli.command_line import print_json
from migrator.cli.options import print_folded
from migrator.features.init.design.documents import SampledTable, mapping_text, seen_in
from migrator.mapping.check.check import check_mapping
from migrator.mapping.language.documents import facts_of
from migrator.mapping.language.parse import examine_mapping
from migrator.runtime.errors import CLEAN, MappingError, SettingsError
from migrator.runtime.retry import Retry
from migrator.settings.job import Job
from migrator.settings.source import DocumentSettings
from migrator.source.dynamodb.opening import open_reader, sample_of

SAMPLED = 1_000
"""Documents of each table that are looked at."""


def init_documents(job: Job, out: Path, table: str, *, force: bool, as_json: bool) -> int:
    """The exit code of `migrator init` for a job of old tables."""
    if job.source.dynamodb is None:
        raise SettingsError(f"{job.path}: the job's source is a database: give its URL as --source")
    if out.suffix not in (".yaml", ".yml"):
        raise SettingsError(f"{out}: a mapping is a YAML file; write --out shop.yaml")
    if out.exists() and not force:
        raise SettingsError(
            f"{out}: there already; name another file with --out, or add --force to replace it"
        )
    sampled = list(_sampled(job.source.dynamodb))
    text = mapping_text(table, sampled)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written ({error.strerror})") from None
    faults = _faults(text, str(out))
    varying = {one.name: varies(one) for one in sampled}
    if as_json:
        print_json({"files": [str(out)], "tables": _figures(sampled, varying), "faults": faults})
        return CLEAN
    print_folded(f"{out}: written")
    for one in sampled:
        told = f"; varies: {', '.join(varying[one.name])}" if varying[one.name] else ""
        print_folded(
            f"{one.name}: {len(one.items):,} document(s) looked at, {len(seen_in(one)):,} places{told}"
        )
    print_folded("\n".join(faults) or f"next: look through {out}, then `migrator mapping check {out}`")
    return CLEAN


def _sampled(settings: DocumentSettings) -> Iterator[SampledTable]:
    reader, most = open_reader(settings, 1, Retry())
    with closing(reader.client):
        for name, real in settings.real_names.items():
            described = reader.describe(real)
            yield SampledTable(name, tuple(described.key), sample_of(reader, real, most, SAMPLED))


def varies(table: SampledTable) -> list[str]:
    """Paths whose type is not always the same one."""
    return [path for path, seen in seen_in(table).items() if len(set(seen.types) - {"NULL"}) > 1]


def _figures(sampled: Sequence[SampledTable], varying: dict[str, list[str]]) -> list[dict[str, object]]:
    return [
        {
            "table": one.name,
            "documents": len(one.items),
            "places": len(seen_in(one)),
            "varies": varying[one.name],
        }
        for one in sampled
    ]


def _faults(text: str, file: str) -> list[str]:
    """What is left to be mended by hand."""
    try:
        parsed = examine_mapping(text, file)
        check_mapping(parsed, facts_of(parsed.mapping))
    except MappingError as error:
        return [str(fault) for fault in error.faults if not fault.warning]
    return []
