"""Which errors are an answer, and which say that nothing can be answered now."""

from memserver.client.failures import ServerUnreachable, UnexpectedAnswer
from memserver.errors import (
    Conflict,
    DatabaseError,
    EmbeddingError,
    Forbidden,
    InvalidApiKey,
    InvalidInput,
    MemserverError,
    MissingApiKey,
    ModelNotFound,
    ModelUnavailable,
    NotFound,
    RateLimited,
    ServerStopping,
    SetupError,
)
from memserver_evals.task import Reply

OUTAGES = (
    ModelUnavailable,
    ServerUnreachable,
    UnexpectedAnswer,
    DatabaseError,
    EmbeddingError,
    RateLimited,
    ServerStopping,
)
"""Something is down: the example has to be played again."""
MISTAKES = (
    InvalidInput,
    NotFound,
    Conflict,
    MissingApiKey,
    InvalidApiKey,
    Forbidden,
    ModelNotFound,
    SetupError,
)
"""The run is set up wrongly: no example will go better."""


def is_answer(error: MemserverError) -> bool:
    """Whether an error is the model's own doing, and so its answer: too long a prompt, no valid call, too late.

    A fault of the server is not, and would be a wrong answer of every model.
    """
    return error.code != MemserverError.code and not isinstance(error, OUTAGES + MISTAKES)


def failed_reply(error: MemserverError) -> Reply:
    """The answer that an error is. Raises it where it is none."""
    if not is_answer(error):
        raise error
    return Reply("", error=error.code)
