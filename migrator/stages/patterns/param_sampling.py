"""Parameter values drawn from real rows, or made up; the same for the same seed."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from uuid import UUID

from msgspec import Struct

from migrator.mapping.items.filters import FilterContext, reach_m
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.items.rows import Row, compile_ref, places_of
from migrator.mapping.model.edges import Rows
from migrator.mapping.model.facts import Alike, EntityPlan, column_of
from migrator.mapping.model.mapping import SCHEMA_PATH, Param, ParamType, Pattern, paths_in
from migrator.mapping.model.mapping import Mapping as MappingModel
from migrator.mapping.model.table import SourceKey
from migrator.mapping.patterns.param_sources import (
    EntityParamSources,
    ParamSource,
    origins_of,
    plans_by_entity,
)
from migrator.mapping.patterns.params import absent_value, bucket_text, list_text, param_text, read_params
from migrator.mapping.patterns.requests import Requests, cut_params
from migrator.runtime.errors import RowError, SettingsError

# ── Synthetic values, for parameters without a column ──

MADE_UP = "made up"
_LIMIT = 20
_FIRST_DAY = date(2020, 1, 1)


def made_up(pattern: Pattern, param: Param, rng: random.Random, texts: Mapping[str, str]) -> str:
    if pattern.near is not None and param.name == pattern.near.within_m:
        return str(1 + int(rng.random() * 0.9 * _reach_m(pattern, texts)))
    made = str(rng.randint(1, _LIMIT)) if param.name == pattern.limit else _MAKERS[param.type](rng)
    return list_text([made]) if param.many else made


def _reach_m(pattern: Pattern, texts: Mapping[str, str]) -> float:
    near, star = pattern.near, pattern.star
    latitude = texts.get(near.origin[0]) if near else None
    if star is None or latitude is None:
        return 1.0
    return reach_m(float(latitude), int(star.filters[0].args[0]))


def _day(rng: random.Random) -> date:
    return _FIRST_DAY + timedelta(days=rng.randrange(3650))


_MAKERS: dict[ParamType, Callable[[random.Random], str]] = {
    "integer": lambda rng: str(rng.randint(1, _LIMIT)),
    "number": lambda rng: f"{rng.randint(1, 10_000) / 100:.2f}",
    "text": lambda rng: f"{rng.getrandbits(32):08x}",
    "boolean": lambda rng: rng.choice(["true", "false"]),
    "date": lambda rng: _day(rng).isoformat(),
    "timestamp": lambda rng: datetime.combine(_day(rng), datetime.min.time()).isoformat(),
    "uuid": lambda rng: str(UUID(int=rng.getrandbits(128), version=4)),
    "binary": lambda rng: base64.b64encode(rng.randbytes(8)).decode("ascii"),
}


# ── A sample of rows of every entity, spread over its keys, to draw parameters from ──

PLACES = 40
"""Positions in an entity's keys at which rows are read."""
ROWS_A_PLACE = 10


class RowSample:
    """Decoded rows by entity, read on first use. The same seed chooses the same rows of the same data."""

    def __init__(self, source: Rows, entities: Sequence[CompiledEntity], seed: int) -> None:
        self._source = source
        self._entities = {entity.name: entity for entity in entities}
        self._seed = seed
        self._counts: dict[str, int] = {}
        self._rows: dict[str, list[Row]] = {}
        self.by_entity = plans_by_entity(self.plans)

    @property
    def plans(self) -> list[EntityPlan]:
        return [entity.plan for entity in self._entities.values()]

    def count(self, entity: str) -> int:
        """Row count, cached; the source's estimate if counting takes too long."""
        if entity not in self._counts:
            self._counts[entity] = self._source.rows_about(self._entities[entity].plan)
        return self._counts[entity]

    def rows(self, entity: str) -> list[Row]:
        if entity not in self._rows:
            self._rows[entity] = list(self._read(self._entities[entity])) if self.count(entity) else []
        return self._rows[entity]

    def _read(self, entity: CompiledEntity) -> Iterator[Row]:
        rows = self.count(entity.name)
        # Few rows are read at once: they are the same as at all positions, for two questions instead of eighty.
        few = rows <= PLACES * ROWS_A_PLACE
        bounds, at_most = ([], PLACES * ROWS_A_PLACE) if few else (self._bounds(entity, rows), ROWS_A_PLACE)
        for after, upto in pairwise([None, *bounds, None]):
            for tree in self._source.read_page(entity.plan, after, upto, at_most):
                row = _decoded(entity, tree)
                if row is not None:
                    yield row

    def _bounds(self, entity: CompiledEntity, rows: int) -> list[SourceKey]:
        """Bounds of the positions. Their distance depends on the seed, so that other seeds choose other rows."""
        share = random.Random(f"{self._seed}/{entity.name}").uniform(0.75, 1)
        size = max(1, int(rows * share / PLACES))
        return list(islice(self._source.page_bounds(entity.plan, size), 2 * PLACES))


