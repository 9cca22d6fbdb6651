"""Words of every language are found: in whatever Unicode form, with or without accents, with or without blanks.

Chinese, Japanese, Korean, Thai and their like are found by pairs and triples of characters. A collection may hold
several languages. Its passages have numbers.
"""

# ruff: noqa: RUF001 - letters that look alike are what this is about

from alembic import op

revision = "0016"
down_revision = "0015"

# Han, kana, bopomofo, hangul and Yi; and emoji, of which each is a word.
PAIRED = (
    r"\u1100-\u11FF\u2600-\u27BF\u2E80-\u2FDF\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303B\u3041-\u3096"
    r"\u309D-\u309F\u30A1-\u30FA\u30FC-\u318F\u31A0-\u31FF\u3400-\u4DBF\u4E00-\uA4CF\uA960-\uA97F\uAC00-\uD7FF"
    r"\uF900-\uFAFF\uFF66-\uFF9D\uFFA0-\uFFDC\U0001B000-\U0001B16F\U0001F000-\U0001FAFF\U00020000-\U0003FFFF"
)
HAN = r"\u3005-\u3007\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF"
# Letters of Thai, Lao, Myanmar, Khmer, Tai, Balinese and Javanese, and their marks that Unicode puts in order.
SPACELESS = (
    r"\u0E01-\u0E37\u0E40-\u0E47\u0E4C-\u0E4E\u0E80-\u0EB7\u0EBB-\u0EC7\u0ECC-\u0ECF\u0EDC-\u0EDF\u1000-\u1036\u1038"
    r"\u103B-\u103F\u104E-\u108C\u108E\u108F\u109A-\u109F\u1780-\u17D1\u17D3\u17D7\u17DC\u1950-\u19CF\u19DE\u19DF"
    r"\u1A20-\u1A5F\u1A61-\u1A74\u1B00-\u1B33\u1B35-\u1B43\u1B45-\u1B4C\uA980-\uA9B2\uA9B4-\uA9BF\uA9E0-\uA9EF"
    r"\uA9FA-\uA9FE\uAA60-\uAAAF\uAAB1\uAAB5\uAAB6\uAAB9-\uAABD\uAAC0\uAAC2-\uAADF"
)
TRIPLED = SPACELESS + (
    r"\u0E38-\u0E3A\u0E48-\u0E4B\u0EB8-\u0EBA\u0EC8-\u0ECB\u1037\u1039\u103A\u108D\u17D2\u17DD\u1A60\u1A75-\u1A7F"
    r"\u1B34\u1B44\uA9B3\uA9C0\uAAB0\uAAB2-\uAAB4\uAAB7\uAAB8\uAABE\uAABF\uAAC1"
)
# What Postgres takes for letters where the database's LC_CTYPE is C.
PUNCTUATION = (
    r"\u0080-\u00A9\u00AB-\u00AE\u00B0\u00B1\u00B6\u00B7\u00BB\u00BF\u00D7\u00F7\u0387\u055A-\u055F\u0589"
    r"\u05BE\u05C0\u05C3\u05F3\u05F4\u060C\u061B-\u061F\u066A-\u066D\u06D4\u0964\u0965\u0970\u0E4F\u0E5A\u0E5B"
    r"\u0F0B-\u0F14\u104A-\u104D\u1361-\u1368\u17D4-\u17D6\u17D8-\u17DA\u2000-\u200B\u200E-\u206F\u2190-\u25FF"
    r"\u2E00-\u2E5D\u3000-\u3003\u3008-\u3020\u3030\u303D\u30FB\uFE10-\uFE19\uFE30-\uFE6F\uFF01-\uFF0F"
    r"\uFF1A-\uFF20\uFF3B-\uFF3D\uFF3F\uFF40\uFF5B-\uFF65\uFF9E\uFF9F\uFFFD"
)
# Nothing to a word: soft hyphens, joiners, variation selectors.
IGNORED = r"\u00AD\u02C6\u02C7\u034F\u180B-\u180D\u200B-\u200D\u2060\uFE00-\uFE0F\uFEFF\U000E0100-\U000E01EF"
# Accents of all scripts but the short i and u of Cyrillic; points of Hebrew, Arabic vowels and tatweel, nuktas; and
# the blank before an accent that some PDFs have beside its letter.
ACCENTS = (
    r"[\u0300-\u0305\u0307\u0309-\u036F\u0483-\u0487\u0591-\u05BD\u05BF\u05C1\u05C2\u05C4\u05C5\u05C7\u0610-\u061A"
    r"\u0640\u064B-\u065F\u0670\u06D6-\u06DC\u06DF-\u06E4\u06E7\u06E8\u06EA-\u06ED\u093C\u09BC\u0A3C\u0ABC\u0B3C"
    r"\u1AB0-\u1ACE\u1DC0-\u1DFF]|(?<![\u0438\u0443\u0456])[\u0306\u0308]| (?=[\u0300-\u036F])"
)
# Letters that have no accent to drop, forms of one letter, and digits, by the plain ones that stand for them.
PLAIN = {
    "ıøłđðħŧŋɓɖɗƙƴςʼʻ": "iolddhtnbddkyσ''",
    "ىیکةەہ": "ييكههه",
    "٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹": "0123456789" * 2,
    "०१२३४५६७८९০১২৩৪৫৬৭৮৯": "0123456789" * 2,
    "๐๑๒๓๔๕๖๗๘๙": "0123456789",
}
SPELT = {"ß": "ss", "æ": "ae", "œ": "oe", "þ": "th"}

