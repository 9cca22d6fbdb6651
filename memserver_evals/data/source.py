"""Where a file of data is: in a folder, at a path, or on the hub (`hf:OWNER/REPO/FILE`)."""

from collections.abc import Sequence
from pathlib import Path

from memserver.errors import BadData, SetupError, install_extra

HUB = "hf:"


def find_file(folder: Path | None, names: Sequence[str], given: str | None = None) -> Path:
    """The path of a data file.

    Args:
        folder: where the data is (--data, MEMSERVER_DATA).
        names: what the file may be called in it, the first that is there wins.
        given: said by the user instead: a path, a name in the folder, or `hf:OWNER/REPO/FILE`, optionally
            with `@REVISION` after the repository's name.

    Raises:
        BadData: it is nowhere.
        SetupError: the hub is wanted and the package huggingface_hub is missing.
    """
    if given and given.startswith(HUB):
        return _from_hub(given.removeprefix(HUB))
    if given:
        names = [given]
    places = [Path(name) for name in names] if given else []
    places += [folder / name for name in names] if folder else []
    for place in places:
        if place.is_file():
            return place
    where = f" in {folder}" if folder else ""
    raise BadData(
        f"There is no {' or '.join(names)}{where}.",
        hint="Name the folder with the data by --data or MEMSERVER_DATA, or a file of the hub by hf:OWNER/REPO/FILE.",
    )


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download  # noqa: PLC0415 - of the optional install
        from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError  # noqa: PLC0415 - the same
    except ImportError as error:
        raise SetupError(
            "Data on the hub needs the package huggingface_hub.",
            hint=f"{install_extra('eval')} Or download the file and name its path.",
        ) from error
    owner, _, rest = name.partition("/")
    repository, _, file = rest.partition("/")
    repository, _, revision = repository.partition("@")
    if not (owner and repository and file):
        raise BadData(f"hf:{name} names no file.", hint="It is hf:OWNER/REPO/FILE.")
    try:
        return Path(
            hf_hub_download(
                f"{owner}/{repository}", file, repo_type="dataset", revision=revision or None
            )
        )
    except (EntryNotFoundError, HfHubHTTPError, HFValidationError, OSError) as error:
        raise BadData(
            f"hf:{name} can't be had: {error}",
            hint="Check the name and the network; a file that is here already can be named by its path.",
        ) from error
