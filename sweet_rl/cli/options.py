"""The options of `memserver train`, each declared once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from memserver.cli.declaring import read_pairs
from memserver.errors import InvalidInput
from memserver.openai_http.endpoint import Endpoint
from sweet_rl.recipe import Recipe, find_recipe, load_recipe
from sweet_rl.sampling.sources import SamplerName, SamplingOptions
from sweet_rl.task_sets import Environment


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """What the command line says: each field is an argument or an option of the command."""

    stage: Annotated[
        str,
        typer.Argument(
            help="A stage; all; gate: compare critics with and without the hidden reference; list: what is done; report: tables and pictures; estimate: of the memory that trainings "
            "take; dry-run: a step of each on a tiny random model; export: what was collected, as ColBench publishes it."
        ),
    ]
    recipe: Annotated[
        Path,
        typer.Option(
            *("--recipe", "-r"),
            help="A YAML file, or the name of one of ours: smoke, tiny, tiny-tuning, colbench-long, colbench-long-gate, paper-8b.",
        ),
    ]
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The run's folder; one that is there is resumed.")
    ]
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change the recipe: actor.rate=2e-4; repeatable."),
    ] = None
    begin: Annotated[str | None, typer.Option("--from", help="With all: from this stage on.")] = (
        None
    )
    seed: Annotated[
        list[int] | None, typer.Option(help="Of the recipe's seeds this one alone; repeatable.")
    ] = None
    part: Annotated[
        list[str] | None,
        typer.Option(help="What makes and plays this policy or variant alone; repeatable."),
    ] = None
    only: Annotated[
        list[str] | None,
        typer.Option(help="This unit alone, as list names it: seed-1/critic; repeatable."),
    ] = None
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, help="Units at once, spread over the GPUs.")
    ] = 1
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="End after so long, with status 3; the same command resumes."),
    ] = None
    redo: Annotated[
        bool, typer.Option("--redo", help="Do again what was done with other settings.")
    ] = False
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Train all weights after the warm start, as the recipe's `full`."
        ),
    ] = False
    base: Annotated[
        Path | None, typer.Option(help="The base model's folder, instead of the recipe's.")
    ] = None
    sampler: Annotated[
        SamplerName, typer.Option(help="auto: vLLM where it is installed, else transformers.")
    ] = SamplerName.AUTO
    vllm: Annotated[
        str | None,
        typer.Option(help="The command of vLLM's API server, if it has its own environment."),
    ] = None
    endpoint: Annotated[
        list[str] | None,
        typer.Option(help="A running endpoint that takes adapters (…/v1); repeatable."),
    ] = None
    endpoint_model: Annotated[str, typer.Option(help="Their name of the base.")] = "base"
    gpus: Annotated[int, typer.Option(min=1, help="GPUs that train together.")] = 1
    data: Annotated[
        Path | None, typer.Option(envvar="MEMSERVER_DATA", help="The folder of published tasks.")
    ] = None
    human_url: Annotated[
        str | None, typer.Option(help="An endpoint whose model plays the human (…/v1).")
    ] = None
    human_key: Annotated[str | None, typer.Option(envvar="MEMSERVER_HUMAN_API_KEY")] = None
    disposable: Annotated[
        bool,
        typer.Option(
            "--disposable",
            help="This machine is thrown away: run code even where it can't be kept from files.",
        ),
    ] = False

    def check_gpus(self) -> None:
        if self.jobs > 1 and self.gpus > 1:
            raise InvalidInput(
                "--jobs and --gpus can't both be more than 1.",
                hint="Several units at once, or several GPUs for each training.",
            )

    def changed_recipe(self) -> Recipe:
        """The recipe, with what the command line changes of it."""
        recipe = load_recipe(find_recipe(self.recipe), read_pairs("--set", self.set_ or ()))
        return recipe.in_full() if self.full else recipe

    def sampling(self, gpus: Sequence[str]) -> SamplingOptions:
        return SamplingOptions(
            self.sampler, self.vllm, self.endpoint or (), self.endpoint_model, gpus
        )

    @property
    def environment(self) -> Environment:
        url, key = self.human_url, self.human_key
        human = Endpoint(url, key or "", title="simulated human's endpoint") if url else None
        return Environment(self.data, human, self.disposable)

    def of_unit(self, base: Path) -> list[str]:
        """The options by which a process of its own does a unit of the same run."""
        return [
            *(
                "-r",
                f"{find_recipe(self.recipe)}",
                "-o",
                f"{self.out.resolve()}",
                "--base",
                f"{base}",
            ),
            *("--sampler", self.sampler.value, "--endpoint-model", self.endpoint_model),
            *(("--full",) if self.full else ()),
            *(word for each in self.set_ or () for word in ("--set", each)),
        ]
