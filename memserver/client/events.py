"""What happens in a turn, as typed events of a stream."""

from memserver.wire.base import Record
from memserver.wire.events import *  # noqa: F403 - all of it is the client's
from memserver.wire.events import TurnEvent


class Reconnected(Record):
    """The connection broke and was made again.

    Deltas so far without their `MessageSaid` are void, and the step that is under way has no further ones.
    """

    attempt: int


Event = TurnEvent | Reconnected
