"""Every setting, read once from the environment (prefix MEMSERVER_) and an optional .env file."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from platformdirs import user_data_path
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from typing_extensions import override

from memserver.errors import SetupError


class McpServerSetting(BaseModel):
    """An MCP server of the settings: a command that speaks MCP on stdio, or a URL."""

    model_config = ConfigDict(extra="forbid")

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either a command or a url")
        return self


Origin = Annotated[str, StringConstraints(pattern=r"^(\*|[a-z][a-z0-9+.-]*://[^/?#@\s]+)$")]
"""Of a web page, as browsers send it; not `null`, which every page can be."""
McpServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,30}$")]


class FromFiles(EnvSettingsSource):
    """Values that stand in files, as orchestrators hand out secrets: MEMSERVER_NAME_FILE names the one of MEMSERVER_NAME."""

    def __init__(self, settings: type[BaseSettings], *named_in: EnvSettingsSource) -> None:
        """The files that the variables of these sources name, the first source's before the others'; an empty one sets nothing.

        Raises:
            SetupError: a file can't be read, or a value is given in both ways.
        """
        super().__init__(settings)
        given = {
            name: value for each in reversed(named_in) for name, value in each.env_vars.items()
        }
        fields = [f"{self.env_prefix}{field}".lower() for field in settings.model_fields]
        self.env_vars = {
            name: content
            for name in fields
            if (path := given.get(f"{name}_file"))
            and (content := _content(name.upper(), path, beside=given.get(name)))
        }


def _content(name: str, path: str, beside: str | None) -> str:
    if beside is not None:
        raise SetupError(f"{name} and {name}_FILE are both set.", hint="Unset one of them.")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise SetupError(
            f"{name}_FILE names {path}, which can't be read: {why}.",
            hint="Mount the file there, readable by the account that memserver runs as.",
        ) from error


class Settings(BaseSettings):
    """memserver's settings; docs/settings.md lists them. All times are seconds, all sizes tokens."""

    model_config = SettingsConfigDict(env_prefix="MEMSERVER_", env_file=".env", extra="ignore")

    home: Path = Field(default_factory=lambda: user_data_path("memserver"))
    """Where the embedded Postgres, the engine's environment and the local model live."""
    host: str = "127.0.0.1"
    port: int = Field(default=8283, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=64)
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """What memserver logs: lines of this level and above."""
    log_format: Literal["text", "json"] = "text"
    """Whether a line of the log is for people, or a JSON object."""
    log_requests: bool = False
    """Whether the log has a line for each request."""
    metrics: Literal["operator", "open", "off"] = "operator"
    """Who may read /metrics, in Prometheus' form: an admin key of the tenant default; everybody, for networks where
    nobody else is; or off: nothing is measured."""
    console: bool = True
    """Whether the server has the console: pages for people, in a browser, at its address."""
    otlp_endpoint: str | None = None
    """A collector that traces and metrics are sent to by OTLP over HTTP, such as http://127.0.0.1:4318; needs the extra
    otel. OpenTelemetry's own variables, such as OTEL_TRACES_SAMPLER and OTEL_EXPORTER_OTLP_HEADERS, say the rest."""
    admin_key: SecretStr | None = None
    """An API key for the server's operator, as `memserver keys generate` prints one: it is there from the first start on.
    One that was revoked stays so; a new one is a key of its own."""
    key_cache_seconds: float = Field(default=10, ge=0)
    """How long a process caches an API key: after so long at most a revocation by another process takes
    effect."""
    rate_limit: int = Field(default=0, ge=0)
    """Requests a minute that one API key may make of one process; 0: no limit."""
    rate_limit_burst: int = Field(default=60, ge=1)
    """Burst: requests at once before rate_limit applies."""
    blocked_seconds: float = Field(default=1, gt=0)
    """The log says what holds the event loop when it answers nothing for so long."""
    request_max_bytes: int = Field(default=64_000_000, ge=1)
    """Largest body of a request."""
    import_max_bytes: int = Field(default=10_000_000_000, ge=1)
    """Largest agent file that may be imported, as sent and unpacked; it waits on the server's disk."""
    cors_origins: list[Origin] = Field(default_factory=list)
    """Web pages that may call the server from a browser, as JSON: ["https://chat.example"]; ["*"]: all."""
    trusted_proxies: Annotated[tuple[IPvAnyNetwork, ...], NoDecode] = ()
    """Reverse proxies, as addresses or networks separated by commas, whose X-Forwarded-For, -Proto, -Host and
    -Prefix count: 127.0.0.1,10.0.0.0/8; unset: nobody's do."""
    root_path: Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._~-]+)*$")] = ""
    """The path that a proxy serves memserver below, such as /memory, where it sends no X-Forwarded-Prefix."""
    picture_max_bytes: int = Field(default=8_000_000, ge=0)
    """Largest picture in a message; 0: none is taken."""
    picture_max_pixels: int = Field(default=40_000_000, ge=1)
    """Most pixels of one."""
    front_end_requests: bool = True
    """Requests that chat front ends make for themselves over OpenAI's API, for titles, tags and follow-up questions,
    are answered by the model alone and not remembered. Off: they are messages to the agent."""
    agents_per_template: int = Field(default=1000, ge=0)
    """Agents that are made of one, for users of OpenAI's API, by a model's name that ends in @user."""
    stream_ping_seconds: float = Field(default=15, gt=0)
    """A stream has a comment after so long without an event: less than the proxies in front wait for more."""
    cancel_on_hang_up: bool = False
    """Whether a message's turn is cancelled when the client that sent it hangs up before its end; never that of a request
    with an Idempotency-Key, which may come again."""
    idempotency_seconds: float = Field(default=86_400, gt=0)
    """How long the answer to a request with an Idempotency-Key is kept. A message's is kept as long
    as its agent."""
    prompts_dir: Path | None = None
    """A folder whose files replace those of prompts/ of the same name."""

    database_url: SecretStr | None = None
    """An external Postgres (postgresql://…, as its owner role); unset means the embedded one."""
    database_app_url: SecretStr | None = None
    """The same database as the application role; unset: the owner's URL, with the role taken at start."""
    database_read_url: SecretStr | None = None
    """A streaming standby of it, or several, as the application role: searches run there where it is up to date."""
    database_pool_size: int = Field(default=10, ge=2)
    database_prepared_statements: Literal["auto", "on", "off"] = "auto"
    """Whether statements are prepared; auto: unless a pooler stands between. on is for a pooler that knows
    prepared statements: PgBouncer from 1.21 with max_prepared_statements, or in session mode."""

    llm_base_url: str | None = None
    """An OpenAI-compatible endpoint (…/v1, or as its provider names it); unset means the local engine. Several,
    separated by commas, are engines that serve the same models and take the same key."""
    llm_pin_agents: bool = True
    """Whether an agent's requests go to one of several engines, which has its prompt's prefix in its cache; off: to
    the one that is least busy."""
    local_model: Literal["memserver-small", "SmolLM2-135M-Instruct"] = "memserver-small"
    """What the local engine serves: the model that was trained to use its memory, or the untrained one."""
    local_adapters: bool = False
    """Whether the local engine takes LoRA adapters of that model (`memserver models add`). The model itself
    then writes about a seventh slower, and a prompt for an adapter is read seven times slower."""
    local_engine_state: Path | None = None
    """Where `memserver serve` reports how its local engine does; it sets this itself, for its processes."""
    llm_model: str | None = None
    llm_api_key: SecretStr | None = None
    llm_mode: Literal["auto", "tools", "json_schema", "text"] = "auto"
    """Native tool calls, an answer held to a JSON schema, or instructions in the system message alone;
    auto asks the endpoint at the first use, takes the first of these that works, and asks again after a fallback."""
    llm_profile: dict[str, Any] = Field(default_factory=dict)
    """Fields of the endpoint's profile, as JSON, that are known and not to be found out: docs/endpoints.md lists
    them."""
    llm_context_window: int | None = Field(default=None, ge=512)
    """Tokens the model can see; unset: what the endpoint says, else 8192."""
    llm_max_output_tokens: int = Field(default=512, ge=16)
    llm_schema: dict[str, Any] = Field(default_factory=dict)
    """Additions to the root of a JSON-schema answer's schema, as JSON, such as vLLM's x-guidance."""
    llm_list_tools: bool = True
    """Whether the system message lists the tools in JSON-schema mode; the schema has them anyway."""
    llm_thought_last: bool = False
    """Whether the inner thought comes after a call's other arguments, for a model too small to think."""
    llm_longest_text: int | None = Field(default=None, ge=20)
    """Characters in one argument of a call; unset: what the tool allows. Keeps a weak model's call
    from running into llm_max_output_tokens."""
    llm_timeout: float = Field(default=120, gt=0)
    """How long one request to the endpoint may take, with its retries and to the end of its stream."""
    llm_retries: int = Field(default=3, ge=0, le=20)
    """How often a request is sent again after a failed connection, a 5xx, a 429 or a 408, or while the model loads,
    as long as the wait fits into llm_timeout and the turn's time; 0: never. The local engine is asked once more at most."""
    llm_max_in_flight: int = Field(default=256, ge=1)
    """Answers that one process waits for at a time, over all models of the endpoint; more wait in a fair
    queue."""
    llm_tokenizer: Path | None = None
    """The model's tokenizer.json; unset: the endpoint is asked, or tokens are estimated."""
    llm_body: dict[str, Any] = Field(default_factory=dict)
    """Additions to the body of every request, as JSON: temperature, seed, chat_template_kwargs, …"""
    llm_seed: int | None = None
    """Makes answers at a temperature above 0 repeatable: each request has a seed made of this and of
    its messages, so that different prompts don't draw alike. A seed in llm_body is the same for all."""
    summary_model: str | None = None
    """The model that writes summaries, by its name at the endpoint; unset: the agent's own. Its window is
    what the endpoint says, if that is smaller than llm_context_window."""
    summary_method: Literal["model", "extract"] = "model"
    """Who writes summaries: a model, or none, by choosing the most informative sentences, which is better than
    what a very small model writes; extract is the local model's."""

    embedding_base_url: str | None = None
    """An OpenAI-compatible embedding endpoint; unset means the local sentence-transformers model."""
    embedding_model: str | None = None
    embedding_dimension: int = Field(default=0, ge=0, le=4000)
    """Length of the vectors; 0: what the model gives, up to 4000. Where the model gives another length, the
    endpoint is asked for this one, by `dimensions`."""
    embedding_batch: int = Field(default=32, ge=1, le=2048)
    """Texts in one request to the endpoint, at most; what it refuses is halved until it takes it."""
    embedding_body: dict[str, Any] = Field(default_factory=dict)
    """Additions to the body of every request, as JSON; null leaves a field out."""
    embedding_query_body: dict[str, Any] = Field(default_factory=dict)
    """Further additions where the text is what is looked for, such as {"input_type": "query"}."""
    embedding_prefix: str | None = None
    """What comes before each text that is stored, such as `passage: ` for E5."""
    embedding_query_prefix: str | None = None
    """What comes before a text that is looked for, such as `query: ` for E5."""
    embedding_window: int = Field(default=0, ge=0)
    """Tokens of a text that the endpoint's model reads; a longer text becomes several passages. 0: what the
    endpoint lists as max_model_len, else 512."""
    embedding_tokenizer: Path | None = None
    """The embedding model's tokenizer.json; unset: bytes are counted for an endpoint's tokens, as an
    upper bound, so that passages are cut shorter than they need be."""
    embedding_api_key: SecretStr | None = None

    embed_messages: bool = True
    """Messages are embedded in the background, so that they are found by meaning."""
    index_after_seconds: float = Field(default=5, ge=0, le=60)
    """Messages are indexed when their tenant's agents have ended no turn for so long; after a minute all the
    same, or when somebody searches. Until then they are found by their text."""
    archival_search: Literal["hybrid", "vector", "text"] = "hybrid"
    """What finds passages: vectors and full text fused, vectors alone as in the MemGPT paper, or full text
    alone. A request may say otherwise."""
    vector_index_memory: int = Field(default=1024, ge=64)
    """Megabytes of the database server's memory for building the index of a large collection, which takes
    1.5 kB for each vector of 384 dimensions; with fewer it takes several times as long."""

    document_max_bytes: int = Field(default=50_000_000, ge=1)
    """Largest file that may be sent."""
    document_timeout: float = Field(default=120, gt=0)
    """How long reading a file may take, in a process of its own."""
    document_memory_mb: int = Field(default=1024, ge=128)
    """Megabytes of memory that this process may use."""
    chunk_tokens: int = Field(default=512, ge=16)
    """Most tokens of a passage that is cut from a document; what the embedding model reads, if that is less:
    256 for the local one."""
    chunk_overlap: int = Field(default=32, ge=0)
    """Most tokens by which a passage repeats the end of the one before it in the same section."""

    tools: Annotated[tuple[str, ...], NoDecode] = ()
    """Python modules whose decorated functions are tools, separated by commas; also those of installed
    packages that register by the entry point memserver.tools are taken."""
    tool_timeout: float = Field(default=60, gt=0)
    """How long a call of a tool other than the memory's may take, unless the tool says otherwise."""
    tool_result_characters: int = Field(default=20_000, ge=100)
    """Characters of a call's result that the model is shown; a note says where one was cut."""
    waiting_call_seconds: float = Field(default=604_800, gt=0, le=315_360_000)
    """How long a call waits for an approval, or for the result from the caller, before its turn continues without
    one; a week, unless set."""
    tool_networks: Annotated[tuple[IPvAnyNetwork, ...], NoDecode] = ()
    """Networks that webhooks and MCP servers registered over the API may be in, separated by commas, such
    as 127.0.0.0/8,10.0.0.0/8; unset: the public internet alone."""

    mcp_servers: dict[McpServerName, McpServerSetting] = Field(default_factory=dict)
    """MCP servers whose tools all agents can attach, as JSON:
    {"files": {"command": "npx", "args": ["server-files"], "env": {}}, "wiki": {"url": "https://…/mcp",
    "headers": {}}}. Only here a server can be a command; one of the API has a URL."""

    torch_index: str | None = None
    """Where pip finds torch for the CPU, if not where PyTorch publishes it."""

    max_steps: int = Field(default=10, ge=1, le=100)
    """Model steps in one turn."""
    prompt_order: Literal["working_context_first", "working_context_last"] = "working_context_first"
    """Where a prompt has the working context: before the messages, as in the MemGPT paper, or after them."""
    history: Literal["calls", "compact"] = "calls"
    """How prompts show what an agent said: as the calls by which it was said, or as the text alone, which
    takes half as much room."""
    pressure_alert: bool = True
    """Whether agents get an alert when memory is short, and steps to save what they will need, unless the agent says
    otherwise; off for the local model, which notes things as they are said and has not learnt these steps."""
    auto_recall: bool = False
    """Whether the server searches an agent's history for each message before the model's first step, unless the
    agent says otherwise."""
    auto_recall_floor: float = Field(default=0.3, ge=0, le=1)
    """Cosine similarity of a message from which on such a search is worth showing; shared words make it so, too."""
    results_dir: Path | None = None
    """A folder with runs of `memserver eval` and `memserver train`, which the operator can read over the API."""
    trace: bool = False
    """Whether each step's prompt is stored as it was sent, with the model's raw reply, unless the agent says otherwise;
    some 10 kB a step."""
    trace_seconds: float = Field(default=604_800, gt=0, le=315_360_000)
    """How long those are kept; a week, unless set."""
    turn_timeout: float = Field(default=600, gt=0)
    """How long a turn may take from its start, waiting for the model included; an import has no limit."""
    lease_seconds: float = Field(default=15, gt=0)
    """How long a dead worker's agents wait before another one takes them over."""
    jobs_at_once: int = Field(default=4, ge=0, le=64)
    """Jobs that one process runs at the same time; 0: none, so that other processes have to."""

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        assert isinstance(env_settings, EnvSettingsSource)
        assert isinstance(dotenv_settings, EnvSettingsSource)
        files = FromFiles(settings_cls, env_settings, dotenv_settings)
        return init_settings, env_settings, dotenv_settings, files

    @field_validator("tools", "tool_networks", "trusted_proxies", mode="before")
    @classmethod
    def _listed(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value
