"""What a job says of its table beside keys and indexes: recovery, protection, stream, tags, capacity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a new table gets; pairs are (read, write) units a second. `provisioned` None is on demand."""

    pitr: bool = True
    deletion_protection: bool = False
    stream: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    contributor_insights: bool = False
    warm_throughput: tuple[int, int] | None = None
    provisioned: tuple[int, int] | None = None
    table_class: str | None = None


class UnitsForm(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    read: Annotated[int, Field(ge=1)]
    write: Annotated[int, Field(ge=1)]


class OptionsForm(BaseModel):
    """`target: {options: …}` as it is written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pitr: bool = True
    deletion_protection: bool = False
    stream: Literal["new_image", "old_image", "new_and_old_images", "keys_only"] | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    contributor_insights: bool = False
    warm_throughput: UnitsForm | None = None
    provisioned: UnitsForm | None = None
    table_class: Literal["standard", "standard_infrequent_access"] | None = None

    def options(self) -> TableOptions:
        pairs = {name: getattr(self, name) for name in ("warm_throughput", "provisioned")}
        units = {name: None if one is None else (one.read, one.write) for name, one in pairs.items()}
        return TableOptions(**(self.model_dump() | units))
