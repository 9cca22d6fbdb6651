"""Pages that are images: their text is recognized where tesseract is installed."""

import shutil
from pathlib import Path

import pytest

from memserver.errors import DocumentWithoutText
from memserver.memory.parsing.base import Parsed, SourceFile
from memserver.memory.parsing.parse import parse
from memserver.memory.parsing.sandbox import Sandbox

FILES = Path(__file__).parents[3] / "data" / "documents"
LANGUAGES = "#!/bin/sh\n[ $1 = --list-langs ] && { echo List; echo eng; echo osd; exit; }\n"
TESSERACT = shutil.which("tesseract") or ""


def stand_in(folder: Path, script: str) -> str:
    """A program in tesseract's place."""
    program = folder / "tesseract"
    program.write_text(LANGUAGES + script)
    program.chmod(0o755)
    return str(program)


def read(name: str, program: str, seconds: float = 120) -> Parsed:
    content = (FILES / name).read_bytes()
    return parse(SourceFile(content, "pdf", tesseract=program, seconds=seconds))


@pytest.mark.skipif(not TESSERACT, reason="tesseract is not installed")
async def test_a_scanned_page_is_recognized_in_the_process_that_reads_files() -> None:
    parsed = await Sandbox().parse((FILES / "scan.pdf").read_bytes(), "pdf")
    assert "feeds nine geese behind the tower every evening" in parsed.text
    assert [section.page for section in parsed.sections] == [1]
    assert parsed.warnings == [
        "The text of 1 of 1 pages was recognized in images, and may have mistakes: 1."
    ]


async def test_pages_without_text_are_recognized_and_all_others_are_not(tmp_path: Path) -> None:
    program = stand_in(tmp_path, 'head -c 2; cat >/dev/null; echo " of $*"\n')
    content = (FILES / "half_scanned.pdf").read_bytes()
    parsed = await Sandbox(tesseract=program).parse(content, "pdf")
    assert parsed.text == "Only this page has text.\nP5 of stdin stdout -l eng"
    assert [section.page for section in parsed.sections] == [1, 2]
    assert parsed.warnings == [
        "The text of 1 of 2 pages was recognized in images, and may have mistakes: 2."
    ]


@pytest.mark.parametrize("script", ["exec sleep 60", "exit 1"])
def test_a_program_that_hangs_or_fails_costs_no_more_than_its_time(
    tmp_path: Path, script: str
) -> None:
    parsed = read("half_scanned.pdf", stand_in(tmp_path, script), seconds=1)
    assert parsed.text == "Only this page has text."
    assert parsed.warnings == [
        "1 pages with images were not recognized: the time was over, or tesseract failed.",
        "No text on 1 of 2 pages: 2.",
    ]


def test_without_the_program_the_error_says_what_to_do() -> None:
    with pytest.raises(DocumentWithoutText, match="2 pages are images") as caught:
        read("scanned.pdf", "")
    assert "tesseract" in caught.value.hint
