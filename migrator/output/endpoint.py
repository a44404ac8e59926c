"""A process's address: /metrics for Prometheus, /healthz and /readyz for what restarts it, and /phases for services."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread, get_ident
from threading import enumerate as threads

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from migrator.model.errors import MigratorError, SettingsError

ANSWER_S = 3.0
"""How long a store may take to answer before the process counts as not ready."""
KNOWN_FOR_S = 2.0

# ── Whether the process works, and whether what it needs answers ──


@dataclass
class Signs:
    """Signs of life of a process's workers. `stuck_s`: a worker that gives none for so long is stuck: longer than anything
    takes that it waits for."""

    stuck_s: float
    clock: Callable[[], float] = time.monotonic
    _last: dict[int, float] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def give(self) -> None:
        """By the worker itself, whenever a piece of work came to an end, whatever became of it."""
        with self._lock:
            self._last[get_ident()] = self.clock()

    def fault(self) -> str:
        """'' where all workers give signs; those whose threads have ended are done."""
        now, here = self.clock(), {thread.ident for thread in threads()}
        with self._lock:
            silent_s = [now - at for ident, at in self._last.items() if ident in here] or [now - self._began]
        stuck = [seconds for seconds in silent_s if seconds > self.stuck_s]
        return f"{len(stuck)} worker(s) without a sign of life for {max(stuck):.0f} s" if stuck else ""


class Readiness:
    """Whether each store answers now. `asks`: by the store's name what asks it, raising where it does not answer.

    Answers are kept for KNOWN_FOR_S; one that does not come in ANSWER_S is waited for by nobody, and is not asked again
    until it came.
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
        """By the store's name 'ok', or why not."""
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


@dataclass(frozen=True)
class Monitored:
    """`phases`: the document of all patterns' phases. `held`: why the process waits on purpose; '' where it does not."""

    metrics: Collector
    signs: Signs
    readiness: Readiness
    phases: Callable[[], Mapping[str, object]]
    held: Callable[[], str] = lambda: ""

    @property
    def documents(self) -> Mapping[str, Callable[[], tuple[int, Mapping[str, object]]]]:
        """By path what gives a status code and JSON."""
        return {"/healthz": self.healthz, "/readyz": self.readyz, "/phases": lambda: (200, self.phases())}

    def healthz(self) -> tuple[int, dict[str, object]]:
        """503: the process is stuck, and only a restart helps. A store that is away is no reason for one."""
        fault = self.signs.fault()
        return (503 if fault else 200), {"status": "stuck" if fault else "ok", "reason": fault}

    def readyz(self) -> tuple[int, dict[str, object]]:
        """503: a store that it needs does not answer just now."""
        stores = self.readiness.faults()
        is_ready = all(said == "ok" for said in stores.values()) and not self.signs.fault()
        body: dict[str, object] = {
            "status": "ready" if is_ready else "not ready",
            "stores": stores,
            "held": self.held(),
        }
        return (200 if is_ready else 503), body


def serve(monitored: Monitored, host: str, port: int) -> None:
    """Serves from threads of their own until the process ends. Raises: SettingsError where the port cannot be had."""
    registry = CollectorRegistry()
    registry.register(monitored.metrics)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the standard library calls it so
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

        def _send(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *words: object) -> None:
            """Nothing: a line a scrape would hide what matters."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = Server((host, port), Handler)
    except OSError as error:
        what = f"--metrics-port {port}: cannot be served ({error.strerror}); name another one"
        raise SettingsError(what) from None
    Thread(target=server.serve_forever, name="metrics", daemon=True).start()
