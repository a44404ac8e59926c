"""Tables, columns, joins and collections of an entity found in the source's schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from migrator.mapping.language.document import Document, Path
from migrator.mapping.model.facts import (
    CollectionPlan,
    Column,
    ForeignKey,
    JoinPlan,
    Kind,
    SchemaFacts,
    Slot,
    TableFacts,
)
from migrator.mapping.model.mapping import TRANSFORM, Collection, Computed, Entity, Join
from migrator.runtime.errors import Fault, did_you_mean

_TYPE = re.compile(r"(?P<name>\w+)(?P<zone> with zone)?(?:\((?P<scale>\d+)\))?")


@dataclass
class Scope:
    """Aliases of one row (the root's or a child's) with the tables behind them, and the columns asked for so far.

    `transformed`: paths asked of the entity's transform; None where there is none.
    """

    tables: dict[str, TableFacts]
    slots: dict[str, Slot] = field(default_factory=dict)
    transformed: dict[str, None] | None = None

    def want(self, path: str) -> str:
        """Takes the column at `path` into the slots; '' or what is wrong with the path."""
        if path in self.slots:
            return ""
        alias, name = self._split(path)
        if alias == TRANSFORM and self.transformed is not None:
            self.transformed[path] = None
            return ""
        table = self.tables.get(alias)
        if table is None:
            return f"there is no alias '{alias}'{did_you_mean(alias, [a for a in self.tables if a])}"
        column = table.column(name)
        if column is None:
            names = [column.name for column in table.columns]
            return f"table {table.name} has no column '{name}'{did_you_mean(name, names)}"
        self.slots[path] = Slot(path, alias, column)
        return ""

    def _split(self, path: str) -> tuple[str, str]:
        """(alias, column). A column of the row itself may have a dot in its name, an alias never has one."""
        alias, dot, name = path.partition(".")
        return ("", path) if not dot or self.tables[""].column(path) else (alias, name)


class Links:
    """Looks up in the schema what an entity names; `faults` collects what is missing."""

    def __init__(
        self, entity: Entity, facts: SchemaFacts, document: Document, at: Path | None = None
    ) -> None:
        self.entity = entity
        self.facts = facts
        self.document = document
        self.at: Path = at or ("entities", entity.written)
        self.faults: list[Fault] = []

    def fault(self, at: Path, what: str) -> None:
        self.faults.append(self.document.fault(at, what))

    def table(self, name: str, at: Path, *, shared: bool = False) -> TableFacts | None:
        """The table of that written name in the entity's own schema.

        `shared`: a parent may stand in the default schema too; rows of a tenant never do, nor its children.
        """
        own = f"{self.entity.schema}.{name}" if self.entity.schema else name
        elsewhere = self.facts.tables.get(name) if shared or "." in name else None
        table = self.facts.tables.get(own) or elsewhere
        if table is None and (why := self.facts.left_out.get(own)):
            self.fault(at, f"table '{own}' cannot be migrated: it is {why}")
        elif table is None:
            self.fault(at, f"the source has no table '{own}'{did_you_mean(own, self.facts.tables)}")
        return table

    def column(self, table: TableFacts, name: str | None, at: Path) -> Column | None:
        column = table.column(name or "")
        if column is None:
            names = [known_column.name for known_column in table.columns]
            self.fault(at, f"table {table.name} has no column '{name}'{did_you_mean(name or '', names)}")
        return column

    def with_computed(self, table: TableFacts, alias: str, joins: Sequence[Join]) -> TableFacts:
        """The table with the entity's computed columns of `alias` ('': the row's own, which have no alias of `joins`)."""
        added = []
        for path, computed in self.entity.computed.items():
            head, _, rest = path.partition(".")
            of, name = (head, rest) if head in {join.alias for join in joins} else ("", path)
            if of != alias:
                continue
            if table.column(name) is not None:
                what = f"table {table.name} has a column '{name}'; choose another name"
                self.fault((*self.at, "columns", path), what)
            added.append(_computed_column(name, computed))
        return replace(table, columns=(*table.columns, *added))

    def want(self, scope: Scope, path: str, at: Path, lists: dict[str, Scope] | None = None) -> None:
        if lists and path in lists:
            self.fault(at, f"'{path}' is a list; write {{each: {path}, attributes: …}}")
            return
        problem = scope.want(path)
        if problem:
            self.fault(at, problem)

    # ── joins ──

    def joins(
        self, joins: Sequence[Join], scope: Scope, at: Path, *, with_columns: bool = False
    ) -> tuple[JoinPlan, ...]:
        """`with_columns`: with those that the entity makes of its parents; a list's parents have none."""
        makers = joins if with_columns else ()
        plans = [self._join(join, scope, (*at, join.alias), makers) for join in joins]
        return tuple(plan for plan in plans if plan is not None)

    def _join(self, join: Join, scope: Scope, at: Path, makers: Sequence[Join]) -> JoinPlan | None:
        parent = scope.tables.get(join.parent)
        if parent is None:
            return None
        faults_before = len(self.faults)
        target, pairs = self._on(join, parent, at) if join.table else self._by_foreign_key(join, parent, at)
        if target is None or len(self.faults) > faults_before:
            return None
        if join in makers:
            target = self.with_computed(target, join.alias, makers)
        scope.tables[join.alias] = target
        return JoinPlan(join.alias, join.parent, target, tuple(pairs))

    def _on(
        self, join: Join, parent: TableFacts, at: Path
    ) -> tuple[TableFacts | None, list[tuple[str, str]]]:
        target = self.table(join.table or "", (*at, "table"), shared=True)
        if target is None:
            return None, []
        pairs = []
        for here, there in join.on:
            ours = self.column(parent, here, (*at, "on", here))
            theirs = self.column(target, there, (*at, "on", here))
            if ours and theirs:
                pairs.append((ours.real, theirs.real))
        self._need_unique(target, {there for _, there in join.on}, at, "join its key")
        return target, pairs

    def _by_foreign_key(
        self, join: Join, parent: TableFacts, at: Path
    ) -> tuple[TableFacts | None, list[tuple[str, str]]]:
        columns = [self.column(parent, name, at) for name in join.columns]
        if None in columns:
            return None, []
        key = next((key for key in parent.foreign_keys if set(key.columns) == set(join.columns)), None)
        if key is None or key.table not in self.facts.tables:
            names = ", ".join(join.columns)
            what = f"{parent.name} declares no foreign key on {names}; write {{table: …, on: {{{names}: …}}}}"
            self.fault(at, what)
            return None, []
        target = self.facts.tables[key.table]
        self._need_unique(target, set(key.referred), at, "join its key")
        return target, list(_link(key, parent, target))

    def _unique(self, table: TableFacts, names: set[str]) -> bool:
        return any(set(key) <= names for key in table.proved)

    def _need_unique(self, table: TableFacts, names: set[str], at: Path, instead: str) -> None:
        """A fault where two rows of the table may match: a join would then double rows, and a climb would have two lines."""
        if self._unique(table, names):
            return
        why = next((f" ({why})" for key, why in table.doubts if set(key) <= names), "")
        self.fault(
            at, f"nothing says that {table.name} has one row at most for these columns{why}; {instead}"
        )

    # ── collections ──

    def collection(self, design: Collection, root: TableFacts, scope: Scope | None) -> CollectionPlan | None:
        at: Path = (*self.at, "climb" if design.kind == "climb" else "collect", design.alias)
        if root.column(design.alias) is not None:
            self.fault(at, f"{root.name} has a column '{design.alias}'; choose another name")
        if design.kind == "climb":
            return self._climb(design, root, scope, at)
        child = self.table(design.table, (*at, "of"))
        if child is None:
            return None
        link = self._collection_link(design, child, root, (*at, "by"))
        column = self.column(child, design.column, (*at, design.kind)) if design.column else None
        if column and design.kind == "sum" and column.kind.name not in ("integer", "number", "float"):
            self.fault(
                (*at, "sum"), f"{child.name}.{column.name} is {column.declared}, which cannot be summed"
            )
        if scope is None:
            return CollectionPlan(design, child, link, column=column)
        scope.tables[""] = child
        joins = self.joins(design.joins, scope, (*at, "join"))
        order = design.order_by or child.primary_key
        for path in order:
            self.want(scope, path, (*at, "order_by"))
        if not order:
            self.fault(at, f"{child.name} has no primary key; say order_by, so that the list has one order")
        return CollectionPlan(design, child, link, joins, order_by=tuple(order))

    def _collection_link(
        self, design: Collection, child: TableFacts, root: TableFacts, at: Path
    ) -> tuple[tuple[str, str], ...]:
        if any(self.column(child, name, at) is None for name in design.by):
            return ()
        for key in child.foreign_keys:
            if set(key.columns) == set(design.by) and key.table == root.name:
                return tuple((ours, theirs) for ours, theirs in _link(key, child, root))
        if len(design.by) == len(self.entity.key or root.primary_key):
            pairs = zip(design.by, self.entity.key or root.primary_key, strict=True)
            return tuple((_real(child, ours), _real(root, theirs)) for ours, theirs in pairs)
        self.fault(at, f"{child.name} declares no foreign key on {', '.join(design.by)} to {root.name}")
        return ()

    def _climb(
        self, design: Collection, root: TableFacts, scope: Scope | None, at: Path
    ) -> CollectionPlan | None:
        columns = [self.column(root, name, at) for name in design.by]
        key = next(
            (key for key in root.foreign_keys if set(key.columns) == set(design.by) and not design.of), None
        )
        if key is not None and key.table == root.name:
            self._need_unique(root, set(key.referred), at, "climb to its key")
            link = tuple(_link(key, root, root))
        else:
            link = self._undeclared_climb(design, root, at)
        if scope is None or None in columns or not link:
            return None
        scope.tables[""] = root
        for name in self.entity.key or root.primary_key:
            self.want(scope, name, at)
        return CollectionPlan(design, root, link)

    def _undeclared_climb(
        self, design: Collection, root: TableFacts, at: Path
    ) -> tuple[tuple[str, str], ...]:
        """The link by the columns that the mapping names, or by the key where it names none."""
        referred = design.of or self.entity.key or root.primary_key
        if len(referred) != len(design.by):
            self.fault(at, f"the key of {root.name} has {len(referred)} columns; write {{column: column, …}}")
            return ()
        if any(self.column(root, name, at) is None for name in (*referred, *design.by)):
            return ()
        if set(referred) != set(self.entity.key):
            self._need_unique(root, set(referred), at, "climb to its key")
        return tuple(
            (_real(root, ours), _real(root, theirs)) for ours, theirs in zip(design.by, referred, strict=True)
        )


def _computed_column(name: str, computed: Computed) -> Column:
    return Column(name, name, _kind(computed.type), declared=computed.type or "", sql=computed.sql)


def _kind(written: str | None) -> Kind:
    match = _TYPE.fullmatch(written or "plain")
    if match is None:
        return Kind("unknown")
    scale = None if match["scale"] is None else int(match["scale"])
    return Kind(match["name"], scale=scale, zone=bool(match["zone"]))  # type: ignore[arg-type]


def _link(key: ForeignKey, child: TableFacts, parent: TableFacts) -> Iterator[tuple[str, str]]:
    for ours, theirs in zip(key.columns, key.referred, strict=True):
        yield _real(child, ours), _real(parent, theirs)


def _real(table: TableFacts, name: str) -> str:
    column = table.column(name)
    return column.real if column else name
