"""Readings of an address: of the source itself, or of a replica of it."""

from __future__ import annotations

from migrator.errors import SettingsError
from migrator.retry import Retry
from migrator.source.address import Address
from migrator.source.engine import read_engine
from migrator.source.engines.table import engine_at
from migrator.source.manners import Manners
from migrator.source.reading import Reading, of_the_source
from migrator.source.replica import Mark, ReplicaCheck, asker, mark_of
from migrator.source.url import place_of


def reading_of(address: Address, manners: Manners, retry: Retry) -> Reading:
    return Reading(read_engine(address, manners), place_of(address.url()), retry, of_the_source)


def replica_of(address: Address, manners: Manners, retry: Retry, primary: Reading) -> Reading:
    """Pages by the replica, on connections that have replayed all that the primary had at the first of them."""
    engine = read_engine(address, manners)
    kind = engine_at(engine)
    if kind is not engine_at(primary.engine) or kind.is_file:
        what = "names no replica: it must be a server of url's kind (an SQLite file has no replica)"
        raise SettingsError(f"source: read_url {what}; correct it, or leave it out")

    def mark() -> Mark:
        return primary.read("its position", lambda one: mark_of(one.dialect, asker(one)))

    return Reading(engine, f"{place_of(address.url())} (read_url)", retry, ReplicaCheck(mark, retry))
