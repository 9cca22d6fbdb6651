"""Words are found by words alone in every language, in whatever form of Unicode they are stored and asked for."""

import random

# ruff: noqa: RUF001 - letters that look alike are what this is about
from collections.abc import Sequence
from unicodedata import normalize

import psycopg
import pytest

from memserver.testing.scripted import ScriptedModel
from tests.memserver.api.test_collections import ask, fill, make, texts
from tests.support.server import OneDatabase, serving

FOUND = [
    ("昨天我和妹妹去西湖玩了一整天", ["西湖", "湖", "妹妹", "去西湖玩", "西湖在哪里？"]),
    ("昨天我和妹妹去故宫玩了一整天", ["故宫", "去故宫", "你去过故宫吗"]),
    ("昨天我和妹妹去鼓浪屿玩了一整天", ["鼓浪屿", "鼓浪"]),
    ("臺灣的夜市很熱鬧", ["臺灣", "夜市"]),
    ("我的iPhone手机壳坏了", ["iPhone", "手机壳", "iphone手机壳", "手机"]),
    ("在ABC商店买的，花了300元", ["ABC商店", "abc", "商店", "300元", "ＡＢＣ商店"]),
    ("𠮷野家の牛丼を食べた", ["𠮷野家", "牛丼"]),
    ("東京タワーへ行きました", ["東京", "タワー", "ﾀﾜｰ", "東京ﾀﾜｰ", "行きました"]),
    ("ガラスのコップが割れた", ["ガラス", "ｶﾞﾗｽ", "コップ"]),
    ("桜がとてもきれい", ["桜", "きれい"]),
    ("Ｗｉｎｄｏｗｓパソコンを買った", ["Windows", "パソコン", "ﾊﾟｿｺﾝ"]),
    ("해운대에서 수영을 했다", ["해운대", "해운대를", "수영", "수영장에서"]),
    ("경복궁은 서울에 있다", ["경복궁", "경복궁에", "서울"]),
    ("책을 읽었다", ["책", "책을"]),
    ("เมื่อวานกินปูที่หัวหิน", ["ปู", "หัวหิน", "กินปู"]),
    ("น้ำตกเอราวัณสวยมาก", ["น้ำตก", "เอราวัณ", "น้ำ"]),
    ("ຂ້ອຍໄປວັດພູມື້ວານນີ້", ["ວັດພູ", "ພູ"]),
    ("ខ្ញុំ​បាន​ទៅ​អង្គរវត្ត", ["អង្គរវត្ត", "អង្គរ"]),
    ("ရွှေတိဂုံဘုရားကိုသွားခဲ့တယ်", ["ရွှေတိဂုံ", "ဘုရား"]),
    ("བོད་ཀྱི་རི་མཐོ་པོ", ["བོད", "མཐོ"]),
    ("Herr Müller wohnt in München", ["Muller", "München", "Munchen", "MÜLLER", "Mu¨nchen"]),
    ("Frau Mueller-Kohn im Strandcafe", ["Strandcafé", "Köhn"]),
    ("die Hauptstraße ist gesperrt", ["Hauptstrasse", "HAUPTSTRASSE", "HAUPTSTRAẞE"]),
    ("die Bahnhofstrasse ist frei", ["Bahnhofstraße"]),
    ("le Café de l’Œuvre, déjà vu", ["cafe", "CAFÉ", "oeuvre", "deja", "DÉJÀ"]),
    ("la señora Núñez vendrá mañana", ["Nunez", "NÚÑEZ", "senora", "manana"]),
    ("ligatures: ﬁnance and eﬃcient", ["finance", "efficient", "FINANCE"]),
    ("ｆｕｌｌ ｗｉｄｔｈ ＬＡＴＩＮ １２３", ["full", "width", "latin", "123"]),
    ("odanın ışığı ve IŞIK düğmesi", ["ışık", "Işık", "isik", "dugmesi"]),
    ("İstanbul'da yaşıyor", ["istanbul", "İSTANBUL", "İstanbul", "yasiyor", "YAŞIYOR"]),
    ("Łódź leży w środku", ["Lodz", "łódź", "lezy", "srodku"]),
    ("røde grøntsager i København, Ålborg", ["rode", "KØBENHAVN", "kobenhavn", "alborg"]),
    ("đường phố Hà Nội, phở bò", ["duong", "Ha Noi", "pho", "phở", "PHỞ"]),
    ("Þórður býr á Íslandi", ["thordur", "Íslandi", "islandi"]),
    ("Příliš žluťoučký kůň", ["zlutoucky", "prilis", "KŮŇ"]),
    ("ذَهَبْتُ إِلَى المَدْرَسَةِ", ["ذهبت", "المدرسة", "المدرسه", "الى"]),
    ("أحمد يقرأ كتـــاب آية", ["احمد", "كتاب", "اية", "أحمد"]),
    ("كتاب می‌خواهم در سال ۱۴۰۲", ["میخواهم", "1402", "می‌خواهم"]),
    ("שָׁלוֹם עֲלֵיכֶם", ["שלום", "עליכם"]),
    ("ο σκύλος του Οδυσσέα, Ο ΔΡΌΜΟΣ", ["σκυλος", "ΣΚΎΛΟΣ", "ΣΚΥΛΟΣ", "οδυσσεα", "δρόμος"]),
    ("ёлка стоит, за́мок и Йод, Її", ["елка", "Ёлка", "замок", "йод", "ЙОД", "її"]),
    ("हिन्दी में किताबें पढ़ना, सन् १९४७", ["किताबें", "पढ़ना", "पढना", "हिन्दी", "1947"]),
    ("বাংলা বই পড়া", ["বই", "বাংলা", "পড়া"]),
    ("தமிழ் புத்தகம் படி", ["புத்தகம்", "தமிழ்"]),
    ("አዲስ አበባ፡ከተማ", ["አበባ", "ከተማ"]),
    ("party 🎉 at the pizza🍕 place, I ❤️ it", ["🎉", "🍕", "pizza", "❤"]),
    ("H₂O and x² and Foo™ don’t mix", ["H2O", "H₂O", "x2", "FooTM", "don't mix"]),
    ("a co\u00adop\u00ader\u00ada\u00adtive \ufeffbook\u200b shelf", ["cooperative", "book", "shelf"]),
    ("plain English words about lighthouses", ["lighthouses", "plain"]),
]  # fmt: skip
FORMS = ["NFC", "NFD", "NFKC", "NFKD"]


