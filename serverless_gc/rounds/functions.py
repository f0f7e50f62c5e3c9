"""A user's function on its way to the workers: pickled by value, alone, small, and stamped.

Arrays that it refers to travel beside the pickle, never in it: a pickled array is not readable by every NumPy.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import pickle
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import cloudpickle
import numpy as np

from serverless_gc.errors import InputError, LimitError
from serverless_gc.types import Array
from serverless_gc.wire import pack
from serverless_gc.worker.losses import LOSSES, Loss

__all__ = ["MOST_BYTES", "LossFunction", "Shipment", "builtin_loss", "ship"]

LossFunction: TypeAlias = Callable[..., Any]
"""``loss(X, y, w) -> gradient`` or ``-> (value, gradient)``; with row weights ``loss(X, y, w, sample_weight)``."""

MOST_BYTES = 2**20
"""Most bytes of a function and all it refers to; every cold worker reads them."""

_PICKLING = threading.Lock()  # what is pickled by value is a setting of cloudpickle's module


@dataclass(frozen=True, slots=True)
class Shipment:
    """A function as it is stored.

    Attributes
    ----------
    data
        The frame: its pickle, and the arrays it refers to.
    digest
        SHA-256 of ``data``, in hexadecimal.
    python
        Major and minor version of the Python that pickled it.
    name
        As what it was given, for messages.
    """

    data: bytes
    digest: str
    python: str
    name: str = "loss"

    @property
    def stamp(self) -> dict[str, str]:
        """What a task says of it: the worker compares both before it unpickles anything."""
        return {"digest": self.digest, "python": self.python, "name": self.name}


def builtin_loss(loss: Any) -> tuple[str, dict[str, Any]] | None:
    """Return name and parameters of a loss that every worker knows; None for all else.

    Examples
    --------
    >>> from serverless_gc.worker.losses import Huber
    >>> builtin_loss(Huber(delta=2.0)), builtin_loss(print)
    (('huber', {'delta': 2.0}), None)
    """
    known: Any = LOSSES.get(loss.name) if isinstance(loss, Loss) else None
    if known is not None and type(loss) is known:
        fields = dataclasses.fields(loss) if dataclasses.is_dataclass(loss) else ()
        return loss.name, {field.name: getattr(loss, field.name) for field in fields}
    return None


def ship(function: Any, name: str = "loss") -> Shipment:
    """Pickle a function by value, or an object of a class of the user's.

    Code of the module that defines it goes along, so the worker need not have that module; of installed packages only
    the names go, so the worker needs those. ``name`` is as what it was given, for messages.

    Raises
    ------
    InputError
        If something it refers to cannot be pickled; names the variable.
    LimitError
        If it refers to more than 1 MiB; names the variable.
    """
    try:
        data = _packed(function)
    except LimitError as exc:
        largest = max(_captured(function).items(), key=lambda item: _bytes(item[1]), default=("", None))
        which = f", most of it in {largest[0]}" if _bytes(largest[1]) > MOST_BYTES // 4 else ""
        raise LimitError(
            f"{name} refers to {exc}{which}. Pass arrays as data: as columns of X or y, or as a part of w; what the "
            "function can make itself it should make inside"
        ) from None
    except Exception as exc:  # whatever the pickling of a user's object raises
        raise InputError(
            f"{name} cannot be sent to workers: {_culprit(function) or 'it'} cannot be pickled ({exc}). Make clients, "
            "files and locks inside the function, and pass it plain values"
        ) from exc
    return Shipment(data, hashlib.sha256(data).hexdigest(), f"{sys.version_info[0]}.{sys.version_info[1]}", name)


def _packed(function: Any) -> bytes:
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    with _PICKLING, _by_value(function):
        pickler.dump(function)
    _check_size(len(buffer.getbuffer()) + pickler.nbytes)
    code = np.frombuffer(buffer.getvalue(), np.uint8)
    return pack({"kind": "function"}, (code, *pickler.arrays))


def _check_size(nbytes: int) -> None:
    if nbytes > MOST_BYTES:
        raise LimitError(f"{nbytes:,} bytes, at most {MOST_BYTES:,} may go along with a function")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is not typed
    """Pickles everything but arrays, which it lists."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self.arrays: list[Array] = []
        self.nbytes = 0
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []

    def persistent_id(self, obj: Any) -> tuple[str, Any] | None:
        """Keep arrays, NumPy's scalars and its ufuncs out of the pickle: where they live differs among versions."""
        if isinstance(obj, np.ufunc):
            name = obj.__name__
            return ("ufunc", name) if getattr(np, name, None) is obj else None
        if type(obj) is not np.ndarray and not (isinstance(obj, np.generic) and obj.dtype.kind in "biufc"):
            return None
        if obj.dtype.kind not in "biufc" or obj.dtype.itemsize > (16 if obj.dtype.kind == "c" else 8):
            raise pickle.PicklingError(f"an array of {obj.dtype} is not portable; make it a list")
        number = self._numbers.get(id(obj))
        if number is None:
            number = self._numbers[id(obj)] = len(self.arrays)
            self.arrays.append(np.asarray(obj))
            self._alive.append(obj)  # so that its id stays its own
            self.nbytes += obj.nbytes
            _check_size(self.nbytes)
        return ("array" if isinstance(obj, np.ndarray) else "scalar"), number


