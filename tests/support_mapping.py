"""A mapping out of text, for tests that want a sound one."""

from __future__ import annotations

from migrator.mapping.language.parse import ParsedMapping, examine_mapping
from migrator.runtime.errors import MappingError


def parse_mapping(text: str, file: str) -> ParsedMapping:
    """The mapping that `text` describes; `file` is its name in messages.

    Raises: MappingError with every fault of the form: unknown words, templates, filters, index and map names.
    """
    parsed = examine_mapping(text, file)
    if parsed.faults:
        raise MappingError(parsed.faults)
    return parsed
