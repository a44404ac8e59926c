from __future__ import annotations

from pathlib import Path

import pytest

from migrator.runtime.errors import MappingError, MigratorError, SettingsError
from migrator.settings.job import CutoverSettings, Hook, SourceSettings, Tuning, WatchSettings, load_job
from tests import pins

JOB = "job: 1\nmapping: m.yaml\nsource: sqlite:///shop.db\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(JOB + text)
    return path


def test_a_job_without_a_word_of_it_has_the_limits_of_production(tmp_path: Path) -> None:
    job = load_job(write(tmp_path, ""), {})
    assert job.cutover == CutoverSettings()
    assert (job.cutover.comparisons_min, job.cutover.verify_max_age_s) == (1000, 86_400)
    assert job.hooks == ()


def test_limits_and_hooks_are_read_with_their_units(tmp_path: Path) -> None:
    text = """
cutover:
  verify_max_age: 6h
  evidence_max_age: 90
  kinds_min: 1
  quiet: 1m
  watch: {lately: 5 min, mismatch_max: 0.02}
hooks:
  - {on: [rolled_back, lag_high], command: [notify, "--to=${TEAM}"], wait: 3s}
  - {on: [run_failed], command: "logger -t migrator"}
"""
    job = load_job(write(tmp_path, text), {"TEAM": "s3cret"})
    watch = WatchSettings(lately=300, mismatch_max=0.02)
    assert job.cutover == CutoverSettings(
        verify_max_age=21_600, evidence_max_age=90, kinds_min=1, quiet=60, watch=watch
    )
    assert job.hooks == (
        Hook(on=("rolled_back", "lag_high"), command=("notify", "--to=s3cret"), wait=3),
        Hook(on=("run_failed",), command="logger -t migrator"),
    )
    assert "s3cret" not in repr(job)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("cutover: {verify_max_age: soon}", 4),
        ("cutover: {verify_max_age: true}", 4),
        ("cutover: {verify_max_age: 0s}", 4),
        ("cutover: {mismatch_max: 0}", 4),
        ("cutover: {error_max: 1}", 4),
        ("cutover: {kinds_min: 2}", 4),
        ("cutover: {comparison_min: 5}", 4),
        ("cutover:\n  watch: {evry_s: 5}", 5),
        ("hooks:\n  - {on: [rolled_bak], command: [a]}", 5),
        ("hooks:\n  - {on: [], command: [a]}", 5),
        ("hooks:\n  - {on: [lag_high], command: []}", 5),
        ("hooks:\n  - {on: [lag_high], command: ' '}", 5),
        ("hooks:\n  - {on: [lag_high]}", 5),
    ],
    ids=[
        "duration-such",
        "number-true",
        "greater",
        "greater-mismatch",
        "less",
        "less-equal",
        "you-mean",
        "did-you-mean",
        "rolled-back",
        "least",
        "write-program",
        "write-program-2",
        "command",
    ],
)
def test_what_is_wrong_is_reported_with_its_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(MappingError) as caught:
        load_job(write(tmp_path, text), {})
    said = str(caught.value)
    assert f"shop.yaml:{line}: " in said
    assert pins.said(said)


GOOD = """
job: 1
mapping: ../mappings/shop.yaml
source: {url: "${SHOP_URL}"}
target: {table: Shop, endpoint: "${ENDPOINT:-embedded}", region: eu-central-1}
tuning: {workers: 2, page_rows: 50}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jobs" / "my shop.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_a_job_takes_its_variables_from_the_environment(tmp_path: Path) -> None:
    job = load_job(written(tmp_path, GOOD), {"SHOP_URL": "postgresql://me:pw@h/shop"})
    assert job.name == "my-shop"
    assert job.source.url == "postgresql://me:pw@h/shop"
    assert job.mapping == tmp_path / "jobs" / ".." / "mappings" / "shop.yaml"
    assert (job.target.table, job.target.endpoint, job.target.region) == ("Shop", "embedded", "eu-central-1")
    assert job.tuning == Tuning(workers=2, page_rows=50)
    assert "pw" not in repr(job)


def test_source_setting_limits_how_gently_it_is_read(tmp_path: Path) -> None:
    text = """
