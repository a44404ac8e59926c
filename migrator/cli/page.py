"""The report as one HTML file that needs no network and can be read without scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from migrator.mapping.model.durations import age_text, minute
from migrator.mapping.model.evidence import PHASES
from migrator.mapping.model.report import ReportModel
from migrator.cli.inert import inert, name_text, plain
from migrator.cli.relay_text import open_line
from migrator.cli.drawings import (
    bars_of,
    columns_of,
    curves_of,
    money,
    moves_at,
    ms_text,
    number_text,
    rate_text,
    size_text,
)
from migrator.features.report.terminal import (
    KIND_WORDS,
    SIDE_WORDS,
    answered_words,
    compared_words,
    finder_words,
    history_words,
    moved_words,
    next_steps,
    rows_words,
)

_EXAMPLES = 3
"""Shown side by side in a group."""


def html_page(model: ReportModel) -> str:
    """The whole page. What it holds of rows is text, never markup."""
    pages = environment_of_pages()
    style, script = (part_of_page(pages, name) for name in ("report.css", "report.js"))
    return pages.get_template("report.html").render(
        model=model,
        version=model.version,
        style=style,
        script=script,
        policy=policy_of(style, script),
        bars=bars_of(model.timeline),
        columns=columns_of(model.work, model.moves),
        moves=moves_at(model.timeline.width_s, [span.begun_at for span in model.timeline.spans], model.moves),
        figures={"items": number_text, "write units": number_text, "lag": age_text},
        curves={pattern.name: curves_of(pattern.latency) for pattern in model.patterns if pattern.latency},
        examples=_EXAMPLES,
        phases=PHASES,
    )


def environment_of_pages() -> Environment:
    """The templates of pages, with the words and forms that all of them share."""
    pages = Environment(
        loader=PackageLoader("migrator.output.report"),
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
        "found": finder_words,
        "compared": compared_words,
        "answered": answered_words,
        "history": history_words,
        "open": open_line,
        "of_rows": rows_words,
        # Not capitalize: it makes all the rest small, and SQL with it.
        "sentence": lambda text: f"{text[:1].upper()}{text[1:]}",
    }
    pages.globals |= {
        "kinds": KIND_WORDS,
        "sides": SIDE_WORDS,
        "next_steps": next_steps,
        "moved_words": moved_words,
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
