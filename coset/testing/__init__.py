"""What users test their pipelines with."""

from coset.testing.combines import check_combine

__all__ = ["check_combine"]
