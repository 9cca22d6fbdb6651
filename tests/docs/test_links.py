import re
import subprocess
from pathlib import Path

import pytest

import memserver
from scripts.write_settings_page import PAGE, page
from tests.support.doc_blocks import REPOSITORY, documents, prose

PAGES = [*documents(), REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "CHANGELOG.md"]
NAMES = [str(page.relative_to(REPOSITORY)) for page in PAGES]
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
OURS = (
    "memserver|memserver_evals|sweet_rl|docs|examples|adapters|recipes|scripts|tests|prompts|migrations"
    "|benchmarks|docker|constraints"
)
FOLDER_PATH = re.compile(rf"(?:{OURS})/[\w./-]*\w/?")
MODULE_PATH = re.compile(r"\w+/[\w/]*\w\.py")
ROOTS = ("memserver", "memserver_evals", "sweet_rl", "tests/memserver", "memserver/api")
"""What a page's shortened paths begin with."""
FILE_NAME = re.compile(r"\.?[\w-]+(?:\.[\w-]+)*\.(?:md|yml|toml|py|sql|example)")


def anchors(document: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


def tracked_and_new_files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    return listed.stdout.splitlines()


@pytest.mark.parametrize("document", PAGES, ids=NAMES)
def test_every_relative_link_leads_somewhere(document: Path):
    for target in LINK.findall(prose(document)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        linked = (document.parent / path).resolve() if path else document
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors(linked), target


@pytest.mark.parametrize("document", PAGES, ids=NAMES)
def test_every_file_that_is_named_exists(document: Path):
    names = {Path(path).name for path in tracked_and_new_files()}
    for code in CODE.findall(prose(document)):
        if FOLDER_PATH.fullmatch(code):
            assert (REPOSITORY / code).exists(), code
        elif MODULE_PATH.fullmatch(code):
            assert any((REPOSITORY / root / code).exists() for root in ROOTS), code
        elif FILE_NAME.fullmatch(code):
            assert code in names, code


def test_every_page_is_found_from_the_readme():
    """By links alone, from page to page."""
    found: set[Path] = set()
    following = [REPOSITORY / "README.md"]
    while following:
        document = following.pop()
        if document not in found:
            found.add(document)
            targets = (target.partition("#")[0] for target in LINK.findall(prose(document)))
            linked = [(document.parent / target).resolve() for target in targets if target]
            following += [each for each in linked if each in PAGES]
    assert set(PAGES) <= found


def test_the_settings_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page(), "run scripts/write_settings_page.py"


def test_the_change_log_knows_this_version():
    changes = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{memserver.__version__}]" in changes