def _decoded(entity: CompiledEntity, tree: tuple[Any, ...]) -> Row | None:
    try:
        return entity.decode(tree)
    except RowError:
        return None


# ── Parameters of an access pattern drawn from real rows, the same for the same seed ──

_TRIES = 8
_LONGEST_LIST = 10
_TWINS = 0.2
"""The share of texts with another spelling, if the source compares both spellings as equal."""
_ABSENT = 0.1
"""The share of samples with an absent value: an empty answer is also evidence."""


class ParamSet(Struct, frozen=True):
    """One set of parameters, as texts (those that are set) and as values by `read_params`.

    `kind`: the optional parameters that are set.
    `absent`: whether one value is in no row.
    """

    texts: Mapping[str, str]
    values: Mapping[str, Any]
    kind: tuple[str, ...] = ()
    absent: bool = False


class SampledParams(Struct, frozen=True):
    """Parameter sets of one pattern. `origins`: each parameter's source. `why`: why sets are missing."""

    draws: tuple[ParamSet, ...]
    origins: Mapping[str, str] = {}
    why: str = ""


def draw(mapping: MappingModel, pattern: Pattern, pool: RowSample, samples: int, seed: int) -> SampledParams:
    """Draw up to `samples` parameter sets. Without parameters the same set repeats: a move counts answers.

    Raises: the source's errors.
    """
    sources = origins_of(mapping, pattern, pool.by_entity)
    rng = random.Random(f"{seed}/{pattern.name}")
    if not sources:
        return SampledParams((), why="no item has a matching key")
    drawing = [
        _Drawing(mapping, pattern, source, pool.rows(source[0].entity.name), rng) for source in sources
    ]
    sets = [made for _ in range(samples) if (made := rng.choice(drawing).params()) is not None]
    refusals = (drawing_of_source.refused for drawing_of_source in drawing if drawing_of_source.refused)
    why = next(refusals, "") if len(sets) < samples else ""
    words = [drawing_of_source.in_words() for drawing_of_source in drawing]
    origins = {
        param.name: " or ".join(dict.fromkeys(origins_of_source[param.name] for origins_of_source in words))
        for param in pattern.params
    }
    return SampledParams(tuple(sets), origins, why)


