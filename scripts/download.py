"""Fetch a data set into the data folder, in the layout that the tasks read.

python scripts/download.py ultrafine       Ultra-Fine entity typing (Choi et al. 2018), about 0.7 GB, for task=ultrafine
python scripts/download.py glove           GloVe 6B, 50 to 300 dimensions (Pennington et al. 2014), 0.9 GB
python scripts/download.py poincare_glove  Poincaré GloVe, 100 dimensions (Tifrea et al. 2019)
python scripts/download.py snli            SNLI 1.0 (Bowman et al. 2015), 0.1 GB, for task=snli
python scripts/download.py multinli        MultiNLI 1.0 (Williams et al. 2018), 0.2 GB, for task=multinli
python scripts/download.py wordnet         WordNet 3.0 (Princeton University), 0.01 GB, for task=poincare_embeddings
python scripts/download.py wn18rr          WN18RR (Dettmers et al. 2018), knowledge graph of 86,835 triples, 0.001 GB
python scripts/download.py fb15k237        FB15k-237 (Toutanova and Chen 2015), of 272,115 triples, 0.004 GB
python scripts/download.py umls            UMLS (Kok and Domingos 2007), of 5,216 triples

Texts with classes (Zhang, Zhao and LeCun 2015), each a train.csv and a test.csv of class, title and text:
python scripts/download.py ag_news_csv                 AG's News, 4 classes, 0.01 GB
python scripts/download.py dbpedia_csv                 DBpedia, 14 classes, 0.07 GB
python scripts/download.py yelp_review_polarity_csv    Yelp reviews, 2 classes, 0.2 GB
python scripts/download.py yahoo_answers_csv           Yahoo! Answers, 10 classes, 0.3 GB
python scripts/download.py amazon_review_polarity_csv  Amazon reviews, 2 classes, 0.7 GB

python scripts/download.py graphs           Disease, Airport, Cora, PubMed as HGCN has them (Chami et al. 2019), 0.01 GB
python scripts/download.py multi30k         Multi30k, captions in four languages (Elliott et al. 2016), 0.04 GB
python scripts/download.py tatoeba_de_en    German and English sentences of Tatoeba, 0.01 GB
python scripts/download.py ud_english_ewt   English Web Treebank of Universal Dependencies 2.16, 0.02 GB

An interrupted download goes on when the command is run again. A server that sends fewer than 1,000 bytes a second is
given up after some minutes.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
if __package__ in (None, ""):
    sys.path[0] = str(ROOT)

from scripts import commands  # noqa: E402
from scripts.downloads import DownloadError  # noqa: E402
from scripts.downloads.archives import unpack  # noqa: E402
from scripts.downloads.transfer import ChecksumError, fetch  # noqa: E402
from tasks.fingerprints import file_sha256  # noqa: E402
from tasks.folders import write_text  # noqa: E402
from tasks.local_paths import user_path  # noqa: E402

Placement = Callable[[PurePosixPath], PurePosixPath | None]
FILE_SUMS = ROOT / "scripts" / "downloads" / "sums.json"  # sha256 of files of repositories, by data set
SUMS = "downloads.json"  # in the data folder: sha256 of each file when it was first fetched


@dataclass(frozen=True)
class Source:
    """One data set. folder: in the data folder. files: what must be in it at the end, any name of each entry. place:
    the place of a member of the archive in the folder, None without an archive. max_bytes: of its files together.
    sha256: of the file, where the release has one. sums: sha256 of files in the folder, where they are known. remedy:
    what can be done where the address does not answer."""

    url: str
    name: str
    folder: str
    files: tuple[tuple[str, ...], ...]
    place: Placement | None
    max_bytes: int
    sha256: str | None = None
    sums: dict[str, str] = field(default_factory=dict)
    remedy: str = ""

    def check(self, folder: Path) -> None:
        """Raises DownloadError where a file is missing from `folder`, or has another sum than is known."""
        for names in self.files:
            if not any((folder / n).is_file() for n in names):
                raise DownloadError(f"{self.url} has no {' or '.join(names)}; it is not the release that is expected.")
        for name, sum_ in self.sums.items():
            if not (folder / name).is_file() or file_sha256(folder / name) != sum_:
                raise DownloadError(f"{self.url}: {name} is not the file that is expected; nothing was taken.")


def below(*folders: str) -> Placement:
    """Members under one of these folders, from that folder on."""

    def place(member: PurePosixPath) -> PurePosixPath | None:
        for k, part in enumerate(member.parts[:-1]):
            if part in folders and not member.name.startswith("._"):  # what macOS adds
                return PurePosixPath(*member.parts[k:])
        return None

    return place


def flat(suffix: str | tuple[str, ...]) -> Placement:
    """Members with this ending, without their folders."""

    def place(member: PurePosixPath) -> PurePosixPath | None:
        is_data = member.name.endswith(suffix) and not member.name.startswith("._")  # what macOS adds
        return PurePosixPath(member.name) if is_data else None

    return place


def texts(name: str, sha256: str) -> Source:
    """One of the data sets of Zhang, Zhao and LeCun, from fast.ai's copy; sums as in FluxML's FastAI.jl."""
    return Source(
        url=f"https://s3.amazonaws.com/fast-ai-nlp/{name}.tgz",
        name=f"{name}.tgz",
        folder=name,
        files=(("train.csv",), ("test.csv",)),
        place=flat((".csv", ".txt")),
        max_bytes=4 << 30,
        sha256=sha256,
    )


def inside(folder: str) -> Placement:
    """Members of a repository's archive, which has one folder around all, that lie in this folder of it."""

    def place(member: PurePosixPath) -> PurePosixPath | None:
        path = PurePosixPath(*member.parts[1:])
        return path.relative_to(folder) if path.is_relative_to(folder) else None

    return place


