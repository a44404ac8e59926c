"""Items, keys and findings as texts that a report may show."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from migrator.facts import EntityPlan
from migrator.mapping.redaction import Hidden, hidden_by_pattern, redaction_of
from migrator.mapping.shown_keys import integers_of, key_templates, mask, masked_keys
from migrator.mapping.shown_values import value_mask, value_text
from migrator.model import Item, ItemDesign, Template
from migrator.model import Mapping as MappingModel
from migrator.report_results import Difference, ItemCollection, View

_MASK = re.compile(r"…[0-9a-f]{4}")
LONGEST = 2_000
"""Letters of a value; more would be a wall."""


class Showing:
    """`plans`: of all entities; none where the source cannot be asked, and no item is shown then.

    `whole_keys`: whether keys are shown whole, also the parts that may name a person; `whole_values`: whether values that
    nothing redacts are.
    """

    def __init__(
        self, mapping: MappingModel, plans: Sequence[EntityPlan], *, whole_keys: bool, whole_values: bool
    ) -> None:
        self.table = mapping.table
        self.whole_keys = whole_keys
        self.whole_values = whole_values
        indexes = (one.own_attributes(mapping.table) for one in mapping.table.indexes)
        self._key_names = {one.name for own in (mapping.table.key, *indexes) for one in own}
        self._templates = key_templates(mapping)
        self._of_pattern = hidden_by_pattern(mapping, plans)
        self._names = frozenset(name for one in mapping.patterns.values() for name in one.redact)
        redaction = redaction_of(mapping, plans)
        designs = [(plan, design) for plan in plans for design in plan.entity.items]
        self._hidden = {(p.entity.name, d.type): redaction.hidden(p, d) for p, d in designs}
        self._secret_keys = {
            (plan.entity.name, design.type): frozenset(
                name for name, form in self.key_forms(design).items() if redaction.hides_key(plan, form)
            )
            for plan, design in designs
        }

    def key_forms(self, design: ItemDesign) -> dict[str, Template]:
        """Key attributes of the table and of its indexes, and what they are made of."""
        found = dict(zip((one.name for one in self.table.key), design.key, strict=True))
        for entry in design.entries:
            index = self.table.asked(entry.index)
            assert index is not None
            found |= zip((one.name for one in index.own_attributes(self.table)), entry.values, strict=True)
        return found

    def key(self, text: str, known: str = "") -> str:
        """A key as JSON text (or a text with keys in it), masked. `known`: the key of the row that it is of."""
        templates = self._templates if known else ()
        return text if self.whole_keys else masked_keys(text, templates, integers_of(known))

    def item(self, entity: str, item: Item) -> dict[str, str]:
        """Every attribute but the type and our own, as text; masks in place of what is redacted, and of keys made of it.

        Of a type that the mapping does not know all values are masked.
        """
        type_ = self.table.type_of(item)
        left_out = {self.table.type_attribute, *self.table.own_attributes}
        return {
            name: self._value(entity, type_, name, value)
            for name, value in item.items()
            if name not in left_out
        }

    def sample(self, pattern: str, names: Sequence[str], texts: Sequence[str]) -> list[str]:
        """Texts of a sample, with masks in place of what another mapping did not redact when it was taken, and this one
        does."""
        known = self._of_pattern.get(pattern, Hidden(self._names))
        pairs = zip(names, texts, strict=True)
        hidden = known.attributes | known.params
        return [_marked_text(text) if name in hidden else clipped(text) for name, text in pairs]

    def difference(self, one: Difference) -> Difference:
        """The same, with masks in place of values unless these may be shown."""
        if self.whole_values:
            return one
        cells = [
            replace(
                cell, sql=self._masked(cell.attribute, cell.sql), item=self._masked(cell.attribute, cell.item)
            )
            for cell in one.cells
        ]
        asked = {name: _masked_param(text) for name, text in one.asked.items()}
        return replace(one, cells=cells, asked=one.asked if self.whole_keys else asked)

    def view(self, one: View) -> View:
        """The same, with masks in place of values unless these may be shown."""
        if self.whole_values:
            return one
        return replace(one, collections=[self._collection(one, found) for found in one.collections])

    def _collection(self, view: View, one: ItemCollection) -> ItemCollection:
        items = [
            replace(item, key=self._all_masked(item.key), attributes=self._all_masked(item.attributes))
            for item in one.items
        ]
        return ItemCollection(" ".join(items[0].key[name] for name in view.partition), items)

    def _all_masked(self, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: self._masked(name, text) or "" for name, text in texts.items()}

    def _masked(self, name: str, text: str | None) -> str | None:
        """A key's text with what names nobody left whole; of any other value a mask, unless there is none."""
        if text is None or text == "null" or _MASK.fullmatch(text):
            return text
        if name not in self._key_names:
            return mask(text)
        if self.whole_keys:
            return text
        try:
            json.loads(text)
        except ValueError:
            return mask(text)  # it was clipped
        return masked_keys(f"[{text}]", self._templates)[1:-1]

    def _value(self, entity: str, type_: str, name: str, value: Any) -> str:
        known = (entity, type_)
        hidden = self._hidden.get(known)
        if hidden is None or name in hidden or name in self._names:
            return value_text(value, redacted=True)
        return value_mask(value) if name in self._secret_keys[known] else clipped(value_text(value))


def clipped(text: str) -> str:
    """The text, or its beginning where it is too long to be read."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} letters)"


def _marked_text(text: str) -> str:
    """A mask, unless it is one already, or says that there is nothing."""
    return text if _MASK.fullmatch(text) or text == "null" else mask(text)


def _masked_param(text: str) -> str:
    """A parameter as a part of a key: numbers, UUIDs and times stay."""
    return text if _MASK.fullmatch(text) else str(json.loads(masked_keys(json.dumps([text]), ()))[0])
