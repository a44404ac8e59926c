"""What a source tells of who changes its tables, and how that is ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Looked:
    """Changes of tables as the engine counts them; only a difference of two looks means anything.

    `tables`: by the names that were asked for; those that the engine says nothing of are missing. `whole`: of all tables
    that triggers capture, counted by the marks that they left; None where nothing is captured. `source`: who counts, in
    words. `blind`: why the engine counts nothing by table, '' where it does. `open`: transactions that have written and
    not ended, by an id of the engine's, with the table that they write ('' where the engine does not say which); None
    where nobody may see them, and then `unseen` says what is missing. `who`: the user and program of those, by the same
    id, where the engine tells. `may_write`: roles by table, where everybody may know them.
    """

    tables: Mapping[str, str]
    whole: int | None
    source: str
    blind: str = ""
    open: Mapping[str, str] | None = field(default_factory=dict)
    unseen: str = ""
    who: Mapping[str, str] = field(default_factory=dict)
    may_write: Mapping[str, Sequence[str]] = field(default_factory=dict)
