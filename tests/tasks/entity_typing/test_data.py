"""The data sets: which files they take, what they say of them, which types they have, and their batches."""

import functools
import gzip
import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from configs import checks, composing
from configs.errors import ConfigError
from tasks import vocabularies
from tasks.entity_typing import types as type_names
from tasks.entity_typing.data import EntityTypingData, Preparation
from tasks.entity_typing.examples import Limits
from tasks.entity_typing.mentions import Mention
from tasks.entity_typing.release import Release
from tasks.errors import UserError
from tasks.text import UNK
from tasks.word_vectors import VectorSource, WordVectors
from tests.tasks.entity_typing import synthetic

LIMITS = Limits(mention=5, characters=10, context=25)
FILES = {
    "train": {"crowd": ["crowd/train.json", "crowd/train_m.json"], "el": ["ds/el.json"], "headword": ["ds/hw.json"]},
    "dev": ["crowd/dev.json"],
    "test": ["crowd/test.json"],
    "ontology": ["ontology/types.txt"],
}
SIZES = {"crowd/train": 50, "crowd/dev": 12, "crowd/test": 11, "ds/el": 40, "ds/hw": 30}


def release(root: Path, *names: str) -> Path:
    """A folder with made-up files of the release (all, or those named) and vectors."""
    for k, (name, n) in enumerate(SIZES.items()):
        if not names or name in names:
            synthetic.write_mentions(root / "typing" / f"{name}.json", n, k, 300, 150)
    if not names or "ontology" in names:
        (root / "typing" / "ontology").mkdir(parents=True, exist_ok=True)
        (root / "typing" / "ontology" / "types.txt").write_text("\n".join(synthetic.types(150)) + "\n")
    (root / "glove").mkdir(exist_ok=True)
    (root / "glove" / "glove.6B.3d.txt").write_text(
        "".join(f"{w} 1 2 {k}\n" for k, w in enumerate(synthetic.vocabulary(300)))
    )
    return root


CROWD = ("crowd/train", "crowd/dev", "crowd/test")


def data(root: Path, **changes) -> EntityTypingData:
    """The data of a folder. changes: of settings; `train` and `granularity` are the release's, `workers` is the
    preparation's."""
    files = {**FILES, "granularity": "choi"}
    files |= {key: changes.pop(key) for key in list(changes) if key in files}
    settings = {
        "release": Release("typing", str(root / "typing"), **files, download="ultrafine", paper_mentions=6000),
        "preparation": Preparation(str(root / "cache"), changes.pop("workers", None)),
        "sources": "available", "types": "auto",
        "vectors": VectorSource(str(root), ["glove/*.txt"], "auto", 1.0), "on_error": "fail", "untyped": "keep",
        "limits": LIMITS, "mask_padding": True, "crowd_cycles": 2, "shuffle": "examples", "batch_size": 16,
        "eval_batch_size": 5, "seed": 0,
    }  # fmt: skip
    return EntityTypingData(**(settings | changes))


def test_available_sources_are_used_and_missing_ones_named(tmp_path, capsys):
    found = data(release(tmp_path, *CROWD, "ds/hw"))
    assert {name: len(split) for name, split in found.splits().items()} == {"train": 80, "dev": 12, "test": 11}
    said = [line for line in capsys.readouterr().out.splitlines() if "without" in line]
    assert said == [
        "typing: 80 training mentions (crowd, headword); without el, which `python scripts/download.py ultrafine` fetches."
    ]


def test_all_sources_stand_in_order(tmp_path, capsys):
    found = data(release(tmp_path), sources=["headword", "crowd", "el"])
    assert len(found.splits()["train"]) == 120
    assert "without" not in capsys.readouterr().out
    index = torch.arange(50)
    crowd = data(tmp_path, sources=["crowd"])
    assert (found.crowd_size(), crowd.crowd_size()) == (50, 50)
    one, other = found.splits()["train"][index], crowd.splits()["train"][index]
    assert all(torch.equal(one[key], other[key]) for key in one), "the crowd part stands first"


def test_a_source_that_was_asked_for_must_be_there(tmp_path):
    release(tmp_path, *CROWD)
    with pytest.raises(UserError, match=r"There is no file .*ds/el\.json \(el\).*scripts/download\.py ultrafine"):
        data(tmp_path, sources=["crowd", "el"]).splits()
    with pytest.raises(UserError, match=r"ontology/types\.txt .*task\.data\.types=data does without it"):
        data(tmp_path, types="ontology").splits()