job: 1
mapping: m
source:
  url: env:SHOP_URL
  read_url: secret:arn:aws:secretsmanager:eu-central-1:1:secret:s3cret
  command: [print-token, "--for=s3cret"]
  max_connections: 3
  statement_timeout_s: 2.5
  max_rows_per_s: 1000
"""
    source = load_job(written(tmp_path, text), {}).source
    assert source == SourceSettings(
        url="env:SHOP_URL",
        read_url="secret:arn:aws:secretsmanager:eu-central-1:1:secret:s3cret",
        command=("print-token", "--for=s3cret"),
        max_connections=3,
        statement_timeout_s=2.5,
        max_rows_per_s=1000.0,
    )
    assert "s3cret" not in repr(source)


def test_an_empty_variable_is_as_good_as_none(tmp_path: Path) -> None:
    job = load_job(written(tmp_path, GOOD), {"SHOP_URL": "sqlite:///a.db", "ENDPOINT": ""})
    assert job.target.endpoint == "embedded"


def test_short_forms(tmp_path: Path) -> None:
    job = load_job(
        written(tmp_path, "job: 1\nmapping: m.yaml\nsource: sqlite:///a$${b}.db\ntarget: embedded"), {}
    )
    assert job.source.url == "sqlite:///a${b}.db"
    assert job.target.endpoint == "embedded"
    assert job.target.table is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("a: [", id="no-yaml"),
        pytest.param(GOOD, id="variable"),
        pytest.param("job: 1\nsource: x\n", id="no-mapping"),
        pytest.param("job: 2\nmapping: m\nsource: x\n", id="version"),
        pytest.param(
            "job: 1\nmapping: m\nsource: x\ntargt: {}\ntuning: {wrkers: 1, page_rows: 0}", id="words"
        ),
        pytest.param("job: 1\nmapping: m\nsource: x\ntarget: {endpoint: localhost}", id="endpoint"),
        pytest.param("job: 1\nmapping: m\nsource: x\ntarget: embeded", id="endpoint-word"),
        pytest.param("job: 1\nmapping: m\nsource: x\ntarget: {table: a b}", id="table"),
        pytest.param("job: 1\nmapping: m\nsource: x\nname: ../x", id="name"),
        pytest.param("job: 1\nmapping: m\nsource:", id="no-source"),
        pytest.param("job: 1\nmapping: m\nsource: x\ntuning: [1]", id="tuning"),
        pytest.param("job: 1\nmapping: m\nsource: x\ntuning: {max_refused: true}", id="number"),
        pytest.param("job: 1\nmapping: m\nsource: x\njournal: 'a${1X}'", id="variable-name"),
        pytest.param("job: 1\nmapping: m\nsource: {}", id="no-url"),
        pytest.param(
            "job: 1\nmapping: m\nsource:\n  url: env:1x\n  read_url: 'file:'\n  command: []\n  max_connections: 0\n"
            "  statement_timeout_s: true\n  max_rows_per_s: 0\n  max_conections: 1",
            id="source-words",
        ),
        pytest.param("job: 1\nmapping: m\nsource: ${A}\njournal: ${B}", id="variables"),
    ],
)
def test_every_fault_of_a_job_is_reported_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(MappingError) as caught:
        load_job(written(tmp_path, text), {})
    assert "\n".join(str(fault) for fault in caught.value.faults) == pins.text()


def test_a_part_that_is_left_empty_is_as_good_as_none(tmp_path: Path) -> None:
    text = "job: 1\nmapping: m\nsource: x\ntarget:\ntuning:\njournal:\nname:\n"
    job = load_job(written(tmp_path, text), {})
    assert (job.name, job.target.endpoint, job.tuning, job.journal) == ("my-shop", None, Tuning(), None)


def test_a_number_may_come_from_the_environment(tmp_path: Path) -> None:
    text = 'job: 1\nmapping: m\nsource: x\ntuning: {workers: "${WORKERS:-6}"}'
    assert load_job(written(tmp_path, text), {}).tuning.workers == 6
    assert load_job(written(tmp_path, text), {"WORKERS": "9"}).tuning.workers == 9


def test_a_file_whose_name_is_no_job_name(tmp_path: Path) -> None:
    path = tmp_path / f"{'n' * 65}.yaml"
    path.write_text("job: 1\nmapping: m\nsource: x")
    with pins.refused(MappingError):
        load_job(path, {})


def test_no_fault_shows_what_a_variable_holds(tmp_path: Path) -> None:
    text = (
        "job: 1\nmapping: m\nsource: x\ntarget: {endpoint: '${E}', table: '${E}'}\ntuning: {workers: '${E}'}"
    )
    with pytest.raises(MappingError) as caught:
        load_job(written(tmp_path, text), {"E": "ftp://me:s3cret@h"})
    assert len(caught.value.faults) == 3
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{postgresql://me:s3cret@h/db}",
        "{url: x, 's3cret@h:5432/db': y}",
        "{? 'postgresql://h/db?password=s3cret' : x}",
        "{postgresql://me:s3cret@h/db: , postgresql://me:s3cret@h/db: }",
    ],
)
def test_url_in_place_of_a_word_is_not_shown(tmp_path: Path, source: str) -> None:
    with pytest.raises(MappingError) as caught:
        load_job(written(tmp_path, f"job: 1\nmapping: m\nsource: {source}"), {})
    assert ":3: source.…: " in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_what_cannot_be_read_is_reported(tmp_path: Path) -> None:
    binary = written(tmp_path, "")
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "no.yaml", tmp_path, binary):
        with pins.refused(SettingsError):
            load_job(path, {})


def test_errors_are_ours(tmp_path: Path) -> None:
    with pytest.raises(MigratorError):
        load_job(tmp_path / "nothing", {})


# ── old tables of DynamoDB's ──

OLD = "job: 1\nmapping: m.yaml\nsource: {dynamodb: {tables: [Users, Orders], endpoint: embedded}}\n"


def test_old_tables_stand_in_place_of_a_database(tmp_path: Path) -> None:
    job = load_job(_job_file(tmp_path, OLD), {})
    assert job.source.dynamodb is not None
    assert job.source.dynamodb.real_names == {"Users": "Users", "Orders": "Orders"}
    assert job.source.dynamodb
    assert job.source.dynamodb.identity == "dynamodb embedded Orders,Users"


def test_old_tables_may_have_other_names_in_the_account(tmp_path: Path) -> None:
    text = OLD.replace("[Users, Orders]", '{Users: "${STAGE}-users"}')
    job = load_job(_job_file(tmp_path, text), {"STAGE": "prod"})
    assert job.source.dynamodb is not None
    assert job.source.dynamodb.real_names == {"Users": "prod-users"}


@pytest.mark.parametrize(
    "text",
    [
        OLD.replace("tables: [Users, Orders], ", ""),
        OLD.replace("[Users, Orders]", "[]"),
        OLD.replace("source: {", "source: {url: shop.db, read_url: other.db, "),
        OLD + "journal: source\n",
        OLD + "target: {table: Orders, endpoint: embedded}\n",
        OLD.replace("embedded", "https://u:p@host"),
        OLD.replace("[Users, Orders]", "{Users: all, Orders: all, Lines: lines}"),
    ],
    ids=["tables", "least", "url-database", "journal-database", "orders-old", "user-password", "same-table"],
)
def test_what_does_not_fit_old_tables_is_reported(tmp_path: Path, text: str) -> None:
    with pins.refused(MappingError):
        load_job(_job_file(tmp_path, text), {})


@pytest.mark.parametrize(
    "tables", ["{Users: u}", "[Users, o]"], ids=["name of a table in a map", "name of a table in a list"]
)
def test_wrong_name_in_one_form_is_one_fault(tmp_path: Path, tables: str) -> None:
    with pins.refused(MappingError) as raised:
        load_job(_job_file(tmp_path, OLD.replace("[Users, Orders]", tables)), {})
    assert len(raised.value.faults) == 1


def test_a_statement_may_run_for_a_day_at_most(tmp_path: Path) -> None:
    text = "job: 1\nmapping: m.yaml\nsource: {url: 'sqlite:///shop.db', statement_timeout_s: %s}\n"
    assert load_job(_job_file(tmp_path, text % "1d"), {}).source.statement_timeout_s == 86_400
    with pytest.raises(MappingError):
        load_job(_job_file(tmp_path, text % 86_401), {})


def _job_file(folder: Path, text: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(text, encoding="utf-8")
    return path
