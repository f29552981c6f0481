"""Clicks and views counted in windows of event time: of late records it does what WINDOWED_LATE says."""

import os

from tests.windowed import pipeline_of

pipeline = pipeline_of(os.environ["WINDOWED_SOURCE"], os.environ["WINDOWED_LATE"])
