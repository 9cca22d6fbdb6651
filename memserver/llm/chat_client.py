"""Sends the chat completions of one model: in the form that its profile wants, and in another one where that is refused."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from memserver.errors import ModelError, ModelUnavailable, ProtocolViolation
from memserver.llm.adjusting import MOST_STEPS, adjust
from memserver.llm.answers import raw_reply, usage_of
from memserver.llm.base import TextSink
from memserver.llm.listening import PlainReader, Reader, listen
from memserver.llm.model_facts import ModelFacts
from memserver.llm.modes import detect_mode, is_no_call
from memserver.llm.profile import EndpointProfile, ProfileChange, ToolCallMode
from memserver.llm.profile_keeper import Clock, Known, ProfileKeeper
from memserver.llm.reply_parser import RawReply
from memserver.llm.requests import Draft, PreparedRequest, Requests
from memserver.messages import TokenUsage
from memserver.metering import note_reply, note_request
from memserver.openai_http.client import EndpointClient

_PATH = "/chat/completions"
_NOT_READ = "Your answer could not be read as a call. Call exactly one tool, with valid JSON as its arguments."


class ChatClient:
    """Sends the requests of one model; `worked_at`: when the latest one was answered, by the clock."""

    def __init__(
        self,
        client: EndpointClient,
        requests: Requests,
        facts: ModelFacts,
        keeper: ProfileKeeper,
        clock: Clock,
    ) -> None:
        self.worked_at = float("-inf")
        self._client = client
        self._requests = requests
        self._facts = facts
        self._keeper = keeper
        self._clock = clock
        self._probing = asyncio.Lock()

    async def know_mode(self, max_tokens: int) -> None:
        """Find out how a call is requested, if it is time.

        Those who come meanwhile request as before, and wait only where nothing is known.

        Raises:
            ModelError: nothing is known, and the endpoint fails.
        """
        keeper = self._keeper
        if not keeper.is_due or (self._probing.locked() and not keeper.is_open):
            return
        async with self._probing:
            if keeper.is_due:
                await self._probe(max_tokens)

    async def send(
        self,
        draft: Callable[[EndpointProfile], Draft],
        max_tokens: int,
        reader: Callable[[ToolCallMode], Reader] = lambda _: PlainReader(),
        on_text: TextSink | None = None,
    ) -> tuple[RawReply, TokenUsage, ToolCallMode]:
        """Send a request, in other forms too as long as refusals name them and nothing was heard.

        `draft` makes it for a profile; `reader` reads the message's text out of the stream, in a mode; `on_text` takes that text,
        None requests the whole at once.

        Raises:
            ModelError: it failed; a ProtocolViolation where the endpoint could not read what the model wrote.
        """
        heard = False

        def hear(text: str) -> None:
            nonlocal heard
            heard = True
            assert on_text is not None
            on_text(text)

        keeper = self._keeper
        keeper.name = self._facts.name
        tries = 0
        known: Known | None = None
        while True:
            profile = keeper.profile
            request = self._finish(draft(profile), profile, max_tokens, on_text is not None)
            try:
                listener = None if on_text is None else (reader(profile.mode), hear)
                raw, usage = await self._send(request, listener)
            except ModelError as error:
                tries += 1
                known = known or keeper.known()
                if heard or tries > MOST_STEPS or not keeper.adjust(profile, error, request):
                    if not heard:
                        keeper.take_back(known, profile, error)
                    raise
            else:
                return raw, usage, profile.mode

    async def _send(
        self, request: PreparedRequest, listener: tuple[Reader, TextSink] | None
    ) -> tuple[RawReply, TokenUsage]:
        note_request(request.body)
        try:
            if listener is None:
                answer = await self._post(request)
            else:
                answer = await listen(self._client.stream(_PATH, request.body), *listener)
        except ModelError as error:
            if not is_no_call(error):
                raise
            self.worked_at = self._clock()
            raise ProtocolViolation(_NOT_READ, raw=error.message) from error
        self.worked_at = self._clock()
        note_reply(answer[0])
        return answer

    async def _probe(self, max_tokens: int) -> None:
        keeper = self._keeper
        keeper.name = self._facts.name
        profile, changes = keeper.first_to_try(), list[ProfileChange]()

        async def put(mode: ToolCallMode, room: int | None) -> RawReply:
            """Put the question, in other forms too where refusals name them; the mode stays."""
            nonlocal profile, changes
            known, learned = profile, list(changes)
            profile = replace(profile, mode=mode)
            while True:
                draft = self._requests.probe(self._facts.name, profile)
                request = self._finish(draft, profile, room or max_tokens, False)
                try:
                    raw, _ = await self._post(request)
                except ModelError as error:
                    step = adjust(profile, keeper.fixed | {"mode"}, error, request)
                    if step is None or len(changes) > MOST_STEPS:
                        profile, changes = known, learned  # what was given up for it was no cure
                        raise
                    profile, change = step
                    changes.append(change)
                else:
                    return raw

        try:
            detected = await detect_mode(put)
        except ModelError:
            if keeper.is_open:
                raise
            keeper.postpone()
        else:
            keeper.adopt(detected, profile, changes)

    def _finish(
        self, draft: Draft, profile: EndpointProfile, max_tokens: int, streamed: bool
    ) -> PreparedRequest:
        name = self._facts.name
        return self._requests.finish(draft, name, profile, max_tokens, streamed=streamed)

    async def _post(self, request: PreparedRequest) -> tuple[RawReply, TokenUsage]:
        answer = await self._client.post(_PATH, request.body)
        if not answer.get("choices"):
            raise ModelUnavailable(
                f"The endpoint's answer holds no choice: {str(answer.get('error', ''))[:300]}",
                hint="Check that MEMSERVER_LLM_BASE_URL is an OpenAI-compatible endpoint.",
            )
        return raw_reply(answer), usage_of(answer)
