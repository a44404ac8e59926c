"""What a design takes as one HTML page that needs no network and no script, in the style of the report."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from jinja2 import Environment
from markupsafe import Markup

from migrator.model.capacity import Capacity
from migrator.output.plan import terminal
from migrator.output.report.page import environment_of_pages, part_of_page, policy_of


def plan_page(capacities: Sequence[Capacity], collections: Markup | None = None) -> str:
    """The whole page. What it holds of rows is text, never markup. `collections`: a fragment of sample item collections,
    which is put in as it is: only templates that escape texts may have made it."""
    environment = environment_of_pages()
    _add_words(environment)
    style = Markup(part_of_page(environment, "report.css") + "\n" + part_of_page(environment, "plan.css"))
    capacity = capacities[0]
    return environment.get_template("plan.html").render(
        plan=capacity,
        beside=list(terminal.compared(capacity, capacities[1])) if len(capacities) > 1 else [],
        other=capacities[1] if len(capacities) > 1 else None,
        collections=collections or "",
        style=style,
        policy=policy_of(style, ""),
        version=version("single-table-migrator"),
        words=terminal,
        bars=_bars(capacity),
    )


def _add_words(environment: Environment) -> None:
    environment.filters |= {
        "size": terminal.size_text,
        "spread": terminal.spread_text,
        "rate": terminal.rate_text,
        "money": terminal.money,
        "place": terminal.place_name,
        "known": terminal.known,
    }


def _bars(capacity: Capacity) -> dict[str, list[float]]:
    """For each place the width of the bar of each hot key, of the hottest one's 100."""
    return {
        place.index: [100 * hot.bytes / (place.hottest[0].bytes or 1) for hot in place.hottest]
        for place in capacity.places
    }
