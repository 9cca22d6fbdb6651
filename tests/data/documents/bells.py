# The bells of the lighthouse of Farol

HOURS = 24


def storm_bell(hour: int) -> bool:
    """In a storm the bell is rung four times an hour."""
    return 0 <= hour < HOURS


class FogBell:
    """The fourth bell rings in fog only, for the ferry of Farol."""

    strokes = 4
