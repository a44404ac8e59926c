"""Engines that hand out the driver's own values; whose every transaction is a read-only snapshot, or one that writes."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy.engine import Engine

from migrator.source.address import Address
from migrator.source.engines.table import engine_of
from migrator.source.manners import Manners


def read_engine(address: Address, manners: Manners) -> Engine:
    """An engine with up to `manners.pool_size` connections; nothing is connected yet.

    Each new connection asks the address again. Raises: SettingsError as the address does.
    """
    return engine_of(address.url().get_backend_name()).connecting.open(address, manners)


def write_engine(address: Address, manners: Manners) -> Engine:
    """The same for capture's own tables: transactions see what others committed before each statement, and write."""
    return read_engine(address, replace(manners, writes=True))
