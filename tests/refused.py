"""What a call is refused with."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

import pytest

from partitioning.errors import Finding, Refused

P = ParamSpec("P")


def findings_of(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> tuple[Finding, ...]:
    """All findings with which a call is refused."""
    with pytest.raises(Refused) as refused:
        call(*args, **kwargs)
    return refused.value.findings


def finding_of(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Finding:
    """The only finding with which a call is refused."""
    (finding,) = findings_of(call, *args, **kwargs)
    return finding
