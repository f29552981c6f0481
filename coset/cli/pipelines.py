"""Pipelines as the command line names them: the path of a Python file that defines `pipeline`, or its name."""

from __future__ import annotations

import shlex
import sys
import traceback
from contextlib import redirect_stdout
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from partitioning.authoring.pipeline import Pipeline
from partitioning.commands import Shown
from partitioning.errors import CosetError, Finding, Refused, about
from partitioning.kinds import Kind

FOLDER = Path("dags", "pipelines")
# How the user calls the pipelines that were loaded, by their names.
_NAMED: dict[str, str] = {}


def load(named: str) -> Pipeline:
    """The pipeline in the file `named`, or in `dags/pipelines/<named>.py`.

    Raises Refused if there is no such file, if it fails, or if it defines no `pipeline`.
    """
    path = find(named)
    name = f"coset_pipeline_{path.stem}"
    loader = SourceFileLoader(name, str(path))
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    try:
        # What the file prints is none of what a command was asked for.
        with redirect_stdout(sys.stderr):
            loader.exec_module(module)
    except (CosetError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Refused(
            Finding(
                Kind.PIPELINE_FAILS,
                f"the pipeline's file fails: {_brief(error)}",
                _line(error, path),
                "correct it, then run again",
                about(file=path, error=type(error).__name__),
            )
        ) from error
    pipeline = getattr(module, "pipeline", None)
    if not isinstance(pipeline, Pipeline):
        raise Refused(
            Finding(
                Kind.PIPELINE_FAILS,
                "the file defines no `pipeline`",
                str(path),
                'add: pipeline = Pipeline("…", …)',
                about(file=path),
            )
        )
    _NAMED[pipeline.name] = shlex.quote(named)
    return pipeline


def shown() -> Shown:
    """How findings are shown here: their commands call a pipeline as the user does, who may have named a file."""
    return Shown(named=_NAMED)


def find(named: str) -> Path:
    """The file that `named` means. Raises Refused, with the names there are, if there is none."""
    folders = [FOLDER, Path(__file__).resolve().parents[2] / FOLDER]
    for path in (Path(named), *(folder / f"{named}.py" for folder in folders)):
        if path.is_file():
            return path
    names = sorted({path.stem for folder in folders for path in folder.glob("[!_]*.py")})
    listed = f"name one of {', '.join(names)}, or a file" if names else "name a Python file"
    raise Refused(
        Finding(
            Kind.PIPELINE_UNKNOWN,
            f"there is no pipeline {named!r}",
            f"{named}, {FOLDER}/{named}.py",
            listed,
            about(named=named),
        )
    )


def _brief(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _line(error: BaseException, path: Path) -> str:
    """The last line of the pipeline's own file that the error came through."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