def repository(name: str, url: str, revision: str, files: tuple[str, ...], place: Placement) -> Source:
    """Files of a repository on GitHub. Its archives are packed anew for each request, so that sums are of the files in
    them."""
    return Source(
        url=f"https://github.com/{url}/archive/{revision}.tar.gz",
        name=f"{name}.tar.gz",
        folder=name,
        files=tuple((file,) for file in files),
        place=place,
        max_bytes=1 << 30,
        sums=json.loads(FILE_SUMS.read_text(encoding="utf-8"))[name],
    )


def triples(name: str, sha256: str) -> Source:
    """One of the knowledge graphs that Dettmers et al.'s repository on GitHub keeps."""
    return Source(
        url=f"https://raw.githubusercontent.com/TimDettmers/ConvE/f3c0eb286025410fa5b4c04696c918264163d0ca/{name}.tar.gz",
        name=f"{name}.tar.gz",
        folder="UMLS" if name == "umls" else name,
        files=(("train.txt",), ("valid.txt",), ("test.txt",)),
        place=flat(("train.txt", "valid.txt", "test.txt")),
        max_bytes=1 << 30,
        sha256=sha256,
    )


POINCARE = "poincare_glove_100D_cosh-dist-sq_init_trick.txt"
SOURCES = {
    "ultrafine": Source(
        url="https://nlp.cs.washington.edu/entity_type/data/ultrafine_acl18.tar.gz",
        name="ultrafine_acl18.tar.gz",
        folder="ultrafine",
        files=(("crowd/train.json", "crowd/train_m.json"), ("crowd/dev.json",), ("crowd/test.json",)),
        place=below("crowd", "distant_supervision", "ontology", "ontonotes"),
        max_bytes=40 << 30,
    ),
    "glove": Source(
        url="https://nlp.stanford.edu/data/glove.6B.zip",
        name="glove.6B.zip",
        folder="glove",
        files=(("glove.6B.50d.txt",), ("glove.6B.100d.txt",), ("glove.6B.200d.txt",), ("glove.6B.300d.txt",)),
        place=flat(".txt"),
        max_bytes=4 << 30,
        sha256="617afb2fe6cbd085c235baf7a465b96f4112bd7f7ccb2b2cbd649fed9cbcf2fb",
    ),
    "poincare_glove": Source(
        url=f"https://polybox.ethz.ch/index.php/s/TzX6cXGqCX5KvAn/download?path=%2F&files={POINCARE}",
        name=POINCARE,
        folder="poincare_glove",
        files=((POINCARE,),),
        place=None,
        max_bytes=4 << 30,
        remedy="The authors' share is no lasting address. Vectors of the same kind can be trained from any text: "
        "`python run.py task=poincare_glove task.data.file=corpus.txt optim.lr=0.05`; put the file that it writes into "
        "{folder}.",
    ),
    "snli": Source(
        url="https://nlp.stanford.edu/projects/snli/snli_1.0.zip",
        name="snli_1.0.zip",
        folder="snli",
        files=(("snli_1.0_train.jsonl",), ("snli_1.0_dev.jsonl",), ("snli_1.0_test.jsonl",)),
        place=flat(".jsonl"),
        max_bytes=4 << 30,
        sha256="afb3d70a5af5d8de0d9d81e2637e0fb8c22d1235c2749d83125ca43dab0dbd3e",  # as in ParlAI
    ),
    "multinli": Source(
        url="https://cims.nyu.edu/~sbowman/multinli/multinli_1.0.zip",
        name="multinli_1.0.zip",
        folder="multinli",
        files=(
            ("multinli_1.0_train.jsonl",),
            ("multinli_1.0_dev_matched.jsonl",),
            ("multinli_1.0_dev_mismatched.jsonl",),
        ),
        place=flat(".jsonl"),
        max_bytes=8 << 30,
        sha256="049f507b9e36b1fcb756cfd5aeb3b7a0cfcb84bf023793652987f7e7e0957822",  # as in ParlAI
    ),
    "wordnet": Source(
        url="https://wordnetcode.princeton.edu/3.0/WordNet-3.0.tar.gz",
        name="WordNet-3.0.tar.gz",
        folder="wordnet30",
        files=(("data.noun",), ("index.noun",), ("data.verb",), ("data.adj",), ("data.adv",)),  # WN18RR has them all
        place=flat(("data.noun", "index.noun", "data.verb", "data.adj", "data.adv")),
        max_bytes=1 << 30,
        sha256="640db279c949a88f61f851dd54ebbb22d003f8b90b85267042ef85a3781d3a52",  # as in Spack
    ),
    "wn18rr": triples("WN18RR", "1eb9152f804c140d163462c0d49f65e5a0b30ab5fbb375c5e3353c11a6249060"),
    "fb15k237": triples("FB15k-237", "311df7930f842a02979eaa7a802484a6afe62303c07f915f1e6edbc30cbe05e8"),
    "umls": triples("umls", "26223aa91f0ec8db2324e0f489b9a4425e04d1d0df72ce5cfd62af4b91aee6fd"),
    "graphs": repository(
        "graphs",
        "HazyResearch/hgcn",
        "a526385744da25fc880f3da346e17d0fe33817f8",
        ("airport/airport.p", "cora/ind.cora.graph", "disease_lp/disease_lp.edges.csv", "pubmed/ind.pubmed.graph"),
        inside("data"),
    ),
    "multi30k": repository(
        "multi30k",
        "multi30k/dataset",
        "a3d2e0d26b56f3846f66a952536ffed4e401d05a",
        tuple(f"tok/{split}.lc.norm.tok.{k}" for split in ("train", "val", "test_2016_flickr") for k in ("en", "de")),
        inside("data/task1"),
    ),
    "tatoeba_de_en": Source(
        url="https://www.manythings.org/anki/deu-eng.zip",
        name="deu-eng.zip",
        folder="tatoeba_de_en",
        files=(("deu.txt",),),
        place=flat(".txt"),
        max_bytes=1 << 30,
    ),
    "ud_english_ewt": repository(
        "ud_english_ewt",
        "UniversalDependencies/UD_English-EWT",
        "4c89b5833a70aa5ed3a00bad2f23f57992cc7df8",  # r2.16
        tuple(f"en_ewt-ud-{split}.conllu" for split in ("train", "dev", "test")),
        flat(("-train.conllu", "-dev.conllu", "-test.conllu")),
    ),
    "ag_news_csv": texts("ag_news_csv", "9a8c300eabb45750237fcc669f61cb8a3448f3ef6f6098e1ce340e444f6872be"),
    "dbpedia_csv": texts("dbpedia_csv", "42db5221ddedddb673a4cabcc5f3a7d869714c878bcfe4ba94b29d14aa38e417"),
    "yelp_review_polarity_csv": texts(
        "yelp_review_polarity_csv", "528f22e286cad085948acbc3bea7e58188416546b0e364d0ae4ca0ce666abe35"
    ),
    "yahoo_answers_csv": texts("yahoo_answers_csv", "2d4277855faf8b35259009425fa8f7fe1888b5644b47165508942d000f4c96ae"),
    "amazon_review_polarity_csv": texts(
        "amazon_review_polarity_csv", "d2a3ee7a214497a5d1b8eaed7c8d7ba2737de00ada3b0ec46243983efa100361"
    ),
}


