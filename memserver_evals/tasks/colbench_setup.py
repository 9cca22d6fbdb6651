"""What the options of ColBench's two tasks say."""

from dataclasses import dataclass
from pathlib import Path

from memserver.errors import InvalidInput
from memserver.openai_http.client import EndpointClient
from memserver.openai_http.endpoint import Endpoint
from memserver_evals.colbench.backend.generator import Split
from memserver_evals.colbench.chat import Closes, PartModel
from memserver_evals.tasks.registry import TaskEntry, TaskOptions, refuse_unknown

SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Setup:
    """What the options of both tasks say; without a `path` examples are generated."""

    path: Path | None
    part: PartModel | None
    owned: tuple[Closes, ...]
    single: bool
    split: Split
    each: int
    turns: int

    @classmethod
    def of(cls, options: TaskOptions, entry: TaskEntry, file: str) -> "Setup":
        """Raises InvalidInput: an option is wrong, or nobody plays the human."""
        refuse_unknown(options, entry)
        folder = options.data_or_generated()
        client, part = None, None
        url, model = options.extra.get("human_url"), options.extra.get("human_model")
        if (url is None) != (model is None):
            raise InvalidInput("human_url and human_model are given together.")
        if url is not None and model is not None:
            client = EndpointClient(Endpoint(url, title="simulated human's endpoint"))
            part = PartModel(client, model)
        single = options.choice("single", ("yes", "no"), "no") == "yes"
        if folder is not None and part is None and not single:
            raise InvalidInput(
                "Published tasks need a model that plays the human.",
                hint="--set human_url=http://.../v1 --set human_model=NAME, or --set single=yes.",
            )
        return cls(
            folder / file if folder is not None else None,
            part,
            (client,) if client else (),
            single,
            options.choice("split", SPLITS, "test"),
            options.number("each", 100),
            options.number("turns", 10),
        )