WORDS = """
-- A text in lower case, without accents, and with plain forms for those that are alike.
CREATE FUNCTION fold(content text) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    folded text := lower(normalize(regexp_replace(content, '[{IGNORED}]+', '', 'g'), NFKD){COLLATION});
BEGIN
    folded := regexp_replace(folded, '{ACCENTS}', '', 'g');
    {FOLD}
    RETURN normalize(folded, NFC);
END
$$;

-- What the lexemes of a text are made from: its words, its words folded, and the runs of characters that are taken
-- in pairs and in triples. Without blanks no more than 64 others stand together, or a million accents on one letter
-- would take hours to put in order.
CREATE FUNCTION word_forms(content text, OUT words text, OUT folded text, OUT paired text, OUT tripled text)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    IF length(content) > 1000 THEN
        content := regexp_replace(content, '([^\x01-\x7f{PAIRED}{SPACELESS}]{64})', '\1 ', 'g');
    END IF;
    words := normalize(content, NFC);
    folded := fold(content);
    IF folded ~ '[{PAIRED}]' THEN
        paired := regexp_replace(folded, '[^{PAIRED}]+', ' ', 'g');
    END IF;
    IF folded ~ '[{TRIPLED}]' THEN
        tripled := regexp_replace(folded, '[^{TRIPLED}]+', ' ', 'g');
    END IF;
    words := regexp_replace(words, '[{PUNCTUATION}{PAIRED}{TRIPLED}]+', ' ', 'g');
    folded := regexp_replace(folded, '[{PUNCTUATION}{PAIRED}{TRIPLED}]+', ' ', 'g');
END
$$;

-- All characters and pairs of runs of characters, each with its place.
CREATE FUNCTION pairs_of(runs text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT string_agg(a || ':' || place || CASE WHEN b <> ' ' THEN ' ' || a || b || ':' || place ELSE '' END, ' ')
    FROM string_to_array(runs || ' ', NULL) chars,
         unnest(chars, chars[2:]) WITH ORDINALITY AS c (a, b, place)
    WHERE a <> ' '
$$;

-- All pairs and triples.
CREATE FUNCTION triples_of(runs text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT string_agg(
        a || b || ':' || place || CASE WHEN c <> ' ' THEN ' ' || a || b || c || ':' || place ELSE '' END, ' ')
    FROM string_to_array(runs || '  ', NULL) chars,
         unnest(chars, chars[2:], chars[3:]) WITH ORDINALITY AS c (a, b, c, place)
    WHERE a <> ' ' AND b <> ' '
$$;

CREATE FUNCTION lexemes_of_beginning(language text, content text, characters integer) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    forms record;
    lexemes tsvector;
BEGIN
    content := left(content, characters);
    IF octet_length(content) = length(content) THEN
        RETURN to_tsvector(language::regconfig, content);
    END IF;
    forms := word_forms(content);
    lexemes := to_tsvector(language::regconfig, left(forms.words, characters));
    IF forms.folded = lower(forms.words) AND forms.paired IS NULL AND forms.tripled IS NULL THEN
        RETURN lexemes;  -- it has curly quotes, or the like
    END IF;
    -- Written out and read again, a word that is the same in both stands at one place, once.
    RETURN concat_ws(' ', lexemes, to_tsvector(language::regconfig, left(forms.folded, characters)),
        pairs_of(left(forms.paired, characters)), triples_of(left(forms.tripled, characters)))::tsvector;
END
$$;

-- A text's lexemes. A tsvector holds a megabyte; of a text that has more, the beginning is taken.
CREATE OR REPLACE FUNCTION lexemes_of(language text, content text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    characters integer := 250000;
BEGIN
    IF length(content) < 10000 THEN
        RETURN lexemes_of_beginning(language, content, 50000);
    END IF;
    LOOP
        BEGIN
            RETURN lexemes_of_beginning(language, content, characters);
        EXCEPTION WHEN program_limit_exceeded THEN
            characters := characters / 2;
        END;
    END LOOP;
END
$$;

-- The words of a query, as passages in these languages have them as lexemes. `term` is the same for all forms of
-- one word. `empty` is one that says nothing in some of the languages: in passages in the others it is rare, and would
-- count for much, as "the" in a German text. Of runs of characters the longer grams will do.
CREATE FUNCTION query_terms(languages text[], query text)
RETURNS TABLE (word text, term bigint, empty boolean)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    forms record := word_forms(left(query, 5000));
BEGIN
    RETURN QUERY
    WITH token AS MATERIALIZED (
        SELECT t.text, min(t.place) AS place, l AS language, to_tsvector(l::regconfig, t.text) AS lexemes,
               to_tsvector(l::regconfig, fold(t.text)) AS folded
        FROM ts_parse('default', forms.words) WITH ORDINALITY AS t (kind, text, place), unnest(languages) l
        WHERE t.text <> ' ' GROUP BY t.text, l
    ), form AS (
        SELECT lexeme, t.place, bool_or(t.lexemes = '') OVER (PARTITION BY t.text) AS empty
        FROM token t
        LEFT JOIN LATERAL unnest(tsvector_to_array(
            CASE t.lexemes WHEN '' THEN '' ELSE t.lexemes || t.folded END)) lexeme ON true
        UNION ALL
        SELECT lexeme, 1000000 + row_number() OVER (), false
        FROM unnest(languages) l, LATERAL (
            SELECT unnest(tsvector_to_array(to_tsvector(l::regconfig, forms.folded)))
            EXCEPT
            SELECT unnest(tsvector_to_array(t.folded)) FROM token t WHERE t.language = l AND t.lexemes = ''
        ) AS other (lexeme)
        UNION ALL
        SELECT substr(run, place, longest), 2000000 + row_number() OVER (), false FROM (
            SELECT regexp_split_to_table(forms.paired, ' '), 2
            UNION ALL
            SELECT regexp_split_to_table(forms.tripled, ' '), 3
        ) AS runs (run, longest), generate_series(1, greatest(1, length(run) - longest + 1)) place
        WHERE run <> ''
        UNION ALL -- a word of one character, as between kana
        SELECT han[1], 3000000 + row_number() OVER (), false
        FROM regexp_matches(forms.paired, '(?<![{HAN}])([{HAN}])(?![{HAN}])', 'g') han
    )
    SELECT DISTINCT ON (f.lexeme) f.lexeme, f.place, f.empty FROM form f
    WHERE f.lexeme IS NOT NULL ORDER BY f.lexeme, f.place;
END
$$;

CREATE FUNCTION query_words(languages text[], query text) RETURNS text[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY(SELECT word FROM query_terms(languages, query))
$$;
"""


