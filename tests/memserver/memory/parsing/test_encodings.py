# ruff: noqa: RUF001 - texts in their own characters
"""Text in every encoding: declared, marked, or guessed; what was guessed or can't be read is reported."""

import pytest

from memserver.errors import UnsupportedDocument
from memserver.memory.parsing.encoding import declared_charset, decode

FRENCH = "Le garçon naïf a mangé à l'hôtel. "
WORDS = {
    "french": ("cp1252", FRENCH),
    "portuguese": ("cp1252", "O coração não tem razão; a situação está difícil para você. "),
    "italian": ("cp1252", "Perché la città è così bella? È già tardi, però andrò più là. "),
    "pounds": ("cp1252", "The ticket costs £15, and the café is closed. "),
    "quotes": ("cp1252", "It’s a “nice” day – isn’t it? "),
    "spanish": ("cp1252", "El niño comió piñas en la mañana; ¿dónde está el señor? "),
    "german": ("cp1252", "Die Äpfel fürs Frühstück müssen süß sein, größer als üblich. "),
    "turkish": ("cp1254", "Işık ve gölge: şoförün çocuğu İstanbul'da yaşıyor. "),
    "polish": ("iso8859-2", "Zażółć gęślą jaźń. Wczoraj poszedłem na łąkę. "),
    "czech": ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy. "),
    "russian": ("cp1251", "Вчера мы ходили в парк и кормили уток. "),
    "koi8": ("koi8-r", "Вчера мы ходили в парк и кормили уток. "),
    "greek": ("cp1253", "Χθες πήγαμε στη θάλασσα και φάγαμε ψάρι. "),
    "hebrew": ("cp1255", "אתמול הלכנו לפארק והאכלנו את הברווזים. "),
    "arabic": ("cp1256", "ذهبنا أمس إلى الحديقة وأطعمنا البط. "),
    "thai": ("cp874", "เมื่อวานนี้เราไปสวนสาธารณะและให้อาหารเป็ด "),
    "chinese": ("gb18030", "昨天我们去公园喂鸭子，天气很好。"),
    "taiwanese": ("big5", "昨天我們去公園餵鴨子，天氣很好。"),
    "japanese": ("cp932", "昨日、公園に行ってアヒルに餌をやりました。"),
    "japanese euc": ("euc_jp", "昨日、公園に行ってアヒルに餌をやりました。"),
    "japanese mail": ("iso2022_jp", "昨日、公園に行ってアヒルに餌をやりました。"),
    "korean": ("cp949", "어제 우리는 공원에 가서 오리에게 먹이를 주었다. "),
    "wide": ("utf-16-le", "Les élèves dorment.\n"),
    "wide, big end first": ("utf-16-be", "Les élèves dorment.\n"),
}


@pytest.mark.parametrize("times", [2, 30])
@pytest.mark.parametrize(("encoding", "text"), WORDS.values(), ids=WORDS)
def test_an_encoding_is_guessed_right_and_the_guess_is_reported(
    encoding: str, text: str, times: int
) -> None:
    decoded = decode((text * times).encode(encoding))
    assert decoded.text == text * times
    assert [warning[:25] for warning in decoded.warnings] == ["The encoding was guessed:"]


@pytest.mark.parametrize("mark", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_what_is_certain_is_no_guess(mark: str) -> None:
    decoded = decode((FRENCH * 3).encode(mark))
    assert (decoded.text, decoded.warnings) == (FRENCH * 3, ())


@pytest.mark.parametrize(
    ("content", "declared", "text", "warning"),
    [
        (FRENCH.encode("cp1252"), "windows-1252", FRENCH, ""),
        (FRENCH.encode("cp1252"), "ISO-8859-1", FRENCH, ""),
        ("“Ja”".encode("cp1252"), "latin1", "“Ja”", ""),  # as all programs mean it
        ("联通".encode("gbk"), "gb2312", "联通", ""),
        ("łąka".encode("cp1257"), "windows-1257", "łąka", ""),  # no guess would come to that
        ("élan".encode("utf-16-le"), "UTF-16", "élan", ""),
        ("über".encode(), "iso-8859-1", "über", "declared as iso-8859-1, but it is UTF-8"),
        (b"plain words", "klingon", "plain words", "'klingon' is not known"),
        (b"plain words", "rot13", "plain words", "'rot13' is not known"),
        (FRENCH.encode("cp1252"), "utf-8", FRENCH, "guessed: windows-1252"),
        (b"# coding: koi8-r\n" + "да".encode("koi8-r"), "", "# coding: koi8-r\nда", ""),
        (
            b'<?xml version="1.0" encoding="cp1251"?>' + "да".encode("cp1251"),
            "",
            '<?xml version="1.0" encoding="cp1251"?>да',
            "",
        ),
    ],
)
def test_a_declared_charset_counts(content: bytes, declared: str, text: str, warning: str) -> None:
    decoded = decode(content, declared)
    assert decoded.text == text
    assert warning in "".join(decoded.warnings)
    assert bool(warning) == bool(decoded.warnings)


def test_a_charset_is_read_from_a_content_type() -> None:
    assert declared_charset('text/html; Charset="windows-1252"; x=y') == "windows-1252"
    assert declared_charset("text/plain;charset=gbk") == "gbk"
    assert declared_charset("text/plain") == ""


def test_utf8_with_a_stray_byte_stays_utf8_and_says_where() -> None:
    text = "Über den Dächern der Stadt wohnt Jürgen. " * 180
    before = text[:3000].encode()
    decoded = decode(before + b"\xfc" + text[3000:].encode())
    assert decoded.text == text[:3000] + "\ufffd" + text[3000:]
    assert decoded.warnings == (
        f"1 character at byte {len(before) + 1} can't be read as utf-8 and stands as U+FFFD.",
    )


def test_one_chinese_sentence_after_much_ascii_is_read() -> None:
    text = "plain ascii words here. " * 5000 + WORDS["chinese"][1] * 2
    assert decode(text.encode("gbk")).text == text


def test_u_fffd_that_the_file_holds_is_not_reported() -> None:
    assert decode("a\ufffdb".encode()).warnings == ()


@pytest.mark.parametrize(
    "content",
    [bytes(range(256)) * 100, bytes(range(1, 256)) * 100, b"\x01\x02\x03text" * 50],
    ids=["all bytes", "no zero", "control characters"],
)
def test_what_is_no_text_is_refused(content: bytes) -> None:
    with pytest.raises(UnsupportedDocument, match="binary"):
        decode(content)
