"""Refusals in words: of names and arguments that nobody knows, and of copies of what cannot be copied."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, NoReturn, ParamSpec, TypeVar

from serverless_gc.errors import InputError

__all__ = ["Uncopied", "did_you_mean", "known_arguments", "unknown_argument", "unknown_name"]

P = ParamSpec("P")
R = TypeVar("R")

_MEANT: Mapping[str, str] = {
    **dict.fromkeys(("learning_rate", "step", "step_size", "stepsize", "eta", "alpha"), "lr"),
    **dict.fromkeys(("steps", "iterations", "max_iter", "maxiter", "n_iter", "epochs", "rounds"), "max_rounds"),
    **dict.fromkeys(("workers", "num_workers", "n"), "n_workers"),
}
"""What other packages call an argument."""

_ELSEWHERE: Mapping[str, str] = {
    "policy": "give it to Session(policy=...) or minimize(policy=...)",
    "max_error": "it goes with an approximate gradient code",
    "wait": "it goes with a gradient code or with encoded optimization",
    "decoder": "it goes with a gradient code",
    "strategy": "it goes with a data code",
    "on_undecodable": "it goes with a gradient code",
}
"""Where an argument belongs that is not one of this call."""


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a question that names what is spelled nearly so; empty if nothing is.

    Examples
    --------
    >>> did_you_mean("logistc", ["logistic", "squared"]), did_you_mean("xyz", ["logistic"])
    ("did you mean 'logistic'?", '')
    """
    names = list(known)
    near = difflib.get_close_matches(str(word), names, n=3, cutoff=0.6)
    meant = _MEANT.get(str(word), "")
    if meant in names:
        near = [meant, *(name for name in near if name != meant)][:1]
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def unknown_name(what: str, word: object, known: Iterable[str]) -> str:
    """Say that nothing is called so, and what was meant, or else what there is.

    Examples
    --------
    >>> unknown_name("backend", "lcal", ("local", "aws"))
    "no backend is called 'lcal'; did you mean 'local'?"
    >>> unknown_name("backend", "x", ("local", "aws"))
    "no backend is called 'x'; there are local, aws"
    """
    names = list(known)
    return f"no {what} is called {word!r}; {did_you_mean(word, names) or 'there are ' + ', '.join(names)}"


def unknown_argument(who: str, word: str, known: Iterable[str]) -> str:
    """Say that a call has no such argument, and what was meant, where it goes, or what the call takes.

    Examples
    --------
    >>> unknown_argument("minimize", "learning_rate", ["lr", "max_rounds"])
    "minimize has no argument 'learning_rate'; did you mean 'lr'?"
    """
    names = list(known)
    hint = _ELSEWHERE.get(word) or did_you_mean(word, names) or f"it takes {', '.join(names) or 'none'}"
    return f"{who} has no argument {word!r}; {hint}"


def known_arguments(fn: Callable[P, R]) -> Callable[P, R]:
    """Make a method raise `InputError`, with a suggestion, for keywords that it does not have."""
    names = [name for name in signature(fn).parameters if name != "self"]

    @wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for word in kwargs:
            if word not in names:
                raise InputError(unknown_argument(fn.__qualname__.removesuffix("_async"), word, names))
        return fn(*args, **kwargs)

    return wrapper


class Uncopied:
    """What holds threads, connections and stored objects: it is neither pickled nor copied."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InputError(
            f"a {type(self).__name__} can be neither pickled nor copied: it holds the connections and stored objects "
            "of this process. Open one where it is needed; data kept under a name, Session.encode(name=...), are "
            "opened elsewhere with Session.open(name)"
        )
