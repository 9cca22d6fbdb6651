"""Dates as a model or a caller writes them, read as a range of time.

Both ends of a range are inclusive: the end "2026-02-07" means the whole of that day.
"""

import re
from datetime import UTC, date, datetime, timedelta, tzinfo

from memserver.errors import InvalidInput

_EARLIEST = datetime(1, 1, 2, tzinfo=UTC)
_LATEST = datetime(9999, 12, 30, tzinfo=UTC)
_ISO = re.compile(
    r"(\d{4}-?(?:\d\d-?\d\d|w\d\d-?\d))(?:[t ](?P<clock>[\d:]+(?:[.,]\d+)?)(?:z|[-+][\d:]+)?)?"
)


def storable(moment: datetime) -> datetime:
    """A moment in UTC, since Postgres takes no zone of 16 hours and more.

    Raises:
        ValueError: it lies where another zone's calendar has no such day.
    """
    if not _EARLIEST <= moment <= _LATEST:
        raise ValueError("the year must be from 1 to 9999, with a day to spare at both ends")
    return moment.astimezone(UTC)


def parse_range(
    start: str, end: str, now: datetime, zone: tzinfo = UTC
) -> tuple[datetime, datetime]:
    """Read two dates as the half-open range [since, until); `zone` is of those that name none.

    Each is an ISO date or datetime, "today", "yesterday" or "now".

    Raises:
        InvalidInput: not a date, or the end lies before the start; worded for the model.
    """
    since, _ = _parse(start, now, zone)
    _, until = _parse(end, now, zone)
    if until <= since:
        raise InvalidInput(f"The end date {end!r} lies before the start date {start!r}.")
    return _in_utc(since), _in_utc(until)


def _parse(text: str, now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The first moment that is meant, and the first moment after it."""
    word = text.strip().lower()
    today = now.astimezone(zone).date()
    if word == "now":
        return now, now + timedelta(microseconds=1)
    if word in ("today", "yesterday"):
        return _day(today - timedelta(days=word == "yesterday"), zone)
    try:
        parts = _ISO.fullmatch(word)
        if parts is None:
            raise ValueError
        if parts["clock"] is None:
            return _day(date.fromisoformat(word.upper()), zone)
        moment = datetime.fromisoformat(word.upper())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
        return moment, _later(moment, _resolution(parts["clock"]))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{text!r} is not a date. Write it as YYYY-MM-DD, or as YYYY-MM-DDTHH:MM:SS+00:00."
        ) from error


def _day(day: date, zone: tzinfo) -> tuple[datetime, datetime]:
    # The day after is found by its date: with daylight saving a day may have 23 or 25 hours.
    midnight = datetime.min.time()
    start = datetime.combine(day, midnight, zone)
    if day == date.max:
        return start, _LAST
    return start, datetime.combine(day + timedelta(days=1), midnight, zone)


_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return _FIRST if moment < _LATEST else _LAST


def _later(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return _LAST


def _resolution(clock: str) -> timedelta:
    """A datetime given to the hour, minute or second means all of it."""
    whole, _, fraction = clock.replace(",", ".").partition(".")
    if fraction:
        return timedelta(microseconds=10 ** max(0, 6 - len(fraction)))
    digits = len(whole.replace(":", ""))
    return {2: timedelta(hours=1), 4: timedelta(minutes=1)}.get(digits, timedelta(seconds=1))
