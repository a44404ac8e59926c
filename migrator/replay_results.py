"""What a replay came to: made by its stage, shown by report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from migrator.mapping.diff import Diff
from migrator.mapping.redaction import Hidden
from migrator.model import Pattern
from migrator.phase import Side
from migrator.ports.evidence import DiffKey


@dataclass(frozen=True)
class Latency:
    """What the answers of one side took."""

    answers: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class Example:
    """One difference with the parameters that show it. `compared`: the attributes that the rows of `diff` are made of.

    `diff` is None of an error, `why` its message then.
    """

    params: Mapping[str, str]
    compared: Sequence[str] = ()
    diff: Diff | None = None
    why: str = ""


@dataclass
class PatternReplay:
    """What replaying one pattern came to. `origins`: where its parameters come from, in words; `hidden`: what of parameters
    and answers is not to be shown.

    `kinds`: samples by the optional parameters that were set; `absent`: samples that ask for what is not there;
    `empty`: those that both sides answer with nothing. `found` counts differences, of which one sample may have many;
    `examples`: a few of each. `failed`: those of `different` that one side did not answer, by the optional parameters
    that were set. `histograms`: latencies as text (see stages/latencies.py). `missing_why`: why there are fewer samples than
    wanted, '' where there are not.
    """

    pattern: Pattern
    samples: int = 0
    origins: Mapping[str, str] = field(default_factory=dict)
    hidden: Hidden = Hidden()
    kinds: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    absent: int = 0
    same: int = 0
    empty: int = 0
    transient: int = 0
    different: int = 0
    found: Counter[DiffKey] = field(default_factory=Counter)
    examples: dict[DiffKey, list[Example]] = field(default_factory=dict)
    failed: Counter[tuple[str, ...]] = field(default_factory=Counter)
    latency: dict[Side, Latency] = field(default_factory=dict)
    histograms: dict[Side, str] = field(default_factory=dict)
    missing_why: str = ""


@dataclass(frozen=True)
class ReplayResult:
    """What a replay came to. `control`: SQL was compared with SQL, and the first time stands for the table. `lag_s`: how old
    the oldest change was that had not reached the table when differences were counted; 0 where there were none."""

    patterns: Sequence[PatternReplay]
    seed: int
    control: bool
    took_s: float
    lag_s: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether every pattern was asked, and no answer differs for good."""
        return not self.different and not self.not_proven

    @property
    def different(self) -> int:
        return sum(one.different for one in self.patterns)

    @property
    def not_proven(self) -> list[str]:
        """Patterns for which no question could be drawn: nothing speaks against them, and nothing for them."""
        return [one.pattern.name for one in self.patterns if not one.samples and one.missing_why]
