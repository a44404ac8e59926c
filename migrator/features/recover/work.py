"""The steps of `migrator recover`; each may be repeated."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from migrator.cli.cutover_text import instance_label
from migrator.cli.options import adopt, print_folded, print_result, refuse_strange, say
from migrator.commands.capture_work import install
from migrator.runtime.errors import CLEAN, DIFFERENT, MigratorError, SettingsError
from migrator.stages.core.ownership import AnotherJobError, AnotherJournalError, OlderError
from migrator.stages.live.refresh import RestoredError
from migrator.stages.session import adoption as adoption_wiring
from migrator.stages.session.adoption import guard
from migrator.stages.session.job import ONCE, keep_names
from migrator.stages.session.session import JobSession

_REPAIR = (("verify", "--repair"), ("relay", "--once"))
"""Next steps if rows and items may differ: commands, each without its job."""


class Recovery(Struct, frozen=True):
    """`first`: describes the first step.
    `work`: that step; returns its result.
    `then`: commands to run after it.
    `advice`: steps left to the operator.
    """

    first: str
    work: Callable[[JobSession], str]
    then: tuple[tuple[str, ...], ...] = ()
    advice: str = ""


def recover(
    job: Path, happened: str | None, above: int, settle_s: float | None, dry_run: bool, as_json: bool
) -> int:
    if above and happened != "source-restored":
        raise click.UsageError("--from goes with source-restored")
    with JobSession(job) as session:
        word = happened or _asked(session)
        recovery = _recoveries(above)[word]
        steps = [recovery.first, *(f"migrator {name} {job} {option}" for name, option in recovery.then)]
        if dry_run:
            return _print(word, steps, [], as_json=as_json)
        if not as_json:
            print_folded(f"step 1 of {len(steps)}: {steps[0]}")
        did = recovery.work(session)
    if not as_json:
        print_folded(did)
    code, results = CLEAN, [{"step": recovery.first, "exit_code": CLEAN, "result": did}]
    for number, (name, option) in enumerate(recovery.then, 2):
        if not as_json:
            print_folded(f"step {number} of {len(steps)}: {steps[number - 1]}")
        settle = ["--settle", f"{settle_s}s"] if settle_s is not None and name == "verify" else []
        code, result = _run([name, str(job), option, *settle], as_json=as_json)
        results.append({"step": steps[number - 1], "exit_code": code, "result": result})
        if name == "verify" and code == DIFFERENT:
            code = CLEAN  # differences are marked, and the next step repairs them
        if code != CLEAN:
            break
    if as_json:
        _print(word, steps, results, as_json=True)
    elif code == CLEAN and recovery.advice:
        print_folded(recovery.advice)
    return code


def _print(word: str, steps: list[str], results: list[dict[str, Any]], *, as_json: bool) -> int:
    lines = (f"{number}. {step}" for number, step in enumerate(steps, 1))
    print_result({"happened": word, "steps": steps, "results": results}, lines, as_json=as_json)
    return CLEAN


def _run(words: list[str], *, as_json: bool) -> tuple[int, Any]:
    """Exit code of another command, and the JSON it prints if wanted."""
    context = click.get_current_context().find_root()
    assert isinstance(context.command, click.Group)
    command = context.command.get_command(context, words[0])
    assert command is not None
    more = ["--json"] if as_json else []
    printed = io.StringIO()
    with ExitStack() as stack:
        if as_json:
            stack.enter_context(redirect_stdout(printed))
        inner = stack.enter_context(command.make_context(words[0], [*words[1:], *more], parent=context))
        code: int = command.invoke(inner)
    return code, json.loads(printed.getvalue()) if as_json else None


# ── What happened ──


def _asked(session: JobSession) -> str:
    guessed = _suspected(session)
    if not sys.stdin.isatty():
        seen = f"it looks like {guessed}" if guessed else "nothing that went back was found"
        raise SettingsError(
            f"name what happened: {', '.join(_recoveries(0))} ({seen}), such as `migrator recover JOB source-restored`"
        )
    return str(
        click.prompt(
            "what happened?", type=click.Choice(list(_recoveries(0))), default=guessed or None, err=True
        )
    )


def _suspected(session: JobSession) -> str:
    """Print the cause for which commands refuse now, and return its name; '' for none."""
    try:
        refuse_strange(session, older=True, warns=True, begins=False)
        with session.another("recover", workers=1, live_patience=ONCE) as reading:
            adoption_wiring.try_tickets(reading)
    except (AnotherJournalError, OlderError) as error:
        say(str(error))
        return "journal-lost"
    except AnotherJobError as error:
        say(str(error))
        return "renamed"
    except RestoredError as error:
        say(str(error))
        return "source-restored"
    except MigratorError as error:
        say(str(error))  # such as a source that does not answer, which proves nothing
    return ""


def _recoveries(above: int) -> dict[str, Recovery]:
    return {
        "source-restored": Recovery(
            "move the ticket counter above every known ticket; no process writes items until step 2 is done",
            partial(raise_epoch, above=above),
            _REPAIR,
            "start relays and services again",
        ),
        "journal-lost": Recovery(
            "make the journal that the job names the table's: it learns item keys and phases from the table",
            _adopt_journal,
            _REPAIR,
            "start relays and services again",
        ),
        "renamed": Recovery("keep on record what the job's table and source are called now", _keep_names),
        "older-mapping": Recovery(
            "make the older mapping the one that writers work by, and let capture fit it",
            partial(_install, go_back=True),
            advice="then run `migrator backfill JOB`, which writes every page again, and `migrator verify JOB --repair`",
        ),
        "entity-taken-back": Recovery(
            "let capture record changes of the entity's rows; old rows replace newer items",
            partial(_install, take_back=True),
            advice="then run `migrator verify JOB --repair`, and start the relay",
        ),
        "service-dead": Recovery("list the instances that are silent", _silent),
    }


# ── First steps ──


def raise_epoch(session: JobSession, above: int) -> str:
    """Raise the epoch. The table is marked first: writers that the old epoch stops need the repair before."""
    with session.open_own_live("recover") as live:
        tickets = [above, *_unless_above(above, [], adoption_wiring.known_tickets, session)]
        _unless_above(above, None, adoption_wiring.want_repair, session)
        counter = live.tickets
        counter.raise_epoch(max(counter.highest(), *tickets))
        return f"last ticket {counter.highest()} of installation {counter.generation()[0]}"


def _unless_above(above: int, unknown: Any, asked: Callable[..., Any], session: JobSession) -> Any:
    """The records of journal and table, which may be unreachable if --from is high enough."""
    try:
        return asked(session)
    except MigratorError as error:
        if not above:
            raise
        say(f"warning: {error}; --from is used instead")
        return unknown


def _adopt_journal(session: JobSession) -> str:
    with session.another("recover", workers=1, live_patience=ONCE) as session:
        _ = session.table_id
        try:
            session.refuse_unknown()
            guard(session)
        except (AnotherJournalError, OlderError):
            adopt(session)
            return "this journal is the table's from now on"
        return "this journal is the table's already"


def _keep_names(session: JobSession) -> str:
    job = session.job
    names = keep_names(job)
    return "\n".join(f"on record as job {job.name}'s {kind}: {name}" for kind, name in names.items())


def _install(session: JobSession, *, go_back: bool = False, take_back: bool = False) -> str:
    given = {"dry_run": False, "form": None, "marked_by": None}
    with redirect_stdout(io.StringIO()) as printed:
        install(session.path, **given, go_back=go_back, take_back=take_back, force=False, as_json=False)
    return printed.getvalue().rstrip("\n")


def _silent(session: JobSession) -> str:
    silent = session.service_registry().silent
    if not silent:
        return "no instance is silent"
    lines = [f"silent: {instance_label(instance)}, id {instance.id}" for instance in silent]
    ids = " ".join(f"--evict {instance.id}" for instance in silent)
    what = "a move counts on your word that they ended, which the audit keeps"
    return "\n".join([*lines, f"{what}: `migrator cutover advance JOB PATTERN {ids}`"])
