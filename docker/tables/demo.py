"""Moves the open shop from three old DynamoDB tables to one table in six chapters; it writes demo-tables-report.html.

    python docker/tables/demo.py

Each line that begins with `$` can be typed as it stands; docker/shop/story.py runs the commands.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shop"))
from story import WAIT_S, Failed, Story, chapter, free_port, say, script, stop

from migrator.dynamodb import embedded

JOB = "jobs/demo-tables.yaml"
HOME = Path(".migrator/demo-tables")
REPORT = "demo-tables-report.html"
PATTERNS = ("account", "recent_orders", "get_user", "order_lines")
CUSTOMER = 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, help="port of the shop's web service (default: a free one)")
    asked = parser.parse_args()
    demo = Demo(JOB, HOME, f"http://127.0.0.1:{asked.port or free_port()}")
    return demo.tell(demo.play)


class Demo(Story):
    def play(self) -> None:
        self.check()
        self.fill()
        self.follow()
        self.compare()
        reasons = self.verify(self.cut_over())
        self.closing(
            "copied, followed, compared, cut over, rolled back, cut over again, verified", REPORT, reasons
        )

    # ── The chapters ──

    def check(self) -> None:
        chapter(
            "1. Check the mapping of three old tables, create the new one",
            "Note: plan shows what each query will read, before the table exists.",
        )
        embedded.ensure_running(embedded.folder("embedded"))
        script("docker/tables/fill.py", "--fewer", "4", self.endpoint())
        self.migrator("mapping", "check", JOB)
        say(f"migrator plan {JOB} | head -n 8")
        print(*(line.rstrip() for line in self.answer("plan", JOB).splitlines()[:8]), sep="\n", flush=True)
        self.migrator("table", "create", JOB)

    def fill(self) -> None:
        chapter(
            "2. Copy every item while customers order",
            "Note: from here on the streams record every change, so the backfill may take any time.",
        )
        self.migrator("capture", "install", JOB)
        os.environ |= {
            "AWS_ENDPOINT_URL_DYNAMODB": self.endpoint(),
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
        }
        self.served("docker/tables")
        customers = self.customers(5, 40, "--tables")
        self.migrator("backfill", JOB)
        self.migrator_beside("relay", "from here to the end")
        customers.wait(WAIT_S)
        print((HOME / "customers.txt").read_text(), end="")

    def follow(self) -> None:
        chapter(
            "3. Follow changes: a customer gets a new name, and so do her orders",
            "Note: the shop wrote only the customer; the relay found her orders by an index.",
        )
        self.asked("PATCH", f"/users/{CUSTOMER}", {"name": "Ada Lovelace"})
        self.migrator("relay", JOB, "--once")
        self.migrator("verify", JOB)
        self.migrator("look", JOB, "--pattern", "recent_orders", "-p", f"user_id={CUSTOMER}", "-p", "limit=3")

    def compare(self) -> None:
        chapter(
            "4. Compare answers of the old tables and the new one",
            "Note: parameters come from the old items; both sides give the same answers.",
        )
        self.migrator("shadow", "replay", JOB, "--sample", "25", "--seed", "1", "--settle", "1")

    def cut_over(self) -> subprocess.Popen[bytes]:
        chapter(
            "5. Cut over pattern by pattern; one is rolled back and moved again",
            "Note: a move waits until every line of its evidence is ok, while customers order.",
        )
        customers = self.customers(900, 140, "--tables")
        for pattern in PATTERNS:
            self.migrator("cutover", "advance", JOB, pattern, "--wait")
        for pattern in PATTERNS:
            self.again_until_yes("cutover", "ramp", JOB, pattern, "100", "--wait")
        self.migrator("cutover", "rollback", JOB, PATTERNS[0], "--wait")
        self.again_until_yes("cutover", "ramp", JOB, PATTERNS[0], "100", "--wait")
        for pattern in reversed(PATTERNS):
            self.again_until_yes("cutover", "advance", JOB, pattern, "--wait")
        self.migrator("cutover", "status", JOB)
        return customers

    def verify(self, customers: subprocess.Popen[bytes]) -> list[str]:
        """Reasons of the report's clean verdict."""
        chapter(
            "6. Strict dual write: an order is in the new table when its call returns",
            "Note: the shop writes the order to the old tables and reads it from the new one at once.",
        )
        order = self.asked("POST", "/orders", {"user_id": CUSTOMER, "lines": {"5": 2, "7": 1}})["order_id"]
        if len(self.asked("GET", f"/orders/{order}/lines")) != 2:
            raise Failed("the new order is incomplete in the new table")
        stop(customers)
        self.migrator("relay", JOB, "--once")
        self.migrator("verify", JOB)
        self.migrator("shadow", "replay", JOB, "--sample", "10", "--seed", "2", "--settle", "1")
        self.migrator("cutover", "status", "--history", JOB, PATTERNS[0])
        return self.reported(REPORT)

    def asked(self, method: str, path: str, body: Any = None) -> Any:
        sent = None if body is None else json.dumps(body)
        say(f"curl -X {method} {self.service}{path}" + (f" --json '{sent}'" if sent else ""))
        request = urllib.request.Request(
            self.service + path,
            method=method,
            data=sent.encode() if sent else None,
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                text = answer.read().decode()
        except OSError as error:
            raise Failed(f"{method} {path}: {error}") from None
        print(text, flush=True)
        return json.loads(text) if text else None


if __name__ == "__main__":
    sys.exit(main())
