"""What users test their pipelines with."""

from coset.testing.combines import check_combine
from coset.testing.everywhere import assert_same_everywhere
from coset.testing.runs import PublishedRows, run

__all__ = ["PublishedRows", "assert_same_everywhere", "check_combine", "run"]
