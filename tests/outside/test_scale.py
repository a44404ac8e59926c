"""docs/speed.md, fill.md, spark.md and the definitions of jobs/spark: figures follow from their formulas, and named things exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import click
import hcl2
import pytest

from migrator.main import cli
from migrator.settings.transforms import price_of
from tests.outside.cloudformation import template_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
SPARK_PAGE = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("fill", "spark"))
SPARK = ROOT / "jobs" / "spark"
ITEMS_OF_SLOT = 2_500
DPU_HOUR = 0.44


def rows_of(heading: str) -> list[list[str]]:
    """The table below the line that begins so, without its head."""
    lines = PAGE[PAGE.index(f"\n| {heading} |") :].splitlines()[3:]
    taken = lines[: next(number for number, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in taken]


def number(text: str) -> float:
    return float(text.replace(",", ""))


@pytest.mark.parametrize("cells", rows_of("rows"), ids=lambda cells: cells[0])
def test_modelled_figure_follows_from_its_formula(cells: list[str]) -> None:
    price = price_of("us-east-1")
    assert price is not None
    assert price.import_gb is not None
    digits = cells[0].removeprefix("10").translate(str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789"))
    rows, rate, slots = 10 ** int(digits), number(cells[2]), int(cells[7])
    given = [number(cell) for cell in (*cells[3:7], cells[8])]
    wanted = [
        rows / rate / 3600,
        rows * 2 * 20 / 3.6e9,
        rows * 3 * float(price.write) / 1e6,
        rows * 400 * float(price.import_gb) / 1e9,
        2 * (slots + 1),
    ]
    assert given == pytest.approx(wanted, abs=0.0051)
    assert rate <= slots * ITEMS_OF_SLOT


@pytest.mark.parametrize("cells", rows_of("wanted"), ids=lambda cells: cells[0])
def test_a_size_is_what_its_slots_give(cells: list[str]) -> None:
    workers, slots, rate, hours, dollars = (number(cells[place]) for place in (1, 3, 4, 5, 6))
    assert (workers - 1) * 4 == slots
    assert rate == slots * ITEMS_OF_SLOT
    assert (hours, dollars) == pytest.approx(
        (1e9 / rate / 3600, workers * 1e9 / rate / 3600 * DPU_HOUR), abs=0.3
    )


def template(name: str) -> dict[str, Any]:
    return template_of(SPARK / f"{name}.yaml")


def terraform(name: str, kind: str) -> dict[str, Any]:
    """The block of the one resource of this kind, texts without their quotes."""
    read = hcl2.loads((SPARK / f"{name}.tf").read_text(encoding="utf-8"))
    (block,) = [one[key] for one in read["resource"] for key in one if key.strip('"') == kind]
    (body,) = block.values()
    found: dict[str, Any] = _plain(body)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name).strip('"'): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return re.sub(r"\$\{(?:var\.)?(\w+)\}", r"<\1>", value.strip('"')) if isinstance(value, str) else value


@pytest.mark.slow
def test_both_definitions_of_the_glue_job_are_equal() -> None:
    job = template("glue")["Resources"]["Migration"]["Properties"]
    same = terraform("glue", "aws_glue_job")
    for name in ("GlueVersion", "WorkerType", "Timeout", "MaxRetries"):
        assert str(job[name]) == str(same[re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()])
    assert job["Command"]["Name"] == same["command"][0]["name"]
    names = {"Bucket": "bucket", "Wheel": "wheel", "JobFile": "job_file", "MappingFile": "mapping_file"}
    arguments = {
        name: re.sub(r"\$\{(\w+)\}", lambda found: f"<{names[found[1]]}>", text)
        for name, text in job["DefaultArguments"].items()
    }
    assert arguments == same["default_arguments"]


def test_both_definitions_of_the_emr_application_are_equal() -> None:
    application = template("emr")["Resources"]["Application"]["Properties"]
    same = terraform("emr", "aws_emrserverless_application")
    assert application["ReleaseLabel"] == same["release_label"]
    assert application["Type"].lower() == same["type"]
    stops = application["AutoStopConfiguration"]["IdleTimeoutMinutes"]
    assert stops == same["auto_stop_configuration"][0]["idle_timeout_minutes"]


def test_wheel_has_this_version_and_the_drivers_of_its_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wheel = f"single_table_migrator-{project['version']}-py3-none-any.whl"
    glue = template("glue")
    assert glue["Parameters"]["Wheel"]["Default"] == wheel
    modules = glue["Resources"]["Migration"]["Properties"]["DefaultArguments"]["--additional-python-modules"]
    extras = project["optional-dependencies"]
    assert modules.split(",")[1:] == [*extras["postgres"], *extras["mysql"]]
    assert set(re.findall(r"single_table_migrator-[\w.-]+?\.whl", SPARK_PAGE)) == {wheel}


def words_named() -> list[str]:
    """Command lines that the page and the definitions give to a script."""
    glue = template("glue")
    argument = glue["Resources"]["Migration"]["Properties"]["DefaultArguments"]["--words"]
    return [
        argument.replace("${JobFile}", "shop.yaml"),
        *re.findall(r'"--words\W+": \W*"((?:backfill|verify) [^"\\]+)', SPARK_PAGE),
        *re.findall(r"^    migrator (.+?)$", SPARK_PAGE, re.MULTILINE),
        re.sub(r'[",]', "", re.findall(r'"entryPointArguments": \[(.+?)\]', SPARK_PAGE)[0]),
    ]


@pytest.mark.parametrize("words", words_named())
def test_a_command_line_takes_its_options(words: str) -> None:
    name, *options = shlex.split(words)
    command = cli.commands[name]
    given, _, _ = command.make_parser(click.Context(command)).parse_args([*options])
    assert given


@pytest.mark.parametrize("name", ["glue.py", "emr.py"])
def test_a_script_is_python_that_calls_the_installed_package(name: str) -> None:
    code = (SPARK / name).read_text(encoding="utf-8")
    compile(code, name, "exec")
    assert "from migrator.spark import main" in code
