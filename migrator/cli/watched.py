"""Surroundings of a running backfill or relay: its pace, presence in the journal, metrics and health over HTTP."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from migrator.cli.cutover_text import phases_document
from migrator.cli.lag import Signs
from migrator.cli.metrics import (
    CountedProgress,
    Part,
    ProcessMetrics,
    backfill_part,
    journal_part,
    pace_part,
    phases_part,
    table_part,
)
from migrator.mapping.model.evidence import PatternPhase
from migrator.mapping.model.instances import Advance, ProcessKind, Share
from migrator.runtime.errors import Interrupted, MigratorError, SettingsError
from migrator.runtime.retry import nap
from migrator.runtime.values import replace
from migrator.settings.job import Tuning
from migrator.stages.backfill.stage import Backfill
from migrator.stages.core.presence import Pace, Presence, Strain, process_of
from migrator.stages.session.session import JobSession
from migrator.stages.session.source import JobSource

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

ANSWER_S = 3.0
"""How long a store may take to answer before the process counts as not ready."""
KNOWN_FOR_S = 2.0

# ── Whether the process works, and whether its stores answer ──


class Readiness:
    """Whether each store answers now. `asks`: by store name, a query that raises if it fails.

    Answers are kept for KNOWN_FOR_S. A query longer than ANSWER_S no longer blocks callers, and does not
    overlap itself.
    """

    def __init__(self, asks: Mapping[str, Callable[[], object]], answer_s: float = ANSWER_S) -> None:
        self._asks = asks
        self._answer_s = answer_s
        self._pool = ThreadPoolExecutor(max(1, len(asks)), "readiness")
        self._under_way: dict[str, Future[object]] = {}
        self._known: dict[str, str] = {}
        self._asked_at = float("-inf")
        self._lock = Lock()

    def faults(self) -> dict[str, str]:
        with self._lock:
            if time.monotonic() - self._asked_at >= KNOWN_FOR_S:
                for name, ask in self._asks.items():
                    if name not in self._under_way:
                        self._under_way[name] = self._pool.submit(ask)
                until = time.monotonic() + self._answer_s
                self._known = {name: self._answer(name, until) for name in self._asks}
                self._asked_at = time.monotonic()
            return dict(self._known)

    def _answer(self, name: str, until: float) -> str:
        asked = self._under_way[name]
        try:
            asked.result(max(0.0, until - time.monotonic()))
        except LateError:
            return f"no answer within {self._answer_s:g} s"
        except MigratorError as error:
            fault = str(error)
        except Exception as error:
            fault = f"internal error ({type(error).__name__})"
        else:
            fault = "ok"
        del self._under_way[name]
        return fault


# ── The address ──


class Monitored(Struct, frozen=True):
    """`phases`: the document of all phases. `held`: why the process waits on purpose; '' if it does not."""

    metrics: ProcessMetrics
    signs: Signs
    readiness: Readiness
    phases: Callable[[], Mapping[str, object]]
    held: Callable[[], str] = lambda: ""

    @property
    def documents(self) -> Mapping[str, Callable[[], tuple[int, Mapping[str, object]]]]:
        """By path, a function that returns a status code and JSON."""
        return {"/healthz": self.healthz, "/readyz": self.readyz, "/phases": lambda: (200, self.phases())}

    def healthz(self) -> tuple[int, dict[str, object]]:
        """503 only if the process is stuck, so that a restart helps; not for an unreachable store."""
        fault = self.signs.fault()
        return (503 if fault else 200), {"status": "stuck" if fault else "ok", "reason": fault}

    def readyz(self) -> tuple[int, dict[str, object]]:
        stores = self.readiness.faults()
        is_ready = all(said == "ok" for said in stores.values()) and not self.signs.fault()
        body: dict[str, object] = {
            "status": "ready" if is_ready else "not ready",
            "stores": stores,
            "held": self.held(),
        }
        return (200 if is_ready else 503), body


MOST_CONNECTIONS = 16
REQUEST_S = 5.0
"""How long a connection may be silent."""


class _HttpServer(ThreadingHTTPServer):
    """Closes its oldest connection when a new one exceeds the limit.

    Thus a probe is always answered, and the process has files and threads for its work.
    """

    daemon_threads = True
    block_on_close = False

    def server_activate(self) -> None:
        self._open: dict[int, socket.socket] = {}
        self._lock = Lock()
        super().server_activate()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # The process has no file handles left: the connection waits, and this thread must not spin.
            time.sleep(_NO_FILES_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            while len(self._open) >= MOST_CONNECTIONS:
                oldest = self._open.pop(next(iter(self._open)))
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[id(request)] = request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A closed connection is not a fault of the process."""


def _is_local(host: str) -> bool:
    return host in _LOCAL or host.rpartition(":")[0] in _LOCAL


_LOCAL = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})
_NO_FILES_S = 0.1


