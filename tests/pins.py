"""The product's English that tests look for, pinned once: in tests/pins.txt, which `.ci/pins` writes.

    with pins.refused(SettingsError):                     the error's message has the pinned text
    assert pins.said(ended.err, "lease", table=name)      so has what a command printed
    assert rows == [("capture", pins.text("services"))]   the field is the pinned text, neither more nor less
    assert not pins.said_by("test_it lease", ended.err)   the text that another test has pinned is not there

A pin's key: the test's file and name, its case where the text differs by case, a word for which of the test's texts it is, and a
number from the second use on. In a pin `{…}` stands for any text, and `{table}` for the value that the test gives as `table=`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import pytest

from tests.support_lanes import LANES

PINS = Path(__file__).with_name("pins.txt")
SEEN = "MIGRATOR_TEST_PINS"
"""The folder where tests write the texts that they saw instead of comparing them; `.ci/pins` sets it."""
ANY = "{…}"
_ENGINES = {"sqlite", "postgresql", "mariadb", "mysql", *LANES}
_OF_A_RUN = re.compile(r"/[^\s=:,'\"`(]*/pytest-\d+/(?:popen-gw\d+/)?[^/\s]+")
_GROUP = re.compile(r"@[^\]]*$")
"""What pytest-xdist appends to the name of a test that has a group."""
_uses: Counter[str] = Counter()
E = TypeVar("E", bound=BaseException)


class Key(NamedTuple):
    test: str
    case: str
    name: str

    def __str__(self) -> str:
        return f"{self.test}{f'[{self.case}]' if self.case else ''} {self.name}".rstrip()

    @classmethod
    def of(cls, written: str) -> Key:
        test, _, rest = written.partition("[")
        if not rest:
            test, _, name = written.partition(" ")
            return cls(test, "", name)
        case, _, name = (rest.removesuffix("]") + "] ").partition("] ")
        return cls(test, case, name.removesuffix("] "))

    def levels(self) -> list[Key]:
        """The keys that its pin may have, the one that most others share first: those of every use, and of every case or engine."""
        other = "-".join(one for one in self.case.split("-") if one not in _ENGINES)
        names, cases = (self.name.partition("#")[0], self.name), ("", other, self.case)
        return [Key(self.test, case, name) for name in names for case in cases]


@contextmanager
def refused(
    error: type[E] | tuple[type[E], ...], name: str = "", /, **values: object
) -> Generator[pytest.ExceptionInfo[E]]:
    with pytest.raises(error) as caught:
        yield caught
    assert said(str(caught.value), name, **values)


def said(actual: str | Iterable[object], name: str = "", /, **values: object) -> bool:
    """The text, or one of these, has the pinned one, however it is broken into lines; else an error shows both."""
    __tracebackhide__ = True
    pin = Pin(_next_key(name), values)
    if pin.holds(_joined(actual)):
        return True
    raise AssertionError(
        f"not as pinned at {pin.key}{'' if pin.key in _pins() else ', where nothing is pinned'}\n"
        f"pinned: {pin.pinned}\nactual: {_joined(actual)}\n"
        f"Where the actual text is right: .ci/pins FILE-OF-THE-TEST, and read the diff of tests/pins.txt."
    )


def said_by(written: str, actual: str | Iterable[object], /, **values: object) -> bool:
    """Whether the text has what another test has pinned; its key is without a file where it is of the same file."""
    file = _next_key("").test.partition("::")[0]
    key = Key.of(written if "::" in written else f"{file}::{written}")
    assert key in _pins(), f"no test pins {key} any more: nothing can be found by it"
    return Pin(key, values).is_in(_joined(actual))


def text(name: str = "", /, **values: object) -> str:
    """A Pin. Its type is that of the text which it equals."""
    return cast("str", Pin(_next_key(name), values))


class Pin:
    """It equals a text that is as pinned; where the pins are written, it equals every text, and keeps it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, key: Key, values: dict[str, object]) -> None:
        self.whole_key, self.values = key, values
        self.key = next((one for one in reversed(key.levels()) if one in _pins()), key)
        self.pinned = _pins().get(self.key, "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.holds(other, whole=True)

    def __repr__(self) -> str:
        return (
            f"{self.pinned!r} (as pinned at {self.key}; where the other is right: .ci/pins FILE-OF-THE-TEST)"
        )

    def is_in(self, actual: str, whole: bool = False) -> bool:
        wanted = self.pinned
        for name, value in self.values.items():
            wanted = wanted.replace(f"{{{name}}}", _masked(str(value)))
        pattern = ".*".join(map(re.escape, wanted.split(ANY)))
        if whole:
            return re.fullmatch(pattern, _masked(actual), re.DOTALL) is not None
        return bool(wanted) and re.search(pattern, _folded(actual)) is not None

    def holds(self, actual: str, whole: bool = False) -> bool:
        there = self.is_in(actual, whole)
        folder = os.environ.get(SEEN)
        if folder is None:
            return there
        text = self.pinned if there else self._of(actual, whole)
        with Path(folder, f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps([self.whole_key, self.key, text]) + "\n")
        return True

    def _of(self, actual: str, whole: bool) -> str:
        """All of the text, or its clauses that are most like the pin until now, or like its name."""
        new = _masked(actual) if whole else _most_like(self.pinned or self.key.name, actual)
        for name, value in self.values.items():
            new = re.sub(rf"(?<!\w){re.escape(_masked(str(value)))}(?!\w)", f"{{{name}}}", new)
        # What varied is not known: each word with a digit is taken for it.
        return re.sub(r"\S*\d\S*", ANY, new) if ANY in self.pinned else new


def _next_key(name: str) -> Key:
    """The key of the pin that a test uses next; a name that it uses again gets a number."""
    phase = os.environ["PYTEST_CURRENT_TEST"]
    if phase not in _uses:
        _uses.clear()
        _uses[phase] = 1
    _uses[name] += 1
    place, _, rest = _GROUP.sub("", phase.rpartition(" (")[0]).partition("::")
    test, _, case = rest.partition("[")
    number = f"#{_uses[name]}" if _uses[name] > 1 else ""
    case = case.removesuffix("]").replace("] ", "]_")
    return Key(f"{place.rpartition('/')[2]}::{test}", case, f"{name}{number}")


def _joined(actual: str | Iterable[object]) -> str:
    return actual if isinstance(actual, str) else "\n".join(map(str, actual))


def _masked(actual: str) -> str:
    return _OF_A_RUN.sub("<tmp>", actual)


def _folded(actual: str) -> str:
    return " ".join(_masked(actual).split())


def _most_like(pinned: str, actual: str) -> str:
    clauses = [folded for one in re.split(r"(?<=[;,:.])\s+|\n", actual) if (folded := _folded(one))]
    runs = [" ".join(clauses[at : at + many]) for many in (1, 2, 3) for at in range(len(clauses) + 1 - many)]
    return max(runs, key=lambda run: SequenceMatcher(None, pinned, run, autojunk=False).ratio(), default="")


@cache
def _pins() -> dict[Key, str]:
    lines = PINS.read_text(encoding="utf-8").split("\n") if PINS.exists() else []
    return {
        Key.of(key): json.loads(f'"{text[4:]}"') for key, text in zip(lines[::2], lines[1::2], strict=False)
    }


def write(pins: dict[Key, str]) -> None:
    lines = [
        f"{key}\n    {json.dumps(text, ensure_ascii=False)[1:-1]}\n" for key, text in sorted(pins.items())
    ]
    PINS.write_text("".join(lines), encoding="utf-8")


def merged(folder: Path, whole_suite: bool) -> dict[Key, str]:
    """The pins with what was seen: one for all uses and cases of a test, or more, as far as their texts differ."""
    seen: dict[Key, dict[Key, str]] = defaultdict(dict)
    used: set[Key] = set()
    for file in folder.glob("*.jsonl"):
        for whole, key, text in map(json.loads, file.read_text().splitlines()):
            seen[Key(*whole).levels()[0]][Key(*whole)] = text
            used.add(Key(*key))
    tests = {key.test for key in seen}
    there = _tests_in_files() if whole_suite else set()
    stale = {key for key in _pins() if whole_suite and (key.test in tests or key.test not in there)}
    pins = {key: text for key, text in _pins().items() if key not in used | stale}
    others = {key.levels()[0] for key in pins}
    for shared, by_key in seen.items():
        for level in range(shared in others, 6):
            found = {(key.levels()[level], text) for key, text in by_key.items()}
            if len(found) == len(dict(found)):
                pins.update(found)
                break
    shared_by = {key: [one for one in key.levels() if one in pins and one != key] for key in pins}
    return {key: text for key, text in pins.items() if not shared_by[key] or pins[shared_by[key][-1]] != text}


def _tests_in_files() -> set[str]:
    files = PINS.parent.rglob("test_*.py")
    return {f"{one.name}::{name}" for one in files for name in re.findall(r"def (test_\w+)", one.read_text())}


def files() -> list[str]:
    """Those whose tests use pins, by themselves or by what they call."""
    named = {key.test.partition("::")[0] for key in _pins()}
    found = sorted(PINS.parent.rglob("test_*.py"))
    return [str(one) for one in found if one.name in named or "import pins" in one.read_text()]


if __name__ == "__main__":
    if sys.argv[1:]:
        write(merged(Path(sys.argv[1]), whole_suite="--all" in sys.argv))
    else:
        print("\n".join(files()))
