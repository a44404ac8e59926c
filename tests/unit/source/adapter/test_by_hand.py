"""Connections on which a service may leave marks by hand."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from migrator.runtime.errors import UnmarkedError
from migrator.source.adapter.by_hand import driver_for
from tests import pins


@pytest.mark.parametrize("of", [psycopg.AsyncConnection, Path])
def test_connection_that_must_be_awaited_is_refused(of: type) -> None:
    with pins.refused(UnmarkedError):
        driver_for(object.__new__(of))