@pytest.mark.parametrize("gone", CROWD)
def test_crowd_files_are_needed_and_the_paths_tried_are_named(tmp_path, gone):
    release(tmp_path, *(name for name in CROWD if name != gone))
    with pytest.raises(UserError, match=rf"There is no file .*{gone}\.json.*scripts/download\.py ultrafine") as caught:
        data(tmp_path).splits()
    if gone == "crowd/train":
        assert "train_m.json" in str(caught.value)


def test_the_file_that_the_authors_train_with_is_taken_too(tmp_path):
    release(tmp_path, *CROWD)
    (tmp_path / "typing/crowd/train.json").rename(tmp_path / "typing/crowd/train_m.json")
    found = data(tmp_path)
    assert len(found.splits()["train"]) == 50
    assert found.fingerprint()["files"]["train"] == "crowd/train_m.json"


def test_a_missing_vector_file_is_named(tmp_path):
    release(tmp_path, *CROWD)
    (tmp_path / "glove/glove.6B.3d.txt").unlink()
    with pytest.raises(UserError, match=r"no word vectors.*glove/\*\.txt"):
        data(tmp_path).splits()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sources": ["crowd", "gigaword"]}, "task.data.sources is available or some of crowd, el, headword"),
        ({"sources": "crowd"}, "task.data.sources is available or some of"),
        ({"sources": []}, "at least one source"),
        ({"sources": ["el", "el"]}, "each only once"),
        ({"types": "wordnet"}, "task.data.types must be one of auto, ontology, data"),
        ({"granularity": "lines"}, "task.data.release.granularity must be one of"),
        ({"on_error": "ignore"}, "task.data.on_error must be one of fail, skip"),
        ({"untyped": "skip"}, "task.data.untyped must be one of keep, fault"),
        ({"workers": 0}, "task.data.preparation.workers must be a whole number of at least 1"),
        ({"crowd_cycles": -1}, "task.data.crowd_cycles must be a whole number of at least 0"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path, changes, said):
    with pytest.raises(UserError) as caught:
        data(tmp_path, **changes)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("+task.data.vectors.d=3", "There is no key task.data.vectors.d. There are: c, files, root, space."),
        ("~task.data.vectors.c", "task.data.vectors.c is missing"),
        ("~task.data.limits.characters", "task.data.limits.characters is missing"),
        ("task.data.limits.mention=few", "task.data.limits.mention='few': a whole number is needed here"),
        ("~task.data.release.dev", "task.data.release.dev is missing"),
        ("+task.data.release.trian=[a.json]", "There is no key task.data.release.trian. Did you mean train"),
    ],
)
def test_keys_of_its_groups_that_cannot_be_are_named(word, message):
    composing.register()
    with pytest.raises(ConfigError) as caught:
        checks.check(composing.composed("task=ultrafine", word))
    assert message in str(caught.value)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_types_of_the_data_stand_in_the_order_of_the_authors(tmp_path):
    release(tmp_path)
    expected = dict.fromkeys((*type_names.COARSE, *type_names.fine_labels("hyfi")))
    for name in ("ds/el", "ds/hw", *CROWD):
        for record in lines(tmp_path / "typing" / f"{name}.json"):
            expected |= dict.fromkeys(record["y_str"])
    found = data(tmp_path, types="data", granularity="hyfi").types
    assert found.names == tuple(expected)
    assert found.granularity.bincount().tolist() == [9, 119, len(expected) - 128]
    assert data(tmp_path).types.names == tuple(synthetic.types(150)), "auto: the ontology, where it is there"
    (tmp_path / "typing/ontology/types.txt").unlink()
    assert data(tmp_path, granularity="hyfi").types.names == tuple(expected)


def test_a_batch_is_what_the_file_says(tmp_path):
    found = data(release(tmp_path))
    record = lines(tmp_path / "typing/ds/el.json")[7]
    batch = found.splits()["train"][torch.tensor([50 + 7])]
    words = record["left_context_token"] + record["mention_span"].split() + record["right_context_token"]
    if len(words) <= 25:
        assert batch["context"].tolist() == [[found.words.row(w) for w in words]]
    assert [found.types.names[k] for k in batch["targets"][0]] == record["y_str"]
    assert batch["mention"].tolist() == [[found.words.row(w) for w in record["mention_span"].split()[:5]]]


def test_pairs_of_types_are_those_of_the_training_data(tmp_path):
    found = data(release(tmp_path), sources=["crowd", "headword"]).types
    together = functools.reduce(
        lambda a, b: a + b,
        [
            np.outer(v, v)
            for name in ("crowd/train", "ds/hw")
            for record in lines(tmp_path / "typing" / f"{name}.json")
            for v in [np.isin(found.names, record["y_str"]).astype(int)]
        ],
    )
    pairs = found.co_occurrence()
    assert {(i, j): n for i, j, n in pairs.tolist()} == {
        (i, j): n for (i, j), n in np.ndenumerate(together) if i < j and n > 0
    }
    assert found.co_occurrence() is pairs, "counted once"


