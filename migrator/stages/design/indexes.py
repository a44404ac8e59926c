"""Who may still ask an index that is to be removed: patterns that DynamoDB answers, and services of another revision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from migrator.mapping.model.evidence import ROUTES, PatternPhase
from migrator.mapping.model.instances import Instance, Newest
from migrator.mapping.model.mapping import Pattern
from migrator.runtime.errors import SettingsError


def refuse_readers(
    names: Sequence[str],
    revision: str,
    newest: Newest | None,
    instances: Sequence[Instance],
    phases: Mapping[str, PatternPhase],
    patterns: Mapping[str, Pattern],
    label: Callable[[Instance], str],
) -> None:
    """Returns where nothing known asks the indexes of these names.

    `revision`: of the mapping in hand, which has them no more; `instances`: that said no goodbye; `phases`: on record;
    `patterns`: of the mapping in hand. Raises: SettingsError that names everything in the way, and what to do of each.
    """
    reasons = [
        *_older_file(revision, newest),
        *_patterns(phases, patterns, names),
        *_services(revision, instances, label),
    ]
    if reasons:
        indexes = f"index {', '.join(names)}"
        raise SettingsError(
            "\n".join([f"{indexes} cannot be removed yet:", *(f"  {reason}" for reason in reasons)])
        )


def _older_file(revision: str, newest: Newest | None) -> Iterator[str]:
    if newest is not None and newest.revision.mapping != revision:
        what = f"the job works by mapping {newest.revision.mapping}, and this file is {revision}"
        yield f"{what}; make it the newest first: `migrator capture install JOB` (or `migrator recover JOB older-mapping`)"


def _patterns(
    phases: Mapping[str, PatternPhase], patterns: Mapping[str, Pattern], names: Collection[str]
) -> Iterator[str]:
    for name, phase in sorted(phases.items()):
        route = ROUTES[phase.state.phase]
        if "table" not in (route.answers, route.in_share):
            continue
        if name not in patterns:
            what = (
                f"pattern {name} is in phase {phase.state.phase}, and the mapping does not have it any more"
            )
            yield f"{what}, so which index it asks is not known; move it back first: `migrator cutover rollback JOB {name}`"
        elif patterns[name].index in names:
            yield f"pattern {name} is in phase {phase.state.phase} and asks index {patterns[name].index}"


def _services(
    revision: str, instances: Sequence[Instance], label: Callable[[Instance], str]
) -> Iterator[str]:
    for instance in instances:
        if instance.reads and instance.revision != revision:
            what = f"{label(instance)} reads by mapping {instance.revision}, whose patterns may ask it"
            yield f"{what}; start it anew by this file; one that is gone without a goodbye counts for a day"
