"""What vLLM's server makes of a model's raw outputs. Run by the engine's own Python, never imported.

    python vllm_answers.py TOKENIZER_DIRECTORY ASKED.json ANSWERS.json

ASKED holds a request body and outputs; ANSWERS, for each output, the answer's status and text, and the
events of the stream. Between the model's tokens and these stands nothing but vLLM's own code: the
parsers as the server composes them, the request as they adjust it, the messages, the filter of parallel
calls, and what the server says of an error.
"""

import copy
import json
import sys
from http import HTTPStatus
from pathlib import Path

from starlette.responses import JSONResponse
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast
from vllm.entrypoints.generate.base.protocol import DeltaMessage, ToolCall
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionRequest,
    ChatCompletionResponseChoice,
    ChatCompletionResponseStreamChoice,
    ChatMessage,
)
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
from vllm.entrypoints.serve.utils.tool_calls_utils import maybe_filter_parallel_tool_calls
from vllm.parser import ParserManager

AS_TEXT = "\x1f"
"""What stands between two of these came as pieces of text, even where it looks like a special token."""


class Family:
    """A model family as vLLM serves it: its parsers, and a tokenizer that has its special tokens."""

    def __init__(self, described, directory, body):
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(directory)
        self.tokenizer.add_tokens([AddedToken(token) for token in described["tokens"]])
        special = [AddedToken(token, special=True) for token in described["special_tokens"]]
        self.tokenizer.add_tokens(special, special_tokens=True)
        self.parser = ParserManager.get_parser(
            tool_parser_name=described["parser"],
            reasoning_parser_name=described["reasoning_parser"],
            enable_auto_tools=True,
            tokenizer=self.tokenizer,
        )
        self.request = ChatCompletionRequest.model_validate(body)
        self.request = self.made().adjust_request(self.request)

    def made(self):
        return self.parser(self.tokenizer, self.request.tools)

    def ids(self, output):
        """The tokens that the model wrote."""
        found = []
        for index, part in enumerate(output.split(AS_TEXT)):
            for piece in part if index % 2 else [part]:
                found += self.tokenizer.encode(piece, add_special_tokens=False)
        return found

    def text(self, ids):
        skipped = self.request.skip_special_tokens
        return self.tokenizer.decode(
            ids, skip_special_tokens=skipped, clean_up_tokenization_spaces=False
        )


def whole(family, output, finish):
    """The answer, as `chat_completion_full_generator` builds it."""
    ids = family.ids(output)
    reasoning, content, calls = family.made().parse(
        family.text(ids), family.request, enable_auto_tools=True, model_output_token_ids=ids
    )
    message = ChatMessage(
        role="assistant",
        reasoning=reasoning,
        content=content or "",
        tool_calls=[ToolCall(function=call) for call in calls or []],
    )
    required = family.request.tool_choice == "required" and finish == "stop"
    choice = ChatCompletionResponseChoice(
        index=0, message=message, finish_reason="tool_calls" if required else finish
    )
    kept = maybe_filter_parallel_tool_calls(choice, family.request)
    return rendered(lambda: JSONResponse({"choices": [kept.model_dump()]}))


def rendered(make):
    """The status and the text; an error is answered as the server's handler of errors does."""
    try:
        response = make()
    except ValueError as error:
        refusal = create_error_response(error)
        response = JSONResponse(refusal.model_dump(), refusal.error.code)
    return {"status": response.status_code, "text": response.body.decode()}


def streamed(family, output, finish):
    """The events; one that can't be written ends the stream with an error."""
    events = []
    try:
        events.extend(choices(family, output, finish))
    except Exception as error:  # noqa: BLE001 - as the server does
        refusal = create_error_response(error, "BadRequestError", HTTPStatus.BAD_REQUEST)
        events.append(json.dumps(refusal.model_dump()))
    return [*events, "[DONE]"]


def choices(family, output, finish):
    """An event for each token that brought something, as `chat_completion_stream_generator`."""
    parser, ids = family.made(), family.ids(output)
    if finish == "stop":
        ids.append(family.tokenizer.eos_token_id)
    yield choice_of(family, DeltaMessage(role="assistant", content=""), None)
    reported, called = "", False
    for number, token in enumerate(ids, 1):
        finished = number == len(ids)
        text = reported if finished and finish == "stop" else family.text(ids[:number])
        text = reported if text.endswith("\ufffd") else text
        delta = parser.parse_delta(
            delta_text=text[len(reported) :],
            delta_token_ids=[token],
            request=family.request,
            prompt_token_ids=[],
            finished=finished,
        )
        reported = text
        called = called or bool(delta is not None and delta.tool_calls)
        if delta is None and not finished:
            continue
        why = ("tool_calls" if called and finish == "stop" else finish) if finished else None
        yield choice_of(family, delta or DeltaMessage(), why)


def choice_of(family, delta, finish):
    choice = ChatCompletionResponseStreamChoice(index=0, delta=delta, finish_reason=finish)
    kept = maybe_filter_parallel_tool_calls(choice, family.request)
    return f'{{"choices":[{kept.model_dump_json(exclude_unset=True)}]}}'


def main(directory, asked, answers):
    given = json.loads(Path(asked).read_text(encoding="utf-8"))
    families = {
        described["name"]: Family(described, directory, copy.deepcopy(given["body"]))
        for described in given["families"]
    }
    made = [
        {
            "whole": whole(families[output["family"]], output["text"], output["finish"]),
            "streamed": streamed(families[output["family"]], output["text"], output["finish"]),
        }
        for output in given["outputs"]
    ]
    Path(answers).write_text(json.dumps(made), encoding="utf-8")


main(*sys.argv[1:])
