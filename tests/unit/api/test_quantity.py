"""Quantities: exact, rounded up, and the same number back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grove.api import quantity
from grove.api.quantity import InvalidQuantity


@pytest.mark.parametrize(
    ("text", "milli", "whole"),
    [
        pytest.param("1", 1000, 1, id="a whole number"),
        pytest.param("100m", 100, 1, id="thousandths round up to a whole"),
        pytest.param("0.1", 100, 1, id="a decimal fraction, which no float holds exactly"),
        pytest.param(".5", 500, 1, id="a fraction without a leading zero"),
        pytest.param("5.", 5000, 5, id="a point without a fraction"),
        pytest.param("1k", 1_000_000, 1000, id="a decimal suffix"),
        pytest.param("1Ki", 1_024_000, 1024, id="a binary suffix"),
        pytest.param("1.5Gi", 1_610_612_736_000, 1_610_612_736, id="a fraction of a binary suffix"),
        pytest.param("2e3", 2_000_000, 2000, id="an exponent"),
        pytest.param("2E-3", 2, 1, id="a negative exponent with a capital E"),
        pytest.param("1n", 1, 1, id="a billionth still counts"),
        pytest.param("1u", 1, 1, id="a millionth too"),
        pytest.param("0.0000000001", 1, 1, id="less than a billionth is rounded up to one"),
        pytest.param("0", 0, 0, id="zero"),
        pytest.param("+3", 3000, 3, id="an explicit plus"),
        pytest.param("-2", -2000, -2, id="a negative number"),
        pytest.param("8E", 2**63 - 1, 8 * 10**18, id="milli is held within 63 bits"),
        pytest.param("100E", 2**63 - 1, 2**63 - 1, id="and so are whole units"),
        pytest.param(3, 3000, 3, id="a plain integer"),
        pytest.param(0.5, 500, 1, id="a plain float is read by its decimal spelling"),
    ],
)
def test_parse(text: quantity.Quantity, milli: int, whole: int) -> None:
    assert (quantity.milli(text), quantity.whole(text)) == (milli, whole)


# Python reads no number of more than 4300 digits.
LONG = [pytest.param("1" * 5000, id="5000 digits"), pytest.param(f"1.{'1' * 5000}", id="5000 decimals")]


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1gi", "1mi", "Ki", "--1", "1e", "1.2.3", "0x10", "١", "NaN", "1K", *LONG]
)
def test_what_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuantity):
        quantity.exact(text)


@pytest.mark.parametrize(
    ("resource", "value", "want"),
    [
        pytest.param("cpu", 1500, "1500m", id="parts of a core"),
        pytest.param("cpu", 2000, "2", id="whole cores"),
        pytest.param("cpu", 0, "0", id="no core"),
        pytest.param("memory", 8 << 30, "8Gi", id="whole gibibytes"),
        pytest.param("memory", 1536 << 20, "1536Mi", id="mebibytes if gibibytes would lose something"),
        pytest.param("memory", 1000, "1000", id="bytes that no binary suffix fits"),
        pytest.param("hugepages-2Mi", 4 << 20, "4Mi", id="huge pages are memory"),
        pytest.param("nvidia.com/gpu", 1024, "1024", id="devices are counted plainly"),
    ],
)
def test_format(resource: str, value: int, want: str) -> None:
    assert quantity.format_amount(resource, value) == want


@given(
    resource=st.sampled_from(["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "pods"]),
    value=st.integers(0, 2**53),
)
def test_formatting_and_parsing_give_the_number_back(resource: str, value: int) -> None:
    assert quantity.amount(resource, quantity.format_amount(resource, value)) == value


@given(st.integers(0, 10**9), st.sampled_from(["", "n", "u", "m", "k", "M", "Ki", "Mi"]))
def test_rounding_never_counts_too_little_and_never_one_too_much(number: int, suffix: str) -> None:
    exact = quantity.exact(f"{number}{suffix}")
    assert exact <= quantity.whole(f"{number}{suffix}") < exact + 1
    assert exact * 1000 <= quantity.milli(f"{number}{suffix}") < exact * 1000 + 1
