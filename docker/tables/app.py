"""The shop on three old DynamoDB tables, as a web service: it writes them with boto3, and reads each pattern
from the side that answers it.

    uvicorn --app-dir docker/tables app:app

Customers are written as before, and the tables' streams notify a relay. Orders use a client with a strict
dual write: when a call returns, the new table has the items.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from migrator.api import Migration
from migrator.runtime.errors import MigratorError

sys.path.append(str(Path(__file__).resolve().parents[1] / "shop"))
from forms import MovedOn, NewOrder, NewUser, Number, Text, wrong

JOB = os.environ.get("SHOP_JOB", "jobs/demo-tables.yaml")
PREFIX = os.environ.get("SHOP_PREFIX", "")
"""Prefix of the old tables' names."""
USERS, ORDERS, LINES = (f"{PREFIX}{name}" for name in ("Users", "Orders", "OrderLines"))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Fails if phases cannot be read, or the items of orders cannot be made."""
    with Migration.load(JOB, service="shop", version=app.version) as migration:
        # A resource's client takes values as Python has them.
        app.state.customers, app.state.orders = (boto3.resource("dynamodb").meta.client for _ in range(2))
        migration.dual_write(app.state.orders, mode="strict")
        migration.begin_reading()
        app.state.migration = migration
        yield


app = FastAPI(title="The shop on old tables", version="1.0.0", lifespan=lifespan)

app.exception_handler(RequestValidationError)(wrong)


class Renamed(BaseModel):
    name: Text


def read(request: Request, pattern: str, **params: Any) -> Any:
    return request.app.state.migration.read(pattern, **params)


# ── customers ──


@app.get("/users/{user_id}")
def get_user(request: Request, user_id: Number) -> Any:
    found = read(request, "get_user", user_id=user_id)
    if not found:
        raise HTTPException(404, f"there is no user {user_id}")
    return found[0]


@app.get("/users/{user_id}/orders")
def recent_orders(request: Request, user_id: Number, limit: Annotated[int, Field(ge=1, le=100)] = 10) -> Any:
    return read(request, "recent_orders", user_id=user_id, limit=limit)


@app.get("/users/{user_id}/account")
def account(request: Request, user_id: Number) -> Any:
    found = read(request, "account", user_id=user_id)
    if found["user"] is None:
        raise HTTPException(404, f"there is no user {user_id}")
    return found


@app.post("/users", status_code=201)
def sign_up(request: Request, user: NewUser) -> Any:
    document = {"id": new_number(), "email": user.email, "name": user.name, "since": now()}
    request.app.state.customers.put_item(
        TableName=USERS, Item=document, ConditionExpression="attribute_not_exists(id)"
    )
    return {"user_id": document["id"]}


@app.patch("/users/{user_id}", status_code=204)
def rename(request: Request, user_id: Number, renamed: Renamed) -> None:
    changed(request.app.state.customers, USERS, {"id": user_id}, "name", renamed.name)


# ── orders ──


@app.get("/orders/{order_id}/lines")
def order_lines(request: Request, order_id: Number) -> Any:
    found = read(request, "order_lines", order_id=order_id)
    if not found:
        raise HTTPException(404, f"there is no order {order_id}")
    return found


@app.post("/orders", status_code=201)
def place_order(request: Request, order: NewOrder) -> Any:
    """The order and its lines, all or nothing, of an existing customer."""
    number = new_number()
    document = {"order_id": number, "user_id": order.user_id, "status": "pending", "placed": now()}
    placed = {
        "TableName": ORDERS,
        "Item": document,
        "ConditionExpression": "attribute_not_exists(order_id)",
    }
    there = {"TableName": USERS, "Key": {"id": order.user_id}, "ConditionExpression": "attribute_exists(id)"}
    lines = [
        {"order_id": number, "product_id": product, "quantity": count}
        for product, count in order.lines.items()
    ]
    puts = [{"Put": {"TableName": LINES, "Item": line}} for line in lines]
    request.app.state.orders.transact_write_items(
        TransactItems=[{"ConditionCheck": there}, {"Put": placed}, *puts]
    )
    return {"order_id": number}


@app.patch("/orders/{order_id}", status_code=204)
def move_order_on(request: Request, order_id: Number, moved: MovedOn) -> None:
    changed(request.app.state.orders, ORDERS, {"order_id": order_id}, "status", moved.status)


@app.delete("/orders/{order_id}", status_code=204)
def cancel_order(request: Request, order_id: Number) -> None:
    """Delete the order and its lines."""
    lines = request.app.state.orders.query(
        TableName=LINES,
        KeyConditionExpression="order_id = :order",
        ExpressionAttributeValues={":order": order_id},
        ProjectionExpression="order_id, product_id",
        ConsistentRead=True,
    )["Items"]
    order = {
        "TableName": ORDERS,
        "Key": {"order_id": order_id},
        "ConditionExpression": "attribute_exists(order_id)",
    }
    deletes = [{"Delete": {"TableName": LINES, "Key": line}} for line in lines]
    request.app.state.orders.transact_write_items(TransactItems=[{"Delete": order}, *deletes])


def changed(client: Any, table: str, key: dict[str, int], attribute: str, value: str) -> None:
    client.update_item(
        TableName=table,
        Key=key,
        UpdateExpression="SET #name = :value",
        ConditionExpression=f"attribute_exists({next(iter(key))})",
        ExpressionAttributeNames={"#name": attribute},
        ExpressionAttributeValues={":value": value},
    )


def new_number() -> int:
    """A random number; duplicates are rare, and refused."""
    return 10**6 + secrets.randbelow(2 * 10**9)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ── how it is ──


@app.get("/healthz")
def healthz(request: Request) -> Any:
    """The phase of each access pattern, as this instance acts by it."""
    return {"ok": True, "phases": request.app.state.migration.phases()}


@app.exception_handler(ClientError)
def refused(_: Request, error: ClientError) -> JSONResponse:
    """A condition failed: the request names something missing."""
    reasons = [reason["Code"] for reason in error.response.get("CancellationReasons", ())]
    if "ConditionalCheckFailed" in reasons or "ConditionalCheck" in error.response["Error"]["Code"]:
        return JSONResponse(
            {"detail": "there is no such user or order, or there is one of that number already"}, 404
        )
    return unavailable(_, error)


@app.exception_handler(BotoCoreError)
@app.exception_handler(MigratorError)
def unavailable(_: Request, error: Exception) -> JSONResponse:
    """The tables or the answering side are unavailable. An order may still be placed: its items follow from
    the stream."""
    return JSONResponse({"detail": "the shop cannot answer just now"}, 503)
