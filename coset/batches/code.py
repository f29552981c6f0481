"""Code: what a plan notes of the functions that it calls, so that people see when one was changed."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

from coset.batches.attempt import Attempt
from partitioning.imports import code_of
from partitioning.model.plan import Plan
from partitioning.values import replace


def with_code(plan: Plan) -> Plan:
    """The plan with a digest of the code of each function that it calls. Those that are not found here have none."""
    found = {path: code for path in plan.functions if (code := code_of(path)) is not None}
    commits = {path: commit for path in found if (commit := _commit_of(path)) is not None}
    return replace(plan, code=found, commits=commits)


def changed_code(plan: Plan) -> tuple[str, ...]:
    """The functions whose code here is known, and is not the one that the plan notes."""
    here = {path: code_of(path) for path in plan.code}
    return tuple(path for path, noted in plan.code.items() if here[path] not in {None, noted})


def as_run(plan: Plan | None, ran: Attempt | None) -> Plan | None:
    """The plan, if it is that of an attempt, with the code that all tasks of this had: a batch that failed may have
    gone on with other code than was planned."""
    if plan is None or ran is None or not plan.code or plan != ran.plan:
        return plan
    had = defaultdict[str, set[str]](set)
    for receipt in ran.receipts.values():
        for path, codes in (receipt.code if isinstance(receipt.code, dict) else {}).items():
            had[path].update(codes)
    same = {path: code for path, (code, *others) in had.items() if not others}
    return replace(plan, code=plan.code | same) if same else plan


def _commit_of(path: str) -> str | None:
    """The commit of the repository in which a function's module is kept, and whether files of it were changed since.
    None if no repository has the module, or if Git is not there."""
    found = find_spec(path.partition(":")[0])
    program = shutil.which("git")
    if found is None or found.origin is None or program is None:
        return None
    file = Path(found.origin)

    def git(*words: str) -> str:
        command = [program, "-C", str(file.parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", file.name)
        return git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None
    except (OSError, subprocess.SubprocessError):
        return None
