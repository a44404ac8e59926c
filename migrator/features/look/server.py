from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Lock, Thread
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from msgspec import Struct

from migrator.cli.options import print_result, stop_on_signals
from migrator.commands.status_work import status_of
from migrator.features.look.work import Pages, Sides, open_sides
from migrator.mapping.model.report import ExampleItem
from migrator.mapping.model.table import Value
from migrator.runtime.errors import CLEAN, STOPPED, MigratorError, SettingsError
from migrator.stages.session.job import read_job
from migrator.stages.session.session import JobSession

# ── A web server on the loopback address alone, behind a token ──


ADDRESS = "127.0.0.1"
_TOKEN_BYTES = 24
_QUIET_S = 20.0
"""A connection on which nothing comes for so long is closed."""
_FIELDS = 20


HttpPage: TypeAlias = tuple[int, str]
"""A status code, and HTML."""


@contextmanager
def serving(
    pages: Mapping[str, Callable[[Mapping[str, str]], HttpPage]],
    port: int,
    *,
    refusal: Callable[[str], str],
    policy: str,
) -> Iterator[str]:
    """Serve during the block, at a URL with a new token.

    `pages`: answers by the name behind the token ('' is the first page), from the query's fields.
    `port` 0: a free one.
    `refusal`: the page for a refused request, from the reason.
    `policy`: content security policy of all pages.
    Raises: SettingsError if the port is not available.
    """
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    try:
        server = _Server((ADDRESS, port), _Handler)
    except OSError as error:
        what = f"port {port} of {ADDRESS} cannot be had ({error.strerror})"
        raise SettingsError(f"{what}; take another one, or --port 0 for a free one") from None
    server.pages, server.token, server.refusal, server.policy = pages, token, refusal, policy
    server.hosts = frozenset(f"{name}:{server.server_port}" for name in (ADDRESS, "localhost"))
    # A name of its own: the thread is not a daemon's, and ends with the block.
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="loopback")
    thread.start()
    try:
        yield f"http://{ADDRESS}:{server.server_port}/{token}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    pages: Mapping[str, Callable[[Mapping[str, str]], HttpPage]]
    refusal: Callable[[str], str]
    policy: str
    token: str
    hosts: frozenset[str]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A closed connection is not a fault: print no traceback."""


class _Handler(BaseHTTPRequestHandler):
    timeout = _QUIET_S
    server: _Server
    server_version = "migrator"
    sys_version = ""

    def do_GET(self) -> None:
        if not self._is_for_us():
            return
        path, _, query = self.path.partition("?")
        begin, _, rest = path.removeprefix("/").partition("/")
        is_known = hmac.compare_digest(begin.encode("utf-8", "replace"), self.server.token.encode())
        page = self.server.pages.get(rest) if is_known and path.startswith("/") else None
        # A wrong token and a missing page get the same response, so that neither reveals anything.
        if page is None:
            self._refuse(404, "Page not found. Use the address that the command printed.")
            return
        try:
            fields = dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_FIELDS))
        except ValueError:
            self._refuse(400, "The address is not UTF-8 text, or has too many fields.")
            return
        self._send(page(fields))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("do_"):
            raise AttributeError(name)
        return self._refuse_method

    def _refuse_method(self) -> None:
        if self._is_for_us():
            self._refuse(405, "These pages are only read: GET.")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        self._refuse(code, "This request is not supported.")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: an address holds the token and row keys."""

    def _is_for_us(self) -> bool:
        """Whether the browser means this server, and not another name that resolves to this address."""
        named = self.headers.get_all("Host", [])
        if len(named) == 1 and named[0].lower() in self.server.hosts:
            return True
        self._refuse(
            421, "This server answers by the address that the command printed, and by no other name."
        )
        return False

    def _refuse(self, code: int, why: str) -> None:
        self.close_connection = True
        self._send((code, self.server.refusal(why)))

    def _send(self, answer: HttpPage) -> None:
        code, page = answer
        body = page.encode("utf-8", "backslashreplace")
        self.send_response(code)
        for name, value in self._headers(len(body)).items():
            self.send_header(name, value)
        if code == 405:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _headers(self, size_bytes: int) -> dict[str, str]:
        return {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(size_bytes),
            "Content-Security-Policy": self.server.policy,
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
        }


_ITEMS = 100
_AWAY, _WRONG = 503, 400


def ui(job: Path, port: int, for_s: float | None, whole_keys: bool, whole_values: bool, as_json: bool) -> int:
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        sides = stack.enter_context(
            open_sides(read_job(job), "ui", stop, whole_keys=whole_keys, whole_values=whole_values)
        )
        table = sides.session.target.design
        pages = Pages(
            sides.session.job.name,
            table.name,
            [index.name for index in table.indexes],
            version("single-table-migrator"),
        )
        answers = _Answers(sides, pages, Lock())
        named: dict[str, Callable[[Mapping[str, str]], HttpPage]] = {
            "": answers.look,
            "look": answers.look,
            "status": answers.status,
        }
        url = stack.enter_context(serving(named, port, refusal=pages.refusal, policy=pages.policy))
        print_result(
            {"url": url},
            f"{url}\nOpen it in a browser of this machine; who has the address can read. Ctrl-C ends it.",
            as_json=as_json,
        )
        stop.wait(for_s)
    return CLEAN


class _Answers(Struct, frozen=True):
    """`one`: held while a page is made, so that frequent requests load the sides with one page at a time.

    `examples`: of the first page, as last made.
    """

    sides: Sides
    pages: Pages
    one: Lock
    examples: list[ExampleItem] = []

    def look(self, fields: Mapping[str, str]) -> HttpPage:
        asked = {name: fields.get(name, "") for name in ("pk", "sk", "index")}
        try:
            with self.one:
                if "example" in fields:
                    report = self.sides.report(*self._example(fields["example"]), None, _ITEMS)
                elif asked["pk"]:
                    report = self.sides.report(
                        self._partition(asked), asked["sk"], asked["index"] or None, _ITEMS
                    )
                else:
                    self.examples[:] = self.sides.examples()
                    return 200, self.pages.look(asked, None, examples=self.examples)
        except MigratorError as error:
            code = _AWAY if error.exit_code == STOPPED else _WRONG
            return code, self.pages.look(asked, None, str(error))
        return 200, self.pages.look(asked, report)

    def _example(self, number: str) -> tuple[tuple[str, ...], str]:
        """Partition key and sort key of an item of the first page, which need not show them."""
        if number not in map(str, range(len(self.examples))):
            raise SettingsError("no item of the first page has this number; open the first page again")
        partition, *sort = map(_written, self.examples[int(number)].base_key)
        return (partition,), "".join(sort)

    def _partition(self, asked: Mapping[str, str]) -> tuple[str, ...]:
        """Values of the partition key, comma-separated if it has several attributes."""
        index = self.sides.session.target.design.asked(asked["index"] or None)
        several = index is not None and len(index.partition) > 1
        return tuple(asked["pk"].split(",")) if several else (asked["pk"],)

    def status(self, fields: Mapping[str, str]) -> HttpPage:
        try:
            with self.one, JobSession(self.sides.session.job) as session:
                found = status_of(session)
                page = self.pages.status(
                    found.data(), [*found.look.lines(), *found.warnings(), *found.look.lag.writer_lines()]
                )
        except MigratorError as error:
            return _AWAY, self.pages.status(None, (), f"The journal cannot be asked: {error}")
        return 200, page


def _written(value: Value) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
