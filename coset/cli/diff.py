"""Diff on the command line: two plans side by side, by batch number, `next`, file or URI. Nothing is stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from coset.batches.planning import preview
from coset.cli import pipelines
from coset.cli.output import Answer, Block
from coset.cli.plans import stored_plan
from partitioning.authoring.settings import Settings
from partitioning.diff.plan_diff import Diff, diff, diff_sections
from partitioning.documents.document import decode, digest, unpack
from partitioning.documents.ledger import Ledger
from partitioning.documents.stores import store_at
from partitioning.errors import Refused
from partitioning.explain.reason_texts import move_reason
from partitioning.kinds import Kind
from partitioning.model.plan import Plan

_NEXT = "next"
_USAGE = "write `coset diff PIPELINE 3 4`, `coset diff PIPELINE 3 next` or `coset diff old.json.gz new.json.gz`"


def compare_batches(named: str, old: str, new: str, root: str, settings: Settings) -> Answer:
    """What differs between two batches of a pipeline; `new` may be `next`, what would be planned now.

    Raises Refused if there is no such batch.
    """
    pipeline, store = pipelines.load(named), store_at(root)
    ledger = Ledger(store, pipeline.name)
    before = stored_plan(ledger, _number(old))
    if new != _NEXT:
        return _compared(before, stored_plan(ledger, _number(new)))
    taken = preview(pipeline, store, settings)
    if taken.plan is None:
        return Answer({"sentences": [taken.sentence]}, [taken.sentence])
    return _compared(before, taken.plan)


def compare_files(old: str, new: str) -> Answer:
    """What differs between two stored plans, each a file or an S3 URI. Raises Refused if one is not there."""
    return _compared(_read(old), _read(new))


def misused(words: Sequence[str]) -> Refused:
    """What to raise for anything but two plans, or a pipeline and two batches."""
    what = f"{len(words)} names are not two plans to compare"
    return Refused.of(Kind.ARGUMENT, what, " ".join(words), _USAGE, words=len(words))


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise Refused.of(Kind.ARGUMENT, f"{text!r} is no batch number", "OLD NEW", _USAGE, text=text)
    return int(text)


def _read(named: str) -> Plan:
    root, _, key = named.rpartition("/")
    try:
        data = store_at(root).get(key) if "://" in named else Path(named).read_bytes()
    except OSError as error:
        what = f"there is no plan {named!r}: {error.strerror}"
        raise Refused.of(Kind.BATCH_UNKNOWN, what, named, _USAGE, named=named) from error
    if data is None:
        what = "there is no such plan"
        raise Refused.of(Kind.BATCH_UNKNOWN, what, named, "use the URI that `coset explain` shows", named=named)
    return decode(Plan, unpack(data, named) if named.endswith(".gz") else data, named)


def _compared(before: Plan, now: Plan) -> Answer:
    differences = diff(before, now)
    text: tuple[Block, ...] = (f"{_name(before)} → {_name(now)}", "", *diff_sections(differences))
    return Answer(partial(_document, differences, before, now), text)


def _name(plan: Plan) -> str:
    return f"{plan.pipeline}, batch {plan.batch} ({digest(plan)})"


def _document(differences: Diff, before: Plan, now: Plan) -> dict[str, Any]:
    """The diff as plain data. Shares are exact fractions."""
    return {
        "before": {"pipeline": before.pipeline, "batch": before.batch, "digest": digest(before)},
        "now": {"pipeline": now.pipeline, "batch": now.batch, "digest": digest(now)},
        "sentences": differences.sentences,
        "states": differences.states,
        "changes": differences.changes,
        "handovers": differences.handovers,
        "moves": [
            {"task": str(move.task), "before": move.before, "now": move.now, "why": move_reason(move.why)}
            for move in differences.moves
        ],
        "results": differences.results,
    }
