"""A replay as evidence: what it compared goes into the journal beside what services compare."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from migrator.ports.evidence import Evidence, Sample, Window
from migrator.replay_results import PatternReplay, ReplayResult
from migrator.stages.samples import Sampler

SERVICE = "shadow replay"


@dataclass(frozen=True)
class ReplayRecord:
    """`revision`: of the mapping that was replayed; `writer` tells this replay from others."""

    evidence: Evidence
    revision: str
    writer: str = field(default_factory=lambda: f"replay-{secrets.token_hex(8)}")

    def keep(self, result: ReplayResult) -> None:
        """Keeps what was compared, all of it as of the second in which the replay began: of a pattern that was moved since,
        it is no evidence. Of a control nothing: no item took part in it.

        Raises: StoppedError where the journal cannot be asked.
        """
        asked = [one for one in result.patterns if one.samples]
        if result.control or not asked:
            return
        now_s = self.evidence.now_s()
        windows = [self._window(one, int(now_s - result.took_s)) for one in asked]
        self.evidence.keep(windows, [sample for one in asked for sample in self._samples(one, now_s)])

    def _window(self, one: PatternReplay, begun_at: int) -> Window:
        failed = one.failed.total()
        return Window(
            pattern=one.pattern.name,
            begun_at=begun_at,
            writer=self.writer,
            service=SERVICE,
            revision=self.revision,
            origin="replay",
            answered={side: found.answers for side, found in one.latency.items()},
            errors={
                side: count
                for side in ("table", "sql")
                if (
                    count := sum(
                        n for kind, n in one.found.items() if (kind.kind, kind.attribute) == ("error", side)
                    )
                )
            },
            compared=one.samples - failed,
            same=one.same,
            transient=one.transient,
            different=one.different - failed,
            kinds={
                ",".join(kind): left
                for kind, count in one.kinds.items()
                if (left := count - one.failed[kind])
            },
            found=dict(one.found),
            latency=dict(one.histograms),
        )

    def _samples(self, one: PatternReplay, now_s: float) -> list[Sample]:
        sampler = Sampler(one.pattern, one.hidden, self.writer, self.revision)
        return [
            sampler.sample(kind, example, now_s) for kind, kept in one.examples.items() for example in kept
        ]