def download(source: Source, data: Path, force: bool) -> list[Path]:
    """Fetch, check, unpack; returns the files, also where they were there before. Raises DownloadError."""
    folder = data / source.folder
    needed = dict.fromkeys([*source.files, *((name,) for name in source.sums)])
    present = [next((folder / n for n in names if (folder / n).is_file()), None) for names in needed]
    if all(present) and not force:
        print(f"{source.folder} is already in {folder}; --force fetches it again.")
        return [p for p in present if p]
    archive = data / ".downloads" / source.name
    sha256 = source.sha256 or (None if source.sums else _sums(data).get(source.url))  # else its files have sums
    try:
        digest = fetch(source.url, archive, sha256, source.max_bytes, shows_cuts=source.place is not None)
    except ChecksumError as error:
        hint = "" if source.sha256 else f" If it was changed on purpose, delete its line in {data / SUMS}."
        raise DownloadError(f"{error}{hint}") from None
    if source.place is None:
        with archive.open("rb") as file:
            if file.read(256).lstrip()[:1] in (b"<", b"{", b""):
                archive.unlink()
                raise DownloadError(f"{source.url} answers with a page in the place of the file.")
        folder.mkdir(parents=True, exist_ok=True)
        files = [archive.replace(folder / source.name)]
    else:
        try:
            files = unpack(archive, folder, source.place, source.max_bytes, source.check)
        except DownloadError:
            archive.unlink()  # it is bad; after a full disk or an interrupt it serves the next call
            raise
        archive.unlink()
    if not source.sums:
        _write_sum(source, digest, data)
    return files


