"""How many tokens the model sees for each one that we count, learnt from the usage that it reports.

Our count may be an estimate, and a chat template adds what only the endpoint knows. The prompt as a whole is
compared, so the scale holds for prompts like the last one; what is new in the next is little.
"""

MARGIN = 1.03
"""A learnt scale lies above what was seen, so that the next few messages may be denser."""
SLACK = 1.06
"""Up to here above what was seen the scale stays: shown texts and the prefix cache stay with it."""
LEAST, MOST = 0.25, 4.0
"""No estimate is four times too high; usage below that leaves out what was cached."""


def learn(scale: float | None, counted: int, seen: int, *, exact: bool = False) -> float | None:
    """The scale after a prompt of which we counted `counted` tokens and the endpoint `seen` (0: it didn't say).

    It grows at once and shrinks by half of the way, since the next message may be like an older one.

    If texts are counted in the model's own tokens (`exact`), only short ones are counted too high, and a scale
    below one, learnt of many of those, would count the next long one too low. One that was learnt of estimates
    stays: a change of who counts alone must not fill the prompt.
    """
    if counted <= 0 or seen < LEAST * counted:
        return scale
    ratio = min(seen / counted, MOST)
    if scale is not None and ratio <= scale <= ratio * SLACK:
        return scale
    wanted = ratio * MARGIN
    found = _round(wanted if scale is None or wanted > scale else (scale + wanted) / 2)
    return max(found, min(1.0, scale or 1.0)) if exact else found


def after_overflow(scale: float, counted: int, capacity: int) -> float:
    """The scale when the endpoint refused a prompt as too long: it had more tokens than `capacity`.

    At most doubled, since the endpoint's window may be smaller than it says.
    """
    if counted <= 0:
        return scale
    return _round(min(max(scale, MARGIN * capacity / counted), 2 * scale, MOST))


def _round(scale: float) -> float:
    """Short enough to come back from the database as it was."""
    return round(scale, 4)
