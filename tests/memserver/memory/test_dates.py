"""Dates as a model writes them, read as a range with both ends included."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from memserver.errors import InvalidInput
from memserver.memory.dates import parse_range

NOW = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize(
    ("start", "end", "since", "until"),
    [
        ("2026-02-07", "2026-02-07", "2026-02-07T00:00+00:00", "2026-02-08T00:00+00:00"),
        ("today", "Today ", "2026-03-29T00:00+00:00", "2026-03-30T00:00+00:00"),
        ("yesterday", "yesterday", "2026-03-28T00:00+00:00", "2026-03-29T00:00+00:00"),
        (
            "2026-02-07T10:30",
            "2026-02-07T10:30",
            "2026-02-07T10:30+00:00",
            "2026-02-07T10:31+00:00",
        ),
        (
            "2026-02-07 10:30:05",
            "now",
            "2026-02-07T10:30:05+00:00",
            "2026-03-29T12:00:00.000001+00:00",
        ),
        (
            "2026-02-07T10:30:05+02:00",
            "2026-02-07T10:30:05Z",
            "2026-02-07T08:30:05+00:00",
            "2026-02-07T10:30:06+00:00",
        ),
        ("20260207", "2026-W06-6", "2026-02-07T00:00+00:00", "2026-02-08T00:00+00:00"),
        ("2026-02-07t10", "2026-02-07T10", "2026-02-07T10:00+00:00", "2026-02-07T11:00+00:00"),
        (
            "20260207T103005z",
            "2026-02-07T10:30:05.25",
            "2026-02-07T10:30:05+00:00",
            "2026-02-07T10:30:05.26+00:00",
        ),
        ("0001-01-01", "9999-12-31", "0001-01-01T00:00+00:00", "9999-12-31T23:59:59.999999+00:00"),
    ],
)
def test_both_ends_are_included(start: str, end: str, since: str, until: str) -> None:
    assert parse_range(start, end, NOW) == (at(since), at(until))


def test_a_day_with_a_clock_change_has_its_own_length() -> None:
    since, until = parse_range("2026-03-29", "2026-03-29", NOW, BERLIN)
    assert since.astimezone(UTC) == at("2026-03-28T23:00+00:00")
    assert until.astimezone(UTC) == at("2026-03-29T22:00+00:00")


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        "",
        "2026-02-30",
        "07.02.2026",
        "2026-13-01",
        "2026-02",
        "2026-W06",
        "2026-02-07T24:00",
    ],
)
def test_what_is_no_date_is_an_error_that_says_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidInput, match="YYYY-MM-DD"):
        parse_range(text, text, NOW)


def test_an_end_before_the_start_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="lies before"):
        parse_range("2026-02-08", "2026-02-07", NOW)
