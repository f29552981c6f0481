"""Clicks joined with views by their times, as IN_TIME_HOW says, for the store IN_TIME_STORE."""

import os

from partitioning.documents.stores import store_at
from tests.as_of import in_time

pipeline = in_time(store_at(os.environ["IN_TIME_STORE"]), os.environ["IN_TIME_HOW"]).pipeline
