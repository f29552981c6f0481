"""Function code: a digest of what a user's function says, by itself and by what it uses of its module.

Comments, docstrings, annotations, layout and all else in the module do not count. The digest is the same in each
version of Python, which bytecode and Python's own texts of syntax trees are not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from hashlib import sha256

# Begins the digest, so that it is not held against one of something else.
SAYS = "says:"
_DIGITS = 16
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
    own = {known_as for statement in statements if not _is_import(statement) for known_as, _ in _bound(statement)}
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
            used[here] = [_text(node) for node in defined[here]]
            left += (each for node in defined[here] for each in _names(node))
    return SAYS + sha256(repr(sorted(used.items())).encode()).hexdigest()[:_DIGITS]


def _is_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Import | ast.ImportFrom)


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


def _text(node: object) -> str:
    """A node of a syntax tree as text, without what is empty."""
    if isinstance(node, list):
        return f"[{', '.join(map(_text, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list):
            value = [each for each in value if not _is_text(each)]
        if isinstance(node, ast.JoinedStr):
            # Some versions put empty texts between its parts.
            value = [each for each in value if not isinstance(each, ast.Constant) or each.value]
        if name not in _IGNORED and value not in (None, []):
            fields.append(f"{name}={_text(value)}")
    return f"{type(node).__name__}({', '.join(fields)})"


def _is_text(statement: ast.AST) -> bool:
    """Whether a statement is a text alone, as a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