def test_an_epoch_ends_with_further_passes_over_the_crowd_part(tmp_path):
    found = data(release(tmp_path))
    batches = found.train_dataloader()
    assert batches.passes == [120, 50, 50]
    assert len(list(batches)) == len(batches) == 8 + 4 + 4
    assert data(tmp_path, crowd_cycles=0).train_dataloader().passes == [120]
    assert data(tmp_path, sources=["el", "headword"]).crowd_size() == 0


def test_the_code_has_batches_of_consecutive_mentions_as_wide_as_the_limits(tmp_path):
    found = data(release(tmp_path, *CROWD), shuffle="batches", mask_padding=False, crowd_cycles=0)
    given = list(found.train_dataloader())
    assert sorted(len(b["context"]) for b in given) == [2, 16, 16, 16]
    assert {(b["mention"].shape[1], b["characters"].shape[1], b["context"].shape[1]) for b in given} == {(5, 10, 25)}


def test_the_record_says_what_was_used(tmp_path):
    found = data(release(tmp_path, *CROWD, "ds/el", "ontology"))
    said = found.fingerprint()
    assert str(tmp_path) not in json.dumps(said)
    assert said["files"] == {
        "train": "crowd/train.json + ds/el.json", "dev": "crowd/dev.json", "test": "crowd/test.json",
        "vectors": "glove.6B.3d.txt",
    }  # fmt: skip
    assert said["counts"]["train"] == {
        "mentions": 90,
        "skipped": 0,
        "cut": said["counts"]["train"]["cut"],
        "untyped": 0,
        "outside": 0,
        "unknown": 0,
        "unknown_distinct": 0,
        "words": int(found.splits()["train"][torch.arange(90)]["context_length"].sum()),
    }
    assert said["counts"]["dev"]["mentions"] == 12
    assert len(set(said["sha256"].values())) == 4
    assert said["paper"] == {"missing": ["headword"], "mentions": 6000, "share": 0.015}
    assert said["types"] == 150
    assert said["vectors"] == {"words": 300, "d": 3, "space": "euclidean"}
    release(tmp_path)
    assert data(tmp_path).fingerprint()["paper"] == {"missing": [], "mentions": 6000, "share": 1.0}


def test_skipped_lines_and_mentions_without_types_are_told(tmp_path, capsys):
    release(tmp_path, *CROWD)
    with (tmp_path / "typing/crowd/train.json").open("a") as file:
        file.write(
            'nonsense\n{"left_context_token": [], "mention_span": "a", "right_context_token": [], "y_str": []}\n'
        )
    found = data(tmp_path, on_error="skip")
    found.splits()
    out = capsys.readouterr().out
    assert "typing: 1 of 52 lines of crowd were skipped (first: line 51: it is not a JSON object" in out
    assert "typing: 1 mentions of crowd have no type." in out
    counts = found.fingerprint()["counts"]["train"]
    assert (counts["mentions"], counts["skipped"], counts["untyped"]) == (51, 1, 1)
    path = tmp_path / "typing/crowd/train.json"
    path.write_bytes(path.read_bytes().replace(b"nonsense\n", path.read_bytes().split(b"\n")[0] + b"\n"))
    with pytest.raises(UserError, match=r"train\.json, line 52: the mention has no type .*task\.data\.untyped=keep"):
        data(tmp_path, untyped="fault").splits()


def test_words_without_a_vector_are_told_and_counted_in_each_split(tmp_path, capsys):
    release(tmp_path)
    rows = {name: split[torch.arange(len(split))]["context"] for name, split in data(tmp_path).splits().items()}
    lost = {name: len({2, 3, 4} & set(context.flatten().tolist())) for name, context in rows.items()}
    assert "have no vector" not in capsys.readouterr().out
    glove = tmp_path / "glove/glove.6B.3d.txt"
    glove.write_text("".join(glove.read_text().splitlines(keepends=True)[3:]))
    for _ in range(2):  # prepared, and read again
        found = data(tmp_path)
        counts = found.fingerprint()["counts"]
        for name, split in found.splits().items():
            batch = split[torch.arange(len(split))]
            words, unknown = int((batch["context"] > 0).sum()), int((batch["context"] == UNK).sum())
            of = counts[name]
            assert (of["words"], of["unknown"], of["unknown_distinct"]) == (words, unknown, lost[name])
        said = [line for line in capsys.readouterr().out.splitlines() if "have no vector" in line]
        share = 100 * counts["train"]["unknown"] / counts["train"]["words"]
        assert said == [f"typing: {share:.1f} % of the words of the training mentions have no vector."]


