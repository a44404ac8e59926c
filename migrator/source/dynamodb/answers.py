"""The port of Questions on old tables of DynamoDB's: Query, GetItem or BatchGetItem, and rows made of what they give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct

from migrator.mapping.items.scalars import Undecodable
from migrator.mapping.items.wire import encode
from migrator.mapping.language.document import Document
from migrator.mapping.language.documents import facts_of
from migrator.mapping.language.plan import plan_entity
from migrator.mapping.model.edges import WiredItem
from migrator.mapping.model.facts import EntityPlan
from migrator.mapping.model.mapping import DocumentQuestion, Statement
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.results import Request, Rows
from migrator.mapping.patterns.requests import Requests
from migrator.runtime.errors import MissingNameError, SourceError
from migrator.runtime.values import replace
from migrator.source.dynamodb.finding import Finder, name_of
from migrator.source.dynamodb.trees import Trees
from migrator.source.dynamodb.values import wired_key

_NOWHERE = Document("", {}, {})


class _Asked(Struct, frozen=True):
    """A question, compiled. `places`: of its columns in the row trees."""

    question: DocumentQuestion
    requests: Requests
    plan: EntityPlan
    places: tuple[int, ...]


class DocumentAnswers:
    """model.edges.Questions; safe to call from many threads at once. It waits for no pace: it reads as a service does.

    Raises, from every method: MissingNameError where a table is gone; StoppedError, TargetError, Interrupted.
    """

    def __init__(self, mapping: MappingModel, finder: Finder) -> None:
        self.finder = finder
        self._mapping = mapping
        self._compiled: dict[int, _Asked] = {}

    def query(
        self,
        statement: Statement,
        params: Mapping[str, Any],
        schema: str | None = None,
        *,
        at_most: int | None = None,
        what: str = "a query of the mapping",
    ) -> Rows:
        """Rows of the columns that the question names, in its order. Parents are read consistently.

        Raises: SettingsError where a parameter of the key is not set or does not fit it; SourceError where a document
        has another type than declared.
        """
        asked = self._asked(statement)
        request = asked.requests.of(params)
        most = None if at_most is None else at_most + 1
        limit = min((limit for limit in (request.limit, most) if limit is not None), default=None)
        documents = list(islice(self._documents(asked, request, limit), limit))
        return [self._row(asked, tree, what) for tree in Trees(asked.plan, self.finder).of(documents)]

    def query_fault(self, statement: Statement, params: Mapping[str, Any], schema: str | None = None) -> str:
        """That there is no such index, or one of another key. `params`: are not looked at."""
        asked = self._asked(statement)
        design, name = asked.question.design, asked.question.asked.index
        if name is None:
            return ""
        try:
            described = self.finder.described(asked.plan.table)
        except MissingNameError as error:
            return str(error)
        real = self.finder.real_name(asked.plan.table)
        index = next((one for one in described.indexes if one.name == name), None)
        if index is None:
            there = ", ".join(one.name for one in described.indexes) or "none"
            return f"table {real} has no index {name}; its indexes: {there}"
        wanted = tuple(attribute.name for attribute in design.indexes[0].attributes)
        if index.key[: len(wanted)] != wanted:
            return f"index {name} of table {real} has the key {', '.join(index.key)}, not {', '.join(wanted)}"
        return ""

    def _asked(self, statement: Statement) -> _Asked:
        """Compiled once: questions live as long as their mapping, which this holds."""
        assert isinstance(statement, DocumentQuestion), "check_mapping refuses SQL"
        if id(statement) not in self._compiled:
            mapping, entity = self._mapping, statement.entity
            plan, faults = plan_entity(mapping, entity, facts_of(mapping), _NOWHERE)
            assert plan is not None, faults
            places = {slot.path: place for place, slot in enumerate(plan.slots)}
            requests = Requests(replace(mapping, table=statement.design), statement.asked)
            columns = tuple(places[path] for path in statement.returns)
            self._compiled[id(statement)] = _Asked(statement, requests, plan, columns)
        return self._compiled[id(statement)]

    def _documents(self, asked: _Asked, request: Request, limit: int | None) -> Iterator[WiredItem]:
        reader, real = self.finder.reader, self.finder.real_name(asked.plan.table)
        for sent in request.sent:
            if request.operation == "query":
                size = {"Limit": limit} if limit and "FilterExpression" not in sent else {}
                yield from reader.asked(real, {**sent, **size, **_wired_values(sent)})
                continue
            table, consistent = asked.plan.table, bool(sent["ConsistentRead"])
            keys = [sent["Key"]] if request.operation == "get" else sent["Keys"]
            wired = [key for key in (wired_key(table, key) for key in keys) if key is not None]
            if request.operation == "get":
                for key in wired:
                    yield from reader.one(real, key, consistent=consistent)
            else:
                yield from _in_order(wired, reader.get(real, wired, consistent=consistent))

    def _row(self, asked: _Asked, tree: tuple[Any, ...], what: str) -> tuple[Any, ...]:
        row = tuple(tree[place] for place in asked.places)
        for path, value in zip(asked.question.returns, row, strict=True):
            if isinstance(value, Undecodable):
                where = f"{asked.question.asked.name}: {what} gives {asked.plan.table.name}.{path}"
                raise SourceError(f"{where}, and {value.reason}")
        return row


def _wired_values(sent: Mapping[str, Any]) -> dict[str, Any]:
    given = sent["ExpressionAttributeValues"]
    return {
        "ExpressionAttributeValues": {
            name: {"B": value} if isinstance(value, bytes) else encode(value) for name, value in given.items()
        }
    }


def _in_order(keys: Iterable[WiredItem], items: Iterable[WiredItem]) -> Iterator[WiredItem]:
    wanted = list(keys)
    names = list(wanted[0]) if wanted else []
    found = {name_of({name: item[name] for name in names}): item for item in items}
    return (found[name] for name in map(name_of, wanted) if name in found)
