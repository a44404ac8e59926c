"""Writes docs/runbook.md anew: runs the commands of the page in a fresh folder and puts what they say below them.

    python -m docs.generate_runbook

Change a command or the text between in the page itself, then run this.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.journey.console import blocks_of, with_blocks
from tests.journey.runbook import PAGE, played

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_blocks(page, played(list(blocks_of(page)), Path(folder))), encoding="utf-8")
