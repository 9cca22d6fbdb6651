"""A file in a request: as a form's part named `file`, or as the body itself."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message

from memserver.errors import DocumentTooLarge, InvalidInput
from memserver.text import MOST_METADATA, checked_json, clean, is_within

FORM_BYTES = 100_000
"""What a form may have around its file."""
BINARY = {"schema": {"type": "string", "format": "binary"}}
FORM = {
    "schema": {
        "type": "object",
        "required": ["file"],
        "properties": {"file": {"type": "string", "format": "binary"}},
    }
}


def body_of(media_type: str) -> dict[str, Any]:
    """For the route's `openapi_extra`: a file as the body, or as a form's part."""
    content = {"multipart/form-data": FORM, media_type: BINARY}
    return {"requestBody": {"required": True, "content": content}}


@dataclass(frozen=True, slots=True)
class Uploaded:
    content: bytes = field(repr=False)
    name: str
    content_type: str


@asynccontextmanager
async def open_form_file(request: Request) -> AsyncIterator[UploadFile]:
    """The one file of a form, which waits on disk where it is long. Raises InvalidInput: it has none, or more than that."""
    try:
        async with request.form(max_files=2, max_fields=10) as form:
            files = [part for part in form.getlist("file") if isinstance(part, UploadFile)]
            if len(files) != 1:
                raise InvalidInput("file: the form must have one file of this name.")
            if unknown := [name for name in form if name != "file"]:
                raise InvalidInput(
                    f"{unknown[0][:100]}: the form has a field beside the file.",
                    hint="Names, tags and metadata are parameters of the address: ?name=…&tags=…",
                )
            yield files[0]
    except HTTPException as error:
        raise InvalidInput(f"The form can't be read: {error.detail}") from error


def is_form(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0]
    return kind.strip().lower() == "multipart/form-data"


async def read_upload(request: Request, most: int) -> Uploaded:
    """The request's file, of no more than `most` bytes.

    Raises:
        DocumentTooLarge: it has more.
        InvalidInput: the form has no file, or more than one; or the client went away.
    """
    try:
        if is_form(request):
            async with open_form_file(_limit(request, most + FORM_BYTES, most)) as file:
                found = Uploaded(
                    await file.read(), clean(file.filename or ""), file.content_type or ""
                )
        else:
            body = await _limit(request, most, most).body()
            found = Uploaded(body, "", request.headers.get("content-type", ""))
    except ClientDisconnect as error:
        raise InvalidInput("The file did not arrive whole.") from error
    if len(found.content) > most:
        raise _too_large(most)
    return found


def parse_metadata(text: str | None) -> dict[str, Any]:
    """The metadata of a query: a JSON object. Raises InvalidInput."""
    if text is None:
        return {}
    try:
        value = checked_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"metadata: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidInput("metadata: not a JSON object.", hint='Such as {"source": "diary"}.')
    if not is_within(value, MOST_METADATA):
        raise InvalidInput(f"metadata: it has more than {MOST_METADATA} characters.")
    return value


def _limit(request: Request, bytes_: int, most: int) -> Request:
    """The request, whose body raises DocumentTooLarge once it has more than `bytes_`."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > bytes_:
        raise _too_large(most)
    seen = 0

    async def receive() -> Message:
        nonlocal seen
        message = await request.receive()
        seen += len(message.get("body", b""))
        if seen > bytes_:
            raise _too_large(most)
        return message

    return Request(request.scope, receive)


def _too_large(most: int) -> DocumentTooLarge:
    return DocumentTooLarge(
        f"The file has more than {most} bytes.",
        hint="Send it in parts, or raise MEMSERVER_DOCUMENT_MAX_BYTES.",
    )
