"""Parameters that no row can have, or that are none: `Migration.read` and both generated modules answer by one rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from migrator.api import Migration
from migrator.mapping.patterns.params import checked_params
from migrator.runtime.errors import SettingsError
from migrator.stages.patterns.question import ask
from tests.designs.moved import moved_by
from tests.exports.generated import generated
from tests.exports.odd_parameters import NOT_IN_JSON, NOTES, QUESTIONS, REFUSED, SCRIPT, Question
from tests.exports.shipped import Shipped
from tests.exports.typescript import sqlite_with
from tools.pages.golden import Golden

Asking = Callable[[Question], list[int]]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory, dynamodb_url: str) -> Iterator[dict[str, Asking]]:
    """By name what asks a question, and returns `n` of its records; raises what refuses it."""
    folder = tmp_path_factory.mktemp("odd")
    url = sqlite_with(folder / "notes.db", SCRIPT)
    (folder / "mapping.yaml").write_text(NOTES)
    with ExitStack() as stack:
        design = stack.enter_context(
            moved_by(folder / "mapping.yaml", url, dynamodb_url, Golden([], [], {}, 0, []))
        )
        table = design.store.design.name
        (folder / "job.yaml").write_text(
            f"job: 1\nmapping: mapping.yaml\nsource: {{url: '{url}'}}\n"
            f"target: {{table: {table}, endpoint: '{dynamodb_url}'}}\n"
        )
        made = generated(Shipped(folder, table), dynamodb_url)
        mapping = design.checked.mapping

        def both_sides(question: Question) -> list[int]:
            pattern = mapping.patterns[question.pattern]
            params = checked_params(pattern, question.params)
            answer = ask(mapping, pattern, params, design.source, design.store)
            assert answer.same
            return [one for part in answer.parts for (one,) in part.items if isinstance(one, int)]

        def by(table: Any) -> Asking:
            def of_module(question: Question) -> list[int]:
                given = {f"{name}_" if name == "from" else name: one for name, one in question.params.items()}
                try:
                    found = getattr(table, question.pattern)(**given)
                except (made.through.RefusedError, made.after.RefusedError) as error:
                    raise SettingsError(str(error)) from None
                return [one.n for one in (found if isinstance(found, list) else [found]) if one is not None]

            return of_module

        migration = stack.enter_context(Migration.load(folder / "job.yaml"))

        def read(question: Question) -> list[int]:
            found: Any = migration.read(question.pattern, **question.params)
            records = [found] if isinstance(found, dict) else list(found or [])
            return [record["n"] for record in records]

        yield {
            "both sides": both_sides,
            "read": read,
            "through": by(stack.enter_context(made.opened(after=False))),
            "after": by(stack.enter_context(made.opened(after=True))),
        }


@pytest.mark.parametrize("way", ["both sides", "read", "through", "after"])
def test_odd_parameter_is_refused_or_answered_as_sql_does(ways: dict[str, Asking], way: str) -> None:
    asked = [*QUESTIONS, *NOT_IN_JSON]
    outcomes = [_outcome(ways[way], question) for question in asked]
    wrong = [(str(one), found) for one, found in zip(asked, outcomes, strict=True) if found != one.found]
    assert not wrong, "\n".join(map(str, wrong))


def _outcome(asking: Asking, question: Question) -> object:
    try:
        return sorted(asking(question))
    except SettingsError:
        return REFUSED
    except Exception as error:  # an error of another type is a fault
        return repr(error)[:200]
