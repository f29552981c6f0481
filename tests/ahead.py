"""`pytest --ahead 400` runs tests as they are to run in so many days.

Programs that a test starts, and files, have the machine's time. A server in S3 refuses what is signed on another day:
its tests are left out.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
import time_machine

_SERVERS = {"kafka", "s3", "spark_server"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ahead", type=float, metavar="DAYS", help="run the tests as in so many days, without servers")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.ahead:
        time_machine.travel(datetime.now(UTC) + timedelta(days=config.option.ahead), tick=True).start()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.ahead:
        served = [item for item in items if not _SERVERS.isdisjoint(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=served)
        items[:] = [item for item in items if item not in served]
