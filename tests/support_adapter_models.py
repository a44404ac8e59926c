"""Models of a service, with what makes an ORM write in its many ways, and the tables that are captured of them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from migrator.mapping.model.facts import Captured
from tests.support_capture import Capturing, captured


class Base(DeclarativeBase):
    """The service's own."""


def _key(target: str, **options: Any) -> sa.ForeignKey:
    return sa.ForeignKey(target, **options)


person_tag = sa.Table(
    "person_tag",
    Base.metadata,
    sa.Column("person_id", _key("person.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("tag_name", _key("tag.name"), primary_key=True),
)


class Tag(Base):
    __tablename__ = "tag"
    name: Mapped[str] = mapped_column(sa.String(20), primary_key=True)


class Person(Base):
    """Joined inheritance, a version, a key that the database makes."""

    __tablename__ = "person"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(10))
    name: Mapped[str] = mapped_column(sa.String(20))
    version: Mapped[int] = mapped_column()
    tags: Mapped[list[Tag]] = relationship(secondary=person_tag, passive_deletes=True)
    vehicles: Mapped[list[Vehicle]] = relationship(back_populates="owner", passive_deletes=True)
    __mapper_args__ = {  # noqa: RUF012
        "polymorphic_on": "kind",
        "polymorphic_identity": "person",
        "version_id_col": version,
    }


class Employee(Person):
    __tablename__ = "employee"
    id: Mapped[int] = mapped_column(_key("person.id", ondelete="CASCADE"), primary_key=True)
    badge: Mapped[str] = mapped_column(sa.String(20))
    boss_id: Mapped[int | None] = mapped_column(_key("person.id", ondelete="SET NULL"))
    __mapper_args__ = {  # noqa: RUF012
        "polymorphic_identity": "employee",
        "inherit_condition": id == Person.id,
        "passive_deletes": True,
    }


class Vehicle(Base):
    """Single-table inheritance; its owner's end leaves it without one."""

    __tablename__ = "vehicle"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(10))
    plate: Mapped[str] = mapped_column(sa.String(20))
    owner_id: Mapped[int | None] = mapped_column(_key("person.id", ondelete="SET NULL"))
    owner: Mapped[Person | None] = relationship(back_populates="vehicles")
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "car"}  # noqa: RUF012


class Truck(Vehicle):
    __mapper_args__ = {"polymorphic_identity": "truck"}  # noqa: RUF012


class Country(Base):
    """A natural key that may change."""

    __tablename__ = "country"
    code: Mapped[str] = mapped_column(sa.String(20), primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(20))
    cities: Mapped[list[City]] = relationship(passive_deletes=True, passive_updates=True)


class City(Base):
    """A composite key, of which the database changes one half by itself."""

    __tablename__ = "city"
    country_code: Mapped[str] = mapped_column(
        sa.String(20),
        _key("country.code", ondelete="CASCADE", onupdate="CASCADE"),
        primary_key=True,
    )
    name: Mapped[str] = mapped_column(sa.String(20), primary_key=True)
    people: Mapped[int] = mapped_column(server_default="0")


class Street(Base):
    """Below a city, so that a country's new code goes two steps down."""

    __tablename__ = "street"
    id: Mapped[int] = mapped_column(primary_key=True)
    country_code: Mapped[str | None] = mapped_column(sa.String(20))
    city: Mapped[str | None] = mapped_column(sa.String(20))
    __table_args__ = (
        sa.ForeignKeyConstraint(
            ["country_code", "city"],
            ["city.country_code", "city.name"],
            ondelete="CASCADE",
            onupdate="CASCADE",
        ),
    )


class Node(Base):
    """A self reference."""

    __tablename__ = "node"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    parent_id: Mapped[int | None] = mapped_column(_key("node.id"))
    label: Mapped[str] = mapped_column(sa.String(20))
    below: Mapped[list[Node]] = relationship(cascade="all, delete-orphan")


class Thing(Base):
    """Server defaults, and a second key beside the one that the database makes."""

    __tablename__ = "thing"
    id: Mapped[int] = mapped_column(primary_key=True)
    code: Mapped[str] = mapped_column(sa.String(20), unique=True)
    amount: Mapped[int] = mapped_column(server_default="7")
    note: Mapped[str | None] = mapped_column(sa.String(20))


CAPTURED = {
    "person": (["id", "name"], ["id", "name", "version"]),
    "employee": (["id", "boss_id"], ["id", "boss_id", "badge"]),
    "vehicle": (["id", "owner_id", "kind"], ["id", "owner_id", "kind"]),
    "country": (["code"], ["code", "name"]),
    "city": (["country_code", "name"], ["country_code", "name", "people"]),
    "street": (["id", "country_code", "city"], None),
    "node": (["id", "parent_id"], ["id", "parent_id", "label"]),
    "thing": (["id", "code"], ["id", "code", "amount"]),
    "person_tag": (["person_id", "tag_name"], ["person_id", "tag_name"]),
}
"""Columns that marks hold, and those of which a change leaves one (None: any)."""


def captured_models(capturing: Capturing) -> list[Captured]:
    facts = capturing.source.facts().tables
    return [captured(facts[name], *columns) for name, columns in CAPTURED.items()]


def first_rows() -> list[Any]:
    return [
        *(Tag(name=name) for name in ("red", "blue")),
        *(Country(code=f"c{n}", name="x", cities=[City(name=f"t{n}"), City(name="port")]) for n in range(3)),
        *(Street(id=n, country_code=f"c{n % 3}", city="port") for n in range(1, 4)),
        *(Node(id=n, label="x", parent_id=None if n < 3 else n // 3) for n in range(1, 7)),
        *(Person(name=f"p{n}", vehicles=[Vehicle(plate="v"), Truck(plate="t")]) for n in range(2)),
        *(Employee(name=f"e{n}", badge=f"b{n}", boss_id=None) for n in range(2)),
        *(Thing(code=f"k{n}") for n in range(3)),
    ]
