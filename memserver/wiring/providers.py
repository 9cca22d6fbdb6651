"""The models and embedders of the settings, each made once: clients of endpoints, or the local ones; MCP servers."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

from pydantic import SecretStr
from typing_extensions import override

from memserver.agent.dependencies import ModelSource
from memserver.embeddings.base import Embedder
from memserver.embeddings.batching import BatchingEmbedder
from memserver.embeddings.openai_compatible import OpenAICompatibleEmbedder, embedding_endpoint
from memserver.embeddings.profile import Additions
from memserver.embeddings.sentence_transformers import SentenceTransformersEmbedder
from memserver.errors import EmbedderUnfit, EmbeddingError, ModelUnavailable, SetupError
from memserver.llm.admission import (
    AlwaysReady,
    EndpointReadiness,
    FairSemaphore,
    QueuedModel,
    SharedEndpoint,
)
from memserver.llm.base import ChatModel
from memserver.llm.counters import Counters
from memserver.llm.observed import ObservedModel
from memserver.llm.openai_compatible import ModelOptions, OpenAICompatible
from memserver.llm.overview import EndpointOverview, look_at
from memserver.llm.requests import JsonAnswers
from memserver.local.engine.paths import EnginePaths
from memserver.local.engine.readiness import REMEDY, EngineReadiness
from memserver.memory.archival import no_embedder
from memserver.openai_http.circuit import Circuit
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver.openai_http.fleet import Fleet
from memserver.openai_http.fleet_client import survey
from memserver.settings import Settings
from memserver.telemetry.metrics import ENGINE, NO_METRICS, Recorder


class Models(ModelSource):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._endpoint = model_endpoint(settings)
        self._models: dict[str | None, ChatModel] = {}
        self._recorder = NO_METRICS
        self._known: set[str] = set()
        circuit = self._endpoint.fleet or Circuit()
        readiness = _readiness(settings, circuit)
        self.shared = SharedEndpoint(FairSemaphore(settings.llm_max_in_flight), circuit, readiness)
        self._counters = Counters(
            self._endpoint,
            default=settings.llm_model,
            tokenizer=settings.llm_tokenizer,
            circuit=circuit,
        )

    @override
    def get(self, name: str | None, tenant: str = "") -> ChatModel:
        """The model of this name, as the tenant has it; None is the settings' own."""
        if name not in self._models:
            self._models[name] = self._make(name)
        observed = ObservedModel(self._models[name], self._recorder, self._known)
        return QueuedModel(observed, self.shared, tenant, self._recorder)

    @override
    def observe(self, recorder: Recorder) -> None:
        self._recorder = recorder
        if self._endpoint.fleet is not None:
            self._endpoint.fleet.on_end = partial(recorder.record, ENGINE)

    @override
    async def wait_until_ready(self) -> None:
        with suppress(ModelUnavailable):
            await self.shared.readiness.wait()

    @override
    async def describe_engines(self) -> str:
        fleet = self._endpoint.fleet
        return await survey(self._endpoint, fleet) if fleet is not None else ""

    @override
    async def inspect(self) -> EndpointOverview:
        return await look_at(self._endpoint, self.shared, list(self._models.values()))

    @override
    def loading(self) -> str:
        return self.shared.readiness.loading()

    async def aclose(self) -> None:
        await self.shared.readiness.aclose()
        for model in self._models.values():
            await model.aclose()
        await self._counters.aclose()

    def _make(self, name: str | None) -> ChatModel:
        settings = self._settings
        options = ModelOptions(
            model=name or settings.llm_model,
            mode=settings.llm_mode,
            context_window=settings.llm_context_window,
            window_is_limit=name not in {None, settings.llm_model},
            body=settings.llm_body,
            answers=JsonAnswers(settings.llm_schema, settings.llm_list_tools),
            seed=settings.llm_seed,
            profile=settings.llm_profile,
        )
        counter, circuit = self._counters.of(name), self.shared.circuit
        return OpenAICompatible(self._endpoint, options, counter=counter, circuit=circuit)


class OtherEmbedders:
    """Embedders of collections that were made with another model than the settings' own.

    Those are the endpoint's other models, and the local one where the endpoint has taken its place.
    """

    def __init__(self, current: str, settings: Settings) -> None:
        self._current = current
        self._settings = settings
        self._made: dict[tuple[str, int], Embedder] = {}

    def get(self, model: str, dimension: int = 0) -> Embedder:
        """The embedder of this model, of vectors this long; 0: as long as the model's are.

        Raises:
            EmbeddingError: there is none here.
        """
        kind = (model, dimension)
        if kind not in self._made:
            self._made[kind] = BatchingEmbedder(self._make(*kind))
        return self._made[kind]

    async def aclose(self) -> None:
        for embedder in self._made.values():
            await embedder.aclose()

    def _make(self, model: str, dimension: int) -> Embedder:
        settings = self._settings
        if settings.embedding_base_url is None:
            raise no_embedder(model, self._current)
        local = SentenceTransformersEmbedder()
        if model == local.model:
            local.warm_up()
            return local
        return OpenAICompatibleEmbedder(
            embedding_endpoint(settings.embedding_base_url, _key(settings.embedding_api_key)),
            model,
            dimension=dimension,
            batch_size=settings.embedding_batch,
            additions=Additions(settings.embedding_body, settings.embedding_query_body),
        )