class _Drawing:
    def __init__(
        self,
        mapping: MappingModel,
        pattern: Pattern,
        sources: EntityParamSources,
        rows: list[Row],
        rng: random.Random,
    ) -> None:
        self.pattern = pattern
        self._requests = Requests(mapping, pattern)
        self._cut = cut_params(pattern)
        self.plan, self.origins = sources
        self.rows = rows
        self.rng = rng
        self.refused = ""
        self._params = {param.name: param for param in pattern.params}
        columns = {name: column_of(origin.path, self.plan) for name, origin in self.origins.items()}
        self._strict = {name for name, column in columns.items() if column and column.kind.strict}
        self._alike = {name: alike for name in self.origins if (alike := self._alike_of(name))}
        places = places_of(self.plan, FilterContext.of(mapping))
        self._getters: dict[str, Callable[[Row], Any]] = {
            name: _getter(origin, lambda ref: compile_ref(ref, places), self.plan.entity.schema)
            for name, origin in self.origins.items()
        }

    def params(self) -> ParamSet | None:
        absent = self.rng.random() < _ABSENT
        for number in range(_TRIES):
            # The last tries take no long ranges and no absent values, which some patterns refuse.
            made = self._try(absent=absent and number < _TRIES // 2, near=number >= _TRIES // 2)
            if made is not None:
                return made
        return None

    def _try(self, *, absent: bool, near: bool) -> ParamSet | None:
        chosen = {
            name for name, param in self._params.items() if not param.optional or self.rng.random() < 0.5
        }
        anchor = self.rng.choice(self.rows) if self.rows else None
        other = anchor if near or not self.rows else self.rng.choice(self.rows)
        try:
            texts = self._texts(chosen, anchor, other)
            lost = self._lose(texts) if absent else False
            values = read_params(self.pattern, texts)
            self._requests.refuse_unfit(values)
        except (SettingsError, RowError, ValueError, OverflowError) as error:
            self.refused = str(error) if isinstance(error, SettingsError) else "no row has values that fit"
            return None
        kind = tuple(sorted(name for name in texts if self._params[name].optional))
        return ParamSet(texts, values, kind, lost)

    # ── one set of texts ──

    def _texts(self, chosen: set[str], anchor: Row | None, other: Row | None) -> dict[str, str]:
        texts: dict[str, str] = {}
        for name, param in self._params.items():
            if name in chosen and name in self._getters and anchor is not None:
                texts[name] = self._from_rows(param, anchor, other)
        for name, param in self._params.items():
            if name in chosen and name not in texts:
                texts[name] = self._other(param, anchor, texts)
        for name, unit in self._cut.items():
            if name in texts and not self._params[name].many:
                texts[name] = bucket_text(datetime.fromisoformat(texts[name]), unit, self._params[name])
        return texts

    def _from_rows(self, param: Param, anchor: Row, other: Row | None) -> str:
        origin = self.origins[param.name]
        value = self._value(param.name, anchor)
        if param.many:
            return list_text([self._spelled(param.name, text) for text in self._several(param, anchor)])
        if origin.role == "bucket":
            return bucket_text(value, origin.unit, param)
        if origin.role in ("low", "high") and other is not None:
            second = self._value(param.name, other)
            value = min(value, second) if origin.role == "low" else max(value, second)
        if self.pattern.near is not None and param.name in self.pattern.near.origin:
            value = round(float(value) + self.rng.uniform(-0.0005, 0.0005), 6)
            return f"{value:.6f}"
        return self._spelled(param.name, param_text(value, param.type))

    def _alike_of(self, name: str) -> tuple[Alike, ...]:
        origin, plan = self.origins[name], self.plan
        column = column_of(origin.path, plan) if SCHEMA_PATH not in origin.ref.paths else None
        if column is None or origin.role != "equal" or self._params[name].type != "text":
            return ()
        begun = (condition for condition in self.pattern.sort if condition.operator == "begins_with")
        is_prefix = any(name in paths_in(condition.values) for condition in begun)
        # LIKE ignores case, as = does, but not spaces.
        return tuple(alike for alike in column.alike if alike == "case" or not is_prefix)

    def _spelled(self, name: str, text: str) -> str:
        if name not in self._alike or self.rng.random() >= _TWINS:
            return text
        other = text.swapcase() if self.rng.choice(self._alike[name]) == "case" else f"{text} "
        # Longer: a letter became two, such as the dotted capital I, which collations do not find equal.
        longer = len(other.rstrip(" ")) > len(text.rstrip(" "))
        return text if longer or other.lower().rstrip(" ") != text.lower().rstrip(" ") else other

    def _value(self, name: str, row: Row) -> Any:
        value = self._getters[name](row)
        if value is None:
            raise RowError("the row has no value")
        return value

    def _several(self, param: Param, anchor: Row) -> list[str]:
        others = [
            name for name, origin in self.origins.items() if origin.role == "equal" and name != param.name
        ]
        same = [
            row for row in self.rows if all(self._getters[n](row) == self._getters[n](anchor) for n in others)
        ]
        count = min(len(same), self.rng.randint(1, _LONGEST_LIST))
        rows = [anchor, *self.rng.sample(same, count)][:_LONGEST_LIST]
        values = [value for row in rows if (value := self._getters[param.name](row)) is not None]
        if unit := self._cut.get(param.name):
            return list(dict.fromkeys(bucket_text(value, unit, param) for value in values))
        return list(dict.fromkeys(param_text(value, param.type) for value in values))

    def _other(self, param: Param, anchor: Row | None, texts: Mapping[str, str]) -> str:
        if param.name == self.pattern.schema and self.plan.entity.schema is not None:
            return self.plan.entity.schema
        if param.name in self._strict:
            raise RowError("the source refuses a value of no row")
        begun = self._bucket()
        if begun is not None and anchor is not None and param.type in ("timestamp", "date"):
            return bucket_text(self._value(begun, anchor), self.origins[begun].unit, param, after=True)
        return made_up(self.pattern, param, self.rng, texts)

    def _bucket(self) -> str | None:
        return next((name for name, origin in self.origins.items() if origin.role == "bucket"), None)

    def _lose(self, texts: dict[str, str]) -> bool:
        """Replace a value compared for equality by one that no row has; False if there is none."""
        near = self.pattern.near.origin if self.pattern.near else ()
        names = sorted(n for n, origin in self.origins.items() if origin.role == "equal" and n in texts)
        names = [n for n in names if n not in (*near, *self._strict) and n != self.pattern.schema]
        if not names or not self.rows:
            return False
        name = self.rng.choice(names)
        param = self._params[name]
        value = absent_value([self._getters[name](row) for row in self.rows])
        if value is None:
            return False
        text = param_text(value, param.type)
        texts[name] = list_text([text]) if param.many else text
        return True

    # ── description ──

    def in_words(self) -> dict[str, str]:
        table = self.plan.table.name
        words = {}
        for name, param in self._params.items():
            origin = self.origins.get(name)
            if origin is not None and self.rows:
                words[name] = f"{table}.{origin.path}"
            elif self._bucket() is not None and self.rows and param.type in ("timestamp", "date"):
                words[name] = f"the end of the {self.origins[self._bucket() or ''].unit}"
            else:
                words[name] = "the schema" if name == self.pattern.schema else MADE_UP
        return words


def _getter(
    origin: ParamSource, compiled: Callable[[Any], Callable[[Row], Any]], schema: str | None
) -> Callable[[Row], Any]:
    if SCHEMA_PATH in origin.ref.paths:
        return lambda row: schema
    get, place, several = compiled(origin.ref), origin.place, len(origin.ref.paths) > 1

    def value(row: Row) -> Any:
        try:
            values = get(row)
        except RowError:
            return None  # an undecodable value cannot be a parameter
        return values[place] if several and isinstance(values, (tuple, list)) else values

    return value
