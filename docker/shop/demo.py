"""Moves the open shop from SQL to one table in six chapters: check, fill, verify, compare, move, roll back and repair.

`make demo` runs it; it writes demo-report.html. A seventh chapter (`make demo END=1`) completes every pattern, and the
shop answers without migrator.

    python docker/shop/demo.py [--scale 10] [--end]

Each line that begins with `$` can be typed as it stands; story.py runs the commands.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

from story import WAIT_S, Failed, Story, chapter, ended, free_port, say, script, stop, until

JOB = "jobs/demo.yaml"
HOME = Path(".migrator/demo")
REPORT = "demo-report.html"
PHASES = ("off", "shadow", "ramp", "live", "complete")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=int, default=1, help="multiplies 2,000 users and 4,000 orders")
    parser.add_argument("--end", action="store_true", help="also complete every pattern (chapter 7)")
    parser.add_argument("--port", type=int, help="port of the shop's web service (default: a free one)")
    asked = parser.parse_args()
    demo = Demo(JOB, HOME, f"http://127.0.0.1:{asked.port or free_port()}")
    return demo.tell(lambda: demo.play(asked.scale, to_the_end=asked.end))


class Demo(Story):
    def play(self, scale: int, *, to_the_end: bool) -> None:
        os.environ["MIGRATOR_SOURCE_URL"] = f"sqlite:///{HOME}/shop.db"
        self.check(scale)
        self.fill()
        self.verify()
        self.compare()
        reasons = self.repair(self.cut_over())
        if to_the_end:
            self.read_without_migrator()
        self.closing("copied, verified, cut over, rolled back, repaired", REPORT, reasons)

    # ── The chapters ──

    def check(self, scale: int) -> None:
        chapter(
            "1. Check the mapping, create the table",
            "Note: all tables fit the mapping, and doctor finds nothing missing.",
        )
        shop = ("--scale", str(scale), "--fewer", "2", os.environ["MIGRATOR_SOURCE_URL"])
        script("docker/shop/build.py", *shop)
        self.migrator(
            "mapping", "check", "mappings/ecommerce.yaml", "--source", os.environ["MIGRATOR_SOURCE_URL"]
        )
        self.migrator("table", "create", JOB)
        say(f"migrator doctor {JOB} | tail -n 1")
        print(self.answer("doctor", JOB).splitlines()[-1])

    def fill(self) -> None:
        chapter(
            "2. Copy every row while customers order",
            "Note: from here on every change leaves a mark, so the backfill may take any time.",
        )
        self.migrator("capture", "install", JOB)
        self.served("docker/shop")
        customers = self.customers(5, 40)
        self.migrator("backfill", JOB)
        self.migrator_beside("relay", "from here to the end")
        customers.wait(WAIT_S)
        print((HOME / "customers.txt").read_text(), end="")

    def verify(self) -> None:
        chapter(
            "3. Verify: rows against items, items against rows",
            "Note: no item is missing or left over, and both sides give the same answer.",
        )
        self.caught_up()
        self.migrator("verify", JOB)
        self.migrator("look", JOB, "--pattern", "recent_orders", "-p", "user_id=1", "-p", "limit=3")

    def compare(self) -> None:
        chapter(
            "4. Compare answers: SQL answers, the table is read too",
            "Note: a script corrupts three items; the comparison finds them, and verify repairs them.",
        )
        replay = ("shadow", "replay", JOB, "--pattern", "get_products_by_category", "--sample", "60")
        self.migrator("cutover", "advance", JOB, "recent_orders", "--wait")
        script("docker/shop/plant.py", "products", self.endpoint())
        self.migrator(*replay, "--seed", "1", says_no=True)
        self.migrator("verify", JOB, "--repair", "--settle", "1", says_no=True)
        self.caught_up()
        self.migrator(*replay, "--seed", "1")

    def cut_over(self) -> subprocess.Popen[bytes]:
        chapter(
            "5. Cut over: the table answers",
            "Note: a move waits until every line of its evidence is ok, while customers order.",
        )
        customers = self.customers(900, 100)  # a p99 wants some 300 answers after each move
        self.again_until_yes("cutover", "ramp", JOB, "recent_orders", "50", "--wait")
        self.again_until_yes("cutover", "ramp", JOB, "recent_orders", "100", "--wait")
        self.again_until_yes("cutover", "advance", JOB, "recent_orders", "--wait")
        self.migrator("cutover", "status", JOB)
        return customers

    def repair(self, customers: subprocess.Popen[bytes]) -> list[str]:
        """Reasons of the report's clean verdict."""
        chapter(
            "6. Break the table: automatic rollback, then repair",
            "Note: the watch moves the pattern back to SQL by itself; in the end both sides are equal.",
        )
        watch = self.migrator_beside("cutover watch")
        script("docker/shop/plant.py", "orders", self.endpoint())
        events = HOME / "events.jsonl"
        until("the watch moves back", lambda: events.exists() and events.stat().st_size > 0, watch)
        stop(customers, watch)
        print((HOME / "watch.txt").read_text(), end="")
        self.migrator("cutover", "status", "--history", JOB, "recent_orders")
        self.migrator("verify", JOB, "--repair", "--settle", "1", says_no=True)
        self.caught_up()
        self.migrator("verify", JOB)
        # What the shop compared before the repair counts against the pattern until a new comparison begins.
        self.migrator("cutover", "rollback", JOB, "recent_orders", "--to", "off")
        self.migrator("cutover", "advance", JOB, "recent_orders")
        self.migrator("shadow", "replay", JOB, "--sample", "5", "--seed", "1", "--settle", "1")
        self.migrator("decommission", "check", JOB, says_no=True)
        return self.reported(REPORT)

    def read_without_migrator(self) -> None:
        chapter(
            "7. Complete, then read without migrator",
            "Note: the same answers before complete, after it, and with boto3 alone.",
        )
        stop(*self.background)
        modules = str(HOME / "modules")
        self.migrator("export", "--as", "python", JOB, "--out", modules)
        paths = [modules, *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ |= {"PYTHONPATH": os.pathsep.join(paths), "MIGRATOR_JOB": JOB}
        first = answered_by("app_table")
        self.complete()
        same(first, answered_by("app_table"))
        say(f"migrator clean {JOB} --tombstones", "tombstones of deleted rows, once no late write can arrive")
        until("nothing depends on SQL", self.purged)
        self.migrator("decommission", "check", JOB)
        self.migrator("export", "--as", "boto3", JOB, "--out", modules)
        os.environ |= {
            "AWS_ENDPOINT_URL_DYNAMODB": self.endpoint(),
            "AWS_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
        }
        same(first, answered_by("app_table_after"))

    def complete(self) -> None:
        """Complete every pattern. A real shop waits for evidence, as in chapter 5."""
        patterns = self.asked_as_json("cutover", "status", JOB)["patterns"]
        words = ("--override", "the shop is closed", "--yes")
        say(f"migrator cutover advance {JOB} PATTERN {shlex.join(words)}", "each, until it is complete")
        for pattern in patterns:
            for phase in PHASES[PHASES.index(pattern["phase"]) + 1 :]:
                code, said = self.asked_quietly("cutover", "advance", JOB, pattern["pattern"], *words)
                if code:
                    raise Failed(f"{pattern['pattern']} is not moved to {phase}: {said}")
        print(f"{len(patterns)} patterns are complete")

    def purged(self) -> bool:
        self.answer("clean", JOB, "--tombstones")
        return self.asked_quietly("decommission", "check", JOB)[0] == 0


def answered_by(module: str) -> str:
    say(f"SHOP_MODULE={module} python docker/shop/after.py")
    command = [sys.executable, "docker/shop/after.py"]
    ran = subprocess.run(
        command, env={**os.environ, "SHOP_MODULE": module}, stdout=subprocess.PIPE, text=True
    )
    print(ran.stdout, end="", flush=True)
    ended(ran.returncode, "docker/shop/after.py", says_no=False)
    return ran.stdout


def same(first: str, now: str) -> None:
    """Check that the answers are the same as the first time."""
    if not now.startswith(first):
        raise Failed("the service's answers differ from the first ones")
    print("(every answer is the same as before)", flush=True)


if __name__ == "__main__":
    sys.exit(main())
