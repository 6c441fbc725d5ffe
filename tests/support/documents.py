"""The Python examples of the pages in docs/, by the heading of their section."""

from __future__ import annotations

import re

from tests.support.readme import ROOT


def examples_of(page: str) -> dict[str, list[str]]:
    """Heading to examples, of those that have any; the part before the first heading is ""."""
    text = (ROOT / "docs" / page).read_text()
    found = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        title, _, body = section.partition("\n")
        examples = re.findall(r"^```python\n(.*?)^```$", body, re.MULTILINE | re.DOTALL)
        if examples:
            found["" if title.startswith("# ") else title] = examples
    return found