def test_paths_as_types_are_told_apart_by_depth(tmp_path):
    release(tmp_path, *CROWD)
    for name in CROWD:
        path = tmp_path / "typing" / f"{name}.json"
        records = [
            r | {"y_str": ["/person", "/person/artist", "/person/artist/actor"][: 1 + k % 3]}
            for k, r in enumerate(lines(path))
        ]
        path.write_text("\n".join(map(json.dumps, records)))
    train = {"crowd": None, "augmented": ["crowd/train.json"], "el": None}
    found = data(tmp_path, train=train, granularity="depth", types="data")
    assert found.types.names == ("/person", "/person/artist", "/person/artist/actor")
    assert found.types.granularity.tolist() == [0, 1, 2]
    assert found.fingerprint()["paper"]["missing"] == []


def test_new_mentions_have_the_batches_of_old_ones(tmp_path):
    found = data(release(tmp_path, *CROWD))
    records = lines(tmp_path / "typing/crowd/test.json")
    mentions = [
        Mention(r["left_context_token"], r["mention_span"], r["right_context_token"], ["nowhere"]) for r in records
    ]
    index = torch.arange(len(records))
    new, old = found.encode(mentions)[index], found.splits()["test"][index]
    assert all(torch.equal(new[key], old[key]) for key in old if key != "targets")
    assert new["targets"].tolist() == [[-1]] * len(records)
    with pytest.raises(UserError, match="mention 1: the mention is empty"):
        found.encode([Mention([], " ", [])])


def test_vectors_are_made_for_the_words(tmp_path):
    sizes = data(release(tmp_path, *CROWD)).model_sizes
    assert isinstance(sizes["words"], WordVectors)
    assert len(sizes["words"].tangent) == 302
    assert sizes["n_characters"] == 116


def adopted(root: Path, vocabulary: dict) -> EntityTypingData:
    """Data of another folder that have the vocabulary of a checkpoint."""
    found = data(root)
    found.adopt(vocabularies.unpack(vocabularies.pack_values(vocabulary), "here"))
    return found


def test_a_vocabulary_has_the_words_of_the_data_with_their_vectors(tmp_path, capsys):
    found = data(release(tmp_path / "first", *CROWD))
    inside = {row for row in found.mentions().columns.words.tolist() if row > UNK}
    (tmp_path / "second").mkdir()
    alone = adopted(tmp_path / "second", found.vocabulary())
    assert len(alone.words.index) == len(inside) < len(found.words.index)
    for word, row in alone.words.index.items():
        assert alone.words.tangent[row].equal(found.words.tangent[found.words.index[word]])
    assert alone.words.tangent[UNK].equal(found.words.tangent[UNK])
    assert alone.types.names == found.types.names
    assert alone.identity == found.identity
    assert "other words are unknown, as long as glove.6B.3d.txt (sha256 " in capsys.readouterr().out


def test_the_most_frequent_words_are_kept_where_vectors_are_too_large(tmp_path, monkeypatch):
    found = data(release(tmp_path, *CROWD))
    monkeypatch.setattr("tasks.entity_typing.typing_data.KEPT_BYTES", 10 * 3 * 4)
    kept, counts = found.vocabulary()["words"], found.words_in_use()
    rarest = min(counts[found.words.index[word]] for word in kept)
    others = [count for row, count in counts.items() if row > UNK and row not in {found.words.index[w] for w in kept}]
    assert len(kept) == 10
    assert rarest >= max(others)


def test_vectors_are_taken_from_their_file_where_it_is_the_same(tmp_path, capsys):
    found = data(release(tmp_path / "first", *CROWD))
    vocabulary = found.vocabulary()
    for folder in ("second", "third"):
        shutil.copytree(tmp_path / "first" / "glove", tmp_path / folder / "glove")
    assert adopted(tmp_path / "second", vocabulary).words.index == found.words.index
    assert "unknown" not in capsys.readouterr().out
    with (tmp_path / "third" / "glove" / "glove.6B.3d.txt").open("a") as file:
        file.write("more 1 2 3\n")
    other = adopted(tmp_path / "third", vocabulary)
    assert len(other.words.index) < len(found.words.index)
    assert "is not the glove.6B.3d.txt" in capsys.readouterr().out


