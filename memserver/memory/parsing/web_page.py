"""What of a web page is its content, and what it says of itself. Careful: what may be content stays."""

import re
from dataclasses import dataclass
from typing import Any

from bs4 import BeautifulSoup
from bs4.element import Tag

_NOT_SHOWN = "[hidden], [aria-hidden=true], [style*='display:none'], [style*='display: none']"
_LANDMARKS = (
    "header, footer, aside, nav, form, dialog, [role=banner], [role=navigation], [role=search], "
    "[role=contentinfo], [role=complementary], [role=dialog], [role=alertdialog]"
)
_MAIN = "main, [role=main]"
_WITHIN = {"main", "article"}
_NOTICE = re.compile(
    r"(?:^|[-_ ])(?:cookies?|consent|gdpr|newsletter|share|sharing|social|breadcrumbs?|skip-?(?:link|nav)"
    r"|related|advert\w*|promo|pagination|sidebar)(?:$|[-_ ])",
    re.IGNORECASE,
)
_BLOCKS = {"div", "ul", "ol", "section", "p", "table"}
_LONGEST_NOTICE = 1500  # characters
_LINKS = 4  # of which most of a block's text is: a menu
_MOSTLY = 0.8
_LEAST = 0.2  # of the text must be left: a page may be all links
_ABOUT = {"author": "author", "description": "description", "article:published_time": "date"}
_LONGEST_VALUE = 1000


def page_metadata(soup: BeautifulSoup) -> dict[str, Any]:
    """Title, author, description and date, where the page has them."""
    found = {"title": soup.title.get_text(" ", strip=True)} if soup.title else {}
    for meta in soup.find_all("meta"):
        name = _ABOUT.get(str(meta.get("name") or meta.get("property") or "").lower())
        if name and meta.get("content"):
            found.setdefault(name, str(meta["content"]).strip())
    return {name: value[:_LONGEST_VALUE] for name, value in found.items() if value}


def remove_boilerplate(soup: BeautifulSoup) -> None:
    """Leave of a page its `<main>`, or take menus, banners, notices and footers out of it.

    Neither happens where hardly anything would be left.
    """
    for each in soup.select(_NOT_SHOWN):
        each.decompose()
    body, least = soup.body or soup, _LEAST * _length(soup)
    main = soup.select(_MAIN)
    if len(main) == 1 and _length(main[0]) > least:
        content = main[0].extract()
        body.clear()
        body.append(content)
    measured = _measure(body)
    landmarks = {id(each) for each in body.select(_LANDMARKS)}
    around = [
        each
        for each in body.find_all(True)
        if (block := measured[id(each)]).is_apart
        and (id(each) in landmarks or block.is_menu() or _is_notice(each, block))
    ]
    taken = [each.extract() for each in around]
    if _length(body) < least:
        for each in taken:
            body.append(each)


@dataclass(slots=True)
class _Block:
    """What is in an element, in characters."""

    is_apart: bool  # it stands in no article, whose own header or aside is content
    is_block: bool
    text: int = 0
    links: int = 0
    linked: int = 0

    def is_menu(self) -> bool:
        return self.is_block and self.links >= _LINKS and self.linked > _MOSTLY * self.text


def _measure(body: Tag) -> dict[int, _Block]:
    """All elements by their identity, in two passes: a page may be nested as deep as it likes."""
    blocks = {id(body): _Block(True, False)}
    nodes = [*body.descendants]
    for node in nodes:
        parent = node.parent
        if isinstance(node, Tag) and parent is not None:
            is_apart = blocks[id(parent)].is_apart and parent.name not in _WITHIN
            blocks[id(node)] = _Block(is_apart, node.name in _BLOCKS)
    for node in reversed(nodes):  # what is in an element comes before it
        if node.parent is None:
            continue
        above = blocks[id(node.parent)]
        if isinstance(node, Tag):
            block = blocks[id(node)]
            is_link = node.name == "a"
            above.text += block.text
            above.links += block.links + is_link
            above.linked += block.text if is_link else block.linked
        else:
            above.text += len(str(node).strip())
    return blocks


def _is_notice(element: Tag, block: _Block) -> bool:
    names = " ".join([*(element.get("class") or []), str(element.get("id") or "")])
    return block.text < _LONGEST_NOTICE and _NOTICE.search(names) is not None


def _length(element: Tag) -> int:
    return len(element.get_text(" ", strip=True))
