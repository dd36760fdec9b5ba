import pytest

from stateshift.cli.views.units import about, bar, many, ranges, share, size, span
from stateshift.specification.grammars import rate


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (0, "0 B"),
        (46, "46 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (102_300, "99.9 KiB"),
        (1_048_000, "1.0 MiB"),
        (10 * 1024**3, "10.0 GiB"),
        (5 * 1024**5, "5120 TiB"),
    ],
)
def test_sizes_have_three_digits_and_a_unit(count: int, told: str) -> None:
    assert size(count) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0.00 s"),
        (0.044, "0.04 s"),
        (0.999, "1.0 s"),
        (7.34, "7.3 s"),
        (9.999, "10 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.9, "1 h 00 min"),
        (11_520, "3 h 12 min"),
    ],
)
def test_spans_never_show_sixty_of_anything(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_an_estimate_never_promises_less_than_a_second() -> None:
    assert about(0.0) == about(0.99) == "less than 1 s"
    assert about(1.0) == "1.0 s"


def test_epochs_are_told_as_ranges() -> None:
    assert ranges([]) == ""
    assert ranges([12, 0, 1, 2, 7, 9, 10, 11, 12]) == "0-2, 7, 9-12"


def test_a_share_is_not_rounded_to_all_or_to_nothing() -> None:
    assert [share(*pair) for pair in ((0, 9), (1, 1000), (999, 1000), (9, 9), (0, 0))] == [
        "0 %",
        "< 1 %",
        "> 99 %",
        "100 %",
        "0 %",
    ]


def test_one_of_a_thing_is_singular() -> None:
    assert [many(n, "file") for n in (0, 1, 34_012)] == ["0 files", "1 file", "34,012 files"]


def test_a_bar_lies_where_its_time_was_and_is_never_invisible() -> None:
    assert bar(0, 10, 10, 8) == "████████"
    assert bar(5, 5, 10, 8) == "    ████"
    assert bar(10, 0, 10, 8) == "       █"
    assert bar(0, 0, 0, 3) == "███"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("50MB", 50e6),
        ("50 MB/s", 50e6),
        ("64MiB", 64 * 2**20),
        ("1e6", 1e6),
        ("2g", 2e9),
        ("100b", 100),
    ],
)
def test_rates_are_read_as_people_write_them(text: str, wanted: float) -> None:
    assert rate(text) == wanted


@pytest.mark.parametrize("text", ["", "fast", "0", "-1MB", "5 parsec", "inf", "nan"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a rate"):
        rate(text)
