"""Differences of one pattern as samples that may be kept: redacted before they leave the process."""

from __future__ import annotations

from dataclasses import dataclass

from migrator.mapping.diff import as_text
from migrator.mapping.redaction import Hidden
from migrator.mapping.shown_keys import mask
from migrator.mapping.shown_values import value_texts
from migrator.model import Pattern
from migrator.ports.evidence import DiffKey, Sample
from migrator.replay_results import Example


@dataclass(frozen=True)
class Sampler:
    """`hidden`: what is not to be shown. `writer`: who compares; `revision`: of the mapping."""

    pattern: Pattern
    hidden: Hidden
    writer: str
    revision: str

    def sample(self, kind: DiffKey, example: Example, at: float) -> Sample:
        """The example as the journal keeps it. `at`: seconds since 1970."""
        diff = example.diff
        compared = tuple(example.compared)
        sides = [
            None if values is None else value_texts(compared, values, self.hidden.attributes)
            for values in (() if diff is None else (diff.row, diff.item))
        ]
        return Sample(
            pattern=self.pattern.name,
            key=kind,
            at=at,
            writer=self.writer,
            revision=self.revision,
            params={
                name: mask(text) if name in self.hidden.params else text
                for name, text in example.params.items()
            },
            attributes=compared if diff is not None else (),
            row=sides[0] if sides else None,
            item=sides[1] if sides else None,
            why=example.why,
            subject=_subject(kind, example),
        )


def _subject(kind: DiffKey, example: Example) -> str:
    """A mark of the row; of an answer of one row its parameters say which it is."""
    key = example.diff.key if example.diff is not None else None
    if key is None:
        return ""
    return mask(as_text((kind.part, *(key or sorted(example.params.items())))))