TABLES = """
ALTER TABLE collections
    ADD COLUMN languages   text[] NOT NULL DEFAULT '{}',
    ADD COLUMN last_number bigint NOT NULL DEFAULT 0,
    ADD COLUMN relexed_to  bigint,
    ALTER COLUMN language SET DEFAULT 'auto';
ALTER TABLE passages ADD COLUMN number bigint;
DROP INDEX passages_by_key;
UPDATE passages p SET number = n.number,
    lexemes = CASE WHEN octet_length(p.content) = length(p.content) THEN p.lexemes
                   ELSE lexemes_of(c.language, p.content) END
FROM collections c,
     (SELECT collection_id, id, row_number() OVER (PARTITION BY collection_id ORDER BY id) AS number
      FROM passages) n
WHERE c.id = p.collection_id AND (n.collection_id, n.id) = (p.collection_id, p.id);
ALTER TABLE passages ALTER COLUMN number SET NOT NULL;
CREATE INDEX passages_by_key ON passages
    USING gin (search_keys(collection_id, lexemes, tags, metadata)) WITH (fastupdate = off);
CREATE UNIQUE INDEX passages_by_number ON passages (collection_id, number);
UPDATE collections c SET last_number = n.last
FROM (SELECT collection_id, max(number) AS last FROM passages GROUP BY collection_id) n
WHERE n.collection_id = c.id;
"""