def _sums(data: Path) -> dict[str, str]:
    try:
        sums = json.loads((data / SUMS).read_text(encoding="utf-8"))
        if not isinstance(sums, dict) or not all(isinstance(sum_, str) for sum_ in sums.values()):
            raise ValueError("it holds no sums by address")
        return sums
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise DownloadError(f"{data / SUMS} is damaged ({error}); delete it.") from None


def _write_sum(source: Source, digest: str, data: Path) -> None:
    write_text(data / SUMS, json.dumps(_sums(data) | {source.url: digest}, indent=1) + "\n")


@commands.reports_errors
def main(arguments: Sequence[str] | None = None, sources: dict[str, Source] | None = None) -> int:
    """Run the command; returns 0, or 1 where a data set could not be fetched."""
    sources = sources or SOURCES
    parser = commands.parser("python scripts/download.py", __doc__)
    parser.add_argument("names", nargs="+", choices=sorted(sources), metavar="NAME", help=" | ".join(sources))
    parser.add_argument("--data-dir", type=Path, help="the data folder (default: HYPERBOLIC_DATA, else data)")
    parser.add_argument("--force", action="store_true", help="fetch it again where it is already there")
    options = parser.parse_args(arguments)
    data = user_path(options.data_dir or os.environ.get("HYPERBOLIC_DATA") or "data")
    failed = 0
    for name in options.names:
        source = sources[name]
        try:
            for path in download(source, data, options.force):
                print(f"{name}: {path}")
        except (DownloadError, OSError) as error:
            failed = 1
            print(f"error: {error} {source.remedy.format(folder=data / source.folder)}".strip(), file=sys.stderr)
        except KeyboardInterrupt:
            print("\nInterrupted; run the same command again to go on.", file=sys.stderr)
            return 130
    return failed


if __name__ == "__main__":
    sys.exit(main())
