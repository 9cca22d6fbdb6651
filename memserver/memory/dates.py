"""Dates as a model or a caller writes them, read as a range of time.

Both ends of a range are inclusive: the end "2026-02-07" means the whole of that day.
"""

from datetime import UTC, date, datetime, timedelta, tzinfo

from memserver.errors import InvalidInput


def parse_range(
    start: str, end: str, now: datetime, zone: tzinfo = UTC
) -> tuple[datetime, datetime]:
    """Read two dates as the half-open range [since, until).

    Args:
        start: an ISO date or datetime, "today", "yesterday" or "now".
        end: likewise.
        now: with a zone.
        zone: of dates, and of datetimes that name none.

    Raises:
        InvalidInput: not a date, or the end lies before the start; worded for the model.
    """
    since, _ = _parse(start, now, zone)
    _, until = _parse(end, now, zone)
    if until <= since:
        raise InvalidInput(f"The end date {end!r} lies before the start date {start!r}.")
    return since, until


def _parse(text: str, now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The first moment that is meant, and the first moment after it."""
    word = text.strip().lower()
    today = now.astimezone(zone).date()
    if word == "now":
        return now, now + timedelta(microseconds=1)
    if word in ("today", "yesterday"):
        return _day(today - timedelta(days=word == "yesterday"), zone)
    try:
        if len(word) == len("2026-02-07"):
            return _day(date.fromisoformat(word), zone)
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
        return moment, moment + _resolution(word)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{text!r} is not a date. Write it as YYYY-MM-DD, or as YYYY-MM-DDTHH:MM:SS+00:00."
        ) from error


def _day(day: date, zone: tzinfo) -> tuple[datetime, datetime]:
    # The day after is found by its date: with daylight saving a day may have 23 or 25 hours.
    midnight = datetime.min.time()
    following = day + timedelta(days=1)
    return (
        datetime.combine(day, midnight, zone),
        datetime.combine(following, midnight, zone),
    )


def _resolution(word: str) -> timedelta:
    """A datetime given to the minute or second means all of it."""
    if "." in word:
        return timedelta(microseconds=1)
    time = word.partition("t")[2] or word.partition(" ")[2]
    clock = time.partition("+")[0].partition("-")[0].rstrip("z")
    return timedelta(seconds=1) if clock.count(":") > 1 else timedelta(minutes=1)
