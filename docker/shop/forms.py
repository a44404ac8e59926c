"""Request forms of the shop, on SQL and on old DynamoDB tables, and the answers to invalid requests."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, EmailStr, Field


def encodable(text: str) -> str:
    text.encode()
    return text


Status = Literal["pending", "processing", "shipped", "delivered", "cancelled"]
Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
Text = Annotated[str, AfterValidator(encodable), Field(min_length=1, max_length=120)]
Price = Annotated[Decimal, Field(ge=0, max_digits=10, decimal_places=2)]


class NewUser(BaseModel):
    email: EmailStr
    name: Text


class NewOrder(BaseModel):
    user_id: Number
    lines: Annotated[dict[Number, Annotated[int, Field(ge=1, le=99)]], Field(min_length=1, max_length=50)]


class MovedOn(BaseModel):
    status: Status


class Priced(BaseModel):
    price: Price


def wrong(_: Request, error: RequestValidationError) -> JSONResponse:
    """Faults and their places, without the request's text, which may not be encodable."""
    faults = [{"where": [str(part) for part in one["loc"]], "what": one["type"]} for one in error.errors()]
    return JSONResponse({"detail": faults}, 422)
