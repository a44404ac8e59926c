"""The shop as a web service: it writes to SQL with marks, and reads each pattern from the side of its phase.

    SHOP_DATABASE_URL=sqlite:///.migrator/shop.db uvicorn --app-dir docker/shop app:app

`Migration.load` and `dual_write` make it part of the migration. `migration.read` reads a pattern by name, so
no endpoint knows whether SQL or DynamoDB answers.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from forms import MovedOn, NewOrder, NewUser, Number, Price, Priced, Status, wrong
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from pydantic import Field
from service import engine_for
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import sessionmaker
from writing import NotThereError, TakenError, Writing

from migrator.api import Migration
from migrator.runtime.errors import MigratorError

JOB = os.environ.get("SHOP_JOB", "jobs/ecommerce.yaml")
DATABASE = os.environ.get("SHOP_DATABASE_URL") or os.environ.get(
    "MIGRATOR_SOURCE_URL", "sqlite:///.migrator/shop.db"
)
WRITES = os.environ.get("SHOP_WRITES", "yes") != "no"
"""No: customers may look and change nothing, as in the minutes in which a migration ends."""


REGISTRY = CollectorRegistry()
ANSWERS = Counter("shop_answers", "Answers by route and status.", ["route", "status"], registry=REGISTRY)
TOOK = Histogram("shop_answer_seconds", "How long answers took.", ["route"], registry=REGISTRY)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Fails if changes cannot be marked, or phases cannot be read."""
    engine = engine_for(DATABASE)
    with Migration.load(JOB, service=os.environ.get("SHOP_NAME", "shop"), version=app.version) as migration:
        sessions = sessionmaker(engine)
        if WRITES:
            migration.dual_write(sessions)
        migration.begin_reading()
        app.state.migration, app.state.writing = migration, Writing(sessions) if WRITES else None
        yield
    engine.dispose()


app = FastAPI(title="The shop", version="1.0.0", lifespan=lifespan)


def read(request: Request, pattern: str, **params: Any) -> Any:
    return request.app.state.migration.read(pattern, **params)


def writing(request: Request) -> Writing:
    made: Writing | None = request.app.state.writing
    if made is None:
        raise HTTPException(503, "the shop takes no changes just now")
    return made


def one(found: list[Any], what: str) -> Any:
    if not found:
        raise HTTPException(404, f"there is no {what}")
    return found[0]


# ── customers ──


@app.get("/users/{user_id}")
def get_user(request: Request, user_id: Number) -> Any:
    return one(read(request, "get_user", user_id=user_id), f"user {user_id}")


@app.get("/users/{user_id}/orders")
def recent_orders(request: Request, user_id: Number, limit: Annotated[int, Field(ge=1, le=100)] = 10) -> Any:
    return read(request, "recent_orders", user_id=user_id, limit=limit)


@app.get("/users/{user_id}/account")
def account(request: Request, user_id: Number) -> Any:
    found = read(request, "get_user_with_orders", user_id=user_id)
    if found["user"] is None:
        raise HTTPException(404, f"there is no user {user_id}")
    return found


@app.post("/users", status_code=201)
def sign_up(request: Request, user: NewUser) -> Any:
    return {"user_id": writing(request).sign_up(user.email, user.name)}


# ── orders ──


@app.get("/orders/{order_id}/lines")
def order_lines(request: Request, order_id: Number) -> Any:
    return one(
        [lines for lines in [read(request, "order_with_items", order_id=order_id)["items"]] if lines],
        f"order {order_id}",
    )


@app.get("/orders")
def orders_by_status(request: Request, status: Status, since: datetime | None = None) -> Any:
    return read(request, "get_orders_by_status", status=status, since=since)


@app.post("/orders", status_code=201)
def place_order(request: Request, order: NewOrder) -> Any:
    return {"order_id": writing(request).order(order.user_id, order.lines)}


@app.patch("/orders/{order_id}", status_code=204)
def move_order_on(request: Request, order_id: Number, moved: MovedOn) -> None:
    writing(request).move_on(order_id, moved.status)


@app.delete("/orders/{order_id}", status_code=204)
def cancel_order(request: Request, order_id: Number) -> None:
    writing(request).cancel(order_id)


# ── products ──


@app.get("/products/{product_id}")
def get_product(request: Request, product_id: Number) -> Any:
    return one(read(request, "get_product", product_id=product_id), f"product {product_id}")


@app.get("/products")
def products(
    request: Request, category: str, min_price: Price | None = None, max_price: Price | None = None
) -> Any:
    asked = {"category": category, "min_price": min_price, "max_price": max_price}
    return read(request, "get_products_by_category", **asked)


@app.patch("/products/{product_id}", status_code=204)
def change_price(request: Request, product_id: Number, priced: Priced) -> None:
    writing(request).change_price(product_id, priced.price)


# ── how it is ──


@app.get("/healthz")
def healthz(request: Request) -> Any:
    """The phase of each access pattern, as this instance acts by it."""
    return {"ok": True, "phases": request.app.state.migration.phases()}


@app.get("/metrics")
def metrics() -> Response:
    return Response(generate_latest(REGISTRY), media_type=CONTENT_TYPE_LATEST)


@app.middleware("http")
async def count(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    began, status = time.perf_counter(), 500
    try:
        response = await call_next(request)
        status = response.status_code
    finally:
        # The route, never the address: that one holds numbers of customers.
        route = getattr(request.scope.get("route"), "path", "none")
        ANSWERS.labels(f"{request.method} {route}", status).inc()
        TOOK.labels(f"{request.method} {route}").observe(time.perf_counter() - began)
    return response


app.exception_handler(RequestValidationError)(wrong)


@app.exception_handler(NotThereError)
def not_there(_: Request, error: NotThereError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 404)


@app.exception_handler(TakenError)
def taken(_: Request, error: TakenError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 409)


@app.exception_handler(SQLAlchemyError)
@app.exception_handler(MigratorError)
def unavailable(_: Request, error: Exception) -> JSONResponse:
    """The database or the answering side is unavailable."""
    return JSONResponse({"detail": "the shop cannot answer just now"}, 503)
