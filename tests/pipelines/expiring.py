"""Clicks and views of keys that expire: counted, or the latest, as EXPIRING_HOW says."""

import os

from tests.expiring import pipeline_of

pipeline = pipeline_of(os.environ["EXPIRING_SOURCE"], os.environ["EXPIRING_HOW"])
