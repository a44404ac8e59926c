"""A pattern's templates and expressions with its parameters put in."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from functools import lru_cache
from typing import Any

from migrator.errors import RowError, SettingsError
from migrator.mapping.expressions import Compiled, Places, compile_key, compile_value
from migrator.mapping.fan_out import texts_of
from migrator.mapping.filters import Surroundings
from migrator.model import Expression, KeyAttribute, Mapping, Pattern, Ref, Template

_KEYS = 256
"""Key templates of one pattern that are kept compiled: its own, and those of the newest texts that its `*` stood for."""


class Templates:
    """What a pattern's parameters are put into, compiled once. Safe to share between threads."""

    def __init__(self, mapping: Mapping, pattern: Pattern) -> None:
        self.pattern = pattern
        self.names = tuple(param.name for param in pattern.params)
        self._places = Places({name: number for number, name in enumerate(self.names)}, {})
        self._around = Surroundings(mapping.table.separator, mapping.maps, mapping.timezone)
        self.key = lru_cache(_KEYS)(self._key)
        self._values: dict[int, Compiled] = {}

    def _key(self, template: Template, attribute: KeyAttribute) -> Compiled:
        return compile_key(template, attribute, self._places, self._around)

    def value(self, expression: Expression) -> Compiled:
        """Of one of the pattern's own expressions, which live as long as this does: so an id names one of them."""
        found = self._values.get(id(expression))
        if found is None:
            found = self._values[id(expression)] = compile_value(expression, self._places, self._around)
        return found


class Renderer:
    """Raises SettingsError, naming the pattern, for a parameter that does not fit or is missing in a key."""

    def __init__(self, templates: Templates, params: Dict[str, Any]) -> None:
        self.templates = templates
        self.pattern = templates.pattern
        self.params = params
        self.row = tuple(params.get(name) for name in templates.names)

    def key(self, template: Template, attribute: KeyAttribute) -> Any:
        """The value of a key attribute, None where a parameter is not set."""
        try:
            return self.templates.key(template, attribute)(self.row)
        except (RowError, ValueError) as error:
            raise SettingsError(f"{self.pattern.name}: a parameter does not fit the key: {error}") from None

    def set_key(self, template: Template, attribute: KeyAttribute) -> Any:
        """The value of a key attribute that must not be left out."""
        found = self.key(template, attribute)
        if found is None:
            raise unset(self.pattern)
        return found

    def texts(self, star: Ref) -> list[str]:
        """What the `*` stands for."""
        values = [self.params[path] for path in star.paths]
        if None in values:
            raise unset(self.pattern)
        try:
            return texts_of(star.filters[0], values)
        except (RowError, ValueError) as error:
            raise SettingsError(f"{self.pattern.name}: {error}") from None

    def value(self, expression: Expression) -> Any:
        """A plain value, None where a parameter is not set."""
        try:
            return self.templates.value(expression)(self.row)
        except (RowError, ValueError) as error:
            raise SettingsError(
                f"{self.pattern.name}: a parameter does not fit the filter: {error}"
            ) from None


def unset(pattern: Pattern) -> SettingsError:
    return SettingsError(f"{pattern.name}: a parameter of the key is not set")
