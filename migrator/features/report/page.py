"""The report as one HTML file that needs no network and can be read without scripts."""

from __future__ import annotations

from jinja2 import Environment

from migrator.cli.drawings import bars_of, columns_of, curves_of, moves_at, number_text
from migrator.cli.page import environment_of_pages, part_of_page, policy_of
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
from migrator.mapping.model.durations import age_text
from migrator.mapping.model.evidence import PHASES
from migrator.mapping.model.report import ReportModel

_EXAMPLES = 3
"""Shown side by side in a group."""


def html_page(model: ReportModel) -> str:
    """The whole page. What it holds of rows is text, never markup."""
    pages = _environment()
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


def _environment() -> Environment:
    """The templates of pages, with the report's own words."""
    pages = environment_of_pages()
    pages.filters |= {
        "found": finder_words,
        "compared": compared_words,
        "answered": answered_words,
        "history": history_words,
        "of_rows": rows_words,
    }
    pages.globals |= {
        "kinds": KIND_WORDS,
        "sides": SIDE_WORDS,
        "next_steps": next_steps,
        "moved_words": moved_words,
    }
    return pages
