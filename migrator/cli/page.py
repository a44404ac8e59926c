"""Pages in HTML that need no network and can be read without scripts: their templates, policy and files."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from migrator.cli.drawings import (
    money,
    ms_text,
    number_text,
    rate_text,
    size_text,
)
from migrator.cli.inert import inert, name_text, plain
from migrator.cli.relay_text import open_line
from migrator.mapping.model.durations import age_text, minute
from migrator.runtime.errors import SettingsError


def environment_of_pages() -> Environment:
    """The templates of pages, with the words and forms that all of them share."""
    pages = Environment(
        loader=PackageLoader("migrator.cli"),
        autoescape=True,
        undefined=StrictUndefined,
        # Also where a template leaves it out: text is escaped, and invisible characters are written out.
        finalize=lambda value: inert(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "plain": plain,
        "name": name_text,
        "moment": minute,
        "age": age_text,
        "ms": ms_text,
        "number": number_text,
        "rate": rate_text,
        "size": size_text,
        "usd": lambda amount: money(None if amount is None else Decimal(str(amount))),
        "count": lambda number: f"{number:,}",
        "open": open_line,
        # Not capitalize: it makes all the rest small, and SQL with it.
        "sentence": lambda text: f"{text[:1].upper()}{text[1:]}",
    }
    return pages


def part_of_page(pages: Environment, name: str) -> Markup:
    """Style or script as it stands; nothing is filled in, so its hash is that of the file."""
    loader = pages.loader
    assert loader is not None
    return Markup(loader.get_source(pages, name)[0].strip())


def policy_of(style: str, script: str) -> str:
    """Only this style and this script; no address, no form, no frame, no text that becomes code."""
    words: Mapping[str, Any] = {
        "default-src": "'none'",
        "style-src": digest(style),
        "script-src": digest(script) if script else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
    }
    return "; ".join(f"{name} {value}" for name, value in words.items())


def digest(text: str) -> str:
    """Style or script as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"


def refuse_unwritable(path: Path) -> None:
    """Raises: SettingsError, before minutes of work."""
    # Not Path.is_dir(): it raises for a name that is too long, and the reason is shown when the file is written.
    if os.path.isdir(path):
        raise SettingsError(
            f"--html {path}: this is a folder; name a file in it, such as {path / 'report.html'}"
        )
    if not os.path.isdir(path.parent):
        raise SettingsError(f"--html {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise SettingsError(f"--html {path}: the folder {path.parent} cannot be written to")


def write_page(path: Path, text: str) -> None:
    """Writes all of the file or nothing: a reader that has the old one open sees no half of the new one."""
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            "wb", dir=path.parent, prefix=f".{path.name[:80]}.", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(text.encode("utf-8", "backslashreplace"))
        # It keeps the mode that it was made with: the page holds values of rows, and is its owner's alone.
        temporary.replace(path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise SettingsError(f"--html {path}: it cannot be written ({error.strerror})") from None
