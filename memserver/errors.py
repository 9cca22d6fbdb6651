"""The one exception tree. Owns the stable codes; `api/errors.py` turns them into HTTP statuses.

MemserverError
├── InvalidInput                 what the caller sent can't be used
│   └── BadData                  a file of evaluation data is not as it must be; the message names file and place
├── BadRequest                   a header is malformed, or there twice
├── UnsupportedMediaType         the body was not sent as JSON
├── NotFound                     no such thing, or not the caller's
├── Conflict                     the thing is not in a state that allows this
│   ├── VersionConflict          somebody else edited the text meanwhile
│   ├── AgentWaits               a call of the agent waits for an answer; the message is stored after it
│   └── TurnHasEnded             the turn can't be cancelled, since it has ended
├── MissingApiKey                the request has no API key, and needs one
├── InvalidApiKey                its API key is unknown, expired or revoked
├── Forbidden                    its API key may not do this
├── RateLimited                  its API key has made too many requests
├── RequestTooLarge              its body is larger than the server takes
├── DocumentError                a file that can't be ingested
│   ├── DocumentTooLarge         more bytes or text than is allowed
│   ├── UnsupportedDocument      a kind of file that is not read here
│   ├── DocumentEmpty            there is no text in it
│   ├── DocumentCorrupt          it is damaged, or not what its name says
│   ├── DocumentEncrypted        it needs a password
│   ├── DocumentWithoutText      its pages are images
│   └── DocumentTooCostly        it takes more time or memory than is allowed
├── AgentFileError               an agent file that can't be imported
│   ├── AgentFileUnsupported     it is no agent file
│   ├── AgentFileCorrupt         it is damaged or cut off, or says what can't be
│   ├── AgentFileNewer           its format is newer than this server
│   └── AgentFileTooLarge        it is larger than the server takes
├── TurnTimeout                  a turn took longer than it may; what it had committed stands
├── TurnAbandoned                the server's process ended each time that the turn was tried
├── ToolError                    a tool refused; the text goes to the model as a failed call
├── ToolProcessEnded             a Python function ended the process of its own that it ran in
├── McpServerError               an MCP server answered what can't be used, or nothing in time
├── ModelError                   the model behind the agent
│   ├── ModelUnavailable         no connection, a 5xx, or still loading
│   ├── ModelTimeout             no answer in time
│   ├── ModelAnswerTooLarge      an answer longer than any answer to the request can be
│   ├── ModelRejected            the endpoint refused the request (4xx)
│   ├── ModelNotFound            the endpoint has no model or adapter of this name
│   ├── ModelQuotaExceeded       the account at the endpoint has nothing left
│   ├── ModelRefused             the model or a content filter refuses to answer this
│   ├── ContextOverflow          the endpoint says the prompt is too long
│   └── ProtocolViolation        a reply that is no valid tool call
├── EmbeddingError               the embedder failed or has another dimension
│   └── EmbeddingRejected        the endpoint refuses the text or the request, now and later
│       └── EmbedderUnfit        its vectors have a length that can't be stored
├── DatabaseError                the database can't be used
│   └── LeaseLost                another worker took the agent over
├── ServerStarting               the server waits for its database
├── ServerStopping               the server ends while a request waits
└── SetupError                   something on this machine is missing; the hint says how to fix it
"""

from memserver import __version__
from memserver.messages import TokenUsage


class MemserverError(Exception):
    """Base of all errors that memserver raises on purpose.

    Attributes:
        code: stable, machine-readable; part of the API.
        message: what happened, for a person.
        hint: what to do about it, or an empty string.
    """

    code = "internal_error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidInput(MemserverError):
    code = "invalid_input"


class BadData(InvalidInput):
    code = "bad_data"


class PictureRefused(InvalidInput):
    code = "picture_refused"


class BadRequest(MemserverError):
    code = "bad_request"


class UnsupportedMediaType(MemserverError):
    code = "unsupported_media_type"


class NotFound(MemserverError):
    code = "not_found"


class Conflict(MemserverError):
    code = "conflict"


class MissingApiKey(MemserverError):
    code = "missing_api_key"


class InvalidApiKey(MemserverError):
    code = "invalid_api_key"


