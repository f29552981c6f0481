"""What a test looks up has to be there."""

from __future__ import annotations

from typing import TypeVar

Found = TypeVar("Found")


def there(found: Found | None) -> Found:
    """What was looked up."""
    assert found is not None
    return found
