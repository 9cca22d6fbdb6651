"""The ids of tool calls: nine characters of [A-Za-z0-9], which every provider takes and Mistral demands."""

import hashlib
import secrets
import string
from functools import lru_cache

LENGTH = 9
_CHARACTERS = string.ascii_letters + string.digits


def new_call_id() -> str:
    """An id for a call. Ours, never the endpoint's: some servers number every reply's calls from 0."""
    return _spell(secrets.randbits(128))


@lru_cache(10_000)  # every prompt has those of its whole queue
def nine_characters(call_id: str) -> str:
    """The id as it goes out: one of another form, of an older or imported history, becomes always the same."""
    if len(call_id) == LENGTH and call_id.isascii() and call_id.isalnum():
        return call_id
    return _spell(int.from_bytes(hashlib.sha256(call_id.encode(errors="replace")).digest()))


def _spell(number: int) -> str:
    characters = []
    for _ in range(LENGTH):
        number, place = divmod(number, len(_CHARACTERS))
        characters.append(_CHARACTERS[place])
    return "".join(characters)
