"""Selects existing topics and partitions by name, pattern and number."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Sequence

from seglog.errors import UnknownTopicOrPartitionError
from seglog.model import TopicPartition

__all__ = ["is_internal", "select_partitions", "unknown_partition", "unknown_topic"]

_SHOWN = 8


def is_internal(topic: str) -> bool:
    """Whether a pattern of a consumer skips the topic (Kafka: exclude.internal.topics)."""
    return topic.startswith("__")


def select_partitions(found: Iterable[TopicPartition], topics: Sequence[str] | None,
                      partitions: Collection[int] | None, where: str) -> list[TopicPartition]:
    """The members of `found` that belong to one of `topics` and have one of the numbers, in order.

    A topic is a name, a shell pattern (`orders-*`), or a regular expression that begins with `^`,
    as for librdkafka. Patterns skip internal topics unless they begin with `_`. None selects all
    topics.

    Raises UnknownTopicOrPartitionError for a topic, pattern or number without a match; its message
    begins with `where` and lists what exists. Raises ValueError for a bad regular expression.
    """
    there = sorted(found)
    names = list(dict.fromkeys(tp.topic for tp in there))
    chosen = names if topics is None else [
        name for word in topics for name in _matches(word, names, where)]
    wanted = set(chosen)
    kept = [tp for tp in there if tp.topic in wanted]
    if partitions is None:
        return kept
    numbers = {tp.partition for tp in kept}
    for number in partitions:
        if number not in numbers:
            raise unknown_partition(where, chosen, number, numbers)
    numbered = set(partitions)
    return [tp for tp in kept if tp.partition in numbered]


def _matches(word: str, names: Sequence[str], where: str) -> list[str]:
    matcher = _matcher(word)
    if matcher is None:
        if word not in names:
            raise unknown_topic(where, word, names)
        return [word]
    found = [name for name in names if matcher(name)
             and (not is_internal(name) or word.lstrip("^").startswith("_"))]
    if not found:
        raise UnknownTopicOrPartitionError(
            f"{where}: no topic matches {word!r}; {_listed(names)}")
    return found


def _matcher(word: str) -> Callable[[str], object] | None:
    """A function that matches names; None for a plain name."""
    if word.startswith("^"):
        try:
            return re.compile(word).match
        except re.error as error:
            raise ValueError(f"{word!r} is not a regular expression: {error}") from None
    if any(char in word for char in "*?["):
        return re.compile(fnmatch.translate(word)).match
    return None


def unknown_topic(where: str, topic: str, names: Collection[str]) -> UnknownTopicOrPartitionError:
    """The error for a missing topic, with the most similar name."""
    folded = {name.lower(): name for name in names}
    near = difflib.get_close_matches(topic.lower(), folded, n=1, cutoff=0.6)
    # The caller may have given the name of a directory, TOPIC-PARTITION.
    stem, _, number = topic.rpartition("-")
    if stem in names and number.isdecimal():
        hint = f"; did you mean partition {number} of {stem!r}?"
    else:
        hint = f"; did you mean {folded[near[0]]!r}?" if near else f"; {_listed(names)}"
    return UnknownTopicOrPartitionError(f"{where}: topic {topic} is not here{hint}")


def unknown_partition(where: str, topics: Sequence[str], number: int, numbers: Collection[int]
                      ) -> UnknownTopicOrPartitionError:
    """The error for a missing partition, with the numbers that exist."""
    subject = topics[0] if len(topics) == 1 else "these topics" if topics else "this directory"
    have = "has" if len(topics) == 1 or not topics else "have"
    return UnknownTopicOrPartitionError(
        f"{where}: partition {number} is not here; {subject} {have} {_ranges(numbers)}")


def _listed(names: Collection[str]) -> str:
    shown = sorted(name for name in names if not is_internal(name)) or sorted(names)
    if not shown:
        return "there are no topics"
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"there {'is' if len(shown) == 1 else 'are'} {', '.join(shown[:_SHOWN])}{more}"


def _ranges(numbers: Collection[int]) -> str:
    """Formats numbers as ranges, such as `0 to 4, 7`."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in parts]
    more = f" and {len(texts) - _SHOWN} more ranges" if len(texts) > _SHOWN else ""
    return (", ".join(texts[:_SHOWN]) + more) or "none"
