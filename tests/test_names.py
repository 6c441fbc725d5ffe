"""Names: one for each concept, in the field's words."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.source_files import PACKAGE, ROOT, lines_with, name_of, pages, sources, text_of


def test_no_module_has_the_name_of_another() -> None:
    """A module's basename names one concept, also in a traceback."""
    found: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        if not path.name.startswith("__"):
            found.setdefault(path.name, []).append(name_of(path))
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_public_class_has_the_name_of_another() -> None:
    """One name, one concept: a reader need not ask of which room a class is."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py*"):
        if path.suffix in {".py", ".pyx"}:
            for name in re.findall(r"^(?:cdef )?class ([A-Za-z]\w*)", text_of(path), re.M):
                found.setdefault(name, set()).add(name_of(path))
    assert len(found) > 300
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


#: Words that may not come back, and the words of the field in their place.
_NOT_OUR_WORDS = {
    "ordinary": "plain, fast path", "settle": "resolve, decide", "let_go": "release, close",
    "give_back": "release", r"\bpaper\b": "overlay, predicted", "rehears": "dry run",
    "metered": "counted", "unsynced": "pending sync, holes", "PassFour": "what the pass does",
    "on the medium": "durable",
    r"garbage(?! (collect|after \{?))": "left over (Kafka's messages and Python's collector apart)",
}


def test_the_words_are_those_of_the_field() -> None:
    own = re.compile("|".join(_NOT_OUR_WORDS), re.IGNORECASE)
    # Tests write garbage into files; messages of Kafka's have the word.
    tests = re.compile("|".join(word for word in _NOT_OUR_WORDS if "garbage" not in word),
                       re.IGNORECASE)
    wrong = []
    paths = [*sources("src", "csrc", "tests", "bench"), *pages(),
             *(ROOT / "tests/kafka").glob("*.java")]
    for path in paths:
        words = tests if ROOT / "tests" in path.parents else own
        if path != Path(__file__).resolve():
            wrong += [f"{name_of(path)}:{number}: {found}"
                      for number, found in lines_with(words, path)]
    assert not wrong, "\n".join(wrong)
