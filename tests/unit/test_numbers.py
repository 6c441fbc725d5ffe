"""Integers by Java's syntax."""

from __future__ import annotations

import pytest

from seglog.numbers import parse_int32, parse_int64


@pytest.mark.parametrize(("text", "value"), [
    ("0", 0), ("+7", 7), ("-7", -7), ("007", 7), ("-0", 0), ("2147483647", 2**31 - 1),
    ("-2147483648", -2**31), ("\u0661\u0662", 12), ("\uff11", 1), ("0" * 9000 + "5", 5),
])
def test_accepted(text: str, value: int) -> None:
    assert parse_int32(text) == parse_int64(text) == value


@pytest.mark.parametrize("text", [
    "", "+", "-", " 1", "1 ", "1\n", "1_0", "+-1", "--1", "0x1", "1.0", 
    "\U0001d7d9", "\u00b2", "\u2155", "9" * 9000,
])
def test_refused(text: str) -> None:
    for parse in (parse_int32, parse_int64):
        with pytest.raises(ValueError, match="For input string") as caught:
            parse(text)
        assert str(caught.value) == f'For input string: "{text}"'


def test_widths() -> None:
    assert parse_int64(str(2**63 - 1)) == 2**63 - 1 and parse_int64(str(-2**63)) == -2**63
    for text in (str(2**31), str(-2**31 - 1)):
        assert parse_int64(text) == int(text)
        with pytest.raises(ValueError):
            parse_int32(text)
    for text in (str(2**63), str(-2**63 - 1)):
        with pytest.raises(ValueError):
            parse_int64(text)
