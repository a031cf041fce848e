"""Sentences as numbers, and batches of sentences of about the same length."""

from __future__ import annotations

import bisect
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab.data.io import DataBatch, DataDesc, DataIter
from hybrid_lab.diagnostics.errors import HybridLabError, ShapeError
from hybrid_lab.system.logger import logger

__all__ = ["BucketSentenceIter", "encode_sentences"]


def encode_sentences(
    sentences: Sequence[Sequence[str]],
    vocab: dict[str, int] | None = None,
    invalid_label: int = -1,
    invalid_key: str = "\n",
    start_label: int = 0,
    unknown_token: str | None = None,
) -> tuple[list[list[int]], dict[str, int]]:
    """The number of each word, and the vocabulary: word -> number.

    vocab : None numbers words from `start_label` on as they come, without `invalid_label`, which is the number of
        `invalid_key`. Words that a given vocabulary lacks become `unknown_token`, which is added to the vocabulary

    Raises HybridLabError for a word that a given vocabulary lacks if there is no `unknown_token`.
    """
    known = {invalid_key: invalid_label} if vocab is None else vocab
    number = start_label
    encoded = []
    for sentence in sentences:
        numbers = []
        for word in sentence:
            if word not in known:
                if vocab is not None and not unknown_token:
                    raise HybridLabError(
                        f"the vocabulary lacks the word {word!r}; give an unknown_token for such words"
                    )
                number += number == invalid_label
                word = unknown_token or word
                known[word] = number
                number += 1
            numbers.append(known[word])
        encoded.append(numbers)
    return encoded, known


class BucketSentenceIter(DataIter):
    """Batches of sentences for a language model; the label of each word is the next word.

    sentences : lists of numbers, as `encode_sentences` gives them
    buckets : lengths; a sentence goes to the shortest bucket that it fits in and is filled up with `invalid_label`; a
        sentence longer than all buckets is left out. None: all lengths of which there is a whole batch
    layout : 'NT' for (batch_size, length), 'TN' for (length, batch_size)
    Each batch has the `bucket_key` for a BucketingModule. `reset()` shuffles with the generators of `random` and of
    NumPy; words of incomplete batches are left out.
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        batch_size: int,
        buckets: Sequence[int] | None = None,
        invalid_label: int = -1,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: DTypeLike = "float32",
        layout: str = "NT",
    ) -> None:
        super().__init__(batch_size)
        if layout not in ("NT", "TN"):
            raise ShapeError(f"layout={layout!r}; it must be 'NT' (the batch first) or 'TN' (the steps first)")
        if not buckets:
            counts = np.bincount([len(sentence) for sentence in sentences])
            buckets = [length for length, count in enumerate(counts) if count >= batch_size]
        lengths = sorted(buckets)
        rows: dict[int, list[np.ndarray]] = {length: [] for length in lengths}
        for sentence in sentences:
            place = bisect.bisect_left(lengths, len(sentence))
            if place < len(lengths):
                row = np.full((lengths[place],), invalid_label, dtype=dtype)
                row[: len(sentence)] = sentence
                rows[lengths[place]].append(row)
        left_out = len(sentences) - sum(map(len, rows.values()))
        if left_out:
            logger.warning(f"BucketSentenceIter leaves out {left_out} sentences that are longer than all buckets")
        self.data = [np.asarray(each, dtype=dtype) for each in rows.values() if each]
        self.buckets = [length for length, each in rows.items() if each]
        if not self.buckets:
            raise HybridLabError(f"no sentence fits into the buckets {lengths}; give longer buckets")
        self.data_name, self.label_name = data_name, label_name
        self.dtype, self.invalid_label, self.layout = dtype, invalid_label, layout
        self.major_axis = layout.index("N")
        self.default_bucket_key = max(self.buckets)
        shape = (batch_size, self.default_bucket_key)[:: 1 if layout == "NT" else -1]
        self.provide_data = [DataDesc(data_name, shape, layout=layout)]
        self.provide_label = [DataDesc(label_name, shape, layout=layout)]
        self.idx = [
            (bucket, start)
            for bucket, each in enumerate(self.data)
            for start in range(0, len(each) - batch_size + 1, batch_size)
        ]
        self.epoch = self.curr_idx = 0
        self.reset()

    def reset(self) -> None:
        """Begin again, with the sentences and the batches in another order."""
        self.epoch += self.curr_idx > 0
        self.curr_idx = 0
        random.shuffle(self.idx)
        for each in self.data:
            np.random.shuffle(each)  # noqa: NPY002 - as in MXNet, so that np.random.seed decides
        self._fill()

    def get_state(self) -> dict[str, Any]:
        """Where it stands, as data: the epoch, the sentences in their order, and which batch comes next."""
        data = [each.copy() for each in self.data]
        return {"epoch": self.epoch, "next": self.curr_idx, "batches": list(self.idx), "sentences": data}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where `get_state` was called. Raises HybridLabError for the state of another iterator."""
        epoch, following, batches = (state.get(name) for name in ("epoch", "next", "batches"))
        data = state.get("sentences")
        kinds = [(each.shape, each.dtype) for each in self.data]
        same = isinstance(data, list) and [(np.shape(each), getattr(each, "dtype", None)) for each in data] == kinds
        if not same or not isinstance(batches, list) or sorted(batches) != sorted(self.idx):
            raise HybridLabError("this is not a saved position of an iterator over these sentences")
        if type(epoch) is not int or type(following) is not int or not 0 <= following <= len(batches):
            raise HybridLabError("this is not a saved position of an iterator over sentences")
        self.epoch, self.curr_idx, self.idx = epoch, following, list(batches)
        self.data = [each.copy() for each in data or ()]
        self._fill()

    def _fill(self) -> None:
        self.nddata, self.ndlabel = [], []
        for each in self.data:
            label = np.full_like(each, self.invalid_label)
            label[:, :-1] = each[:, 1:]
            self.nddata.append(nd.array(each, dtype=self.dtype))
            self.ndlabel.append(nd.array(label, dtype=self.dtype))

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration after the last one."""
        if self.curr_idx == len(self.idx):
            raise StopIteration
        bucket, start = self.idx[self.curr_idx]
        self.curr_idx += 1
        rows = slice(start, start + self.batch_size)
        data, label = self.nddata[bucket][rows], self.ndlabel[bucket][rows]
        if self.layout == "TN":
            data, label = data.T, label.T
        return DataBatch(
            [data],
            [label],
            pad=0,
            bucket_key=self.buckets[bucket],
            provide_data=[DataDesc(self.data_name, data.shape, layout=self.layout)],
            provide_label=[DataDesc(self.label_name, label.shape, layout=self.layout)],
        )
