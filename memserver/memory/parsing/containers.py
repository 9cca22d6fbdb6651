"""What a container holds: ZIP (Office, OpenDocument, EPUB) and OLE (Office before 2007)."""

import io
import zipfile
import zlib
from collections.abc import Collection

from memserver.errors import (
    DocumentCorrupt,
    DocumentEncrypted,
    DocumentError,
    DocumentTooCostly,
    UnsupportedDocument,
)
from memserver.memory.parsing.base import Kind

ZIP = b"PK\x03\x04"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MOST_ENTRIES = 20_000
_MOST_UNPACKED = 500_000_000  # bytes of the files in it that are markup
_END = b"PK\x05\x06"
_END_WITHIN = 65_557  # bytes from the end: the record and its comment
_MAIN: dict[str, Kind] = {
    "word/document.xml": "docx",
    "xl/workbook.xml": "xlsx",
    "xl/workbook.bin": "xlsx",
    "ppt/presentation.xml": "pptx",
}
_MIMETYPES: dict[bytes, Kind] = {
    b"application/epub+zip": "epub",
    b"application/vnd.oasis.opendocument.text": "odt",
    b"application/vnd.oasis.opendocument.spreadsheet": "ods",
    b"application/vnd.oasis.opendocument.presentation": "odp",
}
_MANIFEST = "META-INF/manifest.xml"
_OLD: dict[str, tuple[str, str]] = {
    "__substg1.0_": ("a message of Outlook", "Save it as .eml, and send that."),
    "WordDocument": ("a Word file from before 2007", "Save it as .docx, and send that."),
    "PowerPoint Document": ("a PowerPoint file from before 2007", "Save it as .pptx, and send it."),
}


def protected() -> DocumentEncrypted:
    return DocumentEncrypted(
        "The file is protected by a password.", hint="Save it without one, and send it again."
    )


def detect_zip(content: bytes) -> Kind:
    """The kind of a ZIP archive, by the names and the declared type in it."""
    end = content.rfind(_END, max(0, len(content) - _END_WITHIN))
    if end < 0:
        raise DocumentCorrupt(
            "The file is damaged: its end is missing.", hint="Send it again, whole."
        )
    if int.from_bytes(content[end + 10 : end + 12], "little") > _MOST_ENTRIES:
        raise DocumentTooCostly(f"The archive has more than {_MOST_ENTRIES} files.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _archive_kind(archive)
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error, ValueError) as error:
        raise DocumentCorrupt(f"The file is damaged: {error}.") from error


def _archive_kind(archive: zipfile.ZipFile) -> Kind:
    entries = archive.infolist()
    names = {entry.filename for entry in entries}
    markup = (entry for entry in entries if entry.filename.endswith(("ml", ".rels", ".bin")))
    if (size := sum(entry.file_size for entry in markup)) > _MOST_UNPACKED:
        raise DocumentTooCostly(
            f"The file unpacks to {size} bytes of markup; {_MOST_UNPACKED} is the most.",
            hint="Save it in parts, or as PDF.",
        )
    if any(entry.flag_bits & 1 for entry in entries):
        raise protected()
    kind = _declared(archive, names) or _by_names(names)
    if kind is None:
        raise _unknown(names)
    is_open_document = kind in {"odt", "ods", "odp"}
    if is_open_document and b"encryption-data" in _start(archive, _MANIFEST):
        raise protected()
    return kind


def _declared(archive: zipfile.ZipFile, names: Collection[str]) -> Kind | None:
    if "mimetype" not in names:
        return None
    declared = _start(archive, "mimetype").strip().removesuffix(b"-template")
    return _MIMETYPES.get(declared)


def _start(archive: zipfile.ZipFile, name: str) -> bytes:
    if name not in archive.namelist():
        return b""
    with archive.open(name) as file:
        return file.read(1_000_000)


def _by_names(names: Collection[str]) -> Kind | None:
    if "META-INF/container.xml" in names:
        return "epub"
    if kind := next((kind for main, kind in _MAIN.items() if main in names), None):
        return kind
    if "[Content_Types].xml" in names:  # its main part may have another name
        folders = {name.partition("/")[0] for name in names}
        return next((kind for main, kind in _MAIN.items() if main.split("/")[0] in folders), None)
    return None


def _unknown(names: Collection[str]) -> DocumentError:
    if any(name.endswith(".iwa") for name in names):
        return UnsupportedDocument(
            "This is a file of Pages, Numbers or Keynote.", hint="Export it as PDF or for Office."
        )
    return UnsupportedDocument(
        "This is a ZIP archive.", hint="Unpack it, and send the files that are in it."
    )


def detect_ole(content: bytes) -> Kind:
    """The kind of an OLE file, by the names of its streams."""
    if _has(content, "EncryptedPackage"):
        raise protected()
    for stream, (what, hint) in _OLD.items():
        if _has(content, stream):
            raise UnsupportedDocument(f"This is {what}.", hint=hint)
    if _has(content, "Workbook") or _has(content, "Book"):
        return "xls"
    raise UnsupportedDocument(
        "This is a file of an Office before 2007.", hint="Save it as .docx, and send it again."
    )


def _has(content: bytes, stream: str) -> bool:
    return stream.encode("utf-16-le") in content
