from pathlib import Path

import pytest

from tests.docs.running import reading
from tests.support.doc_blocks import (
    ALIASES,
    EXECUTABLE,
    REPOSITORY,
    Block,
    blocks,
    documents,
    examples,
    matches,
)
from tests.support.server import OneDatabase
from tests.support.servers import temporary_folder

ALL_BLOCKS = [block for document in documents() for block in blocks(document)]
WITH_EXAMPLES = [document for document in documents() if examples(document)]


@pytest.mark.parametrize(
    "document", WITH_EXAMPLES, ids=[str(each.relative_to(REPOSITORY)) for each in WITH_EXAMPLES]
)
def test_the_examples_do_what_the_document_says(document: Path, database: OneDatabase):
    with temporary_folder() as folder, reading(folder, database) as reader:
        for example in examples(document):
            printed = reader.run(example.block)
            if example.output is not None:
                shown = reader.here(example.output.text)
                assert matches(shown, printed), (
                    f"{example.output.place} shows\n{shown}\nbut what came is\n{printed}"
                )


@pytest.mark.parametrize("block", ALL_BLOCKS, ids=[block.place for block in ALL_BLOCKS])
def test_every_block_is_run_or_says_why_not(block: Block):
    assert block.language, "give the block a language; text, if it is none"
    assert block.language not in ALIASES, "say bash or python"
    if block.language in EXECUTABLE:
        assert block.is_run or block.reason_not_to_run, "mark it `test`, or `not-run: the reason`"


def test_every_output_comes_directly_after_a_block_that_is_run():
    shown = {block.place for block in ALL_BLOCKS if block.marks == "output"}
    checked = {
        example.output.place
        for document in documents()
        for example in examples(document)
        if example.output
    }
    assert shown == checked


def test_an_ellipsis_stands_for_anything_and_nothing_else_does():
    assert matches('{"id": "…", "n": 1}', '{"id": "a\nb", "n": 1}\n')
    assert not matches('{"id": "…", "n": 1}', '{"id": "a", "n": 2}')
    assert not matches("a.c", "abc")
    assert not matches("one", "one\ntwo")


def test_a_block_is_read_with_its_marks_and_its_place(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "Text\n\n```bash test\necho a\n```\n\n```text output\na\n```\n\n"
        "- item\n  ```python not-run: it installs\n  x = 1\n  ```\n",
        encoding="utf-8",
    )
    run, output, not_run = blocks(page)
    assert (run.line, run.text, run.is_run) == (4, "echo a\n", True)
    assert (not_run.text, not_run.reason_not_to_run) == ("x = 1\n", "it installs")
    [example] = examples(page)
    assert example.output == output
