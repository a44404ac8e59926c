from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from migrator.cli.command_line import Leaf, Renamed, Work
from tests import pins


@click.command(cls=Leaf)
@click.option("--force", cls=Renamed, former="--anyway", is_flag=True)
@click.option("--evict", cls=Renamed, former="--gone", multiple=True)
@click.option("--adopt", cls=Renamed, former="--force", is_flag=True)
@click.option("--reason", default="")
@click.argument("words", nargs=-1)
def command() -> Work:
    def work(**asked: object) -> int:
        click.echo(sorted((name, value) for name, value in asked.items() if value))
        return 0

    return work


def run(*words: str) -> Result:
    return CliRunner().invoke(command, words)


@pytest.mark.parametrize(
    ("given", "same", "former", "present"),
    [
        (["--anyway"], ["--force"], "--anyway", "--force"),
        (["--gone", "a", "--gone=b"], ["--evict", "a", "--evict=b"], "--gone", "--evict"),
        (["--reason", "x", "--gone", "--anyway"], ["--reason", "x", "--evict", "--anyway"], "--gone", "--evict"),
    ],
)  # fmt: skip
def test_a_former_name_is_the_present_one_and_told_of_once(
    given: list[str], same: list[str], former: str, present: str
) -> None:
    ended = run(*given)
    assert ended.stdout == run(*same).stdout
    line = f"warning: {former} is called {present} now; this release is the last that takes the former name\n"
    assert ended.stderr == line


def test_what_only_looks_like_a_former_name_stays() -> None:
    ended = run("--reason", "--anyway", "--", "--gone")
    assert (ended.stdout, ended.stderr) == ("[('reason', '--anyway'), ('words', ('--gone',))]\n", "")


def test_a_name_that_two_options_had_in_turn_is_the_present_ones() -> None:
    ended = run("--force")
    assert ended.stdout == "[('force', True)]\n"
    assert ended.stderr == pins.text()


def test_no_help_shows_a_former_name() -> None:
    shown = run("--help").stdout
    assert "--gone" not in shown
    assert "--anyway" not in shown