@pytest.mark.parametrize("stored_as", FORMS)
async def test_words_are_found_in_every_script_and_form(
    database: OneDatabase, stored_as: str
) -> None:
    stored = [normalize(stored_as, text) for text, _ in FOUND]
    missed = []
    async with serving(database, ScriptedModel()) as server:
        library = await make(server, language="simple")
        await fill(server, library, *({"text": text} for text in stored))
        for text, (_, queries) in zip(stored, FOUND, strict=True):
            for query in {normalize(form, query) for query in queries for form in FORMS}:
                found = await ask(
                    server, f"collections/{library}/search", query=query, mode="text", page_size=5
                )
                if text not in texts(found):
                    missed.append((text, query))
    assert not missed, missed


@pytest.mark.parametrize(
    ("texts_", "query"),
    [
        (["йод", "и од"], "йод"),
        (["西湖", "湖 西"], "西湖"),
        (["naïve résumé", "naive resume"], "naïve résumé"),
    ],
)
async def test_the_form_that_was_asked_for_comes_first(
    database: OneDatabase, texts_: Sequence[str], query: str
) -> None:
    async with serving(database, ScriptedModel()) as server:
        library = await make(server, language="simple")
        await fill(server, library, *({"text": text} for text in reversed(texts_)))
        found = await ask(server, f"collections/{library}/search", query=query, mode="text")
    assert texts(found)[0] == texts_[0]


async def test_a_word_that_says_nothing_says_nothing_without_its_accents(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        library = await make(server, language="german")
        await fill(server, library, {"text": "für die Schule"}, {"text": "fur elise"})
        found = await ask(server, f"collections/{library}/search", query="für Elise", mode="text")
    assert texts(found) == ["fur elise"]


_random = random.Random(18)
HOSTILE = {
    "one character": "漢" * 1_000_000,
    "any characters": "".join(chr(_random.randrange(0x4E00, 0x9FFF)) for _ in range(333_000)),
    "accents out of order": "a" + "\u0301\u0316" * 250_000,
    "tones out of order": "ก" + "\u0e48\u0e38" * 160_000,
    "voices out of order": "\uff76" + "\uff9e\u0301" * 150_000,
    "points out of order": "\u05d0" + "\U00010efd\u05b0" * 100_000,
    "long ones": "\ufdfa" * 300_000,
    "words": " ".join(f"w{number}é" for number in range(90_000)),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_text_is_lexed_in_time_that_grows_with_its_length(
    database: OneDatabase, text: str
) -> None:
    with psycopg.connect(database.app) as connection:
        connection.execute("SELECT length(lexemes_of('english', %s))", [text])
        connection.execute("SELECT query_words('{english,german}', %s)", [text])


@pytest.mark.parametrize("name", ["one character", "accents out of order"])
async def test_a_hostile_text_is_stored_as_it_was_sent(database: OneDatabase, name: str) -> None:
    text = HOSTILE[name][:330_000]
    async with serving(database, ScriptedModel()) as server:
        library = await make(server)
        passages = {"passages": [{"text": text}]}
        stored = await server.http.post(f"/v1/collections/{library}/passages", json=passages)
        found = await ask(
            server, f"collections/{library}/search", query=text[:1000], mode="text", page_size=1
        )
    assert "".join(texts(stored.json())) == text
    assert found["total"] == 0 or texts(found)[0] in text
