"""How objects behave in a forked child.

A child gets a copy of every object, but only the thread that forked. A lock that another thread
held is never released there, and a second writer would overwrite the parent's appends. So
`ProcessBound` objects raise in a child, and `SurvivesFork` objects get a new lock there. Both cost
something when an object is created and when a process forks, and nothing in between: an append
checks no process id.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import weakref
from importlib import import_module

from seglog.errors import ForkedProcessError

TYPE_CHECKING = False  # `seglog --help` imports no typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, ClassVar, Concatenate, Final, NoReturn, ParamSpec, Self, TypeVar

    _P = ParamSpec("_P")
    _T = TypeVar("_T")
    _Bound = TypeVar("_Bound", bound="ProcessBound")

__all__ = ["ProcessBound", "SurvivesFork", "ending", "imported_at_use", "imports"]

_IMPORT_SECONDS: Final = 20.0
_OF_LOCKED: Final = (
    "That process has the lock of the data directory: read it here with seglog.PartitionLog or "
    "seglog.open_data_dir, or open a log in another data directory, after the fork.")
_ENTERS: Final = ("__enter__", "__aenter__")


def ending(method: Callable[Concatenate[_Bound, _P], None]
           ) -> Callable[Concatenate[_Bound, _P], None]:
    """Marks a method that closes or stops something. In a child it does nothing, because the
    resource is the parent's."""

    @functools.wraps(method)
    def end(self: _Bound, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if not type(self)._is_foreign:
            method(self, *args, **kwargs)

    end._is_ending = True  # type: ignore[attr-defined]
    return end


class ProcessBound:
    """Base class of objects that write files, hold a file lock or run threads.

    They belong to one process. In a forked child every attribute raises ForkedProcessError, except
    the `ending` methods, which do nothing. They cannot be pickled.
    """

    __slots__ = ("__weakref__",)

    #: The object's name in errors, if not that of its class.
    _called: ClassVar[str] = ""
    #: Whether it works on a data directory that its process has locked, as the error then says.
    _has_lock: ClassVar[bool] = False
    _is_foreign: ClassVar[bool] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Registers the object, so that a forked child finds it."""
        self = super().__new__(cls)
        _bound.add(self)
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Raises TypeError: a copy would be a second owner."""
        called = self._called or type(self).__name__
        raise TypeError(
            f"cannot pickle {'an' if called[0] in 'AEIOU' else 'a'} {called}: it belongs to the "
            "process that opened it. Open it in the other process, or read the log there with "
            "seglog.PartitionLog.open(path)")


class SurvivesFork:
    """Base class of objects that a forked child may use: it gets a new `_lock` (reentrant)."""

    __slots__ = ("__weakref__", "_lock")

    _lock: threading.RLock

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Creates the lock and registers the object."""
        self = super().__new__(cls)
        self._lock = threading.RLock()
        _survivors.add(self)
        return self


class _Objects:
    """Weak references to objects, hashable or not. Each step is one atomic operation."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[Any]] = {}

    def add(self, one: object) -> None:
        key, references = id(one), self._references
        references[key] = weakref.ref(one, lambda _: references.pop(key, None))

    def take(self, kind: type[_T]) -> list[_T]:
        """The objects still alive; a second call does not return them again."""
        found = [one for one in (reference() for reference in list(self._references.values()))
                 if isinstance(one, kind)]
        self._references.clear()
        return found


_bound = _Objects()
_survivors = _Objects()
_pid = os.getpid()
_was_held: list[bool] = []


def _after_fork_in_child() -> None:
    """Runs first in the child, in its only thread."""
    global _pid, imports
    imports = threading.RLock()
    _was_held.clear()
    owner, _pid = _pid, os.getpid()
    for survivor in _survivors.take(SurvivesFork):
        survivor._lock = threading.RLock()
        _survivors.add(survivor)
    classes: dict[type[ProcessBound], type[ProcessBound]] = {}
    for bound in _bound.take(ProcessBound):
        cls = type(bound)
        if cls not in classes:
            classes[cls] = _foreign(cls, owner)
        # Replacing the class covers every method, and costs nothing in the parent.
        bound.__class__ = classes[cls]


# A thread that imports a module holds Python's import lock, which is never released in a child. So
# a fork waits until the imports of this package have finished.
imports = threading.RLock()


def imported_at_use(package: str, names: Mapping[str, Sequence[str]]
                    ) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` of a package whose names are imported at their first use, and its
    `__dir__`, which lists what the package exports.

    `names` are those of each of its modules; a module may have its own name, which stands for it.
    """
    homes = {name: module for module, found in names.items() for name in found}

    def import_name(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with imports:
            module = import_module(f"{package}.{homes[name]}")
        value = module if homes[name] == name else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return import_name, lambda: sorted(sys.modules[package].__all__)


def _before_fork() -> None:
    # Do not wait for an import that cannot finish before the fork.
    _was_held.append(imports.acquire(timeout=_IMPORT_SECONDS))


def _after_fork_in_parent() -> None:
    if _was_held.pop():
        imports.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent,
                    after_in_child=_after_fork_in_child)


def _foreign(cls: type[ProcessBound], owner: int) -> type[ProcessBound]:
    """A class for objects of `cls` that belong to another process, `owner`."""

    called = cls._called or cls.__name__

    def refuse() -> NoReturn:
        raise ForkedProcessError(called, owner, *([_OF_LOCKED] if cls._has_lock else ()))

    def getattribute(self: object, name: str) -> Any:
        if name.startswith("__") or hasattr(getattr(cls, name, None), "_is_ending"):
            return object.__getattribute__(self, name)
        refuse()

    def setattr_(self: object, name: str, value: object) -> None:
        refuse()

    def enter(self: object) -> NoReturn:
        refuse()

    def represent(self: object) -> str:
        return f"<{called} of process {owner}>"

    methods: dict[str, Any] = {name: enter for name in _ENTERS if hasattr(cls, name)}
    make: Any = type(cls)
    made: type[ProcessBound] = make(cls.__name__, (cls,), {
        "__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__, "__getattribute__": getattribute, "__setattr__": setattr_,
        "__repr__": represent, "_is_foreign": True, **methods})
    return made

