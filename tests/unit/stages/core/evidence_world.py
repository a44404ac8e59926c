"""Windows and facts of one pattern, right in every respect; tests make single things wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from migrator.mapping.model.evidence import PatternPhase, Side, State, Window
from migrator.mapping.model.instances import Instance, ServiceRegistry
from migrator.mapping.model.live import MarksState
from migrator.mapping.model.mapping import Param, Part, Pattern
from migrator.runtime.values import replace
from migrator.stages.cutover.evidence import Facts, VerifyOnRecord
from migrator.stages.patterns.latencies import Latencies

NOW_S = 1_800_000_000.0
MINUTE_S = 60
GONE_S = 90.0
PATTERN = Pattern(
    "orders",
    (Param("id", "integer"), Param("since", "date", optional=True)),
    "query",
    (),
    parts=(Part("", "", ()),),
)
READER = Instance("shop", "web-1", 1, "1", "0.1", "read", "", "rev", "", "a", NOW_S - 900, NOW_S - 2)


def histogram(took_ms: Mapping[float, int]) -> str:
    """Answers by what they took, as windows hold them."""
    return _recorded(tuple(took_ms.items()))


@cache
def _recorded(took_ms: tuple[tuple[float, int], ...]) -> str:
    latencies = Latencies()
    for ms, count in took_ms:
        for _ in range(count):
            latencies.record(ms)
    return latencies.text()


def window(minutes_ago: float = 1, compared: int = 500, **more: Any) -> Window:
    counts: dict[str, Any] = {
        "answered": {"table": compared, "sql": compared},
        "same": compared - more.get("different", 0),
        "kinds": {"": compared // 2, "since": compared - compared // 2},
        "latency": {"table": histogram({8: compared}), "sql": histogram({10: compared})},
    }
    begun_at = int((NOW_S - minutes_ago * MINUTE_S) // MINUTE_S * MINUTE_S)
    made = Window("orders", begun_at, "a", "shop", "rev", "service", compared=compared, answer="answer")
    return replace(made, **counts | more)


def windows(count: int = 4, **more: Any) -> list[Window]:
    return [window(minutes, **more) for minutes in range(1, count + 1)]


RAMP = State("ramp", 10)


def facts(state: State = RAMP, seen: Sequence[Window] | None = None, **more: Any) -> Facts:
    made = Facts(
        pattern=PATTERN,
        revision="rev",
        answer="answer",
        phase=PatternPhase("orders", state, 0 if state.phase == "off" else 3, NOW_S - 600),
        now_s=NOW_S,
        windows=windows() if seen is None else seen,
        service_registry=ServiceRegistry((READER,), NOW_S, GONE_S),
        confirmed={"a": 3},
        marks=MarksState(waiting=2, oldest_age_s=0.5),
        relays=1,
        verified=VerifyOnRecord(7, 0, 3600.0),
    )
    return replace(made, **more)


def slow(side: Side, compared: int, ms: float) -> Window:
    latency = {"table": histogram({8: compared}), "sql": histogram({10: compared})}
    return window(compared=compared, latency=latency | {side: histogram({ms: compared})})
