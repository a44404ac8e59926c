"""The files of docs/deploy are forms that systemd, Kubernetes, ECS and GitHub take, and say what commands and code say."""

from __future__ import annotations

import configparser
import functools
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import boto3
import click
import kubernetes_validate
import pytest
import yaml
from botocore.validate import ParamValidator

from migrator.main import cli
from migrator.runtime.errors import DIFFERENT, WRONG_USE
from migrator.settings.job import Tuning
from migrator.settings.roles import ROLES, rights_of
from tests.journeys.in_process import run_here
from tests.outside.cloudformation import template_of
from tools.pages.site import ROOT

DEPLOY = ROOT / "docs" / "deploy"
UNIT = DEPLOY / "migrator-relay@.service"
TASKS = ("RelayTask", "BackfillTask", "VerifyTask")
_OF_OTHERS = {"MIGRATOR_IMAGE"}
"""A name that its file gives itself."""


@functools.cache
def kubernetes() -> dict[str, dict[str, Any]]:
    read = yaml.safe_load((DEPLOY / "kubernetes.yaml").read_text(encoding="utf-8"))
    return {manifest["kind"]: manifest for manifest in read["items"]}


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"].get("jobTemplate", manifest)["spec"]
    found: dict[str, Any] = spec["template"]["spec"]
    return found


def pods() -> dict[str, dict[str, Any]]:
    made = ("template", "jobTemplate")
    manifests = kubernetes().items()
    return {kind: pod(one) for kind, one in manifests if any(name in one.get("spec", {}) for name in made)}


@functools.cache
def ecs() -> dict[str, Any]:
    """The template's resources; what `!Ref` and its like stand for is a text."""
    resources: dict[str, Any] = template_of(DEPLOY / "ecs.yaml")["Resources"]
    return resources


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text(encoding="utf-8"))
    return parser


def commands() -> Iterator[list[str]]:
    """Words behind `migrator` of each command that the files run."""
    yield shlex.split(unit()["Service"]["ExecStart"].replace("${METRICS_PORT}", "9464"))[1:]
    for of_pod in pods().values():
        yield from (container["args"] for container in of_pod["containers"])
    for name in TASKS:
        yield from (one["Command"] for one in ecs()[name]["Properties"]["ContainerDefinitions"])
    script = (DEPLOY / "github-actions.yml").read_text(encoding="utf-8")
    for found in re.finditer(r'(?:run: migrator|"\$MIGRATOR_IMAGE") (.*?)(?: > \S+)?$', script, re.MULTILINE):
        yield shlex.split(found[1])


COMMANDS = list(commands())


def test_each_file_has_its_commands() -> None:
    assert sorted(words[0] for words in COMMANDS) == [
        *("backfill", "backfill", "mapping", "plan", "relay", "relay", "relay", "verify", "verify", "verify")
    ]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_takes_the_options_and_values_that_it_is_given(words: list[str]) -> None:
    command, left = cli.commands[words[0]], words[1:]
    if isinstance(command, click.Group):
        command, left = command.commands[left[0]], left[1:]
    context = click.Context(command)
    given, _, _ = command.make_parser(context).parse_args([*left])
    assert given
    for param in command.params:
        if isinstance(param, click.Option) and param.name in given:
            param.type_cast_value(context, given[param.name])


@pytest.mark.parametrize("path", sorted(DEPLOY.iterdir()), ids=lambda path: path.name)
def test_names_of_the_environment_are_ones_that_are_read(path: Path) -> None:
    code = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "migrator").rglob("*.py"))
    names = set(re.findall(r"\bMIGRATOR_[A-Z_]+", path.read_text(encoding="utf-8"))) - _OF_OTHERS
    assert [name for name in names if name not in code] == []
    assert "MIGRATOR_SOURCE_URL" in names or path == UNIT


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here (Debian: apt-get install systemd)")
    text = UNIT.read_text(encoding="utf-8")
    program = Path(sys.executable).with_name("migrator")
    (tmp_path / UNIT.name).write_text(text.replace("/opt/migrator/bin/migrator", str(program)))
    instances = [str(tmp_path / UNIT.name.replace("@", f"@{name}")) for name in ("shop", "books")]
    words = ["systemd-analyze", "verify", "--man=no", *instances]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    # Of other units of this machine it complains, too.
    told = [line for line in ended.stderr.splitlines() if UNIT.name.split("@")[0] in line]
    assert told == [], ended.stderr


