"""The SQL that looks for partners in time by spans, against a comparison of each time with each."""

from __future__ import annotations

import duckdb
import pytest

from partitioning.authoring.state_sql import beside, is_beside


@pytest.mark.parametrize("within", [1, 2, 7])
def test_two_times_meet_once_if_they_are_near_and_else_never(within: int) -> None:
    times = [*range(-20 * within, 20 * within + 1), None]
    mine, theirs = ('mine."@time"', 'theirs."@time"')
    near = f"{is_beside(mine, 'theirs', within)} AND abs({mine} - {theirs}) <= {within}"
    with duckdb.connect() as connection:
        for name in ("one", "other"):
            connection.execute(f'CREATE TABLE {name} AS SELECT unnest(?::BIGINT[]) AS "@time"', [times])
        sql = f"SELECT {mine}, {theirs} FROM one AS mine JOIN {beside('other', 'theirs', within)} ON {near}"
        found = connection.execute(sql).fetchall()
    known = [time for time in times if time is not None]
    assert sorted(found) == [(one, other) for one in known for other in known if abs(one - other) <= within]


def test_a_key_with_many_records_costs_no_comparison_of_each_with_each() -> None:
    records, within = 20_000, 5
    with duckdb.connect() as connection:
        connection.execute(f'CREATE TABLE side AS SELECT range * {within} AS "@time" FROM range({records})')
        on = is_beside('mine."@time"', "theirs", within)
        sql = f"SELECT count(*) FROM side AS mine JOIN {beside('side', 'theirs', within)} ON {on}"
        assert connection.execute(sql).fetchall()[0][0] < 20 * records
