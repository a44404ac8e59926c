"""Pages of a run that its processes have claimed, and what finished ones left for the other processes, as SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    delete,
    func,
    not_,
    or_,
    select,
    update,
)

from migrator.journal import schema
from migrator.journal.database import insert_or_replace, seconds
from migrator.journal.schema import page_claim, page_part
from migrator.mapping.model.journal import Page, Run


def claim(
    connection: Connection,
    run: Run,
    entity: str,
    who: str,
    n: int,
    lease_s: float,
    after: int,
    upto: int | None,
) -> list[Page]:
    # One process after the other: two would find the same pages free.
    connection.execute(_OWN_RUN, {"run": run.id}).first()
    now = seconds(connection)
    pages = {"run": run.id, "of": entity, "behind": after, "own": who, "now": now, "n": n}
    bound = {} if upto is None else {"upto": upto}
    found = connection.execute(_free_pages(is_bounded=bool(bound)), pages | bound)
    claimed = [Page(entity, row[0], row[1], row[2]) for row in found]
    rows = [_place(run, page) | {"who": who, "leased_until": now + lease_s} for page in claimed]
    if rows:
        connection.execute(insert_or_replace(connection, page_claim), rows)
    return claimed


def renew(connection: Connection, run: Run, who: str, lease_s: float) -> None:
    until = seconds(connection) + lease_s
    connection.execute(update(page_claim).where(*_under_way(run, who)).values(leased_until=until))


def release(connection: Connection, run: Run, who: str) -> None:
    columns = page_claim.c
    named = or_(columns.who == who, columns.who.startswith(f"{who}.", autoescape=True))
    here = (columns.run_id == run.id, named, columns.leased_until.is_not(None))
    connection.execute(delete(page_claim).where(*here))


def waiting(connection: Connection, run: Run, entity: str, limit: int) -> list[int]:
    columns = schema.page.c
    here = (columns.run_id == run.id, columns.entity == entity, columns.done_at.is_(None))
    is_left = and_(page_claim.c.who.is_not(None), page_claim.c.leased_until.is_(None))
    query = select(columns.number).select_from(schema.page.outerjoin(page_claim, _CLAIM_OF_PAGE))
    query = query.where(*here, not_(is_left)).order_by(columns.number).limit(limit)
    return list(connection.execute(query).scalars())


def of_others(connection: Connection, run: Run, who: str) -> int:
    others = (page_claim.c.run_id == run.id, page_claim.c.who != who)
    query = select(func.count(page_claim.c.leased_until)).where(*others)
    return int(connection.execute(query).scalar_one())


def leave(connection: Connection, run: Run, page: Page, who: str) -> None:
    row = _place(run, page) | {"who": who, "leased_until": None}
    connection.execute(insert_or_replace(connection, page_claim), row)


def finish(connection: Connection, run: Run, page: Page, parts: Sequence[bytes]) -> None:
    """Gives the page back, whoever has it, and keeps its parts."""
    if parts:
        rows = [_place(run, page) | {"part": number, "data": part} for number, part in enumerate(parts)]
        connection.execute(insert_or_replace(connection, page_part), rows)
    connection.execute(_GIVEN_BACK, {"run": run.id, "of": page.entity, "at": page.number})


def parts_query(run: Run, entity: str, last: tuple[int, int], limit: int) -> Select[Any]:
    """The next parts behind `last`, a page's number and a part's."""
    columns, (number, part) = page_part.c, last
    behind = or_(columns.number > number, and_(columns.number == number, columns.part > part))
    query = select(columns.number, columns.part, columns.data)
    query = query.where(columns.run_id == run.id, columns.entity == entity, behind)
    return query.order_by(columns.number, columns.part).limit(limit)


_CLAIM_OF_PAGE = and_(*(page_claim.c[name] == schema.page.c[name] for name in ("run_id", "entity", "number")))


def _place(run: Run, page: Page) -> dict[str, Any]:
    return {"run_id": run.id, "entity": page.entity, "number": page.number}


@cache
def _free_pages(*, is_bounded: bool) -> Select[Any]:
    """Open pages that nobody has claimed, or whose claim by another ran out. Made once: a page asks for it each time."""
    table, claims = schema.page, page_claim.c
    pages = [table.c.run_id == bindparam("run"), table.c.entity == bindparam("of")]
    pages.append(table.c.number > bindparam("behind"))
    if is_bounded:
        pages.append(table.c.number <= bindparam("upto"))
    lapsed = and_(claims.who != bindparam("own"), claims.leased_until < bindparam("now"))
    return (
        select(table.c.number, table.c.after_key, table.c.upto_key)
        .select_from(table.outerjoin(page_claim, _CLAIM_OF_PAGE))
        .where(*pages, table.c.done_at.is_(None), or_(claims.who.is_(None), lapsed))
        .order_by(table.c.number)
        .limit(bindparam("n", type_=Integer))
    )


_OWN_RUN = select(schema.run.c.id).where(schema.run.c.id == bindparam("run")).with_for_update()
_GIVEN_BACK = delete(page_claim).where(
    page_claim.c.run_id == bindparam("run"),
    page_claim.c.entity == bindparam("of"),
    page_claim.c.number == bindparam("at"),
)


def _under_way(run: Run, who: str) -> list[ColumnElement[bool]]:
    columns = page_claim.c
    return [columns.run_id == run.id, columns.who == who, columns.leased_until.is_not(None)]