def test_instances_of_the_unit_share_no_state_and_no_port() -> None:
    service = unit()["Service"]
    assert service["StateDirectory"] == "migrator/%i"
    homes = re.findall(r"^Environment=MIGRATOR_HOME=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert homes == ["/var/lib/migrator/%i"]
    assert "--metrics-port ${METRICS_PORT}" in service["ExecStart"]
    # systemd gives the file of the instance precedence over the default.
    assert service["EnvironmentFile"] == "/etc/migrator/%i.env"
    assert "METRICS_PORT=9464" in UNIT.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", kubernetes())
def test_kubernetes_takes_the_manifest(kind: str) -> None:
    kubernetes_validate.validate(kubernetes()[kind], kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", TASKS)
def test_ecs_takes_the_task(name: str) -> None:
    client = boto3.client("ecs", region_name="eu-central-1")
    shape = client.meta.service_model.operation_model("RegisterTaskDefinition").input_shape
    report = ParamValidator().validate(_as_request(ecs()[name]["Properties"]), shape)
    assert report.generate_report() == ""


def _as_request(value: Any) -> Any:
    """CloudFormation writes names with a capital, the service without; options of a log driver are no names."""
    if isinstance(value, list):
        return [_as_request(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        name[0].lower() + name[1:]: one if name == "Options" else _as_request(one)
        for name, one in value.items()
    }


def test_permanent_failure_is_not_retried() -> None:
    assert unit()["Service"]["RestartPreventExitStatus"] == str(WRONG_USE)
    for kind in ("Job", "CronJob"):
        manifest = kubernetes()[kind]
        rule = manifest["spec"].get("jobTemplate", manifest)["spec"]["podFailurePolicy"]["rules"][0]
        assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [DIFFERENT, WRONG_USE])


def test_running_work_may_end_before_the_process_is_killed() -> None:
    longest_s = Tuning().request_life_s
    waits = [int(unit()["Service"]["TimeoutStopSec"])]
    waits += [of_pod["terminationGracePeriodSeconds"] for of_pod in pods().values()]
    waits += [ecs()[name]["Properties"]["ContainerDefinitions"][0]["StopTimeout"] for name in TASKS]
    assert min(waits) > longest_s


def test_probes_ask_where_the_relay_answers() -> None:
    (container,) = pods()["Deployment"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    paths = {
        container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {"/healthz", "/readyz"}
    assert f"--metrics-port={ports['metrics']}" in container["args"]


def test_the_job_of_the_manifests_has_no_fault(tmp_path: Path) -> None:
    for name, text in kubernetes()["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        shop.execute("CREATE TABLE users (id INTEGER PRIMARY KEY)")
    ended = run_here(
        ["mapping", "check", "shop.yaml"], tmp_path, {"MIGRATOR_SOURCE_URL": "sqlite:///shop.db"}
    )
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(("role", "of"), [("WriterRole", ("relay", "backfill")), ("ReaderRole", ("verify",))])
def test_roles_have_the_rights_that_export_iam_writes(role: str, of: tuple[str, ...]) -> None:
    (policy,) = ecs()[role]["Properties"]["Policies"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    rights = {right for name in of for right in rights_of(ROLES[name], [], keeps=False).table}
    assert {action.removeprefix("dynamodb:") for action in statement["Action"]} == rights
    assert [place.rpartition(":")[2] for place in statement["Resource"]] == ["table/${TableName}"]


def test_each_path_that_the_image_copies_is_there() -> None:
    text = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert len(copied) > 4
    assert [path for line in copied for path in line.split() if not (ROOT / path).exists()] == []
