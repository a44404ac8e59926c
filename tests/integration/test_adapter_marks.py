"""The adapter's marks equal the triggers', whatever a service does in a transaction, on every engine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import create_async_engine

from migrator.runtime.values import replace
from tests.support_adapter import ASYNC_DRIVERS, service_url
from tests.support_adapter_service import Service, assert_equal, compare, marks_of, prepared, served
from tests.support_adapter_writes import STEPS, Step
from tests.support_capture import ENGINES, capturing, new_sqlite

EXAMPLES = min(1000, int(os.environ.get("MIGRATOR_TEST_EXAMPLES", "60")))


@pytest.fixture(scope="module", params=ENGINES)
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    makers = {"postgresql": "new_postgres_database", "mariadb": "new_mysql_database"}
    if request.param == "sqlite":
        url = new_sqlite(tmp_path_factory.mktemp("adapter") / "a.db")
    else:
        made: Callable[[], str] = request.getfixturevalue(makers[request.param])
        url = made()
    with capturing(request.param, url) as shop, served(shop) as ready:
        yield ready


Steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 12), st.sampled_from([False, False, False, True])),
    min_size=1,
    max_size=6,
)


@pytest.mark.property
@pytest.mark.filterwarnings("ignore:New instance:sqlalchemy.exc.SAWarning")
@settings(
    max_examples=EXAMPLES,
    derandomize="CI" in os.environ,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(steps=Steps, keeps_images=st.booleans())
def test_the_adapters_marks_equal_the_triggers(
    service: Service, steps: list[tuple[Step, int, bool]], keeps_images: bool
) -> None:
    service.ears.marking = replace(service.ears.marking, keeps_images=keeps_images)
    compare(service, steps)


WALK = [(step, number, number == 2) for step in STEPS for number in (0, 2, 3)]


@pytest.mark.filterwarnings("ignore:New instance:sqlalchemy.exc.SAWarning")
def test_they_are_equal_through_an_async_driver(service: Service) -> None:
    async def walk() -> None:
        engine = create_async_engine(service_url(service.shop.engine, service.shop.url, ASYNC_DRIVERS))
        prepared(service.shop.engine, engine.sync_engine)
        service.ears.attach(engine.sync_engine)
        count = 0
        for start in range(0, len(WALK), 4):
            steps = WALK[start : start + 4]
            async with engine.connect() as connection:
                ours, theirs = await connection.run_sync(partial(marks_of, service, steps=steps))
            assert_equal(service, steps, ours, theirs)
            count += ours.total()
        assert count > 100
        await engine.dispose()

    asyncio.run(walk())