# -- what goes by value --------------------------------------------------------------------------------


@contextmanager
def _by_value(function: Any) -> Iterator[None]:
    """Have cloudpickle take the code of the function's own package along, if it is the user's own."""
    module = _own_module(function)
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _own_module(function: Any) -> ModuleType | None:
    """Return the outermost package of what defines a function; None if it is installed, or no module at all."""
    inner = _unwrapped(function)
    name = str(getattr(inner, "__module__", None) or type(inner).__module__)
    module = sys.modules.get(name.partition(".")[0]) or sys.modules.get(name)
    if module is None or name == "__main__" or module.__name__ in sys.stdlib_module_names:
        return None
    file = module.__file__
    places = [file] if file else [str(place) for place in getattr(module, "__path__", ())]
    installed = [Path(p).resolve() for p in (*site.getsitepackages(), site.getusersitepackages(), *_purelib())]
    own = [place for place in places if not any(Path(place).resolve().is_relative_to(at) for at in installed)]
    return module if own and module.__name__ != "serverless_gc" else None


def _purelib() -> list[str]:
    return [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]


def _unwrapped(function: Any) -> Any:
    while isinstance(function, (functools.partial, MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    return function


# -- which variable it was -----------------------------------------------------------------------------


def _culprit(function: Any) -> str:
    """Name the first variable that cannot be pickled on its own; empty if none is found."""
    for name, value in _captured(function).items():
        try:
            _packed(value)
        except Exception as exc:  # noqa: BLE001 - as above
            if not isinstance(exc, LimitError):
                return f"{name} (a {type(value).__module__}.{type(value).__qualname__})"
    return ""


def _captured(function: Any) -> Mapping[str, Any]:
    """List what a function refers to, by a name for messages: closure, globals, defaults, arguments, attributes."""
    found: dict[str, Any] = {}
    while isinstance(function, (functools.partial, MethodType)):
        if isinstance(function, MethodType):
            found |= _attributes(function.__self__)
            function = function.__func__
            continue
        found |= {f"argument {i} of the partial": value for i, value in enumerate(function.args)}
        found |= {f"argument {name!r} of the partial": value for name, value in function.keywords.items()}
        function = function.func
    if not isinstance(function, FunctionType):
        return found | _attributes(function)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for name, cell in cells:
        try:
            found[f"variable {name!r}"] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    names = _names(function.__code__)
    found |= {f"global {name!r}": function.__globals__[name] for name in names if name in function.__globals__}
    found |= {f"default number {i}": value for i, value in enumerate(function.__defaults__ or ())}
    return found | {f"default {name!r}": value for name, value in (function.__kwdefaults__ or {}).items()}


def _attributes(thing: Any) -> dict[str, Any]:
    return {f"attribute {name!r}": value for name, value in getattr(thing, "__dict__", {}).items()}


def _names(code: CodeType) -> set[str]:
    """Names of globals that code uses, the functions inside it included."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _bytes(value: Any) -> int:
    """Bytes of a value, roughly."""
    if isinstance(value, (list, tuple, set, frozenset)):
        return sys.getsizeof(value) + sum(_bytes(item) for item in value)
    if isinstance(value, dict):
        return sys.getsizeof(value) + sum(_bytes(item) for item in value.values())
    return int(getattr(value, "nbytes", sys.getsizeof(value)))
