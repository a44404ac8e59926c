"""The steps of a change to another mapping, in their order and resumable; and its gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from migrator.mapping.difference.difference import MappingDifference
from migrator.mapping.difference.meaning import PatternDifference
from migrator.mapping.model.evidence import PatternPhase, Phase
from migrator.mapping.model.instances import ChangeStep, RevisionChange, Standing
from migrator.mapping.model.live import Root
from migrator.mapping.model.table import ItemKey
from migrator.runtime.errors import SettingsError

ORDER: tuple[ChangeStep, ...] = ("indexes", "newest", "items", "gone", "verify", "unasked")
"""Indexes are added before items get their attributes. Once the newer mapping is the newest, no item of the older one is
written, so later writes and deletes stay. The verify proves all of it, and indexes are removed last."""
ANSWERED: tuple[Phase, ...] = ("ramp", "live", "complete")
"""Phases in which the table answers calls."""
ROUNDS = 3
"""How often rows that differ are written and compared again before they are left to the next call."""


def run_steps(
    change: RevisionChange,
    works: Mapping[ChangeStep, Callable[[], str]],
    advance: Callable[[RevisionChange, ChangeStep], None],
    still: Callable[[], None],
    tell: Callable[[str], None],
) -> list[tuple[ChangeStep, str]]:
    """Continue from the change's current step; returns the completed ones. Raises: errors of a step.

    `works`: functions by step, each may run twice.
    `advance`: records the next step, as part of a journal.
    `still`: raises if the mapping's file has changed; called before each step.
    """
    done = []
    for number in range(ORDER.index(change.step), len(ORDER)):
        step, after = ORDER[number], ORDER[number + 1 : number + 2]
        still()
        said = works[step]()
        # After the work: a crash between them does it twice, the other order leaves it out.
        advance(change, after[0] if after else "")
        tell(f"{number + 1}/{len(ORDER)} {step}: {said}")
        done.append((step, said))
    return done


# ── conditions before the first change ──


def answered(difference: MappingDifference, phases: Mapping[str, PatternPhase]) -> Iterator[tuple[str, str]]:
    for pattern in difference.patterns:
        phase = phases.get(pattern.name)
        if phase is None or phase.state.phase not in ANSWERED:
            continue
        if why := _why(pattern):
            yield pattern.name, f"it is in {phase.state.word}, and {why}"


def _why(pattern: PatternDifference) -> str:
    if pattern.effect == "gone":
        return "it is not in this mapping"
    if pattern.old_loses:
        return f"services of the older mapping would no longer find {', '.join(pattern.old_loses)}"
    return "its answer changes" if pattern.answer_changes else ""


def refuse_direct(difference: MappingDifference, direct: Sequence[str]) -> None:
    """Raises: SettingsError if items change that the service writes itself: no row can restore them."""
    if names := sorted({entity.written for entity in difference.entities} & set(direct)):
        what = f"the service writes {', '.join(names)} itself (writes.direct of the job)"
        raise SettingsError(
            f"{what}: their items cannot be computed from rows, so the service has to change them"
        )


class Asked(Struct, frozen=True):
    """The mapping's file, the options, and the state in the journal.

    `own`: the file's revision.
    `standing`: of that one.
    `is_left`: the job went back from it.
    `again`: return to it.
    `newest`: '' for none.
    `before`: the one before it, '' if unasked.
    `last`: the last begun change.
    """

    own: str
    standing: Standing
    is_left: bool
    go_back: bool
    again: bool
    newest: str
    before: str
    last: RevisionChange | None


class ChangeDirection(Struct, frozen=True):
    """The revisions before and after, equal if the job has it already, with `advice`; `resumed`: an earlier change."""

    before: str
    after: str
    goes_back: bool
    resumed: RevisionChange | None = None
    advice: str = ""


def there(revision: str, advice: str = "") -> ChangeDirection:
    return ChangeDirection(revision, revision, False, advice=advice)


def under_way(change: RevisionChange, own: str) -> str:
    what = f"the job is on its way from mapping {change.before} to {change.after}, and this is mapping {own}"
    finish = f"`migrator migrate-mapping JOB{' --go-back' if change.goes_back else ''}`"
    if own == change.after:
        return f"{what}: finish it ({finish})"
    if own == change.before:
        return f"{what}: finish it first ({finish}), and start this one from the file of {change.after}"
    if change.goes_back:
        return f"{what}: finish it first ({finish}), then change to this mapping"
    return (
        f"{what}: put the file of {change.after} back and finish the change ({finish}), or cancel it ("
        "`migrator migrate-mapping JOB --go-back`), then change to this mapping"
    )


def way_of(asked: Asked) -> ChangeDirection:
    """Raises: SettingsError with what to do."""
    if not asked.newest:
        what = "the job has written nothing yet, so it has no older mapping to change from"
        raise SettingsError(f"{what}; run `migrator backfill JOB`")
    last = asked.last
    if last is not None and not last.is_done:
        if asked.go_back:
            # A second run resumes the way to the old revision; to change direction again, run it once that is
            # done.
            back = last if last.goes_back else None
            return ChangeDirection(last.after, last.before, True) if back is None else _resumed(back)
        if last.goes_back or last.after != asked.own:
            raise SettingsError(under_way(last, asked.own))
        return _resumed(last)
    if asked.go_back:
        return _back(asked)
    if asked.standing in ("newest", "first"):
        is_unwritten = bool(asked.before) and (last is None or last.after != asked.own)
        return ChangeDirection(asked.before, asked.own, False) if is_unwritten else there(asked.newest)
    if asked.is_left and asked.again:
        return ChangeDirection(asked.newest, asked.own, False)
    if asked.is_left or asked.standing == "old":
        raise SettingsError(_left(asked))
    return ChangeDirection(asked.newest, asked.own, False)


def _left(asked: Asked) -> str:
    """Why the job does not return to a left mapping unasked.

    After --go-back the file still contains it. A repeated deployment, or an older checkout, would apply it
    again.
    """
    way, flag = ("back", "--restart") if asked.is_left else ("on", "--go-back")
    return (
        f"mapping {asked.own} is one that the job left ({way} to {asked.newest}): to return to it run"
        f" `migrator migrate-mapping JOB {flag}`; to stay, put the file of {asked.newest} in place of the job's mapping file"
    )


def _resumed(change: RevisionChange) -> ChangeDirection:
    return ChangeDirection(change.before, change.after, change.goes_back, change)


def _back(asked: Asked) -> ChangeDirection:
    """Back to the file's mapping if it is older, else to the one before the newest; repeating a command changes
    nothing.
    """
    is_back = asked.last is not None and asked.last.goes_back and asked.last.after == asked.newest
    if asked.standing == "old" and not (is_back and asked.is_left):
        return ChangeDirection(asked.newest, asked.own, True)
    if asked.last is not None and is_back:
        again = "run `migrator migrate-mapping JOB --restart` with the file that it left"
        return there(
            asked.newest,
            f"it has gone back to it from {asked.last.before}. Put its file in place of the job's mapping file; to go to"
            f" {asked.last.before} again {again}; to go further back put an older file there and pass --go-back",
        )
    if not asked.before:
        what = f"the journal has no mapping before {asked.newest}"
        raise SettingsError(f"{what}: put the older file in place of the job's, and pass --go-back again")
    return ChangeDirection(asked.newest, asked.before, True)


# ── a verify of the whole table, and repairs of its findings ──


Confirmed = Mapping[Root, set[ItemKey]]
"""Rows with differing items, with their keys."""


def proven(
    confirmed: Confirmed, refresh: Callable[[Confirmed], None], recheck: Callable[[], Confirmed]
) -> tuple[Confirmed, int]:
    """The rows of a verify of the whole table that differ to the end, and the number of rows written.

    These rows changed before their page was written, with older keys that neither that page nor a relay of
    the newer mapping knows. `recheck`: compares the remaining rows again. Services continue to change rows,
    so a row counts only if it differs after each write.
    """
    rows = 0
    for _ in range(ROUNDS):
        if not confirmed:
            break
        refresh(confirmed)
        rows += len(confirmed)
        confirmed = recheck()
    return confirmed, rows