def model_endpoint(settings: Settings) -> Endpoint:
    """Where the models are. Raises SetupError where no setting says so, or address or key can't be used."""
    if settings.llm_base_url is None:
        raise SetupError(
            "There is no model endpoint.",
            hint="Set MEMSERVER_LLM_BASE_URL, or start by `memserver serve`, which brings the "
            "local engine.",
        )
    urls = [url for each in settings.llm_base_url.split(",") if (url := each.strip())]
    endpoint = Endpoint(
        urls[0] if urls else settings.llm_base_url,
        _key(settings.llm_api_key),
        settings.llm_timeout,
        settings.llm_retries,
        connections=0,  # the semaphore bounds them, and is fair
    )
    engines = [(url, replace(endpoint, base_url=url).address()[0].base) for url in urls]
    endpoint.address()  # else the first turn would find it unusable
    if len({address for _, address in engines}) < len(engines):
        raise SetupError(
            "MEMSERVER_LLM_BASE_URL names an engine twice.",
            hint="Name each engine once; behind a load balancer they are one endpoint.",
        )
    if len(engines) > 1:
        return replace(endpoint, fleet=Fleet(engines, pins=settings.llm_pin_agents))
    if settings.local_engine_state is None:
        return endpoint
    remedy = REMEDY.format(log=EnginePaths(settings.home).log)
    # What kills the engine must not kill it again and again.
    retries = min(settings.llm_retries, 1)
    return replace(endpoint, title="local engine", remedy=remedy, max_retries=retries)


def check_addresses(settings: Settings) -> None:
    """Find an address or a key of an endpoint that can't be used. Raises SetupError."""
    if settings.llm_base_url is not None:
        model_endpoint(settings)
    if settings.embedding_base_url is not None:
        key = _key(settings.embedding_api_key)
        embedding_endpoint(settings.embedding_base_url, key).address()


def _readiness(settings: Settings, circuit: Circuit | Fleet) -> EndpointReadiness:
    """What waits for the endpoint: only for the local engine is it known that it will come."""
    if settings.local_engine_state is None or isinstance(circuit, Fleet):
        return AlwaysReady()
    client = EndpointClient(replace(model_endpoint(settings), max_retries=0), circuit)
    return EngineReadiness(settings.local_engine_state, EnginePaths(settings.home).log, client)


def make_embedder(settings: Settings, *, load: bool = True) -> Embedder:
    """The embedder of the settings. A local one loads now, or at its first use. Raises SetupError."""
    if settings.embedding_base_url is None:
        local = SentenceTransformersEmbedder()
        if load:
            local.warm_up()
        return local
    return _endpoint_embedder(settings, settings.embedding_base_url)


async def refuse_unfit_embedder(settings: Settings, *, within: float = 2) -> None:
    """Refuse vectors that can't be stored before anything is started for them; an endpoint that is down may come later.

    Raises:
        SetupError: an embedding endpoint gives such vectors.
    """
    if settings.embedding_base_url is None:
        return
    embedder = _endpoint_embedder(
        settings, settings.embedding_base_url, timeout=within, max_retries=0
    )
    try:
        await embedder.check()
    except EmbedderUnfit as error:
        raise SetupError(error.message, hint=error.hint) from error
    except EmbeddingError:
        return
    finally:
        await embedder.aclose()


def _endpoint_embedder(
    settings: Settings, base_url: str, *, timeout: float = 60, max_retries: int = 2
) -> Embedder:
    key = _key(settings.embedding_api_key)
    return OpenAICompatibleEmbedder(
        embedding_endpoint(base_url, key, timeout=timeout, max_retries=max_retries),
        embedding_model(settings),
        dimension=settings.embedding_dimension,
        window=settings.embedding_window,
        tokenizer=settings.embedding_tokenizer,
        batch_size=settings.embedding_batch,
        additions=Additions(
            settings.embedding_body,
            settings.embedding_query_body,
            settings.embedding_prefix or "",
            settings.embedding_query_prefix or "",
        ),
    )


def _key(secret: SecretStr | None) -> str:
    return secret.get_secret_value() if secret else ""


def embedding_model(settings: Settings) -> str:
    """The embedding model's name; empty for the local one. Raises SetupError where an endpoint's isn't named."""
    if settings.embedding_base_url is not None and settings.embedding_model is None:
        raise SetupError(
            "MEMSERVER_EMBEDDING_BASE_URL is set, but no model.",
            hint="Set MEMSERVER_EMBEDDING_MODEL too.",
        )
    return settings.embedding_model or ""
