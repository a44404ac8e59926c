"""The shop, from SQL to one table while it is open, in six chapters: fitted, filled, proved, compared, moved, taken back
and mended. `make demo` runs it; it writes demo-report.html. A seventh, `make demo END=1`, completes every pattern and has
the shop answer without migrator.

    python docker/shop/demo.py [--scale 10] [--end]

Each line that begins with `$` can be typed as it stands. Commands of migrator run in this process, which spares each the
second that a start takes; what goes on in the background (customers, the shop, a relay, a watch) is a process of its own.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from migrator.cli.main import run

REPOSITORY = Path(__file__).resolve().parents[2]
JOB = "jobs/demo.yaml"
HOME = Path(".migrator/demo")
LOG = HOME / "demo.log"
REPORT = "demo-report.html"
PHASES = ("off", "shadow", "ramp", "live", "complete")
WAIT_S = 120
"""How long anything is waited for: how soon it comes depends on the machine."""


class Failed(Exception):
    """A command that did not end as the story wants."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=int, default=1, help="how many times 2,000 users and 4,000 orders")
    parser.add_argument("--end", action="store_true", help="complete every pattern, too: the seventh chapter")
    parser.add_argument("--port", type=int, help="of the shop's web service (default: a free one)")
    asked = parser.parse_args()
    os.chdir(REPOSITORY)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    demo = Demo(f"http://127.0.0.1:{asked.port or free_port()}")
    try:
        demo.play(asked.scale, to_the_end=asked.end)
    except Failed as failed:
        print(f"the demo stops: {failed}; what the commands logged: {REPOSITORY / LOG}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        demo.end()
    return 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Demo:
    """`shop`: where the shop's web service answers."""

    def __init__(self, shop: str) -> None:
        self.shop = shop
        self.background: list[subprocess.Popen[bytes]] = []
        self.started = time.monotonic()

    def play(self, scale: int, *, to_the_end: bool) -> None:
        self.begin()
        self.fitted(scale)
        self.filled()
        self.proved()
        self.compared()
        reasons = self.mended(self.moved())
        if to_the_end:
            self.asked_without_migrator()
        self.end()
        took = f"In {time.monotonic() - self.started:.0f} s: filled, proved, moved, taken back, mended."
        chapter("The end: clean", f"The shop was never closed. {took}")
        print(*(f"- {reason}" for reason in reasons), sep="\n")
        print((HOME / "relay.txt").read_text().splitlines()[-1])
        print(f"the report: {REPOSITORY / REPORT}")
        print(f"what the commands logged: {REPOSITORY / LOG}")

    def begin(self) -> None:
        os.environ["MIGRATOR_HOME"] = str(HOME)
        os.environ["MIGRATOR_SOURCE_URL"] = f"sqlite:///{HOME}/shop.db"
        os.environ.pop("MIGRATOR_ENDPOINT_URL", None)
        # Stopped before its folder goes: a server that runs on would write into a folder that is no longer there.
        if HOME.exists():
            answer("local", "stop")
        shutil.rmtree(HOME, ignore_errors=True)
        HOME.mkdir(parents=True)

    # ── The chapters ──

    def fitted(self, scale: int) -> None:
        chapter(
            "1. The shop, and where it is to go",
            "Look at: all of its tables fit the mapping, and nothing that a run needs is missing.",
        )
        shop = ("--scale", str(scale), "--fewer", "2", os.environ["MIGRATOR_SOURCE_URL"])
        script("docker/shop/build.py", *shop)
        migrator("mapping", "check", "mappings/ecommerce.yaml", "--source", os.environ["MIGRATOR_SOURCE_URL"])
        migrator("table", "create", JOB)
        say(f"migrator doctor {JOB} | tail -n 1")
        print(answer("doctor", JOB).splitlines()[-1])

    def filled(self) -> None:
        chapter(
            "2. Filled while customers go on ordering",
            "Look at: every change leaves a mark from here on, so that the backfill may take its time.",
        )
        migrator("capture", "install", JOB)
        say("uvicorn --app-dir docker/shop app:app   # the shop's web service, in the background")
        port = self.shop.rpartition(":")[2]
        # The module, not the script: `make` puts no environment on the PATH.
        service = [sys.executable, "-m", "uvicorn", "--app-dir", "docker/shop", "--port", port]
        shop = self.beside([*service, "--log-level", "warning", "app:app"], "shop.log", SHOP_JOB=JOB)
        until("the shop answers", lambda: answers(f"{self.shop}/healthz"), shop)
        customers = self.customers(5, 40)
        migrator("backfill", JOB)
        self.migrator_beside("relay", "from here to the end")
        customers.wait(WAIT_S)
        print((HOME / "customers.txt").read_text(), end="")

    def proved(self) -> None:
        chapter(
            "3. Proved: rows against items, items against rows",
            "Look at: no row without its items, no item without its row, and one answer from both sides.",
        )
        caught_up()
        migrator("verify", JOB)
        migrator("query", JOB, "recent_orders", "-p", "user_id=1", "-p", "limit=3")

    def compared(self) -> None:
        chapter(
            "4. Compared: SQL answers, the table is asked beside it",
            "Look at: three items are spoilt without migrator; the comparison finds them, and their rows mend them.",
        )
        replay = ("shadow", "replay", JOB, "--pattern", "get_products_by_category", "--questions", "60")
        migrator("cutover", "advance", JOB, "recent_orders", "--wait")
        script("docker/shop/plant.py", "products", endpoint())
        migrator(*replay, "--seed", "1", says_no=True)
        migrator("verify", JOB, "--repair", "--settle", "1", says_no=True)
        caught_up()
        migrator(*replay, "--seed", "1")

    def moved(self) -> subprocess.Popen[bytes]:
        """The customers, who go on."""
        chapter(
            "5. Moved: the table answers, on evidence",
            "Look at: a move is made when every line of its evidence is ok; until then customers go on, and it waits.",
        )
        customers = self.customers(900, 100)  # a p99 wants some 300 answers after each move
        again_until_yes("cutover", "ramp", JOB, "recent_orders", "50", "--wait")
        again_until_yes("cutover", "ramp", JOB, "recent_orders", "100", "--wait")
        again_until_yes("cutover", "advance", JOB, "recent_orders", "--wait")
        migrator("cutover", "status", JOB)
        return customers

    def mended(self, customers: subprocess.Popen[bytes]) -> list[str]:
        """What the report is judged by, which is clean."""
        chapter(
            "6. Broken, taken back by itself, and mended",
            "Look at: no person is needed for the pattern to go back to SQL, and in the end rows and items say the same.",
        )
        watch = self.migrator_beside("cutover watch")
        script("docker/shop/plant.py", "orders", endpoint())
        events = HOME / "events.jsonl"
        until("the watch moves back", lambda: events.exists() and events.stat().st_size > 0, watch)
        stop(customers, watch)
        print((HOME / "watch.txt").read_text(), end="")
        migrator("cutover", "history", JOB, "recent_orders")
        migrator("verify", JOB, "--repair", "--settle", "1", says_no=True)
        caught_up()
        migrator("verify", JOB)
        # What the shop compared before the repair stands against the pattern until it is counted anew.
        migrator("cutover", "rollback", JOB, "recent_orders", "--to", "off")
        migrator("cutover", "advance", JOB, "recent_orders")
        migrator("shadow", "replay", JOB, "--questions", "5", "--seed", "1", "--settle", "1")
        depends_on_sql("not yet")
        say(f"migrator report {JOB} --html {REPORT} --json >{HOME / 'report.json'}")
        *told, report = answer("report", JOB, "--html", REPORT, "--json").splitlines()
        print(*told, sep="\n", flush=True)
        (HOME / "report.json").write_text(report)
        return judged(json.loads(report))

    def asked_without_migrator(self) -> None:
        chapter(
            "7. Complete, and one import",
            "Look at: the same answers before complete, after it, and on boto3 alone, where an order's items are in step.",
        )
        stop(*self.background)
        modules = str(HOME / "modules")
        migrator("export", "python", JOB, "--out", modules)
        paths = [modules, *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "MIGRATOR_JOB": JOB}
        first = served("app_table")
        self.completed()
        same(first, served("app_table"))
        say(f"migrator purge {JOB}   # what deleted rows left, once no request can be late")
        until("nothing depends on SQL", purged)
        depends_on_sql("nothing depends")
        migrator("export", "python", JOB, "--after", "--out", modules)
        os.environ |= {
            "AWS_ENDPOINT_URL_DYNAMODB": endpoint(),
            "AWS_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
        }
        same(first, served("app_table_after"))

    def completed(self) -> None:
        """Every pattern in the hands of the table; a shop of yours waits for evidence, as in chapter 5."""
        patterns = asked_as_json("cutover", "status", JOB)["patterns"]
        words = ("--override", "the shop is closed", "--yes")
        say(f"migrator cutover advance {JOB} PATTERN {shlex.join(words)}   # each, until it is complete")
        for pattern in patterns:
            for phase in PHASES[PHASES.index(pattern["phase"]) + 1 :]:
                code, said = asked_quietly("cutover", "advance", JOB, pattern["pattern"], *words)
                if code:
                    raise Failed(f"{pattern['pattern']} is not moved to {phase}: {said}")
        print(f"{len(patterns)} patterns are complete")

    # ── Processes in the background ──

    def customers(self, seconds: int, rate: int) -> subprocess.Popen[bytes]:
        words = ["docker/shop/load.py", "--seconds", str(seconds), "--rate", str(rate)]
        say(f"python {shlex.join(words)} {self.shop}   # customers, in the background")
        return self.beside([sys.executable, *words, "--looking", "85", self.shop], "customers.txt")

    def migrator_beside(self, words: str, how_long: str = "") -> subprocess.Popen[bytes]:
        say(f"migrator {words} {JOB}   # in the background{', ' * bool(how_long)}{how_long}")
        command = [sys.executable, "-m", "migrator", "--log-file", str(LOG), *words.split(), JOB]
        return self.beside(command, f"{words.split()[-1]}.txt")

    def beside(self, command: list[str], out: str, **environment: str) -> subprocess.Popen[bytes]:
        with (HOME / out).open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )
        self.background.append(process)
        return process

    def end(self) -> None:
        """Nothing of ours runs any more; what the table holds is kept."""
        stop(*self.background)
        self.background.clear()
        answer("local", "stop")


