"""Runs a demo: commands that can be typed as shown, background processes, and waiting.

Commands of migrator run in this process, which saves each a second's start. Customers, a service, a relay and
a watch are separate processes.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from migrator.main import run

REPOSITORY = Path(__file__).resolve().parents[2]
_COLUMNS = 80
WAIT_S = 120
"""Longest wait for anything, in seconds."""


class Failed(Exception):
    """A command did not end as the demo expects."""


class Story:
    """`home`: a folder of its own, re-created. `service`: URL of the web service."""

    def __init__(self, job: str, home: Path, service: str) -> None:
        self.job, self.home, self.service = job, home, service
        self.log = home / "demo.log"
        self.background: list[subprocess.Popen[bytes]] = []
        self.started = time.monotonic()

    def tell(self, chapters: Callable[[], None]) -> int:
        """Run the chapters and return the exit code. Stops all processes at the end; the table is kept."""
        os.chdir(REPOSITORY)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            self.begin()
            chapters()
        except Failed as failed:
            print(
                f"the demo stops: {failed}; log of its commands: {REPOSITORY / self.log}",
                file=sys.stderr,
            )
            return 1
        except KeyboardInterrupt:
            return 130
        finally:
            self.end()
        return 0

    def begin(self) -> None:
        os.environ |= {"MIGRATOR_HOME": str(self.home), "COLUMNS": str(_COLUMNS)}
        os.environ.pop("MIGRATOR_ENDPOINT_URL", None)
        # Stopped before its folder goes: a server that runs on would write into a folder that is no longer there.
        if self.home.exists():
            self.answer("local", "stop")
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)

    def end(self) -> None:
        stop(*self.background)
        self.background.clear()
        self.answer("local", "stop")

    # ── Commands ──

    def migrator(self, *words: str, says_no: bool = False) -> None:
        """`says_no`: the command is expected to exit with 1."""
        say(f"migrator {shlex.join(words)}")
        ended(run(["--log-file", str(self.log), *words]), f"migrator {words[0]}", says_no=says_no)

    def answer(self, *words: str) -> str:
        """Output of a command, whatever its exit code."""
        return self.asked_quietly(*words)[1]

    def asked_quietly(self, *words: str) -> tuple[int, str]:
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            code = run(["--log-file", str(self.log), *words])
        return code, out.getvalue()

    def asked_as_json(self, *words: str) -> Any:
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(io.StringIO()):
            code = run(["--log-file", str(self.log), *words, "--json"])
        ended(code, f"migrator {words[0]}", says_no=False)
        return json.loads(out.getvalue())

    def again_until_yes(self, *words: str) -> None:
        """Repeat a move until enough calls were compared; show the last answer."""
        say(f"migrator {shlex.join(words)}", "repeated until its evidence suffices")
        last = (1, "")

        def is_moved() -> bool:
            nonlocal last
            last = self.asked_quietly(*words)
            return last[0] == 0

        try:
            until("the pattern is moved", is_moved)
        finally:
            print(last[1], end="", flush=True)

    def caught_up(self) -> None:
        def is_worked() -> bool:
            return self.answer("relay", self.job, "--dry-run").startswith("no change")

        until("every mark is worked", is_worked)

    def endpoint(self) -> str:
        return next(word for word in self.answer("local").split() if word.startswith("http://"))

    def reported(self, page: str) -> list[str]:
        """Write the report as a page and return the reasons of its verdict. Raises: Failed if it is not clean."""
        file = self.home / "report.json"
        say(f"migrator report {self.job} --out {page} --json >{file}")
        *told, report = self.answer("report", self.job, "--out", page, "--json").splitlines()
        print(*told, sep="\n", flush=True)
        file.write_text(report)
        return judged(json.loads(report))

    def closing(self, done: str, page: str, reasons: list[str]) -> None:
        """Print the last lines. `done`: what the demo did."""
        self.end()
        took_s = time.monotonic() - self.started
        chapter("The end: clean", f"The shop was never closed. In {took_s:.0f} s: {done}.")
        printed = (self.home / "relay.txt").read_text().splitlines()
        summary = max(at for at, line in enumerate(printed) if " applied: " in line)
        worked = " ".join(printed[summary:])
        for line in [*(f"- {reason}" for reason in reasons), worked]:
            print(textwrap.fill(line, _COLUMNS))
        print(f"the report: {REPOSITORY / page}")
        print(f"log of its commands: {REPOSITORY / self.log}")

    # ── Processes in the background ──

    def served(self, folder: str, **environment: str) -> None:
        say(f"uvicorn --app-dir {folder} app:app", "the shop's web service, in the background")
        port = self.service.rpartition(":")[2]
        # The module, not the script: `make` puts no environment on the PATH.
        words = [
            sys.executable,
            "-m",
            "uvicorn",
            "--app-dir",
            folder,
            "--port",
            port,
            "--log-level",
            "warning",
        ]
        process = self.beside([*words, "app:app"], "shop.log", SHOP_JOB=self.job, **environment)
        until("the shop answers", lambda: answers(f"{self.service}/healthz"), process)

    def customers(self, seconds: int, rate: int, *options: str) -> subprocess.Popen[bytes]:
        words = ["docker/shop/load.py", "--seconds", str(seconds), "--rate", str(rate)]
        say(f"python {shlex.join(words)} {self.service}", "customers, in the background")
        return self.beside(
            [sys.executable, *words, "--looking", "85", *options, self.service], "customers.txt"
        )

    def migrator_beside(self, words: str, how_long: str = "") -> subprocess.Popen[bytes]:
        say(f"migrator {words} {self.job}", f"in the background{', ' * bool(how_long)}{how_long}")
        command = [sys.executable, "-m", "migrator", "--log-file", str(self.log), *words.split(), self.job]
        return self.beside(command, f"{words.split()[-1]}.txt")

    def beside(self, command: list[str], out: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.home / out).open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )
        self.background.append(process)
        return process


# ── What is printed, and what is waited for ──


def chapter(title: str, note: str) -> None:
    print(f"\n── {title} ──\n{textwrap.fill(note, _COLUMNS)}", flush=True)


def say(command: str, comment: str = "") -> None:
    """Print a command in lines that fit a terminal and can be typed as shown."""
    quoted = re.sub("'[^']*'", lambda word: word[0].replace(" ", "\0"), command)
    lines = textwrap.wrap(
        f"$ {quoted}", _COLUMNS - 2, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    print("\n" + " \\\n".join(lines).replace("\0", " "), end="")
    if comment:
        fits = len(lines[-1]) + len(comment) + 5 <= _COLUMNS
        print(f"   # {comment}" if fits else f"\n# {comment}", end="")
    print(flush=True)


def script(path: str, *words: str) -> None:
    say(shlex.join(("python", path, *words)))
    ended(subprocess.run([sys.executable, path, *words]).returncode, path, says_no=False)


def ended(code: int, what: str, *, says_no: bool) -> None:
    if says_no:
        print(f"(exit code {code})", flush=True)
    if code != says_no:
        raise Failed(f"{what} ended with {code}")


def judged(report: Mapping[str, Any]) -> list[str]:
    """Reasons of the verdict of `report --json`. Raises: Failed if it is not clean."""
    verdict = report["verdict"]
    verifies = [run for run in report["runs"] if run["kind"] == "verify"]
    if verdict["standing"] != "clean" or not verifies or verifies[-1]["findings"]:
        raise Failed(f"the report is not clean: {verdict['title']}: {'; '.join(verdict['reasons'])}")
    return list(verdict["reasons"])


def until(what: str, is_so: Callable[[], bool], needed: subprocess.Popen[bytes] | None = None) -> None:
    """Wait. `needed`: the process that makes it so. Raises: Failed if it ends first, or after WAIT_S."""
    end = time.monotonic() + WAIT_S
    while not is_so():
        if needed is not None and needed.poll() is not None:
            raise Failed(f"{what}: its process has ended with {needed.returncode}")
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {WAIT_S} s")
        time.sleep(0.25)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stop(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        process.wait(WAIT_S)
