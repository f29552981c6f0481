"""Texts: what users wrote (keys, reasons, names, errors), made safe for where it is shown.

Everything that a page, a terminal or a log shows goes through `visible`; Markdown and HTML escape what is left in their
own way. JSON for programs has every value whole.
"""

from __future__ import annotations

import json
import os
import re

# The variable with the name.
ENVIRONMENT = "COSET_ENV"


def environment() -> str:
    """The name of the environment in which this process works; empty if there is none."""
    return os.environ.get(ENVIRONMENT, "")


MOST_IN_A_CELL = 1_000
MOST_IN_A_SENTENCE = 10_000

# Characters that move a cursor, change colours, reverse the order of what is read, hide, or cannot be encoded: C0 and
# C1, marks and overrides of direction, line and paragraph separators, lone surrogates, tags.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
# Code spans stay as they are. A code span with a bar or a backslash would not survive a table. An underscore before a
# letter or digit ends no emphasis, and one that nothing ends begins none: names as _delta_log are shown as they are.
_MARKDOWN = re.compile(
    r"(?P<code>(?<!`)`[^`\\|]+`(?!`))"
    r"|\\(?=[!-/:-@\[-`{-~]|$)|[`*~|\]]|_(?![^\W_])|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<!\S)#"
)
_BLOCK = re.compile(r"^(?:(?=[-+=>])|(?P<number>\d{1,9})(?=[.)]))")


def visible(text: str, most: int = MOST_IN_A_SENTENCE, *, lines: bool = False) -> str:
    r"""The text with escapes for characters that a terminal would obey or not show, cut to `most` characters.

    With `lines`, line ends stay.

    >>> print(visible("\x1b[31mred\nnext: approve"), visible("k" * 30, 10))
    \x1b[31mred\nnext: approve kkkkkkkkkk… (30 characters)
    """
    kept = text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"
    if kept.isprintable():
        # It has none of these characters, which to look for takes far longer.
        return kept
    return _UNSEEN.sub(lambda match: "\n" if lines and match[0] == "\n" else _escape(match[0]), kept)


def indented(text: str) -> str:
    r"""The visible text. Its later lines are indented, so that none of them looks like another line of the output.

    >>> print(indented("not met:\n    - key 'a'\n  next:  approve"))
    not met:
        - key 'a'
          next:  approve
    """
    return re.sub(r"\n(?! {4})", "\n    ", visible(text, lines=True))


def in_markdown(text: str, most: int = MOST_IN_A_SENTENCE) -> str:
    r"""The text as Markdown that shows it, on one line; only spans of code are still Markdown.

    >>> print(in_markdown("![x](http://tracker) of `coset run`, <b>count(*)</b>"))
    ![x\](http://tracker) of `coset run`, \<b>count(\*)\</b>
    >>> print(in_markdown("tables/app/_delta_log of app_1, and _all_"))
    tables/app/_delta_log of app_1, and _all\_
    """
    return _MARKDOWN.sub(lambda match: match["code"] or f"\\{match[0]}", visible(text, most))


def paragraph(text: str) -> str:
    r"""A paragraph of Markdown that shows the text, whatever it begins with.

    >>> print(paragraph("# All is identical"), paragraph("1. approve"))
    \# All is identical 1\. approve
    """
    return _BLOCK.sub(lambda match: f"{match['number'] or ''}\\", in_markdown(text).lstrip())


def in_json(written: str) -> str:
    r"""The same JSON with escapes for characters that are not visible.

    >>> print(in_json('{"key": "\x7f\u202e"}'))
    {"key": "\u007f\u202e"}
    """
    return _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], written)


def _escape(character: str) -> str:
    number = ord(character)
    if character in _NAMED:
        return _NAMED[character]
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
