"""Definitions of settings: Kafka's name, type, default and validator (Kafka: ConfigDef).

Values are parsed and rejected as in Kafka, with its messages. A config class is a frozen dataclass
whose fields are made by `setting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Self

from seglog.errors import ConfigError
from seglog.java.numbers import double_text, parse_double, parse_int32, parse_int64, trim

__all__ = [
    "Config", "Kind", "Setting", "at_least", "between", "invalid", "list_of", "non_empty",
    "one_of", "setting",
]

Check = Callable[[str, Any], Any]


class Kind(Enum):
    """The type of a setting (Kafka: ConfigDef.Type)."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    SHORT = "SHORT"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"


def invalid(name: str, value: object, reason: str) -> ConfigError:
    """A ConfigError with the text of Kafka's ConfigException."""
    shown = str(value).lower() if isinstance(value, bool) else \
        double_text(value) if isinstance(value, float) else value
    return ConfigError(f"Invalid value {shown} for configuration {name}: {reason}")


# --- types ---------------------------------------------------------------------------------------

def _boolean(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = trim(value).lower() if isinstance(value, str) else ""
    if text not in ("true", "false"):
        raise invalid(name, value, "Expected value to be either true or false")
    return text == "true"


def _string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise invalid(name, value, "Expected value to be a string, but it was a "
                      f"{type(value).__name__}")
    return trim(value)


def _integer(name: str, value: object, kind: Kind) -> int:
    bits = {Kind.SHORT: 16, Kind.INT: 32}.get(kind, 64)
    if isinstance(value, str):
        parse = parse_int64 if kind is Kind.LONG else parse_int32
        try:
            found = parse(trim(value))
        except ValueError:
            raise invalid(name, value, f"Not a number of type {kind.value}") from None
    elif type(value) is int:
        found = value
    else:
        raise invalid(name, value, f"Expected value to be a {bits}-bit integer, but it was a "
                      f"{type(value).__name__}")
    if not -1 << bits - 1 <= found < 1 << bits - 1:
        raise invalid(name, value, f"Not a number of type {kind.value}")
    return found


def _double(name: str, value: object) -> float:
    if isinstance(value, str):
        try:
            return parse_double(trim(value))
        except ValueError:
            raise invalid(name, value, "Not a number of type DOUBLE") from None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(name, value, "Expected value to be a double, but it was a "
                      f"{type(value).__name__}")
    return float(value)


def _list(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        text = trim(value)
        return tuple(part.strip(_LIST_BLANKS) for part in text.split(",")) if text else ()
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise invalid(name, value, "Expected a comma separated list.")
    return tuple(value)


_LIST_BLANKS = " \t\n\x0b\f\r"  # \s in a Java pattern


def _parse(name: str, kind: Kind, value: object) -> Any:
    if kind is Kind.BOOLEAN:
        return _boolean(name, value)
    if kind is Kind.STRING:
        return _string(name, value)
    if kind is Kind.DOUBLE:
        return _double(name, value)
    if kind is Kind.LIST:
        return _list(name, value)
    return _integer(name, value, kind)


# --- validators: each returns the value to use ---------------------------------------------------

def at_least(minimum: float) -> Check:
    """Kafka: Range.atLeast."""
    def check(name: str, value: Any) -> Any:
        if value < minimum:
            raise invalid(name, value, f"Value must be at least {minimum}")
        return value
    return check


def between(minimum: float, maximum: float) -> Check:
    """Kafka: Range.between."""
    def check(name: str, value: Any) -> Any:
        if value > maximum:
            raise invalid(name, value, f"Value must be no more than {maximum}")
        return at_least(minimum)(name, value)
    return check


def one_of(*values: str) -> Check:
    """Kafka: ValidString.in."""
    def check(name: str, value: Any) -> Any:
        if value not in values:
            raise invalid(name, value, f"String must be one of: {', '.join(values)}")
        return value
    return check


def non_empty(name: str, value: Any) -> Any:
    """Kafka: NonEmptyString."""
    if not value:
        raise invalid(name, value, "String must be non-empty")
    return value


def list_of(*values: str, may_be_empty: bool = False) -> Check:
    """Kafka: ValidList.in, or anyNonDuplicateValues without `values`. Drops duplicates."""
    def check(name: str, value: Any) -> Any:
        if not value and not may_be_empty:
            wanted = f"[{', '.join(values)}]" if values else "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: "
                              f"{wanted}")
        for one in value:
            if not one:
                raise ConfigError(f"Configuration '{name}' values must not be empty.")
            if values:
                one_of(*values)(name, one)
        return tuple(dict.fromkeys(value))
    return check


# --- settings and the classes made of them -------------------------------------------------------

@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. A `default` of None means that the setting may have no value."""

    name: str
    kind: Kind
    default: Any
    check: Check | None = None

    def read(self, value: object) -> Any:
        """The parsed and checked value. Raises ConfigError with Kafka's text."""
        if value is None:
            if self.default is None:
                return None
            raise invalid(self.name, "null", "Value must be non-null")
        parsed = _parse(self.name, self.kind, value)
        return parsed if self.check is None else self.check(self.name, parsed)


def setting(name: str, kind: Kind, default: Any, check: Check | None = None) -> Any:
    """A dataclass field that is a setting."""
    return field(default=default, metadata={"setting": Setting(name, kind, default, check)})


class Config:
    """Base of the config classes: the constructor parses and checks every setting."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for attribute, one in self.settings().items():
            object.__setattr__(self, attribute, one.read(getattr(self, attribute)))

    @classmethod
    def settings(cls) -> dict[str, Setting]:
        """{attribute: setting}, in the order of the fields."""
        return {one.name: one.metadata["setting"]
                for one in fields(cls) if "setting" in one.metadata}  # type: ignore[arg-type]

    @classmethod
    def knows(cls, name: str) -> bool:
        """Whether `name` is Kafka's name of a setting of this class."""
        return any(name == one.name for one in cls.settings().values())

    @classmethod
    def pick(cls, properties: Mapping[str, object]) -> dict[str, Any]:
        """{attribute: value} for the settings of this class in `properties`."""
        return {attribute: properties[one.name] for attribute, one in cls.settings().items()
                if one.name in properties}

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Reads a mapping of Kafka names to strings or values of the right type.

        Ignores unknown names. Raises ConfigError with Kafka's text.
        """
        return cls(**cls.pick(properties))

    def to_properties(self) -> dict[str, object]:
        """{Kafka's name: value} for every setting that has a value."""
        found = {one.name: getattr(self, attribute) for attribute, one in self.settings().items()}
        return {name: value for name, value in found.items() if value is not None}
