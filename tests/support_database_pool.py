"""Empty PostgreSQL databases for tests, used again and again: to make and to drop one takes a second on a busy disk."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

LIMIT_S = 60

_CREATE = "CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
# Commits need not be on the disk: this server is never killed. Tests that kill one have their own.
_QUICK = "ALTER DATABASE {} SET synchronous_commit = off"

_EMPTY = """
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT evtname FROM pg_event_trigger LOOP EXECUTE format('DROP EVENT TRIGGER %I', name); END LOOP;
  FOR name IN SELECT extname FROM pg_extension WHERE oid >= 16384 LOOP
    EXECUTE format('DROP EXTENSION IF EXISTS %I CASCADE', name); END LOOP;
  FOR name IN SELECT nspname FROM pg_namespace WHERE nspname = 'public' OR oid >= 16384 LOOP
    IF name !~ '^pg_' THEN EXECUTE format('DROP SCHEMA %I CASCADE', name); END IF; END LOOP;
END $$
"""
_PUBLIC = """
CREATE SCHEMA public;
COMMENT ON SCHEMA public IS 'standard public schema';
"""
_RIGHTS = (
    "ALTER SCHEMA public OWNER TO pg_database_owner; GRANT USAGE ON SCHEMA public TO PUBLIC",
    "GRANT ALL ON SCHEMA public TO PUBLIC",
)
"""Roles that may use the schema `public` of a new database: since PostgreSQL 15, and before."""

# A table that a test gives to the extension plpgsql takes it along when it is dropped.
_LEFT = """
SELECT (SELECT 1 - count(*) FROM pg_extension WHERE extname = 'plpgsql')
  + (SELECT count(*) FROM pg_class WHERE oid >= 16384 AND relnamespace <> 'pg_toast'::regnamespace)
  + (SELECT count(*) FROM pg_proc WHERE oid >= 16384) + (SELECT count(*) FROM pg_type WHERE oid >= 16384)
  + (SELECT count(*) FROM pg_namespace WHERE oid >= 16384 AND nspname <> 'public' AND nspname !~ '^pg_')
  + (SELECT count(*) FROM pg_extension WHERE oid >= 16384) + (SELECT count(*) FROM pg_event_trigger)
  + (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_largeobject_metadata)
  + (SELECT count(*) FROM pg_foreign_data_wrapper) + (SELECT count(*) FROM pg_default_acl)
  + (SELECT count(*) FROM pg_cast WHERE oid >= 16384) + (SELECT count(*) FROM pg_language WHERE oid >= 16384)
  + (SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database())
  + (SELECT count(*) FROM pg_database WHERE datname = current_database()
     AND (datacl IS NOT NULL OR datdba <> current_user::regrole))
  + (SELECT count(*) FROM pg_db_role_setting AS s JOIN pg_database AS d ON d.oid = s.setdatabase
     WHERE d.datname = current_database() AND (s.setrole <> 0 OR s.setconfig <> ARRAY['synchronous_commit=off']))
"""


class DatabasePool:
    """What was used is emptied and lent again under another name. What cannot be emptied as new is dropped."""

    def __init__(self, server_url: str) -> None:
        self.server_url = server_url
        self._free: list[str] = []
        self._server = psycopg.connect(server_url, autocommit=True)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database with a random name, in UTF-8 and bytewise order, used by one test only."""
        name = f"migrator_test_{secrets.token_hex(6)}"
        if self._free:
            self._run("ALTER DATABASE {} RENAME TO {}", self._free.pop(), name)
        else:
            self._run(_CREATE, name)
            self._run(_QUICK, name)
        try:
            yield self._url(name)
        finally:
            self._take_back(name)

    def close(self) -> None:
        for name in self._free:
            self._run("DROP DATABASE IF EXISTS {}", name)
        self._server.close()

    def _take_back(self, name: str) -> None:
        if not self._exists(name):
            return
        try:
            self._end_sessions(name)
            with psycopg.connect(self._url(name), autocommit=True) as connection:
                connection.execute(_EMPTY)
                connection.execute(_PUBLIC + _RIGHTS[connection.info.server_version < 150000])
                is_as_new = connection.execute(_LEFT).fetchone() == (0,)
            self._end_sessions(name)
        except psycopg.Error:
            is_as_new = False
        if is_as_new:
            self._free.append(name)
        else:
            self._run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _end_sessions(self, name: str) -> None:
        """Returns when no session is connected any more."""
        query = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = %s"
        ends_at = time.monotonic() + LIMIT_S
        while self._server.execute(query, (name,)).fetchone() != (0,):
            assert time.monotonic() < ends_at, f"a session stays connected to {name}"
            time.sleep(0.002)

    def _exists(self, name: str) -> bool:
        query = "SELECT count(*) FROM pg_database WHERE datname = %s"
        return self._server.execute(query, (name,)).fetchone() == (1,)

    def _run(self, statement: str, *names: str) -> None:
        self._server.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _url(self, name: str) -> str:
        return urlunsplit(urlsplit(self.server_url)._replace(path=f"/{name}"))