def judged(report: Mapping[str, Any]) -> list[str]:
    """What the verdict of `report --json` is judged by. Raises: Failed where it is not clean."""
    verdict = report["verdict"]
    verifies = [run for run in report["runs"] if run["kind"] == "verify"]
    if verdict["standing"] != "clean" or not verifies or verifies[-1]["findings"]:
        raise Failed(f"the report is not clean: {verdict['title']}: {'; '.join(verdict['reasons'])}")
    return list(verdict["reasons"])


def caught_up() -> None:
    until("every mark is worked", lambda: answer("relay", JOB, "--dry-run").startswith("no mark"))


def purged() -> bool:
    answer("purge", JOB)
    return asked_quietly("decommission", "check", JOB)[0] == 0


def depends_on_sql(verdict: str) -> None:
    """What still depends on SQL, up to the line of the verdict, which begins so."""
    say(f"migrator decommission check {JOB} | sed '/^{verdict}/q'   # what still depends on SQL")
    lines = answer("decommission", "check", JOB).splitlines()
    ends = [at for at, line in enumerate(lines) if line.startswith(verdict)]
    print(*lines[: 1 + ends[0]] if ends else lines, sep="\n")
    if not ends:
        raise Failed(f"decommission check does not say: {verdict}")


def served(module: str) -> str:
    """What the shop's service answers on a generated module."""
    say(f"SHOP_MODULE={module} python docker/shop/after.py")
    command = [sys.executable, "docker/shop/after.py"]
    ran = subprocess.run(
        command, env={**os.environ, "SHOP_MODULE": module}, stdout=subprocess.PIPE, text=True
    )
    print(ran.stdout, end="", flush=True)
    ended(ran.returncode, "docker/shop/after.py", says_no=False)
    return ran.stdout