SEARCH = """
-- The passages that hold words of a query, by how rare the words are and how often they stand there:
-- BM25's idf, and ts_rank of one word, which saturates much as BM25's does with k1 = 0.65; long passages
-- count a little less. A form of a word is as rare as its most common one.
-- Where words are known to be common, only the others find passages, and all count for the score.
CREATE OR REPLACE FUNCTION rank_by_text(
    searched uuid[], query text, wanted jsonb, at_most integer, most_candidates integer
) RETURNS TABLE (collection_id uuid, passage_id uuid, score float8)
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    languages text[] := ARRAY(
        SELECT DISTINCT l FROM collections c,
               unnest(c.languages || CASE c.language WHEN 'auto' THEN 'english' ELSE c.language END) l
        WHERE c.id = ANY (searched) AND c.tenant = current_tenant());
    total float8;
    terms bigint[];
    words text[];
    finding text[];
    shares real[];
    conditions text := filter_conditions(searched, wanted);
    enough integer := 0;
BEGIN
    SELECT sum(c.passage_count) INTO total FROM collections c
    WHERE c.id = ANY (searched) AND c.tenant = current_tenant();
    IF total IS NULL THEN
        RETURN;
    END IF;
    SELECT array_agg(w.word ORDER BY w.share, length(w.word) DESC),
           array_agg(w.share ORDER BY w.share, length(w.word) DESC),
           array_agg(w.term ORDER BY w.share, length(w.word) DESC),
           array_agg(w.word ORDER BY w.share) FILTER (WHERE w.heap <= most_candidates)
    INTO words, shares, terms, finding
    FROM (
        SELECT k.word, k.term, k.share, sum(k.share * total) OVER (ORDER BY k.share, k.word) AS heap
        FROM (SELECT q.word, q.term,
                     greatest(coalesce(s.share, 0), CASE WHEN q.empty THEN 0.9 ELSE 0 END) AS share
              FROM query_terms(languages, query) q
              LEFT JOIN collection_words s
                  ON cardinality(searched) = 1 AND s.collection_id = searched[1] AND s.word = q.word) k
        ORDER BY k.share, length(k.word) DESC LIMIT 48
    ) w;
    IF words IS NULL THEN
        RETURN;
    END IF;
    IF finding IS NULL THEN
        -- All are common. As many of the rarest as leave enough passages that hold them together.
        FOR n IN REVERSE least(cardinality(words), 6)..1 LOOP
            conditions := format(
                ' AND search_keys(p.collection_id, p.lexemes, p.tags, p.metadata) @> %L::bigint[] ',
                search_keys(searched[1], array_to_tsvector(words[1:n]), '{}', '{}'))
                || filter_conditions(searched, wanted);
            EXECUTE 'SELECT count(*) FROM (SELECT 1 FROM passages p WHERE p.tenant = current_tenant() '
                || conditions || ' LIMIT $1) few' INTO enough USING at_most;
            EXIT WHEN enough = at_most;
        END LOOP;
    ELSE
        conditions := format(
            ' AND search_keys(p.collection_id, p.lexemes, p.tags, p.metadata) && %L::bigint[] ',
            ARRAY(SELECT k FROM unnest(searched) c,
                  unnest(search_keys(c, array_to_tsvector(finding), '{}', '{}')) k)) || conditions;
    END IF;
    RETURN QUERY EXECUTE format(
        'WITH word AS MATERIALIZED (
             SELECT w.word, w.share, w.term, word_query(w.word) AS q
             FROM unnest($1::text[], $2::real[], $6::bigint[]) AS w (word, share, term)
         ), candidate AS MATERIALIZED (
             SELECT p.collection_id, p.id, p.lexemes FROM passages p
             WHERE p.tenant = current_tenant() %s LIMIT $4
         ), hit AS MATERIALIZED (
             SELECT c.collection_id, c.id, w.word, w.share, w.term, ts_rank(c.lexemes, w.q) / (2 + ln(1 + length(c.lexemes))) AS tf
             FROM candidate c JOIN word w ON c.lexemes @@ w.q
         ), weight AS (
             SELECT word, ln(1 + ($3 - df + 0.5) / (df + 0.5)) AS idf
             FROM (SELECT word, max(greatest(max(share) * $3, count(*))) OVER (PARTITION BY term) AS df
                   FROM hit GROUP BY word, term) d
         )
         SELECT h.collection_id, h.id, sum(h.tf * i.idf)::float8 AS score
         FROM hit h JOIN weight i USING (word)
         GROUP BY h.collection_id, h.id ORDER BY score DESC, h.id LIMIT $5', conditions)
        USING words, shares, total, 4 * most_candidates, at_most, terms;
END
$$;
"""

