"""What a service does in one transaction, step by step, through the ORM and beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy import delete, insert, select, text, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session

from tests.support_adapter_models import (
    City,
    Country,
    Employee,
    Node,
    Person,
    Street,
    Tag,
    Thing,
    Truck,
    Vehicle,
    person_tag,
)

Model = TypeVar("Model")
Step = Callable[[Session, int], Any]


def nth(session: Session, model: type[Model], number: int) -> Model:
    """One of the rows that there are; raises: LookupError where there is none."""
    rows = session.scalars(select(model).order_by(*sa.inspect(model).primary_key)).all()
    if not rows:
        raise LookupError
    return rows[number % len(rows)]


# ── the ORM ──


def add_people(session: Session, n: int) -> None:
    boss = nth(session, Person, n)
    session.add_all([Person(name=f"p{n}"), Employee(name=f"e{n}", badge="b", boss_id=boss.id)])


def add_vehicles(session: Session, n: int) -> None:
    session.add_all([Truck(plate=f"t{n}", owner=nth(session, Person, n)), Vehicle(plate=f"v{n}")])


def rename_person(session: Session, n: int) -> None:
    person = nth(session, Person, n)
    person.name = f"n{n}"


def change_nothing(session: Session, n: int) -> None:
    vehicle = nth(session, Vehicle, n)
    vehicle.plate = f"{vehicle.plate}x"[-5:]


def promote(session: Session, n: int) -> None:
    employee = nth(session, Employee, n)
    employee.badge, employee.boss_id = f"b{n}", nth(session, Person, n + 1).id


def sell(session: Session, n: int) -> None:
    sold = nth(session, Vehicle, n)
    sold.owner = nth(session, Person, n + 1) if n % 3 else None


def delete_person(session: Session, n: int) -> None:
    session.delete(nth(session, Person, n))


def delete_country(session: Session, n: int) -> None:
    session.delete(nth(session, Country, n))


def rename_countries(session: Session, n: int) -> None:
    for number in range(1 + n % 2):
        country = nth(session, Country, n + number)
        country.code = f"{country.code}{n}"[-8:]


def rename_city(session: Session, n: int) -> None:
    city = nth(session, City, n)
    city.name = f"{city.name}{n}"[-8:]


def add_city(session: Session, n: int) -> None:
    country = nth(session, Country, n)
    country.cities.append(City(name=f"t{n}", people=n))


def move_node(session: Session, n: int) -> None:
    node = nth(session, Node, n)
    node.parent_id = None if n % 2 else nth(session, Node, 0).id


def add_nodes(session: Session, n: int) -> None:
    session.add(Node(id=100 + n, label="a", below=[Node(id=200 + n, label="b"), Node(id=300 + n, label="c")]))


def delete_node(session: Session, n: int) -> None:
    session.delete(nth(session, Node, n))


def tag(session: Session, n: int) -> None:
    person, colour = nth(session, Person, n), nth(session, Tag, n)
    (person.tags.remove if colour in person.tags else person.tags.append)(colour)


def add_things(session: Session, n: int) -> None:
    session.add_all([Thing(code=f"a{n}"), Thing(code=f"b{n}", amount=n), Thing(code=f"c{n}", note="x")])


def merge_thing(session: Session, n: int) -> None:
    session.merge(Thing(id=n % 5, code=f"m{n}", amount=n))


def add_and_forget(session: Session, n: int) -> None:
    forgotten, kept = Thing(code=f"f{n}"), Thing(code=f"g{n}")
    session.add_all([forgotten, kept])
    session.expunge(forgotten)


def add_and_delete(session: Session, n: int) -> None:
    made = Thing(code=f"d{n}")
    session.add(made)
    session.flush()
    made.note, made.amount = "gone", n
    session.flush()
    session.delete(made)


# ── bulk ──


def bulk_insert(session: Session, n: int) -> None:
    session.execute(insert(Thing), [{"code": f"i{n}{m}", "note": "x"} for m in range(3)])


def bulk_insert_returning(session: Session, n: int) -> None:
    if not session.connection().dialect.insert_executemany_returning:
        return  # MySQL
    rows = [{"code": f"r{n}{m}"} for m in range(3)]
    assert len(session.scalars(insert(Thing).returning(Thing.id), rows).all()) == 3


def bulk_insert_keys(session: Session, n: int) -> None:
    session.execute(insert(Node), [{"id": 400 + n + m, "label": "x", "parent_id": None} for m in range(3)])


def bulk_insert_inherited(session: Session, n: int) -> None:
    session.execute(insert(Employee), [{"name": "z", "badge": f"{m}", "version": 1} for m in range(2)])


def bulk_update(session: Session, n: int) -> None:
    keys = session.scalars(select(Thing.id)).all()
    session.execute(update(Thing), [{"id": key, "amount": n + m % 2} for m, key in enumerate(keys)])


def update_where(session: Session, n: int) -> None:
    how = ("fetch", "evaluate", False)[n % 3]
    session.execute(
        update(Thing).where(Thing.amount > n % 9).values(amount=n),
        execution_options={"synchronize_session": how},
    )


def update_everything(session: Session, n: int) -> None:
    session.execute(update(Node).values(label=f"l{n % 2}"))


def update_with_an_alias(session: Session, n: int) -> None:
    session.execute(update(Vehicle).where(Vehicle.plate.like("%t%"), Vehicle.id > 1).values(owner_id=None))


def delete_where(session: Session, n: int) -> None:
    how = ("fetch", "evaluate", False)[n % 3]
    session.execute(
        delete(Person).where(Person.name == f"p{n % 4}"), execution_options={"synchronize_session": how}
    )


def delete_subclass(session: Session, n: int) -> None:
    session.execute(delete(Truck).where(Truck.owner_id.is_not(None)))


# ── Core and text ──


def core_insert(session: Session, n: int) -> None:
    session.execute(sa.insert(person_tag).values(person_id=nth(session, Person, n).id, tag_name="red"))


def core_update(session: Session, n: int) -> None:
    key = nth(session, Street, n).id
    session.execute(sa.update(cast("sa.Table", Street.__table__)).where(Street.id == key).values(city=None))


def core_update_many(session: Session, n: int) -> None:
    table = cast("sa.Table", Thing.__table__)
    changed = sa.update(table).where(table.c.id == sa.bindparam("k")).values(amount=sa.bindparam("v"))
    session.connection().execute(changed, [{"k": m, "v": n + m % 2} for m in (1, 2, 2, 3)])


def core_delete(session: Session, n: int) -> None:
    session.execute(sa.delete(person_tag).where(person_tag.c.person_id.in_([1, 2, n])))


def text_insert(session: Session, n: int) -> None:
    session.execute(text("INSERT INTO thing (code) VALUES (:c)"), {"c": f"x{n}"})


def text_update(session: Session, n: int) -> None:
    session.execute(text("UPDATE thing SET code = :c, amount = amount WHERE id = :i"), {"c": f"y{n}", "i": n})


def text_update_any(session: Session, n: int) -> None:
    if _made(session) is not postgresql:
        raise LookupError
    session.execute(text("UPDATE thing SET amount = :n WHERE id = ANY(:ids)"), {"n": n, "ids": [1, n % 5, 3]})


def text_update_where(session: Session, n: int) -> None:
    session.execute(text("UPDATE city SET people = people + 1 WHERE name LIKE 't%' -- all"))


def text_delete(session: Session, n: int) -> None:
    session.execute(text("DELETE FROM country WHERE code IN (:a, 'c1')"), {"a": f"c{n % 3}"})


def _made(session: Session) -> Any:
    name = session.get_bind().dialect.name
    return {"postgresql": postgresql, "sqlite": sqlite}.get(name, mysql)


def upsert(session: Session, n: int) -> None:
    made = _made(session)
    rows = [{"code": f"k{m}", "amount": n} for m in range(n % 3 + 1)]
    if made is mysql:
        session.execute(mysql.insert(Thing).values(rows).on_duplicate_key_update(amount=n + 1))
        return
    statement = made.insert(Thing).values(rows)
    session.execute(statement.on_conflict_do_update(index_elements=["code"], set_={"amount": n + 1}))


def insert_ignore(session: Session, n: int) -> None:
    made, rows = _made(session), [{"code": f"k{n % 4}", "amount": n}]
    if made is mysql:
        session.execute(mysql.insert(Thing).prefix_with("IGNORE").values(rows))
    else:
        session.execute(made.insert(Thing).values(rows).on_conflict_do_nothing())


def replace(session: Session, n: int) -> None:
    made = _made(session)
    if made is postgresql:
        raise LookupError
    words = "REPLACE INTO" if made is mysql else "INSERT OR REPLACE INTO"
    session.execute(
        text(f"{words} thing (id, code, amount) VALUES (:i, :c, 1)"), {"i": n % 5, "c": f"k{n % 3}"}
    )


# ── transactions ──


def flush(session: Session, n: int) -> None:
    session.flush()


def commit(session: Session, n: int) -> None:
    session.commit()


def roll_back(session: Session, n: int) -> None:
    session.flush()
    session.rollback()


STEPS: list[Step] = [
    value
    for name, value in globals().items()
    if callable(value)
    and getattr(value, "__module__", "") == __name__
    and not isinstance(value, type)
    and name not in {"nth", "_made"}
]
UPSERTS: set[Step] = {upsert, insert_ignore, replace}
