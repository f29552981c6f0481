"""What users test their pipelines with."""

from collections.abc import Callable

from coset.testing.combines import check_combine
from coset.testing.everywhere import assert_same_everywhere
from coset.testing.runs import PublishedRows, Trial, run
from partitioning.authoring.pipeline import Pipeline

# What the fixture `coset_trial` of the pytest plugin gives.
MakeTrial = Callable[[Pipeline], Trial]

__all__ = ["MakeTrial", "PublishedRows", "Trial", "assert_same_everywhere", "check_combine", "run"]
