"""Plug-ins that settings name, and the ready callback that Kafka 4.3.1 forgets."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from seglog.errors import ConfigError, RemoteResourceNotFoundError, RemoteStorageError
from seglog.manager.manager import LogManager
from seglog.remote_log.metadata_manager import BrokerReadyCallback, RemoteLogMetadataManager
from seglog.remote_log.plugins import ClassLoaderAwareRemoteLogMetadataManager, load_plugin
from tests.remote_log.support import ORDERS

SETTING = "remote.log.metadata.manager.class.name"
SOURCE = '''
import {helper}


class Manager:
    """A plug-in that is told when the broker is ready."""

    def __init__(self):
        self.calls = []

    def configure(self, properties):
        self.calls.append(("configure", dict(properties)))

    def on_broker_ready(self):
        self.calls.append(("ready", {helper}.ANSWER))

    def is_ready(self, partition):
        raise KeyError(partition)

    def close(self):
        self.calls.append(("close", None))


class Deaf:
    """One that is not."""

    def close(self):
        pass
'''


@pytest.fixture
def plugin(tmp_path: Path) -> tuple[str, str]:
    """A plug-in's module, and its class path."""
    name = f"plugin_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SOURCE.format(helper=f"{name}_helper"))
    (tmp_path / f"{name}_helper.py").write_text("ANSWER = 42\n")
    return name, str(tmp_path)


def test_a_plugin_gets_the_callback(plugin: tuple[str, str], tmp_path: Path) -> None:
    name, path = plugin
    delegate = load_plugin(SETTING, f"{name}.Manager", path)
    wrapped = ClassLoaderAwareRemoteLogMetadataManager(delegate)
    assert isinstance(wrapped, BrokerReadyCallback)
    wrapped.configure({"broker.id": 1})
    manager = LogManager([tmp_path / "data"])
    manager.register_startup_callback(wrapped.on_broker_ready)
    assert delegate.calls == [("configure", {"broker.id": 1})]
    with manager:
        assert delegate.calls[1:] == [("ready", 42)]
    wrapped.close()
    assert delegate.calls[2:] == [("close", None)]


def test_a_plugin_without_the_callback(plugin: tuple[str, str]) -> None:
    name, path = plugin
    wrapped = ClassLoaderAwareRemoteLogMetadataManager(load_plugin(SETTING, f"{name}.Deaf", path))
    wrapped.on_broker_ready()
    wrapped.close()


def test_its_exceptions_are_ours(plugin: tuple[str, str]) -> None:
    name, path = plugin
    delegate = load_plugin(SETTING, f"{name}.Manager", path)
    wrapped = ClassLoaderAwareRemoteLogMetadataManager(delegate)
    with pytest.raises(RemoteStorageError, match="Manager: KeyError"):
        wrapped.is_ready(ORDERS)

    def not_found(partition: object) -> bool:
        raise RemoteResourceNotFoundError("No resource found")

    delegate.is_ready = not_found
    with pytest.raises(RemoteResourceNotFoundError):
        wrapped.is_ready(ORDERS)


def test_the_wrapper_forwards_everything() -> None:
    methods = {name for name, _ in inspect.getmembers(RemoteLogMetadataManager, inspect.isfunction)
               if not name.startswith("_")}
    assert len(methods) > 10
    for name in methods:
        ours = inspect.signature(getattr(ClassLoaderAwareRemoteLogMetadataManager, name))
        assert ours == inspect.signature(getattr(RemoteLogMetadataManager, name)), name


@pytest.mark.parametrize("name", ["Manager", "no_such_module.Manager", "{}.NoSuchClass"])
def test_what_cannot_be_loaded_names_the_setting(plugin: tuple[str, str], name: str) -> None:
    with pytest.raises(ConfigError, match=f"for configuration {SETTING}: "):
        load_plugin(SETTING, name.format(plugin[0]), plugin[1])


def test_the_class_path_is_asked_before_everything_else(tmp_path: Path) -> None:
    (tmp_path / "colorsys.py").write_text("class Manager:\n    place = 'class path'\n")
    sys.modules.pop("colorsys", None)
    try:
        assert load_plugin(SETTING, "colorsys.Manager", str(tmp_path)).place == "class path"
    finally:
        sys.modules.pop("colorsys", None)