def serve(monitored: Monitored, host: str, port: int) -> None:
    """Serve from own threads until the process ends. Raises: SettingsError if the port is not available."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    registry.register(cast("Collector", monitored.metrics))
    is_local = _is_local(host)

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_S

        def do_GET(self) -> None:  # the standard library calls it so
            if is_local and not _is_local(self.headers.get("Host", "")):
                # A page of another site, which has its name resolve to this address.
                self._send(421, "text/plain; charset=utf-8", b"the Host header must name this address\n")
                return
            path = self.path.partition("?")[0]
            if path == "/metrics":
                encode, kind = choose_encoder(self.headers.get("Accept", ""))
                self._send(200, kind, encode(registry))
            elif path in monitored.documents:
                code, body = monitored.documents[path]()
                self._send(code, "application/json", json.dumps(body).encode() + b"\n")
            else:
                here = f"/metrics, {', '.join(monitored.documents)} are here\n"
                self._send(404, "text/plain; charset=utf-8", here.encode())

        do_HEAD = do_GET

        def _send(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *words: object) -> None:
            """A line per scrape would hide the rest."""

    class LimitedServer(_HttpServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = LimitedServer((host, port), Handler)
    except OSError as error:
        what = f"--metrics-port {port}: cannot be served ({error.strerror}); name another one"
        raise SettingsError(what) from None
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()


SPARE_S = 60.0


def signs_of(tuning: Tuning) -> Signs:
    """A worker may try a store for `give_up_after_s`, and wait for a lease; nothing takes longer than both."""
    return Signs(tuning.give_up_after_s + tuning.lease_s + SPARE_S)


@dataclass
class KnownPhases:
    """Phases of a job's patterns, as last read; a scrape does not query the journal."""

    ask: Callable[[], Mapping[str, PatternPhase]]
    phases: Mapping[str, PatternPhase] = field(default_factory=dict)
    asked_at: float = 0.0

    def renew(self) -> None:
        # Before the query: phases are at least as new as reported.
        began = time.monotonic()
        self.phases, self.asked_at = self.ask(), began

    def document(self, job: str, patterns: Sequence[str]) -> Mapping[str, object]:
        # In this order: a renewal in between makes them look older than they are, never younger.
        asked_at = self.asked_at
        return phases_document(job, patterns, self.phases, time.monotonic() - asked_at)


class Watched(Struct, frozen=True):
    """`signs`: of its workers.
    `address`: of its monitoring, None for none.
    `own`: its part of budgets; None if it spends none.
    """

    kind: ProcessKind
    session: JobSession
    signs: Signs
    address: tuple[str, int] | None
    own: Share | None

    def open(self, stack: ExitStack, advance: Callable[[], Advance], parts: Sequence[Part]) -> Pace:
        """Return the pace to keep. The process is on record, and served, until the stack unwinds."""
        session, job, target = self.session, self.session.job, self.session.target
        phases = KnownPhases(session.phases.all)
        phases.renew()
        sent, limit = target.store.sent, target.store.limit

        def advanced() -> Advance:
            return replace(advance(), write_units=sent.write_units)

        source = stack.enter_context(session.strained())
        pace = stack.enter_context(Pace(limit, tuple(_strains(job.tuning, source))))
        known = (session.processes, process_of(self.kind), self.own, (limit, session.source.pace), pace)
        stack.enter_context(Presence(*known, advanced, also=phases.renew))
        if self.address is not None:
            everywhere = (
                partial(table_part, sent.consumed, sent.throttled),
                partial(journal_part, session.journal.database.answers),
                partial(phases_part, lambda: phases.phases),
                partial(pace_part, pace),
            )
            asks = {"source": session.health, "journal": session.processes.throttle, "table": target.table_id}
            metrics = ProcessMetrics(job.name, self.kind, (*everywhere, *parts))
            held = partial(getattr, pace, "held")
            document = partial(phases.document, job.name, list(session.checked.mapping.patterns))
            serve(Monitored(metrics, self.signs, Readiness(asks), document, held), *self.address)
        return pace

    def open_backfill(self, stack: ExitStack, stage: Backfill, rows: int) -> Backfill:
        """The stage with its progress on record; its pages begin as an operator and the source allow.

        `rows`: number left to copy.
        """
        counted = CountedProgress(stage.progress, rows, self.signs.give)
        pace = self.open(stack, counted.advance, [partial(backfill_part, counted)])
        begin = waits_with(pace, self.signs, stage.stop)
        return replace(stage, progress=counted, begin=begin, is_shared=lambda: pace.parts != 1)


def _strains(tuning: Tuning, source: JobSource) -> Iterator[Strain]:
    asked = (
        ("load", "", tuning.max_source_load, tuning.source_load_query),
        ("replica lag", " s", tuning.max_replica_lag_s, tuning.replica_lag_query),
    )
    for name, unit, most, sql in asked:
        if most is not None:
            yield Strain(name, unit, most, partial(source.strain, name, sql))


def waits_with(pace: Pace, signs: Signs, stop: Event) -> Callable[[], None]:
    def rest(seconds: float) -> None:
        signs.give()
        nap(seconds, stop.is_set, time.sleep)

    def begin() -> None:
        signs.give()
        if pace.held:
            pace.wait(rest)

    return begin


@contextmanager
def failure_kept(kind: ProcessKind, session: JobSession) -> Iterator[None]:
    """Store the error that ends the block as the last failure of its kind, even before the work began."""
    try:
        yield
    except Interrupted:
        raise
    except MigratorError as error:
        # The journal itself may be what failed.
        with suppress(MigratorError):
            session.processes.failed(process_of(kind), str(error))
        raise


def address_of(host: str, port: int | None) -> tuple[str, int] | None:
    return None if port is None else (host, port)
