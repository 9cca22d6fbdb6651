"""The order of roles that strict chat templates demand, of any messages.

Owns what is merged and what is put between. The strictest rules are kept together: those of Mistral's API
and templates and of Gemma's templates, where the user begins and ends, user and assistant take turns (a
tool's result counts as the user's turn), and nothing but an assistant's message follows a tool's result.
"""

from collections.abc import Sequence

from memserver.messages import JsonObject

BETWEEN = "\n\n"
CONTINUE = "[system] Continue."
"""What stands where the user would have to say something and hasn't."""
ACKNOWLEDGED = "OK."
"""What stands where the assistant would have to."""


def alternating(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The messages in turns; each result must stand right after its call already."""
    head = list(messages[:1]) if messages and messages[0]["role"] == "system" else []
    turns: list[JsonObject] = []
    for message in messages[len(head) :]:
        if message["role"] == "tool" or "tool_calls" in message or message["content"].strip():
            _add(turns, message)
    if messages and (not turns or turns[-1]["role"] == "assistant"):
        turns.append(_user(CONTINUE))
    return head + turns


def system_folded(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """The messages with the system's at the head of the first user's."""
    if not messages or messages[0]["role"] != "system":
        return list(messages)
    system, rest = messages[0]["content"], list(messages[1:])
    if rest and rest[0]["role"] == "user":
        system = BETWEEN.join(filter(None, (system, rest.pop(0)["content"])))
    return [_user(system), *rest]


def _add(turns: list[JsonObject], message: JsonObject) -> None:
    role, before = message["role"], turns[-1]["role"] if turns else None
    if before == role and _is_plain(message) and _is_plain(turns[-1]):
        turns[-1] = {"role": role, "content": turns[-1]["content"] + BETWEEN + message["content"]}
        return
    if role == "user" and before == "tool":
        turns.append({"role": "assistant", "content": ACKNOWLEDGED})
    elif role == "assistant" and before in (None, "assistant"):
        turns.append(_user(CONTINUE))
    turns.append(message)


def _is_plain(message: JsonObject) -> bool:
    """Whether it is nothing but text: a call stands alone, and what has fields is sent as it came."""
    return message["role"] != "tool" and message.keys() == {"role", "content"}


def _user(text: str) -> JsonObject:
    return {"role": "user", "content": text}
