"""How a sentence becomes pieces and pieces a sentence again: words, pieces of files, or pieces that are learnt."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sentencepiece

from tasks.errors import UserError, one_of

KINDS = ("bpe", "none", "@@")
LONGEST = 4192  # bytes of a sentence that SentencePiece learns from
JOINT = "@@ "  # between the pieces of a word in files that are split already


class Subwords:
    """Pieces of sentences.

    "bpe": byte pair encoding (Sennrich et al. 2016) by SentencePiece, whose pieces hold the blanks as "▁". "none":
    words that blanks separate. "@@": the same, of files whose words are split already, where "@@" ends a piece that
    the next one continues (subword-nmt, fastBPE).

    kind: one of KINDS. model: of SentencePiece, as bytes; empty for the other two.
    """

    def __init__(self, kind: str, model: bytes = b""):
        self.kind, self.model = one_of("task.data.subwords", kind, KINDS), model
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model) if kind == "bpe" else None

    def __len__(self) -> int:
        """How many pieces were learnt; 0 where none are."""
        return 0 if self._processor is None else int(self._processor.get_piece_size())

    def split(self, sentences: Sequence[str]) -> list[list[str]]:
        """The pieces of each sentence. Characters that were not there when pieces were learnt are pieces as well."""
        if self._processor is None:
            return [sentence.split() for sentence in sentences]
        pieces: list[list[str]] = self._processor.encode(list(sentences), out_type=str)
        return pieces

    def join(self, pieces: Sequence[str]) -> str:
        """The sentence of pieces; of those of `split` the sentence itself, with one blank where it had several."""
        if self._processor is not None:
            return "".join(pieces).replace("▁", " ").strip()
        sentence = " ".join(pieces)
        return (sentence + " ").replace(JOINT, "").strip() if self.kind == "@@" else sentence

    def whole(self, sentences: Sequence[str]) -> list[str]:
        """The sentences as `join` makes them of their pieces, as translations are: without the marks of "@@"."""
        return [self.join(pieces) for pieces in self.split(sentences)]


def learn(sentences: Iterable[str], size: int) -> bytes:
    """The model of `size` pieces that SentencePiece learns from sentences, which stay as they are written; of fewer,
    all that there are, where the sentences are too few for so many.

    sentences: may be read twice. Raises UserError where they have more different characters than `size` or where there
    is none of at most LONGEST bytes, and the errors of `sentences`.
    """
    try:
        return _train(sentences, size)
    except RuntimeError:  # too many pieces, or another reason, which the second time says
        pass
    try:  # not at once, as the model's bytes hold the setting, and checkpoints their hash
        return _train(sentences, size, hard_vocab_limit=False)
    except RuntimeError as error:
        reason = re.sub(r"^.*\] ", "", str(error)).strip() or f"no sentence has from 1 to {LONGEST:,} bytes"
        raise UserError(
            f"task.data.pieces={size}: byte pair encoding cannot be learnt with so many pieces ({reason})."
        ) from None


def _train(sentences: Iterable[str], size: int, **settings: Any) -> bytes:
    """The model. Raises RuntimeError where SentencePiece refuses, and the errors of `sentences`."""
    model, errors = io.BytesIO(), list[BaseException]()

    def watched() -> Iterator[str]:  # SentencePiece turns every error into a RuntimeError of its own
        try:
            yield from sentences
        except BaseException as error:
            errors.append(error)
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=watched(), model_writer=model, vocab_size=size, model_type="bpe",
            character_coverage=1.0, normalization_rule_name="identity", bos_id=-1, eos_id=-1, minloglevel=2,
            **settings,
        )  # fmt: skip
    except RuntimeError:
        if errors:
            raise errors[0] from None
        raise
    return model.getvalue()
