"""What a service imports, with its signatures."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from syrupy.assertion import SnapshotAssertion

from migrator import api


def _members(name: str, exported: object) -> Iterator[str]:
    if not inspect.isclass(exported):
        yield (
            f"{name}{inspect.signature(exported)}" if inspect.isfunction(exported) else f"{name}: {exported}"
        )
        return
    yield f"class {name}{inspect.signature(exported)}"
    for member, value in sorted(vars(exported).items()):
        if member.startswith("_"):
            continue
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        described = inspect.signature(function) if callable(function) else ""
        yield f"    {type(value).__name__} {member}{described}"


def test_what_a_service_imports_is_the_pinned_api(pinned: SnapshotAssertion) -> None:
    exported = [line for name in sorted(api.__all__) for line in _members(name, getattr(api, name))]
    assert "\n".join(exported) + "\n" == pinned
