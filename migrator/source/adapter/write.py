"""What one statement writes, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from migrator.errors import UnmarkedError
from migrator.source.adapter.placeholders import Fragment
from migrator.source.engines.table import engine_of

Action = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Given:
    """A value that a statement says: a parameter by its place or its name, or (`place` None) written in the text.

    `many`: the parameter is a list of values, as in `= ANY(%s)`.
    """

    place: int | str | None = None
    value: Any = None
    many: bool = False

    def of(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Any:
        """Raises: UnmarkedError where the parameters do not have it."""
        return self.value if self.place is None else parameter(parameters, self.place)

    def each_of(self, parameters: Sequence[Any] | Mapping[str, Any]) -> Sequence[Any] | None:
        """The values; None where they are none that can be counted, such as an array that was written as text."""
        found = self.of(parameters)
        if not self.many:
            return [found]
        return found if isinstance(found, (list, tuple)) else None


def parameter(parameters: Sequence[Any] | Mapping[str, Any], place: int | str) -> Any:
    """Raises: UnmarkedError where there is none at that place."""
    try:
        return parameters[place]  # type: ignore[index]
    except (LookupError, TypeError):
        what = "dual write: a statement's parameters do not fit its placeholders"
        raise UnmarkedError(f"{what}; give one for each of them") from None


@dataclass(frozen=True, slots=True)
class Write:
    """One INSERT, UPDATE or DELETE of one table; names as the database would know them.

    `rows`: of an insert, by `columns`; None is a value that only the database knows. `replaces`: an upsert that takes
    the rows away that it meets. `assigned`: what an update, or an upsert of the rows that it meets, sets; `kept`: those
    of them to which an upsert gives the value that they have or that its own row says.
    `wanted`: columns that WHERE ties to one of some values. `where` None: every row. `opaque`: why the rows that it
    writes cannot be read beforehand by its WHERE; '' where they can. `returned`: columns that it gives back ('' for
    anything else, '*' for all).
    """

    action: Action
    schema: str | None
    table: str
    columns: tuple[str, ...] | None = ()
    rows: tuple[tuple[Given | None, ...], ...] = ()
    is_upsert: bool = False
    replaces: bool = False
    assigned: Mapping[str, Given | None] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    wanted: Mapping[str, tuple[Given, ...]] = field(default_factory=dict)
    where: Fragment | None = None
    alias: str = ""
    opaque: str = ""
    returned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Opaque:
    """A statement that may write, of which nobody can say what. `tables`: names that it mentions (empty: any)."""

    reason: str
    tables: frozenset[str] = frozenset()


Written: TypeAlias = Write | Opaque | None


def fold(name: str, dialect: str, *, quoted: bool = True) -> str:
    """The name as a database compares it: PostgreSQL folds what stands without quotes, the others know no case."""
    return name if engine_of(dialect).sql.folds_names and quoted else name.lower()


def words_of(text: str) -> frozenset[str]:
    """The words of a text, in lower case."""
    return frozenset(word.lower() for word in re.findall(r"\w+", text))
