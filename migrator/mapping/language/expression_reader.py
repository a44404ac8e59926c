"""Values and templates of a mapping file parsed to expressions, for all parsers of the language."""

from __future__ import annotations

from collections.abc import Mapping as Dict
from typing import Any

from migrator.mapping.items.filters import FILTERS
from migrator.mapping.items.templates import parse_ref, parse_template
from migrator.mapping.language.document import Document, Path
from migrator.mapping.model.mapping import SCHEMA_PATH, Expression, Ref, Template
from migrator.runtime.errors import Fault, did_you_mean


class ExpressionReader:
    """Reads values and templates at their place in the document, collecting faults."""

    def __init__(self, document: Document, maps: Dict[str, Any]) -> None:
        self.document = document
        self.maps = maps
        self.faults: list[Fault] = []
        self.schema_refs: list[tuple[Ref, Path]] = []

    def fault(self, path: Path, what: str) -> None:
        self.faults.append(self.document.fault(path, what))

    def template(self, text: str, path: Path, *, every: bool = False) -> Template:
        """The template of a key; text without braces is a literal. `every`: a reference may have a `*`."""
        try:
            template = parse_template(text, every=every)
        except ValueError as error:
            self.fault(path, str(error))
            return Template((text,), text)
        for ref in template.refs:
            self._check_ref(ref, path)
        return template

    def value(self, text: str, path: Path) -> Expression:
        """The value of an attribute; text without braces is a column."""
        if "{" in text or "}" in text:
            return self.template(text, path)
        try:
            ref = parse_ref(text)
        except ValueError as error:
            self.fault(path, str(error))
            return Ref((text,))
        self._check_ref(ref, path)
        return ref

    def _check_ref(self, ref: Ref, path: Path) -> None:
        for used in ref.filters:
            if FILTERS[used.name].of_map and used.args[0] not in self.maps:
                what = f"map '{used.args[0]}' not found{did_you_mean(used.args[0], self.maps)}"
                self.fault(path, what)
        if SCHEMA_PATH in ref.paths:
            self.schema_refs.append((ref, path))
