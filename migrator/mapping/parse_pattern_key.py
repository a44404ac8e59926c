"""The key that an access pattern asks for, as templates and conditions that fit the table or the index asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migrator.mapping import schema as forms
from migrator.mapping.document import Path, did_you_mean
from migrator.model import Index, KeyAttribute, Operator, SortCondition, TableDesign, Template

if TYPE_CHECKING:
    from migrator.mapping.parse import ExpressionReader


@dataclass(frozen=True)
class AskedKey:
    """A template for each partition attribute, a condition for each sort attribute that is asked."""

    partition: tuple[Template, ...]
    sort: tuple[SortCondition, ...] = ()


class PatternKeyParser:
    """Parses the `key` of one request, which stands at `at`; faults go to the reader."""

    def __init__(self, reader: ExpressionReader, table: TableDesign, at: Path) -> None:
        self.reader = reader
        self.table = table
        self.at = at

    def key(self, form: forms.QueryForm | forms.GetForm) -> AskedKey:
        return self._query(form) if isinstance(form, forms.QueryForm) else self._whole(form)

    def _whole(self, form: forms.GetForm) -> AskedKey:
        """The whole key of the table, nothing but equalities."""
        at = (*self.at, "key")
        if len(form.key) != len(self.table.key):
            wanted = " and ".join(attribute.name for attribute in self.table.key)
            self.reader.fault(at, f"has {len(form.key)} part(s); the table's key is {wanted}")
        made = [self.reader.template(text, (*at, number)) for number, text in enumerate(form.key)]
        return AskedKey(tuple(made[:1]), tuple(SortCondition("equal", (one,)) for one in made[1:]))

    def _query(self, form: forms.QueryForm) -> AskedKey:
        made = AskedKey(self._partition(form.key[0]), self._sort(form.key[1]) if len(form.key) > 1 else ())
        asked = self.table.asked(form.index)
        if asked is None:
            known = [index.name for index in self.table.indexes]
            what = f"there is no index '{form.index}'{did_you_mean(form.index or '', known)}"
            self.reader.fault((*self.at, "index"), what)
        else:
            self._check_parts(made, asked)
        return made

    def _check_parts(self, made: AskedKey, asked: Index) -> None:
        at = (*self.at, "key")
        if len(made.partition) != len(asked.partition):
            wanted = _listed(asked.partition)
            what = f"has {len(made.partition)} part(s); the partition key is {wanted}: give each of them"
            self.reader.fault((*at, 0), what)
        if len(made.sort) > len(asked.sort):
            what = f"has {len(made.sort)} condition(s); attributes of the sort key: {_listed(asked.sort)}"
            self.reader.fault((*at, 1), what)

    def _partition(self, form: forms.PatternKeyForm) -> tuple[Template, ...]:
        at = (*self.at, "key", 0)
        texts = form if isinstance(form, list) else [form]
        made = []
        for number, text in enumerate(texts):
            place = (*at, number) if isinstance(form, list) else at
            if isinstance(text, str):
                made.append(self.reader.template(text, place, every=True))
            else:
                self.reader.fault(place, "a partition key is asked for by one text, never by a range")
                made.append(Template(()))
        if sum(ref.every for template in made for ref in template.refs) > 1:
            self.reader.fault(at, "has more than one *; ask one of them at a time")
        return tuple(made)

    def _sort(self, form: forms.PatternKeyForm) -> tuple[SortCondition, ...]:
        at = (*self.at, "key", 1)
        given = form if isinstance(form, list) else [form]
        made = [
            self._condition(one, (*at, number) if isinstance(form, list) else at)
            for number, one in enumerate(given)
        ]
        if any(one.operator != "equal" for one in made[:-1]):
            self.reader.fault(
                at, "only the last condition on a sort key may be a range; those before it are texts"
            )
        return tuple(made)

    def _condition(self, form: forms.OneSortForm, at: Path) -> SortCondition:
        if isinstance(form, str):
            return SortCondition("equal", (self.reader.template(form, at),))
        operator, texts = only_condition(self.reader, form, at, "a sort key")
        return SortCondition(operator, tuple(self.reader.template(text, (*at, operator)) for text in texts))


def _listed(attributes: Sequence[KeyAttribute]) -> str:
    return ", ".join(attribute.name for attribute in attributes) or "none"


def only_condition(
    reader: ExpressionReader, form: forms.SortForm | forms.RangeForm, at: Path, of: str
) -> tuple[Operator, list[Any]]:
    """The one condition that a form holds, and its one or two values."""
    given: list[tuple[Any, Any]] = [(word, value) for word, value in form if value is not None]
    if len(given) != 1:
        reader.fault(at, f"{of} takes exactly one condition (one of begins_with, between, ge, gt, le, lt)")
        return "equal", [""]
    operator, value = given[0]
    return operator, value if isinstance(value, list) else [value]