def same(first: str, now: str) -> None:
    """The answers are those of the first time; what comes after them is new."""
    if not now.startswith(first):
        raise Failed("the service does not answer as it did before")
    print("(every answer is as before)", flush=True)


# ── Commands, and what is waited for ──


def chapter(title: str, look_at: str) -> None:
    print(f"\n── {title} ──\n{look_at}", flush=True)


def say(command: str) -> None:
    print(f"\n$ {command}", flush=True)


def migrator(*words: str, says_no: bool = False) -> None:
    """`says_no`: of a command that is expected to end with 1."""
    say(f"migrator {shlex.join(words)}")
    ended(run(["--log-file", str(LOG), *words]), f"migrator {words[0]}", says_no=says_no)


def script(path: str, *words: str) -> None:
    say(shlex.join(("python", path, *words)))
    ended(subprocess.run([sys.executable, path, *words]).returncode, path, says_no=False)


def ended(code: int, what: str, *, says_no: bool) -> None:
    if says_no:
        print(f"(exit code {code})", flush=True)
    if code != says_no:
        raise Failed(f"{what} ended with {code}")


def answer(*words: str) -> str:
    """What a command prints, whatever its exit code is."""
    return asked_quietly(*words)[1]


def asked_quietly(*words: str) -> tuple[int, str]:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = run(["--log-file", str(LOG), *words])
    return code, out.getvalue()


def asked_as_json(*words: str) -> Any:
    """What a command prints with --json; warnings beside it are in its log."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        ended(run(["--log-file", str(LOG), *words, "--json"]), f"migrator {words[0]}", says_no=False)
    return json.loads(out.getvalue())


def again_until_yes(*words: str) -> None:
    """A move that is refused until enough was compared; the last answer is shown."""
    say(f"migrator {shlex.join(words)}   # again and again, until its evidence is there")
    last = (1, "")

    def is_moved() -> bool:
        nonlocal last
        last = asked_quietly(*words)
        return last[0] == 0

    try:
        until("the pattern is moved", is_moved)
    finally:
        print(last[1], end="", flush=True)


def until(what: str, is_so: Callable[[], bool], needed: subprocess.Popen[bytes] | None = None) -> None:
    """`needed`: a process without which it never comes."""
    end = time.monotonic() + WAIT_S
    while not is_so():
        if needed is not None and needed.poll() is not None:
            raise Failed(f"{what}: never, its process has ended with {needed.returncode}")
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {WAIT_S} s")
        time.sleep(0.25)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except OSError:
        return False
    return True


def endpoint() -> str:
    """Where the embedded DynamoDB answers."""
    return next(word for word in answer("local", "status").split() if word.startswith("http://"))


def stop(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        process.wait(WAIT_S)


if __name__ == "__main__":
    sys.exit(main())
