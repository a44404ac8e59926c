"""What an access pattern says about comparing and showing its answers, as model values."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from migrator.mapping import schema as forms
from migrator.mapping.document import Path, did_you_mean
from migrator.model import CompareRules, Pattern

if TYPE_CHECKING:
    from migrator.mapping.parse import ExpressionReader


def rules_of(form: forms.CompareForm) -> CompareRules:
    """The rules as they are written."""
    return CompareRules(
        ignore=frozenset(form.ignore),
        tolerance={name: Decimal(str(value)) for name, value in form.tolerance.items()},
        normalise={
            name: (steps,) if isinstance(steps, str) else tuple(steps)
            for name, steps in form.normalise.items()
        },
    )


def rule_faults(reader: ExpressionReader, pattern: Pattern, form: forms.PatternForm, at: Path) -> None:
    """Tells the reader of every name that the pattern does not return, and of parts of which nothing is compared."""
    returned = {name for part in pattern.parts for name in part.attributes}
    for place, name in _named(form.compare):
        if name not in returned:
            reader.fault((*at, "compare", *place), _unknown(pattern, name, returned))
    known = returned | {param.name for param in pattern.params}
    for number, name in enumerate(form.redact):
        if name not in known:
            reader.fault((*at, "redact", number), _unknown(pattern, name, known))
    for part in pattern.parts:
        if set(part.attributes) <= pattern.compare.ignore:
            where = f"the part '{part.name}'" if part.name else "the answer"
            reader.fault((*at, "compare", "ignore"), f"leaves nothing of {where} to compare")


def _named(form: forms.CompareForm) -> Iterator[tuple[Path, str]]:
    """Each attribute that a rule names, with its place in `compare`."""
    yield from ((("ignore", number), name) for number, name in enumerate(form.ignore))
    yield from ((("tolerance", name), name) for name in form.tolerance)
    yield from ((("normalise", name), name) for name in form.normalise)


def _unknown(pattern: Pattern, name: str, known: set[str]) -> str:
    return f"{pattern.name} returns no '{name}'{did_you_mean(name, known)}"
