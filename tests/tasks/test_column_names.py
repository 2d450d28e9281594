"""A guess which columns of a table hold the fields that are needed."""

from tasks.column_names import guess_columns

FIELDS = {"label": ("label",), "premise": ("premise",), "hypothesis": ("hypothesis",)}


def test_the_label_has_the_fewest_values_though_its_words_are_the_longest():
    columns = {
        "word1": ["dog", "cat", "oak", "elm"], "word2": ["fox", "ant", "ash", "fir"],
        "relation": ["unrelated", "unrelated", "hypernym", "unrelated"],
    }  # fmt: skip
    assert guess_columns(columns, FIELDS) == {"label": "relation", "premise": "word1", "hypothesis": "word2"}


def test_texts_are_the_longest_of_the_others():
    columns = {"id": ["1", "2"], "kind": ["a", "b"], "one": ["a dog runs"] * 2, "two": ["a cat sleeps", "it rains"]}
    fields = {"label": ("kind",), "text": ("text",)}
    assert guess_columns(columns, fields) == {"label": "kind", "text": "one"}
