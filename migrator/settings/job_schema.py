"""The JSON Schema of job files: what each word means, with an example, for editors and for CI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from migrator.mapping.language.words import Word, described
from migrator.settings.job import JobFile
from migrator.settings.source import IS_DURATION

# ── The forms of settings, as a person may write them ──

_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_DURATION = {"type": "string", "pattern": r"^\s*(\d+(\.\d*)?([eE][+-]?\d{1,3})?|\.\d+) ?(s|min|m|h|d|)\s*$"}
_NUMBER = {"type": "string", "pattern": r"^\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*$"}
_SWITCH = {"type": "string", "enum": ["true", "false", "yes", "no", "on", "off"]}
_OTHER_FORMS: Mapping[str, list[dict[str, Any]]] = {
    "integer": [_NUMBER],
    "number": [_NUMBER],
    "boolean": [_SWITCH],
    "string": [],
}
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""pydantic's words, where a validator stands before the limit, and JSON Schema's."""
_ABOUT = frozenset({"default", "title"})
"""Words of a schema that are no condition."""


def job_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of job files."""
    schema = JobFile.model_json_schema(by_alias=True)
    for definition in (schema, *schema["$defs"].values()):
        for name, place in definition["properties"].items():
            definition["properties"][name] = place if name == "job" else _as_written(place)
    _with_short_forms(schema["properties"], frozenset(schema["required"]))
    schema = described(schema, WORDS, JobFile.__name__)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "migrator job", **schema}


def _as_written(place: dict[str, Any]) -> dict[str, Any]:
    """The place with all forms of its value: numbers as texts, durations, and a variable where the type is no plain text."""
    if "anyOf" in place:
        choices = [_as_written(choice) for choice in place["anyOf"]]
        return {**place, "anyOf": choices}
    condition = {_LIMITS.get(word, word): value for word, value in place.items() if word not in _ABOUT}
    is_duration = condition.pop(IS_DURATION, False)
    kind = str(condition.get("type"))
    if kind == "string" and not {"enum", "pattern", "minLength"} & condition.keys():
        return place
    others = _OTHER_FORMS.get(kind)
    if is_duration:
        others = [_DURATION]
    if others is None:
        return place
    return _about(place) | {"anyOf": [condition, *others, _VARIABLE]}


def _with_short_forms(places: dict[str, Any], required: frozenset[str]) -> None:
    """`source: URL`, `target: embedded`, and parts that are left empty."""
    for name, place in places.items():
        conditions = {word: value for word, value in place.items() if word not in _ABOUT}
        choices = conditions.get("anyOf") or [conditions]
        if name in ("source", "target"):
            choices = [*choices, {"type": "string", "minLength": 1}]
        if name not in required and {"type": "null"} not in choices:
            choices = [*choices, {"type": "null"}]
        places[name] = place if choices == [conditions] else _about(place) | {"anyOf": choices}


def _about(place: Mapping[str, Any]) -> dict[str, Any]:
    return {word: value for word, value in place.items() if word in _ABOUT}


# ── What each word means ──

_HIDDEN = "It is never shown."
_SHARE = "A share of calls, 0 to 1"

WORDS: Mapping[str, Word] = {
    "JobFile.job": Word("The version of this format.", 1),
    "JobFile.name": Word("The job's name in the journal; the file's name unless it is said.", "shop"),
    "JobFile.mapping": Word("The mapping file, relative to the job's folder.", "../mappings/shop.yaml"),
    "JobFile.source": Word(
        "The relational database: its URL, or a map with how gently it is to be read. Or old tables of DynamoDB's.",
        {"url": "env:SHOP_URL", "max_connections": 4},
    ),
    "JobFile.target": Word(
        "The DynamoDB table; embedded is a server of our own, for trying.",
        {"table": "Shop", "region": "eu-central-1"},
    ),
    "JobFile.journal": Word(
        "Where the journal is: a database's URL, or source for the source's own; a file beside the job unless it is said.",
        "source",
    ),
    "JobFile.tuning": Word("How fast, and how patiently.", {"workers": 8, "max_write_units": 500}),
    "JobFile.cutover": Word("The evidence that a move of a pattern needs.", {"comparisons_min": 5000}),
    "JobFile.hooks": Word(
        "Programs to run at events.", [{"on": ["rolled_back"], "command": ["/usr/local/bin/page-us"]}]
    ),
    "JobFile.reads": Word("How services read, and how much is compared.", {"shadow": {"sample": 0.1}}),
    "JobFile.writes": Word("Entities that the service writes to the table itself.", {"direct": ["session"]}),
    "Writes.direct": Word("Their names in the mapping; they are neither written nor compared.", ["session"]),
    "SourceSettings.url": Word(
        f"A URL, an SQLite file, or where it is found: env:NAME, file:PATH, secret:NAME. {_HIDDEN}",
        "env:SHOP_URL",
    ),
    "SourceSettings.read_url": Word(
        f"A replica that pages of rows are read from. {_HIDDEN}", "env:SHOP_REPLICA_URL"
    ),
    "SourceSettings.command": Word(
        f"A program whose output is the URL, or the password of url. {_HIDDEN}",
        ["vault", "read", "-field=url", "shop"],
    ),
    "SourceSettings.max_connections": Word("Connections to the server at once, at most.", 4),
    "SourceSettings.statement_timeout_s": Word(
        "A statement of ours that takes longer is ended; 0 for no limit.", "10m"
    ),
    "SourceSettings.max_rows_per_s": Word("Rows that are read in a second, at most.", 5000),
    "SourceSettings.dynamodb": Word(
        "Old tables of DynamoDB's, where the source is no database.", {"tables": ["Users", "Orders"]}
    ),
    "DocumentSettings.tables": Word(
        "Their names, or the mapping's name of each with the account's beside it.", {"Users": "prod-users"}
    ),
    "DocumentSettings.region": Word("The AWS region.", "eu-central-1"),
    "DocumentSettings.profile": Word("The profile of the AWS configuration.", "shop"),
    "DocumentSettings.endpoint": Word("embedded, or a URL; left out for AWS.", "embedded"),
    "DocumentSettings.max_read_units": Word("Read units a second, at most, of all that is read.", 500),
    "TargetSettings.table": Word("The table's name; the mapping's unless it is said.", "Shop"),
    "TargetSettings.endpoint": Word("embedded, or a URL; left out for AWS.", "embedded"),
    "TargetSettings.region": Word("The AWS region.", "eu-central-1"),
    "TargetSettings.profile": Word("The profile of the AWS configuration.", "shop"),
    "TargetSettings.bucket": Word(
        "The bucket for attributes that the mapping keeps in S3.", "shop-large-values"
    ),
    "TargetSettings.prefix": Word(
        "What names of objects begin with; the table's name unless it is said.", "shop/"
    ),
    "TargetSettings.options": Word(
        "What a new table gets besides keys and indexes.", {"deletion_protection": True}
    ),
    "TargetSettings.role_arn": Word("The role that is assumed.", "arn:aws:iam::123456789012:role/migrator"),
    "TargetSettings.external_id": Word("The external id that the role asks for.", "shop-migration"),
    "TargetSettings.session_name": Word(
        "The name of the role's session; migrator- and the job's unless it is said.", "shop"
    ),
    "TableOptions.pitr": Word("Point-in-time recovery.", True),
    "TableOptions.deletion_protection": Word("The table cannot be deleted until it is off.", True),
    "TableOptions.stream": Word("The table's stream, and what its records hold.", "new_and_old_images"),
    "TableOptions.tags": Word("Tags of the table.", {"team": "shop"}),
    "TableOptions.contributor_insights": Word(
        "CloudWatch Contributor Insights: the keys that are asked most.", True
    ),
    "TableOptions.warm_throughput": Word(
        "Units a second that the table is prepared for.", {"read": 12000, "write": 4000}
    ),
    "TableOptions.provisioned": Word(
        "Provisioned units a second; on demand unless it is said.", {"read": 100, "write": 100}
    ),
    "TableOptions.table_class": Word("The storage class.", "standard_infrequent_access"),
    "Units.read": Word("Read units a second.", 100),
    "Units.write": Word("Write units a second.", 100),
    "Tuning.workers": Word("Pages under way at once.", 4),
    "Tuning.page_rows": Word("Rows that are read together.", 500),
    "Tuning.attempts": Word("How often a request is sent again after what can pass.", 12),
    "Tuning.backoff_cap_s": Word("The longest wait between two attempts.", "10s"),
    "Tuning.give_up_after_s": Word(
        "After this time without success a run stops; the same command goes on.", "5m"
    ),
    "Tuning.max_refused": Word("Refused rows that still end with exit code 0.", 0),
    "Tuning.scan_segments": Word("Segments of a scan of the table.", 4),
    "Tuning.max_write_units": Word("Write units a second, at most, of the table or an index.", 500),
    "Tuning.confirm_above": Word("A run that costs more US dollars than this asks first.", 25),
    "Tuning.request_life_s": Word("What one request may last, from its signature to its effect.", "60s"),
    "Tuning.silent_s": Word("A writer that cannot reach the journal for so long sends nothing more.", "30s"),
    "Tuning.lease_s": Word("How long marks that a relay took are kept from other relays.", "60s"),
    "Tuning.max_source_load": Word(
        "Sessions at work in the source besides the one that asks; above it backfills and relays wait.", 50
    ),
    "Tuning.source_load_query": Word(
        "A SELECT of one number that stands in place of the engine's own question for its load.",
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active'",
    ),
    "Tuning.max_replica_lag_s": Word("Above this lag of a replica, backfills and relays wait.", "10s"),
    "Tuning.replica_lag_query": Word(
        "A SELECT of the lag in seconds that stands in place of the engine's own question for it.",
        "SELECT lag_s FROM heartbeat_lag",
    ),
    "CutoverSettings.verify_max_age": Word("The last clean verify may be so old.", "24h"),
    "CutoverSettings.lag_max_s": Word("The oldest mark that waits may be so old.", "10s"),
    "CutoverSettings.comparisons_min": Word("Answers compared since the last move, at least.", 1000),
    "CutoverSettings.kinds_min": Word(
        "The share of the kinds of questions that were compared, at least.", 0.5
    ),
    "CutoverSettings.mismatch_max": Word(f"{_SHARE}, that may differ.", 0.003),
    "CutoverSettings.error_max": Word(f"{_SHARE}, that may fail.", 0.003),
    "CutoverSettings.p99_factor": Word("DynamoDB's p99 beside SQL's, for a pattern without a budget.", 1.5),
    "CutoverSettings.evidence_max_age": Word("Comparisons that count may be so old.", "24h"),
    "CutoverSettings.quiet": Word(
        "How long nothing may change in the source before a pattern is complete.", "10s"
    ),
    "CutoverSettings.leave": Word(
        "Tables that are not migrated on purpose; * stands for anything.", ["audit_*"]
    ),
    "CutoverSettings.watch": Word("When a pattern is moved back by itself.", {"mismatch_max": 0.01}),
    "WatchSettings.every_s": Word("How often the watch looks.", "10s"),
    "WatchSettings.answers_min": Word("Answers that it judges p99 by, at least.", 100),
    "WatchSettings.lately": Word("Calls of this time are judged by themselves, too.", "10m"),
    "WatchSettings.watched": Word("How long after its move a pattern is watched.", "7d"),
    "WatchSettings.mismatch_max": Word(f"{_SHARE}, that may differ.", 0.005),
    "WatchSettings.error_max": Word(f"{_SHARE}, that may fail.", 0.01),
    "WatchSettings.p99_factor": Word("DynamoDB's p99 beside SQL's.", 3),
    "Hook.on": Word("The events.", ["run_failed", "rolled_back", "lag_high"]),
    "Hook.command": Word(
        f"The program and its words, or one text for the shell. {_HIDDEN}", ["/usr/local/bin/page-us"]
    ),
    "Hook.wait": Word("How long it may run.", "10s"),
    "ReadSettings.phase_cache_s": Word("How old a phase may be that a service acts by.", "5s"),
    "ReadSettings.connections": Word("Connections to SQL for the callers of one process.", 10),
    "ReadSettings.patience_s": Word(
        "How long a call waits for a side that fails in a way that can pass.", "5s"
    ),
    "ReadSettings.cursor_key": Word(
        f"What cursors are signed with, the same in all processes; 16 letters at least. {_HIDDEN}",
        "${CURSOR_KEY}",
    ),
    "ReadSettings.cursor_life_s": Word("A cursor that is older is refused.", "24h"),
    "ReadSettings.shadow": Word("How much is compared with the other side.", {"sample": 0.1, "per_s": 20}),
    "ShadowSettings.sample": Word(f"{_SHARE}, that are compared.", 0.1),
    "ShadowSettings.at_once": Word("Comparisons under way in one process.", 4),
    "ShadowSettings.deadline_s": Word("After this time a comparison counts as an error.", "2s"),
    "ShadowSettings.per_s": Word("Comparisons begun in a second.", 20),
    "ShadowSettings.max_rows": Word("Of an answer with more rows nothing is compared.", 1000),
    "ShadowSettings.breaker_after": Word("So many errors in a row stop the comparisons of a pattern.", 10),
    "ShadowSettings.breaker_pause_s": Word("For so long.", "30s"),
    "ShadowSettings.settle_s": Word("How long both sides may take to come to the same answer.", "10s"),
}
