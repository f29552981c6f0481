"""Arguments: what the methods of pipelines and flows take, and the findings where they are called with others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, wraps
from inspect import Parameter, signature
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, NamedTuple, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from partitioning.errors import Finding, Refused
from partitioning.imports import line_in
from partitioning.kinds import Kind
from partitioning.texts import visible

T = TypeVar("T")

_WORDS: Mapping[object, str] = {
    Any: "anything",
    object: "anything",
    str: "a text",
    int: "a whole number",
    bool: "True or False",
    timedelta: "a time, such as timedelta(hours=1)",
    NoneType: "None",
    Self: "a flow",
    Callable: "a function",
}
# What to write if a method was meant to do what SQL does under its name.
_INSTEAD = {
    "distinct": (
        "; SELECT DISTINCT of columns a and b is aggregate('a, b') here, and one row of each key over all batches is "
        "latest('a'), the one with the greatest a"
    ),
    "latest": ", which says which record of a key is later, as latest('seen')",
}


class _Taken(NamedTuple):
    """An argument that a method takes: of which type, also by its place, and whether it must be given."""

    type: Any
    by_place: bool
    needed: bool


def checked(made: type[T]) -> type[T]:
    """The class, whose public methods refuse what they do not take before they do anything."""
    for name, method in list(vars(made).items()):
        if isinstance(method, FunctionType) and (name == "__init__" or not name.startswith("_")):
            setattr(made, name, _checked(method))
    return made


def _checked(method: FunctionType) -> Callable[..., Any]:
    @wraps(method)
    def call(own: Any, *given: Any, **named: Any) -> Any:
        if wrong := list(_wrong(method, own, given, named)):
            of = getattr(own, "step", getattr(own, "name", ""))
            called = f"{method.__name__} of {of}" if of else type(own).__name__
            where = f"{_line()}{called}"
            raise Refused(
                *(
                    Finding.of(Kind.DECLARATION, f"{called}: {what}", where, then, argument=argument, wrong=what)
                    for argument, what, then in wrong
                )
            )
        return method(own, *given, **named)

    return call


def _wrong(
    method: FunctionType, own: Any, given: Sequence[Any], named: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """What is wrong with a call: the argument, what of it, and what to write."""
    takes, others = _takes(method)
    places = [name for name, each in takes.items() if each.by_place]
    values = [*zip(places, given, strict=False), *named.items()]
    beyond = given[len(places) :]
    if beyond and others is None:
        yield "", f"{len(beyond)} arguments too many", f"give them by name; it takes {', '.join(takes)}"
    values += [(f"argument {number}", value) for number, value in enumerate(beyond, len(places) + 1) if others]
    for name in named:
        if name in places[: len(given)]:
            yield name, f"{name} is given twice", "give it once"
        elif name not in takes:
            near = get_close_matches(name, takes, 1)
            then = f"write {near[0]}=" if near else f"leave it out; it takes {', '.join(takes)}"
            yield name, f"it takes no {name}=", then
    if missing := [name for name, each in takes.items() if each.needed and name not in dict(values)]:
        wanted = ", and ".join(f"{name}=, {_said(takes[name].type)}" for name in missing)
        what = f"{' and '.join(f'{name}=' for name in missing)} {'is' if len(missing) == 1 else 'are'} missing"
        yield missing[0], what, f"give {wanted}{_INSTEAD.get(method.__name__, '')}"
    for name, value in values:
        kind = takes[name].type if name in takes else Any if name in named else others
        if not _is(value, kind, own):
            yield name, f"{name} is {_shown(value)}", f"give {_said(kind)}"
        for flow in _flows(value, type(own)):
            if flow.pipeline is not own.pipeline:
                what = f"{name} is {_shown(flow)}, and the flows are of different pipelines"
                yield name, what, "declare their streams in one"


@cache
def _takes(method: FunctionType) -> tuple[Mapping[str, _Taken], Any]:
    """The arguments that a method takes by name, and the type of the others, None if it takes no others."""
    hints, takes, others = get_type_hints(method), dict[str, _Taken](), None
    for each in list(signature(method).parameters.values())[1:]:
        kind = hints[each.name]
        if each.kind is Parameter.VAR_POSITIONAL:
            others = kind
        elif each.kind is Parameter.VAR_KEYWORD:
            (declared,) = get_args(kind)
            takes |= {name: _Taken(kind, False, False) for name, kind in get_type_hints(declared).items()}
        else:
            is_by_place = each.kind is Parameter.POSITIONAL_OR_KEYWORD
            takes[each.name] = _Taken(kind, is_by_place, each.default is Parameter.empty)
    return takes, others


def _is(value: Any, kind: Any, own: Any) -> bool:
    """Whether a value is of a type, as a method's annotation has it."""
    if kind in (Any, object):
        return True
    made, of = get_origin(kind) or kind, get_args(kind)
    if made in (Union, UnionType):
        return any(_is(value, each, own) for each in of)
    if made is Callable:
        return callable(value)
    if made is Literal:
        # Which texts there are is said by what reads them, with where it was.
        return isinstance(value, str)
    if not isinstance(value, type(own) if kind is Self else Sequence if made is tuple else made):
        # A set of names will do for a list.
        return made is Sequence and isinstance(value, Collection) and _are(value, of[0], own)
    if made is tuple:
        return not isinstance(value, str) and len(value) == len(of) and all(map(lambda e, k: _is(e, k, own), value, of))
    if made in (Sequence, Iterable):
        return _are(value, of[0], own)
    if isinstance(value, Mapping):
        return all(_is(name, of[0], own) and _is(each, of[1], own) for name, each in value.items())
    return made is not int or not isinstance(value, bool)


def _are(values: Iterable[Any], kind: Any, own: Any) -> bool:
    """Whether all are of a type; what can be gone through only once is not looked at."""
    if isinstance(values, Mapping):
        return False
    return not isinstance(values, Collection) or all(_is(each, kind, own) for each in values)


def _said(kind: Any) -> str:
    """A type in words."""
    made, of = get_origin(kind) or kind, get_args(kind)
    if made in _WORDS:
        return _WORDS[made]
    if made in (Union, UnionType):
        return " or ".join(_said(each) for each in of if not (isinstance(each, type) and issubclass(each, StrEnum)))
    if made is Literal:
        return f"{', '.join(map(repr, of[:-1]))} or {of[-1]!r}"
    if made is tuple:
        return f"({', '.join(map(_said, of))})"
    if made is Mapping:
        return f"a mapping of {_said(of[0])} to {_said(of[1])}"
    if made in (Sequence, Iterable):
        return f"a list, each {_said(of[0])}"
    return f"a {made.__name__}"


def _shown(value: Any) -> str:
    return f"the flow {value.step}" if hasattr(value, "step") else visible(repr(value), 60)


def _flows(value: Any, of: type) -> Iterator[Any]:
    """The flows in an argument."""
    if isinstance(value, of) and hasattr(value, "step"):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _flows(each, of)


def _line() -> str:
    """The line that called, to stand before what it called."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "partitioning":
        frame = frame.f_back
    return line_in(frame.f_code.co_filename, frame.f_lineno)
