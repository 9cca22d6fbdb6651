"""From a file's bytes to its text. What was guessed, or can't be read, is reported; nothing is replaced silently."""

import codecs
import re
from dataclasses import dataclass
from itertools import islice

import chardetng_py

from memserver.errors import UnsupportedDocument
from memserver.memory.parsing.base import KINDS

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16, whose mark begins it
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_SUPERSET = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""What programs write that declare the other one, as the WHATWG's standard says."""
_NO_CHARSET = {"idna", "punycode", "raw-unicode-escape", "unicode-escape", "undefined", "utf-7"}
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([^\s;\"']+)", re.IGNORECASE)
_DECLARED_WITHIN = (
    re.compile(rb"^\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})"),
    re.compile(rb"<meta[^>]{1,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE),
    re.compile(rb"\A(?:[^\n]*\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*([\w.-]{1,40})"),  # PEP 263
)
_HEAD = 4096  # bytes that may declare an encoding
_NOT_ASCII = re.compile(rb"[\x80-\xff]+")
_CONTROL = re.compile("[\x01-\x07\x0e-\x1a\x1c-\x1f\x7f]")
_LOOKED_AT = 100_000
_AROUND = 10  # bytes
_RARE = 100  # what at most one of so many characters may be in a text


@dataclass(frozen=True, slots=True)
class Decoded:
    text: str
    encoding: str
    warnings: tuple[str, ...] = ()


def declared_charset(content_type: str) -> str:
    """The charset of a `Content-Type`; empty if it has none."""
    found = _CHARSET.search(content_type)
    return found[1][:40] if found else ""


def decode(content: bytes, declared: str = "") -> Decoded:
    """The text by its byte order mark, as it is declared, as UTF-8, else in the encoding that it looks like.

    Args:
        content: the file.
        declared: a charset from outside, which counts more than one that the file itself declares.

    Raises:
        UnsupportedDocument: it is no text.
    """
    found = _marked(content) or _plain(content, declared)
    looked_at = found.text[:_LOOKED_AT]
    odd = 10 * looked_at.count("\0") + len(_CONTROL.findall(looked_at))
    if odd > max(1, len(looked_at) // _RARE):
        raise UnsupportedDocument("This is a binary file.", hint=f"Send {KINDS}.")
    return found


def _marked(content: bytes) -> Decoded | None:
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            return _replaced(content[len(mark) :], encoding)
    return None


def _plain(content: bytes, declared: str) -> Decoded:
    warnings: list[str] = []
    utf8 = _strict(content, "utf-8")
    for name in filter(None, (declared, _declared_within(content))):
        codec = _codec(name)
        if codec == "utf-16":
            codec = _wide(content) or "utf-16-le"
        text = None if codec is None else _strict(content, codec)
        if codec is None:
            warnings.append(f"The declared charset {name!r} is not known.")
        elif utf8 is not None and text != utf8 and not _can_be(codec, content):
            warnings.append(f"The file is declared as {name}, but it is UTF-8.")
        elif text is not None:
            return Decoded(text, codec, tuple(warnings))
        elif codec != "utf-8":
            warnings.append(f"The file is declared as {name}, but it isn't.")
    guess = _guess(content) if utf8 is None or _is_escaped(content) else Decoded(utf8, "utf-8")
    return Decoded(guess.text, guess.encoding, (*warnings, *guess.warnings))


def _can_be(codec: str, content: bytes) -> bool:
    """Whether a text that is valid UTF-8 can be meant in this encoding; by chance it hardly is."""
    if codec.startswith(("utf-16", "utf-32")):
        return b"\0" in content
    return len(bytes(range(128, 256)).decode(codec, "replace")) < 128  # not one byte for each


def _is_escaped(content: bytes) -> bool:
    """Whether ASCII's bytes stand for something else: UTF-16 without a mark, or ISO-2022-JP."""
    return _wide(content) is not None or (
        b"\x1b$" in content and _strict(content, "iso2022_jp") is not None
    )


def _wide(content: bytes) -> str | None:
    """UTF-16's name, if every other byte of many is 0: the high ones of ASCII's characters."""
    head = content[:_LOOKED_AT]
    even, odd = head[::2].count(0), head[1::2].count(0)
    if even + odd < max(1, len(head) // _RARE) or min(even, odd) > max(even, odd) / 10:
        return None
    encoding = "utf-16-le" if odd > even else "utf-16-be"
    return encoding if _strict(content, encoding) is not None else None


def _guess(content: bytes) -> Decoded:
    if wide := _wide(content):
        return Decoded(content.decode(wide), wide, (_guessed(wide),))
    as_utf8 = content.decode("utf-8", "replace")
    bad = as_utf8.count("\ufffd")
    good = len(as_utf8) - len(as_utf8.encode("ascii", "ignore")) - bad
    if good >= bad > 0:  # text in another encoding is hardly ever valid UTF-8, by chance
        return _replaced(content, "utf-8")
    detector = chardetng_py.EncodingDetector()
    detector.feed(_sample(content), last=True)
    name = detector.guess(tld=None, allow_utf8=False)
    found = _replaced(content, _codec(name) or "cp1252")
    return Decoded(found.text, found.encoding, (_guessed(name), *found.warnings))


def _sample(content: bytes) -> bytes:
    """What is not ASCII, with its surroundings; the rest says nothing of an encoding."""
    parts, end = [], 0
    for found in islice(_NOT_ASCII.finditer(content), _LOOKED_AT // 10):
        parts.append(content[max(end, found.start() - _AROUND) : found.end() + 2])
        end = found.end() + 2
    return b"".join(parts)[:_LOOKED_AT] or content[:_LOOKED_AT]


def _guessed(name: str) -> str:
    return (
        f"The encoding was guessed: {name}. If characters are wrong, send the file with the right one, "
        "as in `Content-Type: text/plain; charset=windows-1252`."
    )


def _replaced(content: bytes, encoding: str) -> Decoded:
    """Decoded whatever it holds, with a warning of what is no character of this encoding."""
    try:
        return Decoded(content.decode(encoding), encoding)
    except UnicodeDecodeError as error:
        text = content.decode(encoding, "replace")
        lost = text.count("\ufffd") - (content.count(b"\xef\xbf\xbd") if encoding == "utf-8" else 0)
        what = f"1 character at byte {error.start + 1}" if lost == 1 else f"{lost} characters"
        after = "" if lost == 1 else f", the first one at byte {error.start + 1},"
        stands = "stands" if lost == 1 else "stand"
        warning = f"{what}{after} can't be read as {encoding} and {stands} as U+FFFD."
        return Decoded(text, encoding, (warning,))


def _declared_within(content: bytes) -> str:
    head = content[:_HEAD]
    found = next(filter(None, (pattern.search(head) for pattern in _DECLARED_WITHIN)), None)
    name = found[1].decode("ascii") if found else ""
    return "" if name.lower().startswith("utf-16") else name  # it could not have been read


def _codec(name: str) -> str | None:
    """Python's name of a charset, or of the one that is meant by it."""
    try:
        known = codecs.lookup(name.strip().removeprefix("x-"))
    except (LookupError, ValueError):
        return None
    if not known._is_text_encoding or known.name in _NO_CHARSET:
        return None
    return _SUPERSET.get(known.name, known.name)


def _strict(content: bytes, encoding: str) -> str | None:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        return None
