"""`migrator ui`: `look` and `status` as pages on this machine, read-only, until Ctrl-C."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from threading import Lock

from migrator.cli.command_line import print_json
from migrator.cli.options import print_folded, stop_on_signals
from migrator.commands.status_work import status_of
from migrator.features.look.loopback import Answer, Site, serving
from migrator.features.look.text import Pages
from migrator.features.look.work import Masks, Sides, open_sides
from migrator.mapping.model.report import Example
from migrator.mapping.model.table import Value
from migrator.runtime.errors import CLEAN, STOPPED, MigratorError, SettingsError
from migrator.stages.session import job as job_wiring

_ITEMS = 100
_AWAY, _WRONG = 503, 400


def ui(job: Path, port: int, for_s: float | None, whole_keys: bool, whole_values: bool, as_json: bool) -> int:
    """The exit code of `migrator ui`."""
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        masks = Masks(whole_keys, whole_values)
        sides = stack.enter_context(open_sides(job_wiring.read_job(job), masks, "ui", stop))
        table = sides.target.design
        pages = Pages(
            sides.context.job.name,
            table.name,
            [index.name for index in table.indexes],
            version("single-table-migrator"),
        )
        answers = _Answers(sides, pages, Lock())
        named: dict[str, Callable[[Mapping[str, str]], Answer]] = {
            "": answers.look,
            "look": answers.look,
            "status": answers.status,
        }
        url = stack.enter_context(serving(Site(named, pages.refusal, pages.policy), port))
        if as_json:
            print_json({"url": url})
        else:
            print_folded(
                f"{url}\nOpen it in a browser of this machine; who has the address can read. Ctrl-C ends it."
            )
        stop.wait(for_s)
    return CLEAN


@dataclass(frozen=True)
class _Answers:
    """`one`: held while a page is made, so that a browser that asks often asks the sides for one page at a time.
    `examples`: of the first page, as it was last made."""

    sides: Sides
    pages: Pages
    one: Lock
    examples: list[Example] = field(default_factory=list)

    def look(self, fields: Mapping[str, str]) -> Answer:
        asked = {name: fields.get(name, "") for name in ("pk", "sk", "index")}
        try:
            with self.one:
                if "example" in fields:
                    report = self.sides.report(*self._example(fields["example"]), None, _ITEMS)
                elif asked["pk"]:
                    report = self.sides.report(
                        self._partition(asked), asked["sk"], asked["index"] or None, _ITEMS
                    )
                else:
                    self.examples[:] = self.sides.examples()
                    return Answer(200, self.pages.look(asked, None, examples=self.examples))
        except MigratorError as error:
            code = _AWAY if error.exit_code == STOPPED else _WRONG
            return Answer(code, self.pages.look(asked, None, str(error)))
        return Answer(200, self.pages.look(asked, report))

    def _example(self, number: str) -> tuple[tuple[str, ...], str]:
        """Partition key and sort key of an item of the first page, which need not show them."""
        if not number.isdecimal() or int(number) >= len(self.examples):
            raise SettingsError("no item of the first page has this number; open the first page again")
        partition, *sort = map(_written, self.examples[int(number)].base_key)
        return (partition,), "".join(sort)

    def _partition(self, asked: Mapping[str, str]) -> tuple[str, ...]:
        """The values of the partition key: where it has several attributes, commas stand between them."""
        index = self.sides.target.design.asked(asked["index"] or None)
        several = index is not None and len(index.partition) > 1
        return tuple(asked["pk"].split(",")) if several else (asked["pk"],)

    def status(self, fields: Mapping[str, str]) -> Answer:
        job = self.sides.context.job
        try:
            with self.one, job_wiring.open_journal(job) as journal:
                found = status_of(job, journal)
                page = self.pages.status(
                    found.data(), [*found.look.lines(), *found.warnings(), *found.look.lag.writer_lines()]
                )
        except MigratorError as error:
            return Answer(_AWAY, self.pages.status(None, (), f"The journal cannot be asked: {error}"))
        return Answer(200, page)


def _written(value: Value) -> str:
    """A key's value as the form takes it."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
