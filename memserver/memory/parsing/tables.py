"""CSV and spreadsheets: each row a line that names the column of each of its cells."""

import csv
import io
import re
import zipfile
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from itertools import islice

import python_calamine

from memserver.errors import DocumentCorrupt
from memserver.memory.parsing.base import LONGEST_TEXT, MOST_SECTIONS, Parsed, SourceFile, plain
from memserver.memory.parsing.building import TextBuilder
from memserver.memory.parsing.containers import ZIP, protected
from memserver.memory.parsing.encoding import decode

_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(r"sep=(.)\n")  # Excel's first line
_LOOKED_AT = 50  # lines
_LONGEST_CELL = 50  # lines; a quotation mark that opens more is meant as a character
_WITHOUT_VALUE = re.compile(rb"<c [^>]*><f[^>]*>[^<]*</f>(?:<v\s*/>|<v></v>)?</c>")
_MOST_ROWS = MOST_SECTIONS + 2  # of which the last one is refused
_MOST_MERGED = 100_000  # cells


def parse_csv(source: SourceFile) -> Parsed:
    """The rows of a table in text, whatever stands between its cells."""
    decoded = decode(source.content, source.charset)
    builder = TextBuilder(source.language, [*decoded.warnings])
    text = plain(decoded.text)
    csv.field_size_limit(LONGEST_TEXT)
    if declared := _SEPARATOR.match(text):
        text = text[declared.end() :]
    delimiter = declared[1] if declared else _find_delimiter(text)
    rows = list(islice(csv.reader(io.StringIO(text), delimiter=delimiter), _MOST_ROWS))
    if any(cell.count("\n") > _LONGEST_CELL for row in rows for cell in row):
        lines = csv.reader(io.StringIO(text), delimiter=delimiter, quoting=csv.QUOTE_NONE)
        rows = list(islice(lines, _MOST_ROWS))
        builder.warnings.append("A quotation mark is never closed: all are read as characters.")
    builder.add_rows(rows)
    return builder.build()


def _find_delimiter(text: str) -> str:
    """What gives most lines as many cells, and more than one."""
    lines = text.split("\n", _LOOKED_AT)[:_LOOKED_AT]

    def score(delimiter: str) -> tuple[int, int]:
        widths = Counter(len(row) for row in csv.reader(lines, delimiter=delimiter) if row)
        width, times = max(widths.items(), key=lambda each: (each[0] > 1, each[1]), default=(0, 0))
        return (times if width > 1 else 0, width)

    return max(_DELIMITERS, key=score)


def parse_sheets(source: SourceFile) -> Parsed:
    """The rows of all sheets; a sheet's name is their heading."""
    builder = TextBuilder(source.language)
    try:
        book = python_calamine.load_workbook(io.BytesIO(source.content))
        for name in book.sheet_names:
            sheet = book.get_sheet_by_name(name)
            rows = [[_show(cell) for cell in row] for row in sheet.to_python(skip_empty_area=False)]
            _fill_merged(rows, sheet.merged_cell_ranges or ())
            builder.add_rows(rows, name)
    except python_calamine.PasswordError as error:
        raise protected() from error
    except (python_calamine.CalamineError, ValueError) as error:
        raise DocumentCorrupt(f"The spreadsheet is damaged: {error}.") from error
    if missing := _count_without_value(source.content):
        builder.warnings.append(
            f"{missing} formulas have no stored result: open and save the file in a spreadsheet program."
        )
    return builder.build()


def _show(cell: object) -> str:
    """As the sheet shows it, nearly: a whole number has no fraction, a day no time."""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 1e15 else repr(cell)
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == datetime.min.time() else str(cell)
    return cell.isoformat() if isinstance(cell, date) else str(cell)


def _fill_merged(
    rows: Sequence[list[str]], ranges: Sequence[tuple[tuple[int, int], tuple[int, int]]]
) -> None:
    """Give the first cell's value to all rows that it is merged over."""
    left = _MOST_MERGED
    for (top, column), (bottom, _) in ranges:
        left -= bottom - top
        for row in rows[top + 1 : bottom + 1] if left > 0 else ():
            if column < min(len(row), len(rows[top])):
                row[column] = rows[top][column]


def _count_without_value(content: bytes) -> int:
    """How many formulas of an XLSX have no result, as programs write them that don't calculate."""
    if not content.startswith(ZIP):
        return 0
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        sheets = [name for name in archive.namelist() if name.startswith("xl/worksheets/sheet")]
        return sum(len(_WITHOUT_VALUE.findall(archive.read(name))) for name in sheets)
