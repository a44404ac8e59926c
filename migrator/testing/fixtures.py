"""The pytest fixture `fake_migration`. In conftest.py: `pytest_plugins = ("migrator.testing.fixtures",)`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from migrator.testing.fake import FakeMigration


@pytest.fixture
def fake_migration() -> Iterator[Callable[[str | Path], FakeMigration]]:
    """A factory of fakes: `fake_migration("mappings/shop.yaml")`. They are closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda mapping: stack.enter_context(FakeMigration(mapping))
