"""The pipelines of a project: the files and modules that define `pipeline`, found by path or by name."""

from __future__ import annotations

import ast
import pkgutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from coset.project.here import Here
from coset.project.project import FILE, USUAL, Project
from partitioning.authoring.pipeline import Pipeline
from partitioning.errors import CosetError, Finding, Refused
from partitioning.imports import ALONE
from partitioning.kinds import Kind

# A clone of Coset has pipelines of its own, wherever its command is called.
_CLONE = Project(folder=Path(__file__).resolve().parents[2])


class _AsWritten(SourceFileLoader):
    """Loads a file as it is now: Python would take kept bytecode for it if it was changed within a second and has the
    same size, as `n > 1` has that was `n > 0`."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def places(project: Project) -> tuple[str, ...]:
    """Where the project's pipelines are: paths of files, and import paths of modules.

    Raises Refused if coset.toml names a place that there is not.
    """
    return tuple(place for named in project.pipelines for place in _in(project, named))


def names(project: Project) -> list[str]:
    """How the project's pipelines can be named, by their places, without files that name no `pipeline`: nothing is
    loaded for it. Raises as `places`."""
    return sorted(_short(place) for place in places(project) if not place.endswith(".py") or _names_one(Path(place)))


def load(here: Here, named: str) -> Pipeline:
    """The pipeline of a file, or that of the project which has this name, or whose file has it; as it is in the
    environment.

    Raises Refused if there is none, if its file fails, or if it defines no `pipeline`.
    """
    return here.applied(_pipeline_at(find(here.project, named), here.project))


def load_all(here: Here) -> Iterator[tuple[str, Pipeline | Refused]]:
    """Each place of the project with its pipeline, or why it cannot be loaded. A file that makes none, as one of
    functions, is left out."""
    for place in places(here.project):
        try:
            module = _module_at(place, here.project)
            if any(isinstance(each, Pipeline) for each in vars(module).values()):
                yield place, here.applied(_pipeline_of(module, place))
        except Refused as refusal:
            yield place, refusal


def files_of(pipeline: Pipeline) -> list[str]:
    """The files whose `pipeline` this is, of modules that this process has imported."""
    modules = [module for module in list(sys.modules.values()) if vars(module).get("pipeline") is pipeline]
    return sorted(file for module in modules if (file := getattr(module, "__file__", None)))


def find(project: Project, named: str) -> str:
    """The place that `named` means. Raises Refused, with the names there are, if there is none; and with what is wrong
    with files that cannot be loaded, as it may be theirs."""
    known = [*places(project), *places(_CLONE)]
    if Path(named).is_file() or named in known:
        return named
    by_file = {_short(place): place for place in reversed(known)}
    if named in by_file:
        return by_file[named]
    failing = list[Finding]()
    for place in places(project):
        try:
            if _pipeline_at(place, project).name == named:
                return place
        except Refused as refusal:
            failing += refusal.findings
    listed = f"name one of {', '.join(sorted(by_file))}, or a file" if by_file else "name a Python file"
    where = ", ".join([named, *(f"{place}/{named.removesuffix('.py')}.py" for place in project.pipelines)])
    unknown = Finding.of(Kind.PIPELINE_UNKNOWN, f"there is no pipeline {named!r}", where, listed, named=named)
    raise Refused(unknown, *failing)


def _in(project: Project, named: str) -> Iterator[str]:
    folder = project.folder / named
    if folder.is_dir():
        shown = Path(named) if project.folder == Path.cwd() else folder
        yield from (str(shown / file.name) for file in sorted(folder.glob("[!_]*.py")))
        return
    try:
        found = find_spec(named) if all(map(str.isidentifier, named.split("."))) else None
    except ImportError:
        found = None
    if found is not None and found.submodule_search_locations is not None:
        inside = pkgutil.iter_modules(found.submodule_search_locations)
        yield from sorted(f"{named}.{each.name}" for each in inside if not each.name.startswith("_"))
    elif found is not None:
        yield named
    elif named != USUAL:
        what, then = f"there is no folder and no module {named!r}", f"correct `pipelines` in {FILE}"
        raise Refused.of(Kind.PIPELINE_UNKNOWN, what, str(project.folder / FILE), then, named=named)


def _names_one(path: Path) -> bool:
    """Whether the code of a file names `pipeline`; of one that is no Python, nobody knows."""
    try:
        nodes = ast.walk(ast.parse(path.read_bytes()))
    except (SyntaxError, ValueError):
        return True
    return any(
        (isinstance(node, ast.Name) and node.id == "pipeline")
        or (isinstance(node, ast.alias) and "pipeline" in {node.name, node.asname})
        for node in nodes
    )


def _short(place: str) -> str:
    return Path(place).stem if place.endswith(".py") else place.rpartition(".")[2]


def _pipeline_at(place: str, project: Project) -> Pipeline:
    return _pipeline_of(_module_at(place, project), place)


def _pipeline_of(module: ModuleType, place: str) -> Pipeline:
    pipeline = getattr(module, "pipeline", None)
    if not isinstance(pipeline, Pipeline):
        then = 'add: pipeline = Pipeline("…", …)'
        raise Refused.of(Kind.PIPELINE_FAILS, "the file defines no `pipeline`", place, then, file=place)
    return pipeline


def _module_at(place: str, project: Project) -> ModuleType:
    path = Path(place)
    is_file = path.is_file()
    try:
        # The file's output is no part of a command's answer.
        with redirect_stdout(sys.stderr):
            return _of_file(path, project) if is_file else import_module(place)
    except (CosetError, KeyboardInterrupt):
        raise
    except BaseException as error:
        where = _line(error, path) if is_file else place
        said = traceback.format_exception_only(error)[-1].strip()
        what, then = f"the pipeline's file fails: {said}", "correct it, then run again"
        raise Refused.of(Kind.PIPELINE_FAILS, what, where, then, file=place, error=type(error).__name__) from error


def _of_file(path: Path, project: Project) -> ModuleType:
    """The module of a file: by its name, if it is found in the project's Python path, else by itself."""
    for folder in project.python_folders:
        parts = (
            path.resolve().relative_to(folder).with_suffix("").parts if path.resolve().is_relative_to(folder) else ()
        )
        if parts and all(map(str.isidentifier, parts)):
            _refuse_if_hidden(parts[0], folder)
            return import_module(".".join(parts))
    if ".." in path.parts:
        # Else `__file__` has it too, and so has a source that is named by it. The file's own link stays.
        path = path.parent.resolve() / path.name
    name = f"{ALONE}{path.stem}"
    loader = _AsWritten(name, str(path))
    spec = spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _refuse_if_hidden(name: str, folder: Path) -> None:
    """Raise Refused if Python finds the module or package of this name elsewhere than in the folder."""
    found = find_spec(name)
    there = [Path(each) for each in found.submodule_search_locations or [found.origin or ""]] if found else []
    if not there or any(each.resolve().parent == folder for each in there):
        return
    what = f"Python finds {name!r} in {there[0].parent}, which hides the project's own"
    own = folder / name
    begin = own / "__init__.py"
    then = (
        f"write an empty {begin}, or rename the folder"
        if own.is_dir() and not begin.exists()
        else "rename it, or take the other folder off the Python path"
    )
    raise Refused.of(Kind.PIPELINE_FAILS, what, str(own), then, file=own, module=name)


def _line(error: BaseException, path: Path) -> str:
    """The last line of the pipeline's own file that the error came through."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    return f"{path}:{lines[-1]}" if lines else str(path)
