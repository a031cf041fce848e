"""Texts for language models, from local files. Nothing is downloaded: an error names a missing file and its folder."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections import Counter
from os import PathLike
from typing import ClassVar

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import SettingError
from hybrid_lab.diagnostics.file_errors import reading
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.gluon.data.dataset import Dataset
from hybrid_lab.gluon.data.vision.datasets import DatasetFileError, folder_of, missing_file
from hybrid_lab.mxnet.contrib.text.counting import count_tokens_from_str
from hybrid_lab.mxnet.contrib.text.vocab import Vocabulary
from hybrid_lab.ndarray import NDArray

__all__ = ["WikiText2", "WikiText103"]

_END_OF_SENTENCE = "<eos>"
_FILES = {"train": "wiki.train.tokens", "validation": "wiki.valid.tokens", "test": "wiki.test.tokens"}


class _WikiText(Dataset):
    """Sequences of words of Wikipedia articles. A sample is (words, following words), each (seq_len,) of int32.

    "<eos>" follows each line, and is a reserved token of the default vocabulary. A sample may begin and end within a
    line; words at the end that fill no sample are left out. Raises DatasetFileError for a missing or damaged file.
    """

    _folder: ClassVar[str]

    def __init__(
        self,
        root: str | PathLike[str] | None = None,
        segment: str = "train",
        vocab: Vocabulary | None = None,
        seq_len: int = 35,
    ) -> None:
        check_choice("segment", segment, tuple(_FILES))
        if not isinstance(seq_len, (int, np.integer)) or seq_len < 1:
            raise SettingError(f"seq_len must be a whole number of 1 or more, not {seq_len!r}")
        if vocab is not None and not isinstance(vocab, Vocabulary):
            raise SettingError(f"vocab must be a contrib.text.vocab.Vocabulary or None, not {type(vocab).__name__}")
        self._root = folder_of(self._folder) if root is None else os.path.expanduser(os.fspath(root))
        content = self._content(_FILES[segment])
        self._frequencies = count_tokens_from_str(content)
        if vocab is None:
            vocab = Vocabulary(self._frequencies, reserved_tokens=[_END_OF_SENTENCE])
        self._vocabulary = vocab
        lines = [line.split() for line in content.splitlines()]
        words = [word for line in lines if line for word in (*line, _END_OF_SENTENCE)]
        numbers = np.array(vocab.to_indices(words), "int32")
        samples = max(len(numbers) - 1, 0) // seq_len
        if not samples:
            raise DatasetFileError(f"{_FILES[segment]} in {self._root} has {len(words)} words, too few for a sample")
        size = samples * seq_len
        self._data: NDArray = nd.array(numbers[:size].reshape(samples, seq_len), dtype="int32")
        self._label: NDArray = nd.array(numbers[1 : size + 1].reshape(samples, seq_len), dtype="int32")

    def _content(self, name: str) -> str:
        """The text of a file in the folder, or else of the archive in it."""
        path = os.path.join(self._root, name)
        if os.path.exists(path):
            with reading(path), open(path, "rb") as file:
                return _text(file.read(), path).replace("\r\n", "\n").replace("\r", "\n")
        archive = f"{self._folder}-v1.zip"
        path = os.path.join(self._root, archive)
        if os.path.exists(path):
            try:
                with reading(path), zipfile.ZipFile(path) as members:
                    for member in members.namelist():
                        if os.path.basename(member) == name:
                            return _text(members.read(member), f"{member} in {path}")
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise DatasetFileError(f"{path} is damaged ({error}); get the archive again") from None
        raise missing_file(type(self).__name__, self._root, [name, archive], "give its folder as root=")

    @property
    def vocabulary(self) -> Vocabulary:
        """The numbers of the words."""
        return self._vocabulary

    @property
    def frequencies(self) -> Counter[str]:
        """How often each word occurs in this segment, without "<eos>"."""
        return self._frequencies

    def __len__(self) -> int:
        return len(self._label)

    def __getitem__(self, index: int) -> tuple[NDArray, NDArray]:
        return self._data[index], self._label[index]


def _text(content: bytes, where: str) -> str:
    """The text in the bytes of a file. where : names the file in messages"""
    try:
        return content.decode("utf8")
    except UnicodeDecodeError as error:
        raise DatasetFileError(f"{where} is not text in UTF-8: byte {error.start} does not belong there") from None


class WikiText2(_WikiText):
    """WikiText-2: 2 million words. The default folder is `datasets/wikitext-2` in MXNet's data folder.

    root : the folder of `wiki.train.tokens`, `wiki.valid.tokens` and `wiki.test.tokens`, or of `wikitext-2-v1.zip`
    segment : "train", "validation" or "test"
    vocab : the numbers of the words, by default from this segment; seq_len : words of a sample
    """

    _folder = "wikitext-2"


class WikiText103(_WikiText):
    """WikiText-103: 103 million words. The default folder is `datasets/wikitext-103` in MXNet's data folder.

    root, segment, vocab, seq_len : as for WikiText2; the archive is `wikitext-103-v1.zip`
    """

    _folder = "wikitext-103"


_suggest_names(__name__)