def test_packed_mentions_are_the_same(tmp_path):
    plain, packed = (release(tmp_path / name, *CROWD, "ontology") for name in ("plain", "packed"))
    for file in (packed / "typing").rglob("*.*"):
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    for one, other in zip(data(plain).mentions().columns, data(packed).mentions().columns, strict=True):
        assert np.array_equal(one, other)
    assert [*data(plain).test_inputs()] == [*data(packed).test_inputs()]


def test_other_types_and_vectors_are_told_apart_where_they_are_as_many(tmp_path):
    first = data(release(tmp_path)).identity
    assert data(tmp_path, sources=["crowd"]).identity == first
    ontology, glove = tmp_path / "typing/ontology/types.txt", tmp_path / "glove/glove.6B.3d.txt"
    ontology.write_text("\n".join(synthetic.types(150)[::-1]) + "\n")
    other = data(tmp_path).identity
    assert (other["types"] == first["types"], other["vectors"] == first["vectors"]) == (False, True)
    glove.write_text(glove.read_text().replace(" 1 2 ", " 2 1 "))
    assert data(tmp_path).identity["vectors"] not in (first["vectors"], other["vectors"])


@pytest.mark.data
def test_the_official_crowd_files_are_read_whole(data_dir, tmp_path):
    composing.register()
    words = "task=ultrafine", f"paths.data_dir={data_dir}", f"paths.cache_dir={tmp_path}", "task.data.sources=[crowd]"
    node = OmegaConf.to_container(composing.composed(*words), resolve=True)["task"]["data"]
    found = instantiate(node, _convert_="all")
    assert {name: len(split) for name, split in found.splits().items()} == dict.fromkeys(("train", "dev", "test"), 1998)
    assert sum(1 for _ in found.test_inputs()) == 1998
    assert len(found.types) == 10_331
    counts = found.fingerprint()["counts"]["train"]
    assert counts.pop("words") > counts.pop("unknown") >= counts.pop("unknown_distinct")
    assert counts == {
        "mentions": 1998,
        "skipped": 0,
        "cut": 251,
        "untyped": 29,
        "outside": 0,
    }


@pytest.mark.slow
def test_preparing_and_gathering_are_fast(tmp_path):
    """Loose bounds, of one process on a busy machine: 1/4 of what a quiet one reaches."""
    release(tmp_path, *CROWD)
    synthetic.write_mentions(tmp_path / "typing/ds/el.json", 20_000, 9, 300, 150)
    start = time.perf_counter()
    found = data(tmp_path, workers=1)
    assert len(found.splits()["train"]) == 20_050
    assert 20_000 / (time.perf_counter() - start) > 5_000, "mentions per second"
    start = time.perf_counter()
    next(iter(data(tmp_path, workers=1).train_dataloader()))
    assert time.perf_counter() - start < 2, "seconds to the first batch of prepared data"
    start = time.perf_counter()
    count = sum(len(batch["context"]) for batch in data(tmp_path, workers=1, batch_size=900).train_dataloader())
    assert count / (time.perf_counter() - start) > 20_000, "mentions per second"


def test_mentions_and_types_that_test_shares_with_train_or_not_are_told_and_recorded(tmp_path, capsys):
    release(tmp_path, *CROWD)
    folder = tmp_path / "typing" / "crowd"
    lines = (folder / "train.json").read_text().splitlines()
    other = json.loads(lines[1])  # the same mention with other types, and the same words around another mention
    left, mention = other["left_context_token"], other["mention_span"].split()
    copies = [
        lines[0],
        json.dumps(other | {"y_str": [*other["y_str"], "astronaut", "diver"]}),
        json.dumps(other | {"left_context_token": [*left, *mention[:1]], "mention_span": " ".join(mention[1:] or ["w"])}),
    ]
    with (folder / "test.json").open("a") as file:
        file.write("".join(f"{line}\n" for line in copies))
    for _ in range(2):  # prepared, and read again
        found = data(tmp_path)
        counts = found.fingerprint()["counts"]
        assert (counts["test"]["in_train"], counts["dev"]["in_train"]) == (2, 0)
        assert "in_train" not in counts["train"]
        of_train, of_test = (
            {t for line in (folder / f"{split}.json").read_text().splitlines() for t in json.loads(line)["y_str"]}
            for split in ("train", "test")
        )
        assert counts["test"]["new_types"] == len(of_test - of_train) >= 2
        out = capsys.readouterr().out
        assert "typing: 2 of 14 mentions of test are in train, too, as the model reads them; they are kept." in out
        assert f"typing: {counts['test']['new_types']} types of test, as " in out
