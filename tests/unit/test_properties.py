"""java.util.Properties text (compared with Java's in tests/kafka)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.java.properties import parse_properties


@pytest.mark.parametrize(("content", "found"), [
    (b"a=1\nb 2\nc:3\n", {"a": "1", "b": "2", "c": "3"}),
    (b"  a  =  1  \n", {"a": "1  "}),
    (b"a=1\\\n   2\n", {"a": "12"}),
    (b"a=\\u0041\\t\\n\\\\\\q\n", {"a": "A\t\n\\q"}),
    (b"#c\n!d\n#x\\\ny=1", {"y": "1"}),
    (b"a", {"a": ""}), (b"=x", {"": "x"}), (b"a==b", {"a": "=b"}), (b"a = : b", {"a": ": b"}),
    (b"a\\ b=c", {"a b": "c"}), (b"a\\:b:c", {"a:b": "c"}), (b"a\\=b=c", {"a=b": "c"}),
    (b"\xe9=\xff", {"\u00e9": "\u00ff"}),
    (b"a=1\\\\", {"a": "1\\"}), (b"a=1\\", {"a": "1"}), (b"\\", {"": ""}), (b"\\\n", {"": ""}),
    (b"\\\n#c\na", {"a": ""}), (b"a=1\\\n#x", {"a": "1#x"}),
    (b"a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    (b"a\x0cb\n", {"a": "b"}), (b"a=1\na=2", {"a": "2"}), (b"", {}),
    (b"a=\\ud83d\\ude00", {"a": "\ud83d\ude00"}),
])
def test_properties(content: bytes, found: dict[str, str]) -> None:
    assert parse_properties(content) == found


@pytest.mark.parametrize("content", [b"a=\\u00", b"a=\\uZZZZ", b"a=\\u00e", b"a=\\uuuu0041"])
def test_bad_escapes(content: bytes) -> None:
    with pytest.raises(ValueError, match="Malformed .uxxxx encoding."):
        parse_properties(content)


@given(st.binary(max_size=60))
def test_properties_noise(content: bytes) -> None:
    try:
        parse_properties(content)
    except ValueError as error:
        assert str(error) == "Malformed \\uxxxx encoding."
