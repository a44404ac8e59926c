"""A small shop of fakes, for the stages of live change: rows, a table, marks, memory."""

from __future__ import annotations

from typing import Any

from migrator.mapping.items.changes import captured_tables, needs_memory
from migrator.mapping.items.items import compile_image_keys, no_keys
from migrator.mapping.model.table import Item, ItemKey
from migrator.stages.live.refresh import Refresh
from migrator.stages.live.relay import Relay, RelayOptions, live_entities
from tests.fakes.journal import FakeMemory, FakeOpenFindings
from tests.fakes.marks import MemoryMarks, MemoryTickets
from tests.fakes.source import MemorySource
from tests.fakes.store import FakeStore
from tests.golden.heart import check, facts, table
from tests.support_fence import no_fence

HEAD = """
mapping: 1
table: {name: Shop, key: [PK, SK], type: type, ttl: expiresAt}
"""
MAPPING = """
entities:
  users:
    items:
      User: {key: ["USER#{id}", META], keep: [name]}
      Email: {key: ["EMAIL#{email}", EMAIL], when: email}
  orders:
    join: {user: user_id}
    items:
      Order:
        key: ["USER#{user_id}", "ORDER#{id:06}"]
        attributes: {name: user.name}
        ttl: expires_at
"""
SCHEMA = facts(
    table("users", {"id": "integer!", "name": "text", "email": "text"}, unique=(("email",),)),
    table(
        "orders",
        {"id": "integer!", "user_id": "integer!", "expires_at": "timestamp"},
        references={"user_id": "users.id"},
    ),
)


class Shop:
    """`change` does what a service and its trigger do: a row is changed, and a mark left. `more`: of the mapping."""

    def __init__(self, more: str = "", **options: Any) -> None:
        self.checked = check(MAPPING + more, SCHEMA, HEAD)
        self.rows: dict[str, list[dict[str, Any]]] = {"users": [], "orders": []}
        self.source = MemorySource(SCHEMA, self.rows)
        self.store = FakeStore(self.checked.mapping.table, no_fence)
        self.marks, self.tickets, self.memory = MemoryMarks(), MemoryTickets(), FakeMemory()
        self.open_findings = FakeOpenFindings()
        plans = [one.plan for one in self.checked.entities]
        self.captured = captured_tables(plans)
        entities = live_entities(self.checked.mapping, self.checked.entities, self.source)
        self.refresh = Refresh(
            rows=self.source,
            store=self.store,
            tickets=self.tickets,
            memory=self.memory,
            control=self.store,
            entities=entities,
            table=self.checked.mapping.table,
            revision=self.checked.mapping.revision,
            check=no_fence,
        )
        keys = {
            name: no_keys
            if needs_memory(one.compiled.plan)
            else compile_image_keys(self.checked.mapping, one.compiled.plan)
            for name, one in entities.items()
        }
        chosen = RelayOptions(**{"ahead_after": 0, **options})
        self.relay = Relay(
            *(self.marks, self.source, self.refresh, self.open_findings, self.captured, keys, chosen)
        )

    def change(self, name: str, key: int, /, **values: Any) -> None:
        """An upsert; without values a delete."""
        rows = self.rows[name]
        before = next((row for row in rows if row["id"] == key), None)
        self.rows[name][:] = [row for row in rows if row is not before]
        blank = {column.name: None for column in SCHEMA.tables[name].columns}
        after = {**(before or blank), "id": key, **values} if values else None
        if after is not None:
            self.rows[name].append(after)
        columns = self.captured[name].columns
        self.marks.leave(name, _image(before, columns), _image(after, columns))

    def live(self) -> dict[ItemKey, Item]:
        table = self.checked.mapping.table
        return {key: item for key, item in self.store.items.items() if not table.is_hidden(item)}


def _image(row: dict[str, Any] | None, columns: tuple[str, ...]) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in columns}
