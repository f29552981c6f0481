"""The expectation that tables behind rows that change are their queries, as far as what steps keep shows it."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from coset.sources.rows import each_row
from expectations.judging import TableExpectation
from partitioning.sections import many


class ExpectTablesToBeTheirQueries(TableExpectation):
    """Expect each table behind rows that change to have, once the batch is published, the rows that its query gives of
    what steps keep then.

    Judges a table with a row for each such table: table, how many rows its query gives (rows), or why nobody looked
    (unseen). And a row for each key whose rows are others: key, the rows that would be published (there), and those
    that are right.
    """

    sentence = "Each table behind rows that change has the rows that its query gives of what steps keep."

    def needs(self) -> list[str]:
        return ["table", "rows", "unseen", "key", "there", "right"]

    def _judge(self, frame: pd.DataFrame) -> tuple[str, int, int, Iterable[str]]:
        bad, tables = frame[~frame["key"].isna()], frame[frame["key"].isna()]
        seen, unseen = tables[tables["unseen"].isna()], tables[~tables["unseen"].isna()]
        said = [f"{many(int(seen['rows'].sum()), 'row')} of {many(len(seen), 'table')}"]
        said += [f"not looked at: {row.table}, as {row.unseen}" for row in each_row(unseen)]
        wrongs = (
            f"{row.table}, key {row.key}: {row.there or 'no row'} would be published, {row.right or 'no row'} is right"
            for row in each_row(bad)
        )
        return "; ".join(said), len(tables), len(bad), wrongs
