"""CoNLL-U: reading, joined tokens, attachment to text, and writing."""

import gzip
import re

import pytest

from jaxsyn.data.sentence import conllu
from jaxsyn.errors import InputError


def rows(words: str, comment: str = "") -> str:
  """A block of words "id form head relation [misc]|...", the rest "_"."""
  lines = [comment] if comment else []
  for word in words.split("|"):
    id_, form, head, relation, *misc = word.split(" ")
    columns = [id_, form, *"____", head, relation, "_", *(misc or "_")]
    lines.append("\t".join(columns))
  return "\n".join(lines) + "\n\n"


def blocks(*texts: str) -> list[conllu.Block]:
  return conllu.blocks_of_text("".join(texts), "x.conllu")


def words_of(parse: conllu.Parse) -> list[str]:
  return [parse.text[s:e] for s, e in zip(parse.start_W, parse.end_W)]


MONKEY = rows(
  "1 The 2 det|2 monkey 3 nsubj|3 eats 0 root|4 a 5 det|5 banana 3 obj"
)


def test_reads_a_simple_tree():
  (block,) = blocks(MONKEY)
  parse = conllu.attach([block], " The  monkey eats a banana")
  assert block.form_W == ("The", "monkey", "eats", "a", "banana")
  assert parse.head_W == block.head_W == (1, 2, 2, 4, 2)
  assert parse.relation_W == ("det", "nsubj", "root", "det", "obj")
  assert parse.start_W == (1, 6, 13, 18, 20)
  assert parse.end_W == (4, 12, 17, 19, 26)
  assert parse.parsed


# Words of the tree, and the forms, parents and relations of the joined words.
JOINED = """
"zu" and "dem" both depend on "Bahnhof"
  1 Er 2 a|2 geht 0 root|3-4 zum _ _|3 zu 5 b|4 dem 5 c|5 Bahnhof 2 d
  Er geht zum Bahnhof / 1 1 3 1 / a root b d
Spanish "dámelo": the clitics depend on the verb inside the token
  1-3 dámelo _ _|1 da 0 root|2 me 1 x|3 lo 1 y
  dámelo / 0 / root
"really" depends on "n't" within "can't"
  1 I 4 a|2-3 can't _ _|2 ca 4 b|3 n't 4 c|4 go 0 root|5 really 3 d
  I can't go really / 2 2 2 1 / a b root d
a -> c -> b -> root: "ab" must not depend on "c", which depends on it
  1-2 ab _ _|1 a 3 x|2 b 0 root|3 c 2 y
  ab c / 0 0 / root y
1 -> 3 -> 2 -> root, 4 -> 1: the first outside parent gives 12 -> 34 -> 12
  1-2 ab _ _|1 a 3 x|2 b 0 root|3-4 cd _ _|3 c 2 y|4 d 1 z
  ab cd / 0 0 / root y
empty nodes are skipped
  0.1 E _ _|1 Sue 2 a|2 likes 0 root|2.1 E _ _|2.2 E _ _|3 tea 2 b
  Sue likes tea / 1 1 1 / a root b
several roots are kept
  1 Yes 0 root|2 No 0 root|3 . 2 x
  Yes No . / 0 1 1 / root root x
"""


def test_joins_multi_word_tokens():
  lines = JOINED.strip().split("\n")
  for case, words, expected in zip(lines[::3], lines[1::3], lines[2::3]):
    (block,) = blocks(rows(words.strip()))
    joined = block.form_W, map(str, block.head_W), block.relation_W
    assert " / ".join(map(" ".join, joined)) == expected.strip(), case


def test_text_is_the_comment_or_the_joined_words():
  words = "1-2 zum _ _|1 zu 2 a|2 dem 0 root SpaceAfter=No|3 . 2 b"
  (block,) = blocks(rows(words))
  assert (block.text, block.space_after_W) == ("zum .", (True, True))
  (block,) = blocks(rows("1 Hi 0 root SpaceAfter=No|2 ! 1 x"))
  assert (block.text, block.space_after_W) == ("Hi!", (False, True))
  (block,) = blocks(rows("1 Hi 0 root", "# text = Hi  you "))
  assert block.text == "Hi  you"


