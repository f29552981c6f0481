"""A repository to start with: a pipeline, its DAG, its test, settings, and a file for CI."""

from __future__ import annotations

from pathlib import Path
from string import Template

from coset.cli.output import Answer
from partitioning.errors import Refused
from partitioning.kinds import Kind
from partitioning.model.offsets import check_name
from partitioning.version import VERSION

_STARTER = Path(__file__).with_name("starter")
# A wheel has no files whose names begin with a dot.
_DOTTED = ("airflowignore", "gitignore", "github")


def init(folder: Path) -> Answer:
    """Write the files of a new repository into a folder that is empty or not there.

    Raises Refused if it holds something, if its name is none for a project, or if it cannot be written.
    """
    name = check_name(folder.resolve().name, "project")
    try:
        if folder.exists() and any(folder.iterdir()):
            what, then = "the folder is not empty, and nothing is overwritten", "name a new folder, or an empty one"
            raise Refused.of(Kind.LOCAL_FILE, what, str(folder), then, file=folder)
        written = [_write(folder, file, name) for file in sorted(_STARTER.rglob("*.txt"))]
    except OSError as error:
        what, then = f"the files cannot be written: {error}", "name a folder that you may write to"
        raise Refused.of(Kind.LOCAL_FILE, what, str(folder), then, file=folder) from error
    text = (*(f"Written: {path}" for path in written), f"Next: cd {folder} && python -m pytest")
    return Answer({"folder": str(folder), "written": map(str, written)}, text)


def _write(folder: Path, file: Path, name: str) -> Path:
    parts = file.relative_to(_STARTER).with_suffix("").parts
    path = folder.joinpath(*(f".{part}" if part in _DOTTED else part for part in parts))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Template(file.read_text("utf-8")).substitute(name=name, version=VERSION), encoding="utf-8")
    return path