SEARCH_PATH = """
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION rank_by_text SET search_path = %s, pg_temp', (
        SELECT string_agg(quote_ident(name), ', ' ORDER BY place)
        FROM unnest(current_schemas(false)) WITH ORDINALITY AS s (name, place) WHERE name !~ '^pg_temp'));
END
$$;
"""

# Where LC_CTYPE is C, lower() knows ASCII alone; then by a collation that knows all letters, if there is one.
COLLATION = """
SELECT CASE WHEN lower('Ä') = 'ä' THEN '' ELSE coalesce((
    SELECT ' COLLATE pg_catalog.' || quote_ident(collname) FROM pg_collation
    WHERE collname IN ('pg_c_utf8', 'C.utf8', 'und-x-icu') AND collencoding IN (-1, 6)
    ORDER BY array_position(ARRAY['pg_c_utf8', 'C.utf8', 'und-x-icu'], collname::text) LIMIT 1), '') END
"""


def upgrade() -> None:
    """Lex what is not ASCII again, and number the passages in the order of their insertion."""
    collation = op.get_bind().exec_driver_sql(COLLATION).scalar_one()
    op.execute(_filled(WORDS, collation))
    op.execute(TABLES)
    op.execute(SEARCH)
    op.execute(SEARCH_PATH)


def _filled(statements: str, collation: str) -> str:
    translated = " ".join(
        f"IF folded ~ '[{letters}]' THEN folded := translate(folded, '{letters}', '{plain}'); END IF;"
        for letters, plain in ((each, plain.replace("'", "''")) for each, plain in PLAIN.items())
    )
    spelt = "folded"
    for letter, letters in SPELT.items():
        spelt = f"replace({spelt}, '{letter}', '{letters}')"
    for name, text in {
        "COLLATION": collation,
        "FOLD": f"{translated} IF folded ~ '[{''.join(SPELT)}]' THEN folded := {spelt}; END IF;",
        "HAN": HAN,
        "PAIRED": PAIRED,
        "SPACELESS": SPACELESS,
        "TRIPLED": TRIPLED,
        "PUNCTUATION": PUNCTUATION,
        "IGNORED": IGNORED,
        "ACCENTS": ACCENTS,
    }.items():
        statements = statements.replace(f"{{{name}}}", text)
    return statements
