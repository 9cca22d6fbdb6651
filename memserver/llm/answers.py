"""What is read out of a chat completion's answer, whole or streamed, in the many shapes in which providers send it.

A stream gives what the whole answer would have. Anything of an unexpected type counts as absent.
"""

from bisect import insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from memserver.llm import provider_fields
from memserver.llm.reply_parser import RawCall, RawReply
from memserver.llm.streamed_call import Piece, StreamedCall
from memserver.messages import JsonObject, TokenUsage

MOST_CALLS = 1000
"""That are read of one event: the first one counts."""


def raw_reply(answer: Mapping[str, Any]) -> RawReply:
    choice = _mapping(_first(answer.get("choices")))
    message = _mapping(choice.get("message"))
    return RawReply(
        content=_text(message.get("content")),
        calls=tuple(_whole_call(call) for call in _calls(message)),
        reasoning=_reasoning(message),
        finish_reason=_text(choice.get("finish_reason")),
        refusal=_text(message.get("refusal")),
        fields=provider_fields.message_fields(message),
    )


def usage_of(answer: Mapping[str, Any]) -> TokenUsage:
    usage = _mapping(answer.get("usage"))
    details = _mapping(usage.get("prompt_tokens_details"))
    return TokenUsage(
        _number(usage.get("prompt_tokens")),
        _number(usage.get("completion_tokens")),
        _number(details.get("cached_tokens")),
    )


class StreamedReply:
    """Puts the events of a stream together.

    Attributes:
        usage: as the endpoint counted it, once it has said so.
        finish_reason: why the model ended; empty as long as the endpoint has not said that it did.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        """Begin; `names` of the tools that were offered show a name that comes in pieces or is repeated."""
        self.usage = TokenUsage()
        self.finish_reason = ""
        self._names = frozenset(names)
        self._content: list[str] = []
        self._refusal: list[str] = []
        self._fields: list[JsonObject] = []
        self._calls: list[StreamedCall] = []
        self._by_index: dict[int, StreamedCall] = {}
        self._by_id: dict[str, StreamedCall] = {}
        self._latest: StreamedCall | None = None
        self._message: RawReply | None = None

    @property
    def first_name(self) -> str:
        return self._calls[0].name if self._calls else ""

    def add(self, event: Mapping[str, Any]) -> tuple[str, str]:
        """Take an event; give the content and the first call's argument text that it brought."""
        if event.get("usage"):
            self.usage = usage_of(event)
        choice = _mapping(_first(event.get("choices")))
        self.finish_reason = _text(choice.get("finish_reason")) or self.finish_reason
        message = choice.get("message")
        if isinstance(message, dict) and not choice.get("delta"):
            return self._add_whole(event, message)
        delta = _mapping(choice.get("delta"))
        content = _text(delta.get("content"))
        self._content.append(content)
        self._refusal.append(_text(delta.get("refusal")))
        if fields := provider_fields.message_fields(delta):
            self._fields.append(fields)
        return content, "".join(self._add_call(call) for call in _calls(delta))

    def whole(self) -> RawReply:
        if self._message is not None:
            ended = self._message.finish_reason or self.finish_reason
            return replace(self._message, finish_reason=ended)
        fields = provider_fields.join_pieces(self._fields)
        return RawReply(
            content="".join(self._content),
            calls=tuple(call.whole() for call in self._calls),
            reasoning=_reasoning(fields),
            finish_reason=self.finish_reason,
            refusal="".join(self._refusal),
            fields=fields,
        )

    def _add_whole(self, event: Mapping[str, Any], message: Mapping[str, Any]) -> tuple[str, str]:
        """Take an answer that came whole; where its pieces came before, it only repeats them."""
        if self._message is not None or self._calls or any(self._content):
            return "", ""
        self._message = raw_reply(event)
        return self._message.content, "".join(self._add_call(call) for call in _calls(message)[:1])

    def _add_call(self, call: Mapping[str, Any]) -> str:
        piece = Piece.of(call)
        known = self._continued(piece) or self._begun(piece)
        if known is None:
            return ""
        known.add(piece)
        if known.id:
            self._by_id[known.id] = known
        return piece.arguments if known is self._calls[0] else ""

    def _continued(self, piece: Piece) -> StreamedCall | None:
        named = self._by_id.get(piece.id)
        if piece.index is None:
            known = named or self._latest
        elif named is not None and named.index == piece.index:
            known = named
        else:
            known = self._by_index.get(piece.index)
        return None if known is None or known.is_followed_by(piece) else known

    def _begun(self, piece: Piece) -> StreamedCall | None:
        if len(self._calls) == MOST_CALLS:
            return None
        before = self._latest or StreamedCall(0, self._names)
        call = before.followed_by(piece)
        self._latest = self._by_index[call.index] = call
        insort(self._calls, call, key=lambda each: each.index)
        return call


def _calls(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    listed = [calls] if isinstance(calls, dict) else calls if isinstance(calls, list) else []
    return [_mapping(call) for call in listed[:MOST_CALLS]]


def _whole_call(call: Mapping[str, Any]) -> RawCall:
    function, given = _mapping(call.get("function")), call.get("id")
    return RawCall(
        function.get("name"),
        function.get("arguments"),
        given if isinstance(given, str) else "",
        provider_fields.call_fields(call),
    )


def _reasoning(message: Mapping[str, Any]) -> str:
    return _text(message.get("reasoning_content")) or _text(message.get("reasoning"))


def _text(value: object) -> str:
    if isinstance(value, list):
        return "".join(_text(_mapping(part).get("text")) for part in value)
    return value if isinstance(value, str) else ""


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(values: object) -> object:
    return values[0] if isinstance(values, Sequence) and values else None