@pytest.mark.parametrize(
  "text, message",
  [
    ("1\tThe\t_\n\n", "x.conllu:1: 3 columns"),
    (MONKEY.replace("\t", " "), "x.conllu:1: 1 columns"),
    (rows("1 a 0 root|3 b 1 dep"), ":2: the id is '3', expected 2"),
    (rows("1 a 0 root|1 b 1 dep"), ":2: the id is '1', expected 2"),
    (rows("1 a 0 root|2.1 b _ _"), ":2: the id is '2.1', expected 2"),
    (rows("1 a 0 root|٢ b 1 dep"), ":2: the id is '٢', expected 2"),
    (rows("0 a 0 root"), ":1: the id is '0', expected 1"),
    (rows("1 a 3 dep|2 b 0 root"), ":1: the head of word 1 is 3"),
    (rows("1 a -1 dep"), ":1: the head .* is '-1'"),
    (rows("1 a _ _"), ":1: the head .* is '_', .* parsed"),
    (rows("1 a ² dep"), ":1: the head .* is '²'"),
    (rows(f"1 a {'9' * 99} dep"), ":1: the head .* is '9{40}…'"),
    (rows("1 a 2 dep|2 b 1 dep"), ":1: the sentence has no root"),
    (
      rows("1 a 0 root|2 b 3 dep|3 c 4 dep|4 d 2 dep"),
      r":[234]: the heads form a cycle through word [234]",
    ),
    (rows("1 a 0 root|2 b 2 dep"), ":2: the heads form a cycle .* word 2"),
    (
      rows("1-3 ab _ _|1 a 0 root|2 b 1 dep"),
      ":1: the multi-word token 1-3 reaches beyond the last word, 2",
    ),
    (
      rows("1-2 ab _ _|1 a 0 root|2-3 bc _ _|2 b 1 x|3 c 1 x"),
      ":3: the multi-word token 2-3 overlaps",
    ),
    (rows("1 a 0 root|2-1 b _ _"), ":2: the multi-word token 2-1 .* ends"),
    (rows("1  0 root"), ":1: the word has no form"),
    (rows("0.1 E _ _"), ":1: a sentence without words"),
    ("# newdoc\n# sent_id = 7\n\n", ":2: a sentence .sent_id. without words"),
  ],
)
def test_rejects_malformed_text(text, message):
  with pytest.raises(InputError, match=message):
    blocks(text)


def test_errors_name_file_and_line(tmp_path):
  path = tmp_path / "bad.conllu"
  path.write_text(MONKEY + "# a comment\n" + rows("1 a 9 root"))
  with pytest.raises(InputError, match=f"{path}:8: the head of word 1 is 9"):
    list(conllu.read(path))
  path.write_bytes(MONKEY.encode() + "1\tÄ\n".encode("latin-1"))
  with pytest.raises(InputError, match=r":7: byte 3 \(0xc4\) is not UTF-8"):
    list(conllu.read(path))
  path = tmp_path / "half.conllu.gz"
  path.write_bytes(gzip.compress(MONKEY.encode() * 50)[:-20])
  with pytest.raises(InputError, match=r"half.conllu.gz cannot be unpacked"):
    list(conllu.read(path))


def test_accepts_crlf_byte_order_mark_and_blank_lines(tmp_path):
  path = tmp_path / "dos.conllu"
  text = MONKEY + "\n\n# only a comment\n\n" + MONKEY.rstrip("\n")
  path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
  first, second = conllu.read(path)
  assert first.form_W == second.form_W == blocks(MONKEY)[0].form_W
  assert (first.line, second.line) == (1, 11)


@pytest.mark.parametrize(
  "words, text, spans",
  [
    (["a\u2028b", "c\x85\x0b"], "a\u2028b c\x85\x0b", [(0, 3), (4, 5)]),
    # A no-break space in the text is a space in the form; the parser dropped
    # the zero-width space before "Euro".
    (
      ["10 000", "Euro"],
      "\ufeff10\u00a0000 \u200bEuro\u200b ",
      [(1, 7), (9, 13)],
    ),
    (["a", "\u200b", "b"], "a \u200b b", [(0, 1), (1, 1), (4, 5)]),
    (
      ["👩\u200d👧", "e\u0301te\u0301", "👍🏽", "."],
      "👩\u200d👧 e\u0301te\u0301 👍🏽.",
      [(0, 3), (4, 9), (10, 12), (12, 13)],
    ),
  ],
)
def test_offsets_are_those_of_the_raw_text(words, text, spans):
  lines = [f"{i} {i} 0 x" for i in range(1, len(words) + 1)]
  text_of = rows("|".join(lines))
  for i, word in enumerate(words, 1):
    text_of = text_of.replace(f"{i}\t{i}\t", f"{i}\t{word}\t")
  parse = conllu.attach(blocks(text_of), text)
  assert [*zip(parse.start_W, parse.end_W)] == spans
  written = conllu.to_text(parse, "1")
  assert conllu.attach(blocks(written), parse.text) == parse


@pytest.mark.parametrize(
  "tree, text, message",
  [
    (MONKEY, "The monkey ate a banana", r"x.conllu:1: the word 'eats' is not"),
    (MONKEY, "The monkey eats a banana!", r"no word covers .* from '!'"),
    (MONKEY, "The monkey eats a", r"'banana' .* where it reads ''"),
    # Composed and decomposed accents are different characters.
    (rows("1 \u00e9 0 root"), "e\u0301", "'é' is not in the text"),
  ],
)
def test_attach_rejects_changed_characters(tree, text, message):
  with pytest.raises(InputError, match=message):
    conllu.attach(blocks(tree), text)


