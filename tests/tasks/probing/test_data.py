"""States are computed once, for the words of the trees; what cannot be read is counted or named."""

import pytest
import torch

from tasks.errors import UserError
from tasks.probing.toy import ToyEncoder
from tasks.probing.trees import measure
from tests.cli import places
from tests.configurations import CONFIGS, checked
from tests.tasks.probing.conftest import SENTENCES, conllu


class Short(ToyEncoder):
    """Reads at most three words, and counts the sentences that it is given."""

    asked = 0

    def layer_states(self, sentences):
        self.asked += len(sentences)
        states = super().layer_states(sentences)
        states.mask[[len(words) > 3 for words in sentences]] = False
        return states._replace(unknown=sum(word == "Barks" for words in sentences for word in words))


def test_a_batch_has_the_states_and_trees_of_its_sentences(make):
    data = make()
    split = data.splits()["train"]
    assert split.sizes.tolist() == [4, 1, 3]
    batch = split[torch.tensor([1, 0])]
    assert batch["mask"].tolist() == [[True, False, False, False], [True] * 4]
    assert batch["punctuation"].tolist() == [[False] * 4, [False, False, False, True]]
    distances, depths = measure([1, 2, -1, 2])
    assert batch["distances"][1].tolist() == distances.tolist()
    assert batch["depths"][1].tolist() == depths.tolist()
    assert batch["distances"][0].tolist() == torch.zeros(4, 4).tolist()
    expected = data.probed.layer_states([["a", "dog", "Barks", "."]])
    assert len(batch["states"]) == 3
    for own, layer in zip(batch["states"], expected.points, strict=True):
        assert torch.equal(own[1], layer[0])


def test_states_are_computed_once(make):
    data = make(probed=Short(4, 0))
    data.splits()
    asked = data.probed.asked
    data.splits()["train"][torch.tensor([0, 1])]
    assert data.probed.asked == asked == 1 + 3 * len(SENTENCES), "one to see the sizes of the layers"


def test_sentences_that_are_too_long_for_the_model_are_left_out_and_counted(make, capsys):
    data = make(probed=Short(4, 0))
    assert data.splits()["test"].sizes.tolist() == [1, 3]
    said = capsys.readouterr().out
    assert "test: states of 2 sentences in 3 layers (0 s; 1 are too long for the model" in said
    assert "1 of 8 words have a piece that the probed model does not know; task.data.lowercase=true where" in said
    assert data.fingerprint()["counts"]["test"] == {"sentences": 2, "skipped": 0, "unread": 1}


def test_data_of_which_nothing_can_be_read_are_an_error(make, treebank):
    (treebank / "xx-ud-dev.conllu").write_text(conllu(SENTENCES[:1]))
    with pytest.raises(UserError, match="can read none of the 1 sentences of dev"):
        make(probed=Short(4, 0)).splits()


def test_one_layer_alone(make):
    data = make(layer=2)
    assert data.model_sizes["layers"] == (2,)
    (states,) = data.splits()["train"].states
    assert torch.equal(states, make().splits()["train"].states[2])


def test_words_in_lower_case(make):
    every = [make(lowercase=flag).splits()["train"].states[2] for flag in (True, False)]
    differs = [not torch.equal(*rows) for rows in zip(*every, strict=True)]
    assert differs == [False, False, True, False, False, False, False, False], "Barks alone"


def test_the_probed_model_is_part_of_the_identity(make):
    first, same, other = (make(probed=ToyEncoder(4, seed)).identity for seed in (0, 0, 1))
    assert first == same != other
    assert make(layer=1).identity != first


def test_the_first_sentences_only(make):
    data = make(sizes={"train": 2})
    assert data.splits()["train"].sizes.tolist() == [4, 1]
    assert [len(data.splits()[split]) for split in ("dev", "test")] == [3, 3]


