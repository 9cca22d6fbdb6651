"""Tables of HTML made such that each row has all its cells, and that only data stands in tables.

Markdown knows neither cells that span rows nor tables within cells, and e-mail has its whole layout in tables.
"""

from dataclasses import dataclass, field

from bs4 import BeautifulSoup
from bs4.element import Tag

_MOST_COPIES = 20_000
"""Cells that are repeated in a page: how many one spans is the sender's to say."""
_MOST_COLUMNS = 1000
"""That one cell spans."""
_PARTS = {"thead", "tbody", "tfoot", "tr", "td", "th"}


@dataclass(slots=True)
class _Table:
    """A table, without what is in tables within its cells."""

    tag: Tag
    is_inner: bool
    has_inner: bool = False
    rows: list[tuple[Tag, list[Tag]]] = field(default_factory=list)
    parts: list[Tag] = field(default_factory=list)

    @property
    def is_layout(self) -> bool:
        is_one_column = all(len(cells) < 2 for _, cells in self.rows)
        return self.tag.get("role") in {"presentation", "none"} or (
            self.has_inner and is_one_column
        )


def level_tables(soup: BeautifulSoup) -> None:
    """Unwrap tables that only lay out a page, repeat cells that span rows, and write tables within cells as text."""
    left = _MOST_COPIES
    found = _tables(soup)
    layouts = [table for table in found if table.is_layout]
    for part in (part for table in layouts for part in (table.tag, *table.parts)):
        part.name = "div"
    for table in reversed([each for each in found if each.tag.name == "table"]):  # inner ones first
        _close(table)
        left = _repeat(soup, table, left)
        if table.is_inner and table.tag.find_parent(("td", "th")) is not None:
            rows = (", ".join(filter(None, map(_text, cells))) for _, cells in table.rows)
            table.tag.replace_with(" " + "; ".join(filter(None, rows)) + " ")


def _tables(soup: BeautifulSoup) -> list[_Table]:
    """All tables, outer ones before those in them, in one pass: they may be nested as deep as the page likes."""
    found: list[_Table] = []
    within: dict[int, _Table | None] = {id(soup): None}
    for node in soup.descendants:
        if not isinstance(node, Tag) or node.parent is None:
            continue
        table = within[id(node.parent)]
        if node.name == "table":
            if table is not None:
                table.has_inner = True
            table = _Table(node, table is not None)
            found.append(table)
        elif table is not None and node.name in _PARTS:
            table.parts.append(node)
            if node.name == "tr":
                table.rows.append((node, []))
            elif node.name in {"td", "th"} and table.rows:
                table.rows[-1][1].append(node)
        within[id(node)] = table
    return found


def _close(table: _Table) -> None:
    """Put rows and cells side by side whose ends a page leaves out: the parser has each within the one before."""
    before: Tag | None = None
    for row, cells in table.rows:
        if before is not None and before in row.parents:
            before.insert_after(row.extract())
        for cell in cells:
            if cell.parent is not row:
                row.append(cell.extract())
        before = row


def _repeat(soup: BeautifulSoup, table: _Table, left: int) -> int:
    """Put a cell that spans rows into each of them; how many more copies may be made."""
    spanning: dict[int, tuple[int, str]] = {}  # columns, and for how many more rows
    for number, (row, cells) in enumerate(table.rows):
        column, whole, begun = 0, [], {}
        for cell in [*cells, None]:
            while column in spanning and left > 0:
                rows, text = spanning.pop(column)
                if rows > 1:
                    begun[column] = (rows - 1, text)
                copy = soup.new_tag("td", string=text)
                row.append(copy) if cell is None else cell.insert_before(copy)
                whole.append(copy)
                column, left = column + 1, left - 1
            if cell is None:
                break
            whole.append(cell)
            width = _span(cell, "colspan", _MOST_COLUMNS)
            rows = _span(cell, "rowspan", len(table.rows) - number)
            if rows > 1:
                left -= width
                begun |= {
                    column + each: (rows - 1, "" if each else _text(cell)) for each in range(width)
                }
            column += width
        spanning |= begun
        table.rows[number] = (row, whole)
    return left


def _span(cell: Tag, name: str, most: int) -> int:
    value = str(cell.get(name, ""))
    return max(1, min(int(value), most)) if value.isdecimal() and len(value) < 7 else 1


def _text(cell: Tag) -> str:
    return " ".join(cell.get_text(" ").split())
