"""What becomes of objects in a forked child.

A child gets a copy of every object, but only the thread that forked: a lock that another thread
held then is never released there, and a second writer would overwrite what the parent appends. So
each class says what it is: `ProcessBound` objects refuse to work in a child, `SurvivesFork` objects
get a new lock there. Both cost something when an object is made and when a process forks, and
nothing in between: an append checks no process id.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable
from typing import (
    Any, ClassVar, Concatenate, Final, Generic, NoReturn, ParamSpec, Self, TypeVar,
)

from seglog.errors import ForkedProcessError

__all__ = ["ProcessBound", "SurvivesFork", "ending", "imports"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Bound = TypeVar("_Bound", bound="ProcessBound")
_IMPORT_SECONDS: Final = 5.0
_ENTERS: Final = ("__enter__", "__aenter__")


def ending(method: Callable[Concatenate[_Bound, _P], None]
           ) -> Callable[Concatenate[_Bound, _P], None]:
    """Marks a method that ends something. In a child it does nothing: what it would end is the
    parent's."""

    @functools.wraps(method)
    def end(self: _Bound, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if not type(self)._is_foreign:
            method(self, *args, **kwargs)

    end._is_ending = True  # type: ignore[attr-defined]
    return end


class ProcessBound:
    """Base of what writes files, holds a lock, or has threads: it belongs to one process.

    In a forked child each attribute of such an object raises ForkedProcessError, apart from its
    `ending` methods, which do nothing. It cannot be pickled.
    """

    __slots__ = ("__weakref__",)

    #: What an error calls such an object, if not by its class.
    _called: ClassVar[str] = ""
    _is_foreign: ClassVar[bool] = False

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Notes the object; a child finds it then."""
        self = super().__new__(cls)
        _bound.add(self)
        return self

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """TypeError: a copy would be a second owner."""
        called = self._called or type(self).__name__
        raise TypeError(
            f"cannot pickle {'an' if called[0] in 'AEIOU' else 'a'} {called}: it belongs to the "
            "process that opened it. Open it in the other process, or read the log there with "
            "seglog.PartitionLog.open(path)")


class SurvivesFork:
    """Base of what a forked child goes on using: `_lock`, a reentrant lock, is a new one there."""

    __slots__ = ("__weakref__", "_lock")

    _lock: threading.RLock

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Makes the lock."""
        self = super().__new__(cls)
        self._lock = threading.RLock()
        _survivors.add(self)
        return self


class _Objects(Generic[_T]):
    """Weak references to objects, which need not be hashable. Each step is one atomic operation."""

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[_T]] = {}

    def add(self, one: _T) -> None:
        key, references = id(one), self._references
        references[key] = weakref.ref(one, lambda _: references.pop(key, None))

    def take(self) -> list[_T]:
        """Those that are alive; a second call does not give them again."""
        found = [one for one in (reference() for reference in list(self._references.values()))
                 if one is not None]
        self._references.clear()
        return found


_bound: _Objects[ProcessBound] = _Objects()
_survivors: _Objects[SurvivesFork] = _Objects()
_pid = os.getpid()
_was_held: list[bool] = []


def _after_fork_in_child() -> None:
    """Runs in the child before anything else does, in its only thread."""
    global _pid, imports
    imports = threading.RLock()
    _was_held.clear()
    owner, _pid = _pid, os.getpid()
    for survivor in _survivors.take():
        survivor._lock = threading.RLock()
        _survivors.add(survivor)
    classes: dict[type[ProcessBound], type[ProcessBound]] = {}
    for bound in _bound.take():
        cls = type(bound)
        if cls not in classes:
            classes[cls] = _foreign(cls, owner)
        # The class and not a flag: no method is missed, and none pays for the question.
        bound.__class__ = classes[cls]


# A thread that imports a module holds a lock of Python's, which no child gets back: a fork waits
# until the imports of this package are through.
imports = threading.RLock()


def _before_fork() -> None:
    # An import that cannot end before the fork does is not waited for.
    _was_held.append(imports.acquire(timeout=_IMPORT_SECONDS))


def _after_fork_in_parent() -> None:
    if _was_held.pop():
        imports.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent,
                    after_in_child=_after_fork_in_child)


def _foreign(cls: type[ProcessBound], owner: int) -> type[ProcessBound]:
    """A class for objects of `cls` that belong to the process `owner`, which is not this one."""

    called = cls._called or cls.__name__

    def refuse() -> NoReturn:
        raise ForkedProcessError(called, owner)

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

