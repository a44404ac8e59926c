"""Writes docs/runbook.md and docs/tutorial.md anew: runs a page's commands in a fresh folder, and puts what they say below.

    python -m docs.generate_runbook [runbook|tutorial]

Change a command or the text between in the page itself, then run this.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.journey.console import with_blocks
from tests.journey.runbook import PAGES, played

if __name__ == "__main__":
    for page in PAGES:
        if page.file.stem in (sys.argv[1:] or [page.file.stem]):
            with tempfile.TemporaryDirectory() as folder:
                page.file.write_text(with_blocks(page.text, played(page, Path(folder))), encoding="utf-8")
