"""What the objects of remote segments told, kept from one listing to the next."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from seglog.tiered.remote_segment import RemoteSegment

__all__ = ["KnownFacts"]

_T = TypeVar("_T")


class KnownFacts:
    """Answers about segments as long as their objects are listed in the same versions. Without
    them a follower of a tier would ask for the end and the epochs of every segment again and again.

    For one listing at a time, and any of its threads.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, object] = {}
        self._used: dict[Hashable, object] = {}

    def begin(self) -> None:
        """Begins a listing, and forgets what the last one did not use."""
        self._known, self._used = self._used, {}

    def of(self, segment: RemoteSegment, question: Hashable, ask: Callable[[], _T]) -> _T:
        """The answer of `ask()`, or of an earlier one to the same question. An error is not
        kept."""
        objects = tuple(sorted((one.key, *one.version) for one in segment.objects.values()))
        if any(etag is None and modified is None for _, _, etag, modified in objects):
            return ask()
        key = objects, question
        for answers in (self._used, self._known):
            if key in answers:
                break
        else:
            answers = {key: ask()}
        self._used[key] = answers[key]
        return cast(_T, answers[key])