def test_several_files_of_a_split_are_read_as_one(make, treebank):
    (treebank / "yy-ud-train.conllu").write_text(conllu(SENTENCES[:1]))
    data = make()
    assert data.splits()["train"].sizes.tolist() == [4, 1, 3, 4]
    assert data.fingerprint()["files"]["train"] == "xx-ud-train.conllu, yy-ud-train.conllu"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"probed": None}, "task=probing needs the run .* name its folder with probe.checkpoint=..."),
        ({"folder": "nowhere"}, "nowhere is no folder; task=probing needs dependency trees in CoNLL-U"),
        ({"layer": 3}, "task.layer must be all or a number from 0 to 2, and it is 3"),
        ({"layer": "last"}, "task.layer must be all or a number from 0 to 2, and it is 'last'"),
        ({"layer": -1}, "task.layer"),
        ({"states": "lorentz"}, "probe.checkpoint: its states have geometry=euclidean, and task.states=lorentz"),
        ({"punctuation": "pos"}, "task.data.punctuation must be one of auto, xpos, upos"),
        ({"sizes": {"train": 0}}, "task.data.sizes.train"),
        ({"on_error": "stop"}, "task.data.on_error"),
    ],
)
def test_a_mistake_is_reported_with_its_remedy(make, changes, said):
    with pytest.raises(UserError, match=said):
        make(**changes).splits()


def test_a_split_without_a_file_is_named(make, treebank):
    (treebank / "xx-ud-dev.conllu").unlink()
    with pytest.raises(UserError, match="has no file for dev; task=probing needs dependency trees"):
        make().splits()


def test_auto_finds_punctuation_in_either_column_and_says_how_much(make, treebank, capsys):
    """In XPOS where a word of any split has a tag of the Penn Treebank there, else in UPOS."""
    assert make(punctuation="auto").splits()["dev"].punctuation.sum() == 1
    said = "Punctuation by the column XPOS (task.data.punctuation=auto): 1 of 8 words of train, 1 of 8 words of dev"
    assert said in capsys.readouterr().out
    for split in ("train", "dev", "test"):
        text = conllu(SENTENCES).replace(".\t_\t_\t.", ".\t_\tPUNCT\tPUNCT").replace("NN", "NOUN")
        (treebank / f"xx-ud-{split}.conllu").write_text(text, encoding="utf-8")
    data = make(punctuation="auto")
    assert data.splits()["train"].punctuation.tolist() == [False, False, False, True, *[False] * 4]
    assert data.fingerprint()["counts"]["train"] == {"sentences": 3, "skipped": 0, "unread": 0}
    assert "by the column UPOS (task.data.punctuation=auto): 1 of 8 words of train" in capsys.readouterr().out
    assert not make(punctuation="xpos").splits()["train"].punctuation.any()
    said = "note: no word is punctuation by the column XPOS (task.data.punctuation=xpos), so UUAS and root are of all words; "
    assert said + "task.data.punctuation=auto looks at UPOS, too." in capsys.readouterr().out


def test_the_papers_experiments_have_the_tags_of_the_penn_treebank(tmp_path):
    experiments = sorted(path.stem for path in (CONFIGS / "experiment").glob("hybonet_probing_*.yaml"))
    for name in experiments:
        assert checked(f"experiment={name}", *places(tmp_path))["task"]["data"]["punctuation"] == "xpos"
    assert len(experiments) == 6
    assert checked("task=probing", *places(tmp_path))["task"]["data"]["punctuation"] == "auto"


def test_sentences_that_are_no_trees_are_skipped_and_counted(make, treebank, capsys):
    (treebank / "xx-ud-train.conllu").write_text(conllu([[("a", 2), ("b", 1)], *SENTENCES]))
    with pytest.raises(UserError, match="xx-ud-train.conllu, line 1: the word 'a' is below itself"):
        make().splits()
    data = make(on_error="skip")
    assert len(data.splits()["train"]) == 3
    assert "1 sentences of train were skipped; the first is line 1: the word 'a'" in capsys.readouterr().out
    assert data.fingerprint()["counts"]["train"]["skipped"] == 1
