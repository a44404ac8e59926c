"""What all forms of a mapping file are made of: maps of known words, and the choice between shapes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Discriminator, Field

Scalar = str | int | float | bool | None
Name = Annotated[str, Field(min_length=1, max_length=255)]


class Form(BaseModel):
    """A map whose words are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, strict=True)


def choice(**members: str) -> Discriminator:
    """Chooses a member of a union by the YAML shape: text, list, or a map by one of its words ('map' is any map)."""

    def shape(value: Any) -> str | None:
        if isinstance(value, str):
            return members.get("text")
        if isinstance(value, list):
            return members.get("list")
        if isinstance(value, dict):
            return next((members[word] for word in value if word in members), members.get("other"))
        return members.get("scalar")

    return Discriminator(
        shape, custom_error_type="shape", custom_error_message=f"write {_listed(sorted(members))} here"
    )


def _listed(members: list[str]) -> str:
    shown = {"text": "a text", "list": "a list", "other": "a map", "scalar": "a plain value"}
    return " or ".join(shown.get(member, f"{{{member}: …}}") for member in members)
