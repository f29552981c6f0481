"""Import paths: how plans and settings name a user's own code. Code itself is never stored or loaded from S3.

Anyone who can write to the store can write a plan. So Coset calls what a plan names only if the deployment allows it:
its environment variable COSET_IMPORTS lists the packages, as COSET_IMPORTS=shop,lab.codecs.

A digest says what a user's function says, by itself and by what it uses of its module. Comments, docstrings,
annotations, layout and all else in the module do not count. The digest is the same in each version of Python, which
bytecode and Python's own texts of syntax trees are not.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import linecache
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from partitioning.commands import Then
from partitioning.errors import CosetError, Refused
from partitioning.kinds import Kind

ALLOWED = "COSET_IMPORTS"
# Begins the name of a module of a file that is in no project: only the process that read it knows it.
ALONE = "coset_pipeline_"
# Coset's own, and the folder of the deployed pipelines.
_OWN = ("partitioning.planning.groups", "partitioning.planning.partitioners", "partitioning.samza", "dags.pipelines")
# Of the digest of some code: enough to tell two versions apart.
_DIGITS = 16
_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")


def is_import_path(text: str) -> bool:
    """Whether `text` has the form `package.module:name`.

    >>> is_import_path("shop.codecs:country"), is_import_path("murmur2")
    (True, False)
    """
    return _PATH.fullmatch(text) is not None


def import_path(named: str | Callable[..., Any], where: str) -> str:
    """The import path of a module's own function, or the path itself.

    >>> import_path(import_path, "here")
    'partitioning.imports:import_path'

    Raises Refused for what only the running program knows: lambdas, functions in functions, its main module's, those of
    a file alone.
    """
    path = named if isinstance(named, str) else f"{named.__module__}:{getattr(named, '__qualname__', '<none>')}"
    if path.startswith(ALONE):
        what = f"{path.partition(':')[2]!r} is in a pipeline's file that is in no project, so tasks cannot import it"
        then = (
            f"move it into a file of its own, name that in {ALLOWED} and its folder in PYTHONPATH; or make a project "
            "with `coset init`, whose pipelines tasks can import"
        )
        raise Refused.of(Kind.IMPORT, what, where, then, path=path)
    if not is_import_path(path) or path.startswith("__main__:"):
        what = f"{path!r} cannot be imported by name"
        raise Refused.of(Kind.IMPORT, what, where, "name a function of a module: package.module:function", path=path)
    return path


def is_allowed(module: str) -> bool:
    """Whether the deployment allows what is in a module to be called."""
    allowed = (*_OWN, *os.environ.get(ALLOWED, "").split(","))
    return any(f"{module}.".startswith(f"{prefix.strip()}.") for prefix in allowed if prefix.strip())


def imported(path: str, where: str, *, tasks: bool = False) -> Any:
    """The object that an import path names. With `tasks`, a process that runs tasks asks for it, perhaps on another
    machine.

    Raises Refused if the deployment does not allow it, if it does not exist or cannot be called, or if its module
    fails.
    """
    module, _, name = import_path(path, where).partition(":")
    package = module.partition(".")[0]
    where = f"{where}, in the process that runs its tasks" if tasks else where
    if not is_allowed(module):
        then = f"if it is yours, set {ALLOWED}={package} wherever Coset and its tasks run; it may name several packages"
        if tasks:
            then = (
                f"if it is yours, set {ALLOWED}={package} where that process is started: a Spark server does not have "
                "what is set for this command, and has to be started anew"
            )
        raise Refused.of(Kind.IMPORT, f"{path!r} is not allowed to be called here", where, then, path=path)
    try:
        found = getattr(importlib.import_module(module), name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        then = "put it into a module that is installed, or correct the path"
        if tasks:
            then = f"install it there, or ship it: COSET_SHIP={package}, set for the process that runs task groups"
        what = f"{path!r} cannot be imported: {_text(error)}"
        raise Refused.of(Kind.IMPORT, what, f"{_line_of_module(error)}{where}", then, path=path) from error
    if not callable(found):
        raise Refused.of(Kind.FUNCTION, f"{path} is no function", where, "name one", function=path)
    return found


def code_of(path: str) -> str | None:
    """A digest of the code of a function that an import path names: of what it says, or of its module's source if that
    does not define it by its name. None if this process may not call it, or if there is no source."""
    module, _, name = path.partition(":")
    if not is_import_path(path) or not is_allowed(module):
        return None
    try:
        named = importlib.import_module(module)
        found = getattr(named, name)
        source = inspect.getsource(named)
        if (said := digest_of(source, name)) is None:
            # The module has it from elsewhere, by a way that its source does not show.
            source = inspect.getsource(inspect.getmodule(found) or named)
            said = digest_of(source, getattr(found, "__name__", name))
    except Exception:
        return None
    return said or f"sha256:{sha256(source.encode()).hexdigest()[:_DIGITS]}"


@contextmanager
def called(kind: Kind, what: str, where: str, then: Then) -> Iterator[None]:
    """A block that calls a user's code. Raises Refused for any error of that code. Coset's own errors and Ctrl-C pass
    unchanged."""
    try:
        yield
    except (CosetError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Refused.of(
            kind, f"{what} {failed(error)}", f"{line_of(error, ours=2)}{where}", then, what=what
        ) from error


def failed(error: BaseException) -> str:
    """The error of a user's code."""
    return f"failed: {type(error).__name__}: {_text(error)}"


