"""A row's key as a person writes it on the command line: --key 42, --key a=1 --key b=2, or as findings show it."""

from __future__ import annotations

from typing import Any

from migrator.mapping.check.check import Checked
from migrator.mapping.items.items import CompiledEntity
from migrator.mapping.model.facts import Column, EntityPlan
from migrator.mapping.model.table import SourceKey, decode_key, encode_key
from migrator.mapping.patterns.key_lookups import bindable, is_held
from migrator.runtime.errors import SettingsError, did_you_mean


def entity_named(checked: Checked, name: str) -> CompiledEntity:
    """Raises: SettingsError where the mapping has no such entity."""
    entities = {entity.name: entity for entity in checked.entities}
    if name not in entities:
        raise SettingsError(f"the mapping has no entity '{name}'{did_you_mean(name, entities)}")
    return entities[name]


def row_key(entity: CompiledEntity, keys: tuple[str, ...]) -> SourceKey:
    """The key as findings and `_src` hold it, from the texts of --key. Raises: SettingsError; it quotes no value."""
    columns = entity.plan.key
    names = [column.name for column in columns]
    if any(not _is_text(key) for key in keys):
        raise SettingsError("--key is no UTF-8 text")
    if len(keys) == 1 and keys[0].startswith("["):
        return _key_of_finding(entity, keys[0])
    if len(columns) == 1 and len(keys) == 1 and not keys[0].startswith(f"{names[0]}="):
        texts = {names[0]: keys[0]}
    else:
        texts = dict(_pair(key) for key in keys)
    if set(texts) != set(names) or len(keys) != len(names):
        usage = " ".join(f"--key {name}=…" for name in names)
        raise SettingsError(f"the key of {entity.name} is {', '.join(names)}; write {usage}")
    return encode_key([_value(texts[column.name], column, entity.plan) for column in columns])


def _key_of_finding(entity: CompiledEntity, text: str) -> SourceKey:
    """The key out of the JSON array that a finding shows with --show-keys."""
    try:
        values = decode_key(text)
        key = encode_key(values)
    except (ValueError, TypeError, KeyError, RecursionError):
        values, key = (), ""
    if len(values) != len(entity.plan.key):
        what = f"--key […] is no key of {entity.name}"
        raise SettingsError(
            f"{what}; write it as `migrator status --findings --show-keys` shows it, such as '[42]'"
        )
    for column, value in zip(entity.plan.key, values, strict=True):
        if column.kind.name == "integer" and (type(value) is not int or not is_held(value)):
            raise SettingsError(f"the key column {column.name} is an integer of 64 bits")
        if column.kind.name == "text" and not isinstance(value, str):
            raise SettingsError(f"the key column {column.name} is text")
    return key


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingsError("a composite key is written --key name=value, once for each column")
    return name, value


def _value(text: str, column: Column, plan: EntityPlan) -> Any:
    try:
        return bindable(text, column, plan)
    except (ValueError, ArithmeticError):
        what = "an integer of 64 bits" if column.kind.name == "integer" else "a number"
        raise SettingsError(f"the key column {column.name} is {what}") from None


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
