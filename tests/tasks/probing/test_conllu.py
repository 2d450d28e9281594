"""CoNLL-U is read as its standard says: ranges and empty nodes are no words; what is no tree is a fault with its line."""

import gzip

import pytest

from tasks.errors import UserError
from tasks.probing.conllu import Sentence, read_sentences
from tasks.reading import Faults

# "I don't know ." with a range and an empty node, then "Go !" with another tag set.
GOOD = """\
# sent_id = 1
# text = I don't know .
1	I	I	PRON	PRP	_	4	nsubj	_	_
2-3	don't	_	_	_	_	_	_	_	_
2	do	do	AUX	VBP	_	4	aux	_	_
3	n't	not	PART	RB	_	4	advmod	_	_
4	know	know	VERB	VB	_	0	root	_	_
4.1	it	it	PRON	PRP	_	_	_	4:obj	_
5	.	.	PUNCT	.	_	4	punct	_	_


# sent_id = 2
1	Go	go	VERB	VV	_	0	root	_	_
2	!	!	PUNCT	$.	_	1	punct	_	_
"""


def row(number, head, form="w", columns=10):
    return "\t".join([str(number), form, "_", "NOUN", "NN", "_", str(head), "dep", "_", "_"][:columns])


def read(path, text, punctuation="xpos", on_error="fail"):
    path.write_text(text, encoding="utf-8")
    faults = Faults(on_error)
    return list(read_sentences(path, punctuation, faults)), faults


def test_words_heads_and_punctuation(tmp_path):
    first, second = read(tmp_path / "a.conllu", GOOD)[0]
    assert first == Sentence(("I", "do", "n't", "know", "."), (3, 3, 3, -1, 3), (False, False, False, False, True))
    assert second == Sentence(("Go", "!"), (-1, 0), (False, False)), "$. is no tag of the Penn Treebank"
    assert read(tmp_path / "a.conllu", GOOD, "upos")[0][1].punctuation == (False, True)


def test_compressed_files_and_files_of_windows_read_the_same(tmp_path):
    expected = read(tmp_path / "a.conllu", GOOD)[0]
    assert read(tmp_path / "a.conllu", "\ufeff" + GOOD.replace("\n", "\r\n"))[0] == expected
    (tmp_path / "a.conllu.gz").write_bytes(gzip.compress(GOOD.encode()))
    assert list(read_sentences(tmp_path / "a.conllu.gz", "xpos", Faults("fail"))) == expected


def test_a_word_may_hold_blanks(tmp_path):
    text = row(1, 0, "10 000") + "\n" + row(2, 1, "a  b") + "\n"
    assert read(tmp_path / "a.conllu", text)[0][0].words == ("10 000", "a b")


@pytest.mark.parametrize(
    ("rows", "line", "said"),
    [
        ([row(1, 2), row(2, 1)], 3, "the word 'w' is below itself, as its heads form a cycle"),
        ([row(1, 0), row(2, 2)], 4, "form a cycle"),
        ([row(1, 0), row(2, 3), row(3, 4), row(4, 3)], 5, "form a cycle"),
        ([row(1, 0), row(2, 1), row(3, 0)], 5, r"is a root \(head 0\), and word 1 is one, too"),
        ([row(1, 0), row(2, 7)], 4, "has the head 7, and the sentence has 2 words"),
        ([row(1, "_")], 3, r"the word 'w' has no head \(column 7\)"),
        ([row(1, 0), row(2, "x")], 4, "no line of CoNLL-U"),
        ([row(1, 0), row(2, -1)], 4, "no line of CoNLL-U|has the head"),
        ([row(1, 0), row(3, 1)], 4, "its ID is 3, and the next word is 2"),
        ([row(1, 0), row("one", 1)], 4, "no line of CoNLL-U"),
        ([row(1, 0), row(2, 1, columns=7)], 4, "it has 7 columns with tabs between them, and CoNLL-U has 10"),
        ([row(1, 0).replace("\t", " ")], 3, "it has 1 columns"),
        ([row("1-2", "_")], 3, "its sentence has no words"),
        ([row(1, 0, form=" ")], 3, "it has no word"),
        ([row(1, 0), " # x" + "\t_" * 9], 4, "no line of CoNLL-U, and a comment begins with #"),
    ],
)
def test_what_is_no_tree_is_named_with_its_line_or_skipped(tmp_path, rows, line, said):
    text = "\n".join(["# comment", "# another", *rows]) + "\n\n" + GOOD
    path = tmp_path / "a.conllu"
    with pytest.raises(UserError, match=f"a.conllu, line {line}: .*({said}).*task.data.on_error=skip"):
        read(path, text)
    sentences, faults = read(path, text, on_error="skip")
    assert (len(sentences), faults.count) == (2, 1)
    assert faults.first.startswith(f"line {line}: ")


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_bytes(GOOD.encode() + b"\n" + row(1, 0).encode().replace(b"w", b"\xff") + b"\n")
    with pytest.raises(UserError, match="line 16: it is not UTF-8"):
        list(read_sentences(path, "xpos", Faults("fail")))


@pytest.mark.parametrize("text", ["", "# a comment alone\n\n"])
def test_a_file_without_a_sentence_is_an_error(tmp_path, text):
    with pytest.raises(UserError, match=r"a.conllu has no sentence. Expected is CoNLL-U"):
        read(tmp_path / "a.conllu", text)


@pytest.mark.data
def test_the_english_treebank(data_dir):
    folder = data_dir / "ud_english_ewt"
    if not folder.is_dir():
        pytest.skip(f"{data_dir} has no ud_english_ewt")
    sentences = list(read_sentences(folder / "en_ewt-ud-dev.conllu", "xpos", Faults("fail")))
    assert (len(sentences), sum(len(s.words) for s in sentences)) == (2001, 25147)
