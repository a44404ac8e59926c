"""Makes docs/images/demo.svg: the commands that move the example shop, with their output, typed one after the other.

    python -m tools.pages.recording

A test makes it again and compares all but figures that differ between runs.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tools.pages.picture import ROOT, shop_in

RECORDING = ROOT / "docs" / "images" / "demo.svg"
WIDTH = 88
JOB = "jobs/ecommerce.yaml"
COMMANDS = (
    f"migrator table create {JOB}",
    f"migrator capture install {JOB}",
    f"migrator backfill {JOB}",
    """sqlite3 shop.db "UPDATE users SET name = 'Ada' WHERE id = 7\"""",
    f"migrator relay {JOB} --once",
    f"migrator verify {JOB}",
    f"migrator shadow replay {JOB} --pattern get_order --pattern recent_orders --seed 1",
    f"migrator cutover advance {JOB} get_order",
)
_PROGRAMS = {
    "migrator": ["-m", "migrator"],
    "sqlite3": [
        "-c",
        "import sqlite3, sys\nwith sqlite3.connect(sys.argv[1]) as shop: shop.execute(sys.argv[2])",
    ],
}
"""How Python runs each program; not every machine has sqlite3."""
_PAUSE_S = 1.6
"""Between two commands."""
_LINE = re.compile(r'clip-path="url\(#[\w-]+-line-(\d+)\)"')
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def recorded(folder: Path) -> str:
    environment = shop_in(folder) | {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    begins = []
    try:
        for command in COMMANDS:
            begins.append(console.export_text(clear=False).count("\n"))
            console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
            if printed := _run(command, folder, environment):
                console.print(Text.from_ansi(printed))
    finally:
        _run("migrator local stop", folder, environment)
    return _played(console.export_svg(title="migrator", unique_id="demo"), begins)


def _run(command: str, folder: Path, environment: dict[str, str]) -> str:
    program, *words = shlex.split(command)
    ended = subprocess.run(
        [sys.executable, *_PROGRAMS[program], *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    return ended.stdout.rstrip()


def _played(svg: str, begins: list[int]) -> str:
    """The SVG with each command's lines shown after the previous ones; all at once under reduced motion."""
    rules = [
        "@media (prefers-reduced-motion: no-preference) {",
        "@keyframes shown { from { opacity: 0 } to { opacity: 1 } }",
    ]
    for number, begin in enumerate(begins):
        end = begins[number + 1] if number + 1 < len(begins) else 10_000
        lines = [line for line in dict.fromkeys(map(int, _LINE.findall(svg))) if begin <= line < end]
        chosen = ", ".join(f'[clip-path="url(#demo-line-{line})"]' for line in lines)
        rules.append(f"{chosen} {{ animation: shown .01s {number * _PAUSE_S:.1f}s both }}")
    svg = _FONTS.sub("", svg).replace("Fira Code, monospace", "monospace")
    return svg.replace("</style>", "\n".join([*rules, "}"]) + "\n    </style>", 1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="shop-") as name:
        RECORDING.write_text(recorded(Path(name)), encoding="utf-8")
