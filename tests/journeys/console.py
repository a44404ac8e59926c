"""A page's `console` blocks, run in one shell from top to bottom: each command as printed, with what it says.

`migrator` is run inside of this process, which spares the second that each start takes; in the background it is the real one.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.journeys.in_process import run_here

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ENDED = "-- the command has ended --"
_LIMIT_S = 120
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z \[")
"""How a line of the log begins: a page leaves them out, since a terminal shows bars in their place."""
_PRELUDE = f"""
migrator() {{
    if [ "$1" = relay ] && [[ " $* " != *" --once "* && " $* " != *" --dry-run "* ]] || [ "$2" = watch ]; then
        exec "$MIGRATOR" "$@"
    fi
    local asked answer code
    asked=$(mktemp -d)
    printf '%s\\0' "$@" >"$asked/words"
    env -0 >"$asked/environment"
    pwd >"$asked/folder"
    echo "$asked" >&{{asks}}
    read -r code <&{{answers}}
    cat "$asked/out"
    cat "$asked/err" >&2
    return "$code"
}}
ended() {{ local code=$?; printf '%s\\n' "{_ENDED}"; return $code; }}
"""


@dataclass(frozen=True)
class Command:
    """`text`: as it is typed, a line or more. `said`: what it prints, both streams."""

    text: str
    said: str

    def __str__(self) -> str:
        return f"$ {self.text}\n{self.said}"


def blocks_of(page: str) -> Iterator[list[Command]]:
    """The commands of each block, with the output that the page gives."""
    for block in _BLOCK.findall(page):
        yield list(_commands(block))


def _commands(block: str) -> Iterator[Command]:
    for one in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        typed = re.match(r"(?:[^\n]*\\\n)*[^\n]*", one)
        assert typed is not None
        yield Command(typed[0], one[typed.end() + 1 :])


def with_blocks(page: str, blocks: Sequence[Sequence[Command]]) -> str:
    """The page with these commands and outputs in place of its own."""
    left = iter(blocks)
    return _BLOCK.sub(lambda _: f"```console\n{''.join(map(str, next(left)))}```", page)


class Shell:
    """One bash, with its folder and variables, from the first command to the last."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        asks_read, asks = os.pipe()
        answers, self._answers = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(asks, answers),
            start_new_session=True,
        )
        for one in (asks, answers):
            os.close(one)
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._input, self._output = stdin, stdout.fileno()
        self._asks, self._said = asks_read, b""
        self._type(_PRELUDE.replace("{asks}", str(asks)).replace("{answers}", str(answers)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the shell, with all that it began and did not end."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            self._input.close()
            self._process.wait(5)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(120)
        for one in (self._asks, self._answers):
            os.close(one)

    def run(self, text: str) -> str:
        """What the command says. A command that does not end within a minute fails."""
        self._type(f"{text}\nended\n")
        ends_at = time.monotonic() + _LIMIT_S
        mark = f"{_ENDED}\n".encode()
        with selectors.DefaultSelector() as ready:
            ready.register(self._output, selectors.EVENT_READ)
            ready.register(self._asks, selectors.EVENT_READ)
            while mark not in self._said:
                assert time.monotonic() < ends_at, f"does not end: {text}\n{self._said.decode()}"
                for key, _ in ready.select(1):
                    self._read() if key.fd == self._output else self._answer()
        said, _, self._said = self._said.partition(mark)
        return said.decode()

    def _type(self, text: str) -> None:
        self._input.write(text.encode())
        self._input.flush()

    def _read(self) -> None:
        read = os.read(self._output, 65536)
        assert read, f"the shell has ended: {self._said.decode()}"
        self._said += read

    def _answer(self) -> None:
        """Runs the `migrator` that the shell asks for."""
        asked = Path(os.read(self._asks, 4096).decode().strip())
        words = (asked / "words").read_text().split("\0")[:-1]
        entries = (asked / "environment").read_text().split("\0")[:-1]
        environment = dict(entry.split("=", 1) for entry in entries)
        ended = run_here(words, Path((asked / "folder").read_text().strip()), environment)
        (asked / "out").write_text(ended.out)
        (asked / "err").write_text(ended.err)
        os.write(self._answers, f"{ended.code}\n".encode())