def line_of(error: BaseException, *, ours: int = 1) -> str:
    """The last line of the user's own file that an error came through, to stand before where it happened. The first
    `ours` frames are Coset's."""
    frames = traceback.extract_tb(error.__traceback__)[ours:]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    return line_in(own[-1].filename, own[-1].lineno or 0) if own else ""


def line_in(file: str, number: int) -> str:
    """A line of a file with what it says, to stand before where something happened."""
    source = linecache.getline(file, number).strip()
    return f"{file}:{number} `{source}`, " if source else f"{file}:{number}, "


def _line_of_module(error: BaseException) -> str:
    """The line at which the import of a module failed, if it is a line of a file that is not Coset's or Python's."""
    if isinstance(error, SyntaxError) and error.filename:
        return line_in(error.filename, error.lineno or 0)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[1:] if not frame.filename.startswith("<")]
    own = [frame for frame in frames if frame.filename != importlib.__file__]
    return line_in(own[-1].filename, own[-1].lineno or 0) if own else ""


def _text(error: BaseException) -> str:
    """The text of an error. The `__str__` of a user's error may fail."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text cannot be made: {type(failure).__name__})"


# Begins the digest, so that it is not held against one of something else.
SAYS = "says:"
_DIGITS_OF_CODE = 16
# What does not change what code does, or is not in all versions of Python.
_IGNORED = {"annotation", "returns", "ctx", "kind", "type_comment", "type_params", "type_ignores"}


def digest_of(source: str, name: str) -> str | None:
    """The digest of a function of a module, by the module's source; None if it does not define it by that name.

    >>> digest_of("def f(x): return x + 1", "f") == digest_of("def f(x: int):\\n  'adds'\\n  return x + 1  # !", "f")
    True
    """
    defined, statements = dict[str, list[ast.AST]](), ast.parse(source).body
    for statement in statements:
        for known_as, node in _bound(statement):
            defined.setdefault(known_as, []).append(node)
    made = (each for each in statements if not isinstance(each, ast.Import | ast.ImportFrom))
    own = {known_as for statement in made for known_as, _ in _bound(statement)}
    for known_as, node in (each for statement in statements for each in _registered(statement)):
        if known_as in own:
            defined[known_as].append(node)
    if name not in defined:
        return None
    # What the module has of others by a star, any name may be.
    used, left = dict[str, list[str]](), [name, "*"]
    while left:
        here = left.pop()
        if here in defined and here not in used:
            used[here] = [_code_text(node) for node in defined[here]]
            left += (each for node in defined[here] for each in _names(node))
    return SAYS + sha256(repr(sorted(used.items())).encode()).hexdigest()[:_DIGITS_OF_CODE]


def _registered(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """The names of what a function or class is registered with by a decorator, `@area.register`, which may go by its
    annotations, each with what is registered."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        for decorator in statement.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
                yield called.value.id, statement
                noted = [each.annotation for each in ast.walk(statement) if isinstance(each, ast.arg)]
                yield called.value.id, ast.Tuple([each for each in noted if each])


def _names(node: ast.AST) -> Iterator[str]:
    """The names in a node of a syntax tree, but for those that do not count."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST) and field not in _IGNORED:
                yield from _names(each)


def _bound(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """The names that a statement of a module makes or changes, each with what makes it."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        module = getattr(statement, "module", "")
        for alias in statement.names:
            made = ast.Tuple([ast.Constant(module), ast.Constant(alias.name)])
            yield alias.asname or alias.name.partition(".")[0], made
    elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name, statement
    else:
        names = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        names |= {node.name for node in ast.walk(statement) if isinstance(node, inner)}
        yield from ((name, statement) for name in sorted(names))


def _code_text(node: object) -> str:
    """A node of a syntax tree as text, without what is empty."""
    if isinstance(node, list):
        return f"[{', '.join(map(_code_text, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list):
            value = [each for each in value if not _is_docstring(each)]
        if isinstance(node, ast.JoinedStr):
            # Some versions put empty texts between its parts.
            value = [each for each in value if not isinstance(each, ast.Constant) or each.value]
        if name not in _IGNORED and value not in (None, []):
            fields.append(f"{name}={_code_text(value)}")
    return f"{type(node).__name__}({', '.join(fields)})"


def _is_docstring(statement: ast.AST) -> bool:
    """Whether a statement is a text alone, as a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
