"""The worksheet of a proposed mapping: each statement with how it is served, or why not, and what is to decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from migrator.cli.inert import plain
from migrator.features.init.design.placing import Access
from migrator.features.init.design.proposal import Proposal
from migrator.features.init.design.written import frequency
from migrator.mapping.model.capacity import PatternReads
from migrator.mapping.model.questions import NO_QUESTIONS, REASONS, Figures, Unserved
from migrator.mapping.model.results import Proof

_UNTRIED = Proof(missing="--no-prove")
_LINES = 20
"""Questions that are not served, on a terminal."""
_TITLE = 60
"""Characters of it where it has no name."""
_SHOWN = 300
"""Characters of a statement that is not served."""


@dataclass(frozen=True)
class Sheet:
    """What the worksheet says. `unserved`: statements that no pattern answers, those that ask nothing among them; `reads`:
    what a call of each pattern reads, by its name; `left_out`: tables that no entity is made of, and why."""

    mapping: str
    proposal: Proposal
    unserved: Sequence[Unserved]
    figures: Figures
    proof: Proof = _UNTRIED
    reads: Mapping[str, PatternReads] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def served(self) -> tuple[Access, ...]:
        return self.proposal.design.accesses

    @property
    def not_served(self) -> list[Unserved]:
        """The questions among the statements that are not served, the most asked first."""
        questions = (statement for statement in self.unserved if statement.reason not in NO_QUESTIONS)
        return sorted(questions, key=_place)

    @property
    def no_questions(self) -> list[Unserved]:
        others = (statement for statement in self.unserved if statement.reason in NO_QUESTIONS)
        return sorted(others, key=_place)


def _place(other: Unserved) -> tuple[float, str, str]:
    return -other.statement.calls, other.statement.sql, other.statement.words


def worksheet(sheet: Sheet) -> str:
    """The worksheet as Markdown."""
    environment = Environment(
        loader=PackageLoader("migrator.cli"),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"calls": frequency, "indented": _indented, "cell": _cell, "request": request_text}
    calls = sum(access.question.statement.calls for access in sheet.served)
    calls += sum(other.statement.calls for other in sheet.not_served)
    environment.filters |= {"share": lambda statement: f"{100 * statement.calls / (calls or 1):.1f} %"}
    template = environment.get_template("worksheet.md")
    return template.render(sheet=sheet, reasons=REASONS, rows=_rows(sheet), proof=proof_text, sizes=_sizes)


def summary(sheet: Sheet) -> dict[str, Any]:
    """What was proposed, as data."""
    return {
        "served": len(sheet.served),
        "not_served": [
            {
                "statement": _name(other),
                "reason": other.reason,
                "what": other.what,
                "calls": other.statement.calls,
            }
            for other in sheet.not_served
        ],
        "no_questions": len(sheet.no_questions),
        "indexes": sheet.proposal.design.indexes,
        "entities": len(sheet.proposal.design.homes),
        "decisions": list(sheet.proposal.decisions),
        "left_out": dict(sheet.left_out),
        "proof": _proof_data(sheet),
    }


def _proof_data(sheet: Sheet) -> dict[str, Any]:
    replays = sheet.proof.replays
    return {
        "missing": sheet.proof.missing,
        "patterns": {
            name: {"questions": replay.samples, "different": replay.different}
            for name, replay in replays.items()
        },
        "not_asked": dict(sheet.proof.apart),
        "refused": dict(sheet.proof.refused),
    }


def proof_text(sheet: Sheet, name: str) -> str:
    """What was tried of a pattern, in words."""
    if (replay := sheet.proof.replays.get(name)) is None:
        return f"no: {sheet.proof.missing or sheet.proof.apart.get(name, '')}"
    if replay.different:
        return f"no: {sheet.proof.difference(name)}"
    why = f"; {replay.missing_why}" if replay.missing_why else ""
    return f"{replay.samples} question(s) answered as SQL does{why}" if replay.samples else f"no{why}"


def summary_text(sheet: Sheet) -> str:
    """The same for people, with what is to decide at the end."""
    design = sheet.proposal.design
    asked = len(sheet.served) + len(sheet.not_served)
    lines = [
        f"{len(sheet.served)} of {asked} statement(s) served, {design.indexes} index(es), {len(design.homes)} entities"
    ]
    for other in sheet.not_served[:_LINES]:
        why, instead = REASONS[other.reason]
        what = f" ({plain(other.what)})" if other.what else ""
        lines.append(f"not served: {_title(other)} ({frequency(other.statement)}): {why}{what}; {instead}")
    if len(sheet.not_served) > _LINES:
        lines.append(f"not served: {len(sheet.not_served) - _LINES:,} more, which the worksheet has")
    lines += [f"left out: {plain(name)} ({why})" for name, why in sheet.left_out.items()]
    lines += _proof_lines(sheet)
    lines += (
        ["to decide:", *(f"- {decision}" for decision in sheet.proposal.decisions)]
        if sheet.proposal.decisions
        else []
    )
    return "\n".join(lines)


def _title(other: Unserved) -> str:
    """Its name, or how it begins."""
    text = _name(other)
    return plain(text if len(text) <= _TITLE else f"{text[:_TITLE]}…")


def _name(other: Unserved) -> str:
    """What the file calls the statement, else the whole of it."""
    return other.statement.name or other.statement.words or other.statement.sql


def ending(sheet: Sheet, mapping: str) -> str:
    """Why the exit code is not 0 although the files are written, and the next command; '' where it is."""
    count, differing = len(sheet.not_served), [] if sheet.proof.clean else ["the proof found a difference"]
    unserved = [f"{count} statement{'s are' if count > 1 else ' is'} not served"] if count else []
    why = " and ".join(unserved + differing)
    following = f"the files are written all the same; next: migrator mapping check {mapping}"
    return f"exit code 1: {why}; {following}" if why else ""


def _proof_lines(sheet: Sheet) -> Iterator[str]:
    """What the proof came to."""
    proof = sheet.proof
    if proof.missing:
        yield f"not proved: {proof.missing}"
        return
    asked = [replay for replay in proof.replays.values() if replay.samples]
    same, samples = sum(replay.same for replay in asked), sum(replay.samples for replay in asked)
    yield f"proved: {same:,} of {samples:,} questions on {len(asked)} pattern(s) are answered as SQL does"
    yield from (f"not proved: {name}: {why}" for name, why in proof.apart.items())
    yield from (f"differs: {name}: {text}" for name in proof.replays if (text := proof.difference(name)))
    yield from (f"refused: {count:,} row(s) of {name} make no item" for name, count in proof.refused.items())


def request_text(access: Access) -> str:
    """Which index is asked, and the condition of its key."""
    operator, values = access.condition
    where = f"GSI{access.index}" if access.index else "the table"
    sort = values[0] if operator == "equal" else f"{operator} {' and '.join(values)}"
    return f"{access.operation} {where}: {access.key}, {sort}"


def _sizes(sheet: Sheet, name: str) -> tuple[str, str, str]:
    """(rows, bytes, read units) of one call of the pattern on average, each said to be exact or estimated."""
    reads = sheet.reads.get(name)
    if reads is None or not reads.calls:
        return ("not known",) * 3
    how = "" if reads.exact else " (estimated)"
    return f"{reads.items:,.4g}{how}", f"{reads.bytes:,.0f}{how}", f"{reads.units:,.4g}{how}"


def _rows(sheet: Sheet) -> list[tuple[str, str]]:
    """Tables with their rows, exact or estimated."""
    figures = sheet.figures
    return [
        (name, f"{rows:,}" if name in figures.exact else f"{rows:,} or more")
        for name, rows in sorted(figures.rows.items())
    ]


def _indented(sql: str) -> str:
    """SQL as a block of Markdown; of a long statement the beginning."""
    text = plain(sql if len(sql) <= 10 * _SHOWN else f"{sql[:_SHOWN]} …", lines=True)
    return "\n".join(f"    {line}" for line in text.splitlines() if line.strip())


def _cell(text: str) -> str:
    return plain(text).replace("|", "\\|")
