"""Numbers by Java's syntax (compared with Java's own in tests/kafka)."""

from __future__ import annotations

import pytest

from seglog.java.numbers import double_text, parse_double, parse_int32, parse_int64, trim


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


@pytest.mark.parametrize(("text", "value"), [
    ("1", 1.0), (" 1.5\n", 1.5), (".5", .5), ("5.", 5.0), ("-1E-3", -.001), ("1d", 1.0),
    ("2.5F", 2.5), ("0x1p3", 8.0), ("-0x.8p-1d", -.25), ("1e400", float("inf")),
    ("0x1p99999", float("inf")), ("-0x1p99999", float("-inf")), ("+Infinity", float("inf")),
])
def test_doubles(text: str, value: float) -> None:
    assert parse_double(text) == value


@pytest.mark.parametrize("text", ["", " ", "inf", "nan", "1_0", "0x10", "1e", "x", ".", "1.5x",
                                  "\u0663", "Infinityd", "--1"])
def test_no_doubles(text: str) -> None:
    with pytest.raises(ValueError, match="empty String|For input string"):
        parse_double(text)


def test_not_a_number() -> None:
    found = parse_double("NaN")
    assert found != found and double_text(found) == "NaN"


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0.0"), (-0.0, "-0.0"), (.001, "0.001"), (1.5, "1.5"), (9999999.0, "9999999.0"),
    (1e7, "1.0E7"), (2147483647.0, "2.147483647E9"), (9.9e-4, "9.9E-4"), (-1e-5, "-1.0E-5"),
    (1.7976931348623157e308, "1.7976931348623157E308"), (float("-inf"), "-Infinity"),
])
def test_text_of_doubles(value: float, text: str) -> None:
    assert double_text(value) == text


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (100.0, "100.0"), (0.001, "0.001"),
    (0.00099, "9.9E-4"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (1.5e300, "1.5E300"),
    (-12345.678, "-12345.678"), (5e-324, "4.9E-324"), (float("nan"), "NaN"),
    (float("inf"), "Infinity"), (float("-inf"), "-Infinity"), (123456789.125, "1.23456789125E8"),
])
def test_text_of_doubles_in_a_dump(value: float, text: str) -> None:
    assert double_text(value) == text


def test_trim() -> None:
    assert trim("\x00\t a \u00a0 \x1f") == "a \u00a0"
