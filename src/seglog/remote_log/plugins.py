"""Loads plug-ins named by settings: `remote.log.*.manager.class.name` and `.class.path`."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

from seglog import forks
from seglog.errors import ConfigError, RemoteStorageError, SeglogError
from seglog.remote_log.metadata_manager import BrokerReadyCallback, RemoteLogMetadataManager

__all__ = ["ClassLoaderAwareRemoteLogMetadataManager", "load_plugin"]


def load_plugin(setting: str, class_name: str, class_path: str | None) -> Any:
    """An instance of the class `package.module.Class`, created without arguments.

    With `class_path` (directories, separated by the platform's path separator) its top-level module
    is searched only there. Other imports of the plug-in search the directories last. Raises
    ConfigError, which names the setting.
    """
    module_name, _, name = class_name.rpartition(".")
    if not module_name:
        raise ConfigError(f"Invalid value {class_name} for configuration {setting}: expected "
                          "package.module.Class")
    try:
        with forks.imports:
            module = _module(module_name, _directories(class_path))
        return getattr(module, name)()
    except Exception as error:
        raise ConfigError(f"Invalid value {class_name} for configuration {setting}: "
                          f"{type(error).__name__}: {error}") from error


def _directories(class_path: str | None) -> list[str]:
    separator = ";" if sys.platform == "win32" else ":"
    return [one for one in (class_path or "").split(separator) if one.strip()]


def _module(name: str, directories: list[str]) -> Any:
    if not directories:
        return importlib.import_module(name)
    for one in directories:
        if one not in sys.path:
            sys.path.append(one)
    first, _, rest = name.partition(".")
    spec = PathFinder.find_spec(first, directories)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module {first} in {', '.join(directories)}")
    loaded = sys.modules.get(first)
    if loaded is None or getattr(loaded.__spec__, "origin", None) != spec.origin:
        if loaded is not None:
            raise ImportError(f"a module {first} of {getattr(loaded, '__file__', None)} is loaded "
                              "already")
        module = sys.modules[first] = module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[first]
            raise
    return importlib.import_module(name) if rest else sys.modules[first]


class ClassLoaderAwareRemoteLogMetadataManager:
    """A RemoteLogMetadataManager around a plug-in (Kafka:
    ClassLoaderAwareRemoteLogMetadataManager).

    Exceptions of the plug-in become RemoteStorageError unless they are seglog's own. Kafka 4.3.1
    does not forward the ready callback here, so a plug-in never gets it; this class forwards it to
    a plug-in that has `on_broker_ready`.
    """

    def __init__(self, delegate: RemoteLogMetadataManager) -> None:
        self.delegate = delegate

    def on_broker_ready(self) -> None:
        """See BrokerReadyCallback."""
        if isinstance(self.delegate, BrokerReadyCallback):
            _call(self.delegate, "on_broker_ready")

    if TYPE_CHECKING:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            """The methods of RemoteLogMetadataManager."""


def _call(delegate: RemoteLogMetadataManager, name: str, *args: object, **kwargs: object) -> Any:
    try:
        return getattr(delegate, name)(*args, **kwargs)
    except SeglogError:
        raise
    except Exception as error:
        raise RemoteStorageError(
            f"{type(delegate).__name__}: {type(error).__name__}: {error}") from error


def _forwarded(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def forward(self: ClassLoaderAwareRemoteLogMetadataManager, *args: object,
                **kwargs: object) -> Any:
        return _call(self.delegate, name, *args, **kwargs)

    return forward


for _name, _method in vars(RemoteLogMetadataManager).items():
    if not _name.startswith("_"):
        setattr(ClassLoaderAwareRemoteLogMetadataManager, _name, _forwarded(_name, _method))
