"""Words are found by words alone in every language, in whatever form of Unicode they are stored and asked for."""

import random

# ruff: noqa: RUF001 - letters that look alike are what this is about
from collections.abc import Sequence
from unicodedata import normalize

import psycopg
import pytest

from memserver.storage import languages
from memserver.testing.scripted import ScriptedModel
from tests.support.collections import ask, fill, make, texts
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
                    server, f"collections/{library}/search", query=query, mode="text", limit=5
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
async def test_the_form_that_was_requested_comes_first(
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


GERMAN = "Die alten Häuser am Hafen gehörten früher den reichen Kaufleuten der Stadt."
TURKISH = "Komşumuzun kedileri her sabah bahçemizdeki ağaçlara tırmanıyor."
ENGLISH = "My sister has been singing in the cathedral choir for eleven years."
POLISH = "Wczoraj wieczorem poszliśmy z dziećmi nad jezioro, żeby popływać łódką."
CHINESE = "我奶奶每个星期天都做红烧肉给我们吃"


async def test_each_passage_is_found_by_the_words_of_its_own_language(
    database: OneDatabase,
) -> None:
    async with serving(database, ScriptedModel()) as server:
        library = await make(server)
        await fill(server, library, *({"text": t} for t in (GERMAN, TURKISH, ENGLISH, POLISH)))
        await fill(server, library, {"text": CHINESE})
        path = f"collections/{library}"
        found = {
            query: texts(await ask(server, f"{path}/search", query=query, mode="text"))
            for query in ("Haus", "kedi", "sings", "choirs", "lodka łódką", "红烧肉")
        }
        made = await ask(server, path)
    assert found == {
        "Haus": [GERMAN],
        "kedi": [TURKISH],
        "sings": [ENGLISH],
        "choirs": [ENGLISH],
        "lodka łódką": [POLISH],
        "红烧肉": [CHINESE],
    }
    assert (made["language"], set(made["languages"])) == ("auto", {"german", "turkish", "simple"})


async def test_what_says_nothing_in_a_questions_language_does_not_find_texts_in_another(
    database: OneDatabase,
) -> None:
    german = (
        "Das Album The Wall von der Band The Who is the best of the year, sagt meine Tante immer."
    )
    async with serving(database, ScriptedModel()) as server:
        library = await make(server)
        await fill(server, library, {"text": german}, {"text": ENGLISH})
        await fill(server, library, {"text": GERMAN}, {"text": TURKISH})
        path = f"collections/{library}/search"
        english = await ask(
            server, path, query="who is the one of the family in the choir", mode="text"
        )
        band = await ask(server, path, query="The Who", mode="text")
    assert texts(english)[0] == ENGLISH
    assert texts(band)[0] == german


async def test_an_agent_has_a_language_and_changes_it(database: OneDatabase) -> None:
    async with serving(database, ScriptedModel()) as server:
        made = await server.http.post("/v1/agents", json={"name": "ada"})
        agent = made.json()["id"]
        simple = await server.http.post("/v1/agents", json={"name": "bo", "language": "simple"})
        wrong = [
            await server.http.post("/v1/agents", json={"name": "c", "language": "klingon"}),
            await server.http.patch(f"/v1/agents/{agent}", json={"language": "klingon"}),
            await server.http.patch(f"/v1/agents/{agent}", json={"language": None}),
        ]
        url = f"/v1/agents/{agent}/archival"
        await server.http.post(url, json={"passages": [{"text": "Häuser"}, {"text": "Boote"}]})

        async def finds(query: str) -> list[str]:
            return texts(
                await ask(server, f"agents/{agent}/archival/search", query=query, mode="text")
            )

        seen = [await finds("Haus")]
        changed = await server.http.patch(f"/v1/agents/{agent}", json={"language": "german"})
        seen.append(await finds("Häuser"))
        await server.run_jobs()
        seen += [await finds("Haus"), await finds("Boot")]
        own = (await ask(server, f"agents/{agent}/collections"))["items"][0]
        for language in ("simple", "english", "auto"):
            await server.http.patch(f"/v1/agents/{agent}", json={"language": language})
        await server.run_jobs()
        seen += [await finds("Haus"), await finds("haeuser häuser")]
        again = await server.http.get(f"/v1/agents/{agent}")
    assert [answer.status_code for answer in wrong] == [422, 422, 422]
    assert "german" in wrong[0].json()["error"]["hint"]
    assert (made.json()["language"], simple.json()["language"]) == ("auto", "simple")
    assert (changed.json()["language"], again.json()["language"]) == ("german", "auto")
    assert (own["language"], own["languages"]) == ("german", [])
    assert seen == [[], ["Häuser"], ["Häuser"], ["Boote"], [], ["Häuser"]]


async def test_a_collection_of_more_passages_than_one_step_is_lexed_in_its_new_language(
    database: OneDatabase,
) -> None:
    numbers = range(languages.AT_ONCE + 10)
    async with serving(database, ScriptedModel()) as server:
        library = await make(server, language="simple")
        for start in range(0, len(numbers), 100):
            passages = [{"text": f"Nummer {n} der Häuser"} for n in numbers[start : start + 100]]
            await fill(server, library, *passages)
        path = f"collections/{library}"
        await server.http.patch(f"/v1/{path}", json={"language": "german"})
        before = await ask(server, f"{path}/search", query="Haus", mode="text")
        await server.run_jobs()
        for number in (numbers[0], numbers[-1]):
            found = await ask(server, f"{path}/search", query=f"Haus {number}", mode="text")
            assert texts(found)[0] == f"Nummer {number} der Häuser"
    assert before["total"] == 0


async def test_a_collection_of_many_languages_finds_words_of_all(database: OneDatabase) -> None:
    spoken = [
        ("Die Nachbarin backt jeden Sonntag einen Kuchen mit Kirschen aus dem Garten.", "Kirschen"),
        ("La voisine prépare chaque dimanche une tarte avec les cerises du jardin.", "cerises"),
        ("La vecina prepara cada domingo una tarta con las cerezas del jardín de su casa.", "cerezas"),
        ("La vicina prepara ogni domenica una torta con le ciliegie del suo giardino.", "ciliegie"),
        ("A vizinha prepara todos os domingos um bolo com as cerejas do jardim dela.", "cerejas"),
        ("De buurvrouw bakt elke zondag een taart met de kersen uit haar tuin.", "kersen"),
        ("Grannen bakar varje söndag en kaka med körsbär från sin egen trädgård.", "körsbär"),
        ("Соседка каждое воскресенье печёт пирог с вишней из своего сада.", "вишней"),
        ("Komşumuz her pazar bahçesindeki kirazlarla bir pasta yapıyor ve bize getiriyor.", "kirazlarla"),
        ("A szomszédasszony minden vasárnap süteményt süt a kertjében termő cseresznyéből.", "cseresznyéből"),
        ("Vecina face în fiecare duminică o prăjitură cu cireșe din grădina ei.", "cireșe"),
    ]  # fmt: skip
    async with serving(database, ScriptedModel()) as server:
        library = await make(server)
        await fill(server, library, *({"text": text} for text, _ in spoken))
        for text, word in spoken:
            found = await ask(server, f"collections/{library}/search", query=word, mode="text")
            assert texts(found)[0] == text, word
        made = await ask(server, f"collections/{library}")
    assert len(made["languages"]) == languages.MOST_LANGUAGES + 1
    assert "simple" in made["languages"]


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
            server, f"collections/{library}/search", query=text[:1000], mode="text", limit=1
        )
    assert "".join(texts(stored.json())) == text
    assert found["total"] == 0 or texts(found)[0] in text