class Forbidden(MemserverError):
    """The caller is known and may not do this.

    Attributes:
        scope: the scope that the API key lacks, or an empty string where no scope would do.
    """

    code = "forbidden"

    def __init__(self, message: str, *, scope: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.scope = scope


class RateLimited(MemserverError):
    """The API key has made too many requests.

    Attributes:
        retry_after: seconds after which one more is taken.
    """

    code = "rate_limited"

    def __init__(self, message: str, *, retry_after: int = 1, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class TokenBudgetExceeded(RateLimited):
    """The agent, or the API key, has used the tokens that it has for a day; `retry_after` is until the next one."""

    code = "token_budget_exceeded"


class RequestTooLarge(MemserverError):
    code = "request_too_large"


class VersionConflict(Conflict):
    code = "version_conflict"


class AgentWaits(Conflict):
    code = "agent_waits"


class TurnHasEnded(Conflict):
    code = "turn_ended"


class DocumentError(MemserverError):
    code = "document_error"


class DocumentTooLarge(DocumentError):
    code = "document_too_large"


class UnsupportedDocument(DocumentError):
    code = "document_unsupported"


class DocumentEmpty(DocumentError):
    code = "document_empty"


class DocumentCorrupt(DocumentError):
    code = "document_corrupt"


class DocumentEncrypted(DocumentError):
    code = "document_encrypted"


class DocumentWithoutText(DocumentError):
    code = "document_without_text"


class DocumentTooCostly(DocumentError):
    code = "document_too_costly"


class AgentFileError(MemserverError):
    code = "agent_file_error"


class AgentFileUnsupported(AgentFileError):
    code = "agent_file_unsupported"


class AgentFileCorrupt(AgentFileError):
    code = "agent_file_corrupt"


class AgentFileNewer(AgentFileError):
    code = "agent_file_newer"


class AgentFileTooLarge(AgentFileError):
    code = "agent_file_too_large"


class TurnTimeout(MemserverError):
    code = "turn_timeout"


class TurnAbandoned(MemserverError):
    code = "turn_abandoned"


class ToolError(MemserverError):
    code = "tool_failed"


class ToolProcessEnded(MemserverError):
    code = "tool_failed"


class McpServerError(MemserverError):
    code = "mcp_server_error"


class ModelError(MemserverError):
    code = "model_error"


class ModelUnavailable(ModelError):
    code = "model_unavailable"


class ModelTimeout(ModelError):
    code = "model_timeout"


class ModelAnswerTooLarge(ModelError):
    code = "model_answer_too_large"


class ModelRejected(ModelError):
    code = "model_rejected_request"


class ModelNotFound(ModelError):
    code = "model_not_found"


class ModelQuotaExceeded(ModelError):
    code = "model_quota_exceeded"


class ModelRefused(ModelError):
    """The model, or its provider's content filter, refuses to answer this; the message has their words.

    Attributes:
        usage: tokens that the refusal cost.
    """

    code = "model_refused"
    usage = TokenUsage()


class ContextOverflow(ModelError):
    """The endpoint says that the prompt is longer than its window.

    Attributes:
        window: tokens of the window, where the endpoint says it.
    """

    code = "context_overflow"

    def __init__(self, message: str, *, window: int | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.window = window


class ProtocolViolation(ModelError):
    """A reply that is not exactly one valid tool call.

    Attributes:
        complaint: what the model is shown of it; no person reads that.
        raw: the reply as it came, without reasoning, for the record.
        words: what the model said in plain words instead of a call, without reasoning; empty where it said none.
        thought: its reasoning beside these words.
        usage: tokens that the reply cost all the same.
    """

    code = "model_protocol_violation"

    def __init__(  # noqa: PLR0913 - all but the message have defaults and are named
        self,
        message: str,
        *,
        complaint: str = "",
        raw: str = "",
        words: str = "",
        thought: str = "",
        usage: TokenUsage | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.complaint = complaint or message
        self.raw = raw
        self.words = words
        self.thought = thought
        self.usage = usage or TokenUsage()


MOST_SHOWN = 200
"""Characters of a reply that an error quotes."""


def excerpt(raw: str) -> str:
    text = " ".join(raw.split())
    return f"{text[:MOST_SHOWN]}…" if len(text) > MOST_SHOWN else text or "(nothing)"


class EmbeddingError(MemserverError):
    """The embedder failed, or its vectors have another dimension than the collection's.

    Attributes:
        of_text: whether a text may be the reason, so that others may be embedded without it.
    """

    code = "embedding_error"

    def __init__(self, message: str, *, hint: str = "", of_text: bool = True) -> None:
        super().__init__(message, hint=hint)
        self.of_text = of_text


class EmbeddingRejected(EmbeddingError):
    code = "embedding_rejected"


class EmbedderUnfit(EmbeddingRejected):
    code = "embedder_unfit"


class DatabaseError(MemserverError):
    """The database can't be reached or can't be used as it is; the same thing may work later.

    Its text has the driver's words too, for logs and commands; `message` says nothing of files, hosts and roles.
    """

    code = "database_error"

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.detail = " ".join(detail.split())

    def __str__(self) -> str:  # type: ignore[explicit-override] # this module imports no package
        return f"{self.message} {self.detail}".strip()


class LeaseLost(DatabaseError):
    code = "lease_lost"


class ServerStarting(MemserverError):
    code = "server_starting"

    def __init__(self, message: str = "The server is still starting.", *, hint: str = "") -> None:
        super().__init__(message, hint=hint or "GET /v1/ready says what it waits for.")


class ServerStopping(MemserverError):
    code = "server_stopping"


class SetupError(MemserverError):
    code = "setup_error"


def install_extra(*extras: str) -> str:
    """What to do where an extra's packages are missing. The name memserver is on no index."""
    names = ",".join(extras)
    wheel = f"memserver-{__version__}-py3-none-any.whl"
    return (
        f"In a checkout: pip install '.[{names}]'. From the wheel: pip install '{wheel}[{names}]'."
    )