def test_a_line_takes_as_many_trees_as_it_needs():
  trees = blocks(
    rows("1 A 2 x|2 A 0 root"),
    rows("1 B 2 x|2 B 0 root"),
    rows("1 \u200b 0 root"),  # belongs to no line
    rows("1 C 0 root", conllu.NOT_PARSED),
    rows("1 \ufeff 0 root"),
  )
  lines = ["AA BB", "", " \t", "\u200bC"]
  parses = list(conllu.match(iter(trees), lines, "x.en"))
  assert [p.text for p in parses] == lines
  assert [p.head_W for p in parses] == [(1, 1, 3, 3), (), (), (0,)]
  assert [p.parsed for p in parses] == [True, False, False, False]


@pytest.mark.parametrize(
  "lines, message",
  [
    (["A", "X"], r"x.conllu:3: the word 'B' .* reads 'X'.*Line 2 of raw.en"),
    (["A", "B", "C"], r"raw.en:3: the CoNLL-U has no tree for .*'C'"),
    (["A"], r"x.conllu:3: this tree, 'B', comes after the last line \(1\)"),
    (["A", "B B"], r"raw.en:2: the CoNLL-U has no tree for"),
  ],
)
def test_match_rejects_other_text(lines, message):
  trees = blocks(rows("1 A 0 root"), rows("1 B 0 root"))
  with pytest.raises(InputError, match=message):
    list(conllu.match(iter(trees), lines, "raw.en"))


@pytest.mark.parametrize(
  "text, words",
  [
    (" one\u3000\u200btwo\u200b \u200b three\x00 ", ["one", "two", "three"]),
    ("a\tb\x00 c\u2028d", ["a", "b", "c", "d"]),
    ("10 000\u00a0x", ["10", "000", "x"]),
    ("# hash", ["#", "hash"]),
  ],
)
def test_unparsed_lines_are_split_at_blanks_and_read_back(text, words):
  parse = conllu.unparsed(text)
  assert words_of(parse) == words
  assert parse.head_W == tuple(range(len(words))) and not parse.parsed
  written = blocks(conllu.to_text(parse, "7"))
  assert written[0].name == "7"
  assert [*conllu.match(written, [text], "x")] == [parse]


def test_written_tree_keeps_heads_annotations_and_space_after():
  tree = "1\tNo\tno\tINTJ\tUH\tX=y\t0\troot\t_\tA=b|SpaceAfter=No\n"
  tree += "2\t!\t!\tPUNCT\t.\t_\t1\tpunct\t_\t_\n\n"
  parse = conllu.attach(blocks(tree), "No!")
  assert conllu.to_text(parse, "1", is_complete=True).endswith(f"\n{tree}")
  assert conllu.to_text(parse, "1").endswith(
    "\n1\tNo\t_\t_\t_\t_\t0\troot\t_\tSpaceAfter=No\n"
    "2\t!\t_\t_\t_\t_\t1\tpunct\t_\t_\n\n"
  )
  empty = conllu.unparsed("")
  assert empty == conllu.Parse("", (), (), (), (), False)
  assert conllu.to_text(empty, "1") == ""


@pytest.mark.parametrize("name", ["fr_pud", "tr_pud", "zh_pud", "en_ewt-dev"])
def test_reads_gold_treebanks(shared_data, name):
  """All trees are read, cover their text, and are trees after joining."""
  path = shared_data / "ud" / f"{name}.conllu.gz"
  trees = list(conllu.read(path))
  with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
    content = file.read()
  texts = re.findall(r"^# text = (.*)$", content, re.M)
  parses = list(conllu.match(iter(trees), texts, name))
  assert len(parses) == len(trees) == len(re.findall(r"^1\t", content, re.M))
  for block, parse in zip(trees, parses):
    for form, word in zip(block.form_W, words_of(parse), strict=True):
      assert "".join(word.split()) == "".join(form.split())
    assert list(parse.start_W) == sorted(parse.start_W)
    assert all(e <= s for e, s in zip(parse.end_W, parse.start_W[1:]))
    assert sum(h == w for w, h in enumerate(parse.head_W)) == 1
  # Surface tokens = words - words inside ranges + ranges.
  ranges = re.findall(r"^(\d+)-(\d+)\t", content, re.M)
  words = len(re.findall(r"^\d+\t", content, re.M))
  assert sum(len(parse.head_W) for parse in parses) == words - sum(
    int(last) - int(first) for first, last in ranges
  )
