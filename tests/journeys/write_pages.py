"""Writes docs/runbook.md, docs/tutorial.md and docs/incidents.md anew: runs a page's commands, and puts what they say below.

    python -m tests.journeys.write_pages [runbook|tutorial|incidents]

Change a command or the text between in the page itself, then run this. Behind `incidents` a symptom may stand.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests import support_services as services
from tests.journeys import incidents
from tests.journeys.console import with_blocks
from tests.journeys.runbook import PAGES, played


def write_incidents(symptom: str = "") -> None:
    """Of those that begin so, each on stores of its own."""
    blocks = incidents.sections(incidents.PAGE.read_text(encoding="utf-8"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "dynamodb").mkdir()
        dynamodb_url = stack.enter_context(services.embedded_dynamodb(folder / "dynamodb"))
        server = stack.enter_context(services.postgres_server())
        for number, name in enumerate(one for one in blocks if one.startswith(symptom)):
            (work := folder / str(number)).mkdir()
            with services.postgres_database(server) as url:
                postgres = (url, server) if name in incidents.ON_POSTGRESQL else None
                with incidents.night_on(work, dynamodb_url, postgres) as night:
                    blocks[name] = incidents.played(name, blocks[name], night)
            said = [block for section in blocks.values() for block in section]
            page = incidents.PAGE.read_text(encoding="utf-8")
            incidents.PAGE.write_text(with_blocks(page, said), encoding="utf-8")


if __name__ == "__main__":
    asked = sys.argv[1:2] or ["runbook", "tutorial", "incidents"]
    for page in PAGES:
        if page.file.stem in asked:
            with tempfile.TemporaryDirectory() as folder:
                page.file.write_text(with_blocks(page.text, played(page, Path(folder))), encoding="utf-8")
    if "incidents" in asked:
        write_incidents(*sys.argv[2:3])
