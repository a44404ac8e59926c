"""The shop's changes, through SQLAlchemy alone: the adapter writes the marks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeVar

from models import Order, OrderLine, Product, User
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker

_TRIES = 5
Made = TypeVar("Made")


class NotThereError(Exception): ...


class TakenError(Exception): ...


class Writing:
    def __init__(self, sessions: sessionmaker[Session]) -> None:
        self._sessions = sessions

    def sign_up(self, email: str, name: str) -> int:
        """Return the new customer's number. Raises: TakenError."""

        def work(session: Session) -> int:
            if session.scalar(select(User.id).where(User.email == email)) is not None:
                raise TakenError("this address has an account already")
            user = User(id=_next(session, User), email=email, name=name, created_at=_now())
            session.add(user)
            session.flush()
            return user.id

        return self._in_one(work)

    def order(self, user_id: int, wanted: Mapping[int, int]) -> int:
        """Return the new order's number. `wanted`: quantities by product. Raises: NotThereError, TakenError
        (out of stock)."""

        def work(session: Session) -> int:
            _there(session, User, user_id)
            number = _next(session, Order)
            order = Order(id=number, user_id=user_id, status="pending", total=Decimal(0), created_at=_now())
            for product_id in sorted(wanted):  # in one order, so that no two orders wait for each other
                product, quantity = _there(session, Product, product_id, lock=True), wanted[product_id]
                if product.stock < quantity:
                    raise TakenError(f"of product {product_id} there are {product.stock} left")
                product.stock -= quantity
                order.total += product.price * quantity
                line = OrderLine(product_id=product_id, quantity=quantity, unit_price=product.price)
                order.lines.append(line)
            session.add(order)
            session.flush()
            return number

        return self._in_one(work)

    def move_on(self, order_id: int, status: str) -> None:
        def work(session: Session) -> None:
            _there(session, Order, order_id, lock=True).status = status

        self._in_one(work)

    def cancel(self, order_id: int) -> None:
        self._in_one(lambda session: session.delete(_there(session, Order, order_id, lock=True)))

    def change_price(self, product_id: int, price: Decimal) -> None:
        def work(session: Session) -> None:
            _there(session, Product, product_id, lock=True).price = price

        self._in_one(work)

    def _in_one(self, work: Callable[[Session], Made]) -> Made:
        """Run one transaction; retry if another one took the same number."""
        for left in reversed(range(_TRIES)):
            try:
                with self._sessions.begin() as session:
                    return work(session)
            except IntegrityError:
                if not left:
                    raise
        raise AssertionError("unreachable")


Row = TypeVar("Row", User, Product, Order)


def _there(session: Session, kind: type[Row], number: int, *, lock: bool = False) -> Row:
    found = session.get(kind, number, with_for_update=lock)
    if found is None:
        raise NotThereError(f"there is no {kind.__name__.lower()} {number}")
    return found


def _next(session: Session, kind: type[User] | type[Order]) -> int:
    return int(session.scalar(select(func.coalesce(func.max(kind.id), 0))) or 0) + 1


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)
