"""Opens old tables of DynamoDB's: a client for them, their paces, and the source made of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migrator.documents.finding import Finder
from migrator.documents.positions import MOST_SEGMENTS, MOST_SEGMENTS_HERE
from migrator.documents.source import DocumentSource, ReadPace
from migrator.mapping.documents import facts_of
from migrator.model.capture import Installation
from migrator.model.edges import WiredItem
from migrator.model.errors import SettingsError
from migrator.model.facts import Captured, EntityPlan
from migrator.model.live import MarksState
from migrator.model.mapping import Mapping
from migrator.runtime.retry import RateLimit, Retry
from migrator.settings.source import DocumentSettings, SourceSettings
from migrator.target.client import dynamodb_client, endpoint_of, is_loopback
from migrator.target.reads.tables import TableReader

_SAMPLED_SEGMENTS = 16


def open_reader(settings: DocumentSettings, workers: int, retry: Retry) -> tuple[TableReader, int]:
    """What reads the account's tables, and how many segments they are divided into, at most."""
    endpoint = endpoint_of(settings.endpoint)
    client = dynamodb_client(
        region=settings.region,
        profile=settings.profile,
        endpoint=endpoint,
        connections=2 * workers + 8,
    )
    is_here = endpoint is not None and is_loopback(endpoint)
    units = RateLimit(settings.max_read_units, retry.stop)
    return TableReader(client, retry, units), MOST_SEGMENTS_HERE if is_here else MOST_SEGMENTS


def sample_of(reader: TableReader, table: str, most_segments: int, number: int) -> list[WiredItem]:
    """Documents of a table, `number` at most, from the beginnings of segments all over it; the same ones each time."""
    of = min(most_segments, _SAMPLED_SEGMENTS)
    each = -(-number // of)
    found: list[WiredItem] = []
    for segment in range(of):
        page = next(reader.scan(table, segment, of, limit=each))
        found += page.items
    return found[:number]


def open_document_source(
    settings: SourceSettings, mapping: Mapping, workers: int, retry: Retry
) -> DocumentSource:
    """Raises: SettingsError where the mapping declares no tables, or others than the job names."""
    documents = settings.dynamodb
    if documents is None or not mapping.documents:
        what = f"{mapping.name}: the source is tables of DynamoDB's, which the mapping must declare"
        raise SettingsError(f"{what}: source: {{tables: …}} (`migrator init` proposes it)")
    if missing := sorted(set(mapping.documents) - set(documents.real_names)):
        what = f"{mapping.name} declares {', '.join(missing)}, and the job does not name them"
        raise SettingsError(f"{what}; write them among source: dynamodb: tables:")
    reader, most = open_reader(documents, workers, retry)
    pace = ReadPace(RateLimit(settings.max_rows_per_s, retry.stop), reader.units)
    return DocumentSource(facts_of(mapping), Finder(reader, documents.real_names), pace, most)


def refuse_documents(mapping: Mapping) -> None:
    """Raises: SettingsError where the mapping declares tables of DynamoDB's, and the source is a database."""
    if mapping.documents:
        what = f"{mapping.name} declares old tables of DynamoDB's, and the source is a database"
        raise SettingsError(
            f"{what}; write source: {{dynamodb: {{tables: […]}}}} in the job, or take tables: out"
        )


# ── Capture as it is where there is none: nothing is installed, and no mark waits ──

_NONE = (
    "changes of old tables of DynamoDB's leave no marks yet, so there is nothing to install, relay or repair by: move"
    " tables that stand still (docs/documents.md)"
)


class Uncaptured:
    """In the places of capture, marks and tickets: answers what asks whether there are any, and refuses all else.

    Raises, from every other method: SettingsError.
    """

    def installation(self) -> Installation | None:
        return None

    def captured(self, plans: Sequence[EntityPlan]) -> list[Captured]:
        return []

    def state(self) -> MarksState:
        return MarksState(waiting=0, oldest_age_s=0.0, failed=0)

    @property
    def writing(self) -> Any:
        """What counts changes. Raises: SettingsError, always."""
        raise SettingsError(_NONE)

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object, **__: object) -> Any:
            raise SettingsError(_NONE)

        return refuse
