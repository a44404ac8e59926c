"""A pattern's templates and expressions with its parameters put in."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from typing import Any

from migrator.errors import RowError, SettingsError
from migrator.mapping.expressions import Places, compile_key, compile_value
from migrator.mapping.fan_out import texts_of
from migrator.mapping.filters import Surroundings
from migrator.model import Expression, KeyAttribute, Mapping, Pattern, Ref, Template


class Renderer:
    """Raises SettingsError, naming the pattern, for a parameter that does not fit or is missing in a key."""

    def __init__(self, mapping: Mapping, pattern: Pattern, params: Dict[str, Any]) -> None:
        self.pattern = pattern
        self.params = params
        self.around = Surroundings(mapping.table.separator, mapping.maps, mapping.timezone)
        self.places = Places({name: number for number, name in enumerate(params)}, {})
        self.row = tuple(params.values())

    def key(self, template: Template, attribute: KeyAttribute) -> Any:
        """The value of a key attribute, None where a parameter is not set."""
        try:
            return compile_key(template, attribute, self.places, self.around)(self.row)
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
            return compile_value(expression, self.places, self.around)(self.row)
        except (RowError, ValueError) as error:
            raise SettingsError(
                f"{self.pattern.name}: a parameter does not fit the filter: {error}"
            ) from None


def unset(pattern: Pattern) -> SettingsError:
    return SettingsError(f"{pattern.name}: a parameter of the key is not set")
