"""Telling: sends messages about incidents by Apprise, to e-mail, chats and webhooks.

Addresses hold secrets. They come from the environment and go nowhere else: output names only an address's scheme, and
the libraries that send do not log.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from partitioning.model.incident import Message, News, Severity

# The variable that holds the addresses, separated by spaces or lines.
NOTIFY = "COSET_NOTIFY"
_SCHEME = re.compile(r"[a-z][a-z0-9+-]{0,29}(?=://)")
# These loggers write addresses.
_TALKATIVE = ("apprise", "urllib3.connectionpool")


@dataclass(frozen=True, slots=True)
class Notice:
    """A message in words: a title, a text of some lines, and the address of the batch's page, if it has one."""

    title: str
    text: str
    link: str
    message: Message


class Untold(Exception):
    """Raised if a message could not be sent. The text says why, without the address."""


class Channel(Protocol):
    """A way to tell somebody."""

    @property
    def name(self) -> str:
        """Its name in a log."""

    def tell(self, notice: Notice) -> None:
        """Send a notice. Raises Untold."""


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """An address that Apprise knows, such as `mailto://…`."""

    url: str

    @property
    def name(self) -> str:
        scheme = _SCHEME.match(self.url)
        return scheme[0] if scheme else "an address without a scheme"

    def tell(self, notice: Notice) -> None:
        try:
            import apprise  # noqa: PLC0415  it is optional and slow to import
        except ImportError:
            raise Untold("Apprise is not installed: pip install 'coset[notify]'") from None
        known = apprise.Apprise()
        with _silent():
            if not known.add(self.url):
                raise Untold("Apprise does not know this kind of address")
            sent = known.notify(
                title=notice.title,
                body=notice.text,
                notify_type=_type(notice.message),
                body_format=apprise.NotifyFormat.TEXT,
            )
        if not sent:
            raise Untold("the address did not take the message")


def addresses(listed: str) -> tuple[Address, ...]:
    """The addresses in a text, separated by spaces or lines.

    >>> [address.name for address in addresses("mailto://me:secret@example.org  json://127.0.0.1:9/")]
    ['mailto', 'json']
    """
    return tuple(map(Address, listed.split()))


def from_environment() -> tuple[Address, ...]:
    """The addresses of this deployment."""
    return addresses(os.environ.get(NOTIFY, ""))


def _type(message: Message) -> str:
    if message.news is News.ENDED:
        return "success"
    return "warning" if message.incident.severity is Severity.WARNING else "failure"


@contextmanager
def _silent() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
