"""Embedding vectors of tokens, read from text files that lie on this machine. Nothing is downloaded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.mxnet import base
from hybrid_lab.ndarray import NDArray

from .vocab import UNKNOWN, TextError, Vocabulary

__all__ = [
    "CompositeEmbedding",
    "CustomEmbedding",
    "EmbeddingFileError",
    "FastText",
    "GloVe",
    "create",
    "get_pretrained_file_names",
    "register",
]

_registered: dict[str, type[_TokenEmbedding]] = {}


class EmbeddingFileError(HybridLabError, FileNotFoundError):
    """A file of embedding vectors is not there."""


def register(embedding_cls: type[Any]) -> type[Any]:
    """A class decorator: `create` finds the class under its name in lower case."""
    _registered[embedding_cls.__name__.lower()] = embedding_cls
    return embedding_cls


def create(embedding_name: str, **kwargs: Any) -> _TokenEmbedding:
    """The embedding that is registered under this name, in any case. Raises TextError for an unknown name."""
    if embedding_name.lower() not in _registered:
        raise TextError(f"no embedding is called {embedding_name!r}; there are {', '.join(sorted(_registered))}")
    return _registered[embedding_name.lower()](**kwargs)


def get_pretrained_file_names(embedding_name: str | None = None) -> list[str] | dict[str, list[str]]:
    """Names of known files of an embedding, or of all: a dict. FastText takes any `.vec` file and lists none.

    Raises KeyError for an unknown name.
    """
    if embedding_name is None:
        return {name: list(kind.pretrained_file_name_sha1) for name, kind in _registered.items()}
    if embedding_name not in _registered:
        raise KeyError(f"no embedding is called {embedding_name!r}; there are {', '.join(sorted(_registered))}")
    return list(_registered[embedding_name].pretrained_file_name_sha1)


class _TokenEmbedding(Vocabulary):
    """Base of the embeddings: a vocabulary with a vector for each token.

    Subclasses call `_load_embedding`. The remaining arguments are Vocabulary's.
    """

    pretrained_file_name_sha1: ClassVar[dict[str, str]] = {}
    """The names of known files. MXNet's checksums behind them are not checked."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self._vec_len = 0
        self._vectors: NDArray | None = None

    @classmethod
    def _check_pretrained_file_names(cls, pretrained_file_name: str) -> None:
        if pretrained_file_name not in cls.pretrained_file_name_sha1:
            known = ", ".join(cls.pretrained_file_name_sha1)
            raise KeyError(f"{cls.__name__} has no file {pretrained_file_name!r}; there are {known}")

    @classmethod
    def _get_pretrained_file(cls, embedding_root: str | PathLike[str], pretrained_file_name: str) -> str:
        """The path of a file. Raises EmbeddingFileError if it is not there."""
        path = Path(embedding_root).expanduser() / cls.__name__.lower() / pretrained_file_name
        if not path.is_file():
            raise EmbeddingFileError(
                f"{path} is not there, and nothing is downloaded: put the file {pretrained_file_name} there, or read "
                "one that you have with CustomEmbedding(path)"
            )
        return str(path)

    def _load_embedding(
        self,
        pretrained_file_path: str | PathLike[str],
        elem_delim: str,
        init_unknown_vec: Callable[..., NDArray],
        encoding: str = "utf8",
    ) -> None:
        """Read lines of a token and its numbers. A line with one number is a header; a token that comes again, too, is
        left out with a warning.
        """
        path = Path(pretrained_file_path).expanduser()
        if not path.is_file():
            raise TextError(f"{path} is no file of embedding vectors")
        rows: list[np.ndarray] = []
        unknown: np.ndarray | None = None
        seen: set[Any] = set()
        with path.open(encoding=encoding) as lines:
            for number, line in enumerate(lines, 1):
                token, *elements = line.rstrip().split(elem_delim)
                place = f"{path}, line {number}"
                if not elements:
                    raise TextError(f"{place}: a token and numbers with {elem_delim!r} between them are needed")
                if token in seen:
                    warnings.warn(f"{place}: the token {token!r} comes again and is left out", stacklevel=3)
                    continue
                if len(elements) == 1 and token != self.unknown_token:
                    warnings.warn(f"{place}: {line.rstrip()!r} is taken for a header and left out", stacklevel=3)
                    continue
                vector = np.array([float(element) for element in elements], "float32")
                seen.add(token)
                if token == self.unknown_token:
                    unknown = vector
                    continue
                if rows and len(rows[0]) != len(vector):
                    raise TextError(f"{place}: {token!r} has {len(vector)} numbers, the tokens before {len(rows[0])}")
                rows.append(vector)
                self._token_to_idx[token] = len(self._idx_to_token)
                self._idx_to_token.append(token)
        if not rows:
            raise TextError(f"{path} has no embedding vectors")
        self._vec_len = len(rows[0])
        first = init_unknown_vec(shape=self._vec_len).asnumpy() if unknown is None else unknown
        known = np.zeros((len(self) - len(rows), self._vec_len), "float32")  # reserved tokens, until a file has them
        known[UNKNOWN] = first
        self._vectors = nd.array(np.concatenate([known, *[row[None] for row in rows]]))

    def _take(self, vocabulary: Vocabulary, embeddings: Sequence[_TokenEmbedding]) -> None:
        """Have the tokens of a vocabulary, with the vectors of all embeddings side by side."""
        tokens = vocabulary.idx_to_token
        parts = []
        for embedding in embeddings:
            vectors = embedding.get_vecs_by_tokens(tokens).asnumpy()
            vectors[UNKNOWN] = embedding.idx_to_vec.asnumpy()[UNKNOWN]
            parts.append(vectors)
        self._vectors = nd.array(np.concatenate(parts, axis=1))
        self._vec_len = self._vectors.shape[1]
        self._idx_to_token, self._token_to_idx = list(tokens), dict(vocabulary.token_to_idx)
        self._unknown_token, self._reserved_tokens = vocabulary.unknown_token, vocabulary.reserved_tokens

    def _build_embedding_for_vocabulary(self, vocabulary: Vocabulary | None) -> None:
        if vocabulary is not None:
            _check_vocabulary(vocabulary)
            self._take(vocabulary, [self])

    @property
    def vec_len(self) -> int:
        """The length of a vector."""
        return self._vec_len

    @property
    def idx_to_vec(self) -> NDArray:
        """(tokens, vec_len): the vectors in the order of the indices."""
        if self._vectors is None:
            raise TextError(f"{type(self).__name__} has no vectors yet; its constructor must load them")
        return self._vectors

    def get_vecs_by_tokens(self, tokens: str | list[str], lower_case_backup: bool = False) -> NDArray:
        """The vector of a token, (vec_len,), or of a list of tokens, (tokens, vec_len).

        lower_case_backup : look a token that is unknown up in lower case
        """
        if not isinstance(tokens, list):
            return self.get_vecs_by_tokens([tokens], lower_case_backup)[0]
        known = self.token_to_idx
        if lower_case_backup:
            tokens = [token if token in known else token.lower() for token in tokens]
        return nd.take(self.idx_to_vec, nd.array(self.to_indices(tokens)), axis=0)

    def update_token_vectors(self, tokens: str | list[str], new_vectors: NDArray) -> None:
        """Set the vectors of tokens. Raises TextError for unknown tokens, and if shapes do not fit.

        new_vectors : (tokens, vec_len), for one token also (vec_len,)
        """
        names = tokens if isinstance(tokens, list) else [tokens]
        if not isinstance(new_vectors, NDArray):
            raise TextError(f"new_vectors must be an NDArray, not {type(new_vectors).__name__}")
        wanted = (len(names), self.vec_len)
        if new_vectors.shape != wanted and not (len(names) == 1 and new_vectors.shape == wanted[1:]):
            raise TextError(f"new_vectors has shape {new_vectors.shape}; {len(names)} tokens need {wanted}")
        unknown = [name for name in names if name not in self.token_to_idx]
        if unknown:
            raise TextError(
                f"the token {unknown[0]!r} is unknown; to set the vector of all unknown tokens, name "
                f"{self.unknown_token!r}"
            )
        vectors = self.idx_to_vec.asnumpy()
        vectors[self.to_indices(list(names))] = new_vectors.asnumpy().reshape(wanted)
        self._vectors = nd.array(vectors)


def _check_vocabulary(vocabulary: object) -> None:
    if not isinstance(vocabulary, Vocabulary):
        raise TextError(f"vocabulary must be a Vocabulary, not {type(vocabulary).__name__}")


def _default_root() -> str:
    return os.path.join(base.data_dir(), "embeddings")


_GLOVE = (
    ("42B", (300,)), ("6B", (50, 100, 200, 300)), ("840B", (300,)), ("twitter.27B", (25, 50, 100, 200)),
)  # fmt: skip


@register
class GloVe(_TokenEmbedding):
    """Vectors of GloVe (Pennington, Socher and Manning, 2014), as `<embedding_root>/glove/<pretrained_file_name>`.

    embedding_root : default: `embeddings` in the folder of MXNET_HOME, or in ~/.mxnet
    init_unknown_vec : called with shape=, the vector of unknown tokens if the file has none
    vocabulary : have the tokens of this Vocabulary only; kwargs : as of Vocabulary
    """

    pretrained_file_name_sha1: ClassVar[dict[str, str]] = {
        f"glove.{corpus}.{size}d.txt": "" for corpus, sizes in _GLOVE for size in sizes
    }

    def __init__(
        self,
        pretrained_file_name: str = "glove.840B.300d.txt",
        embedding_root: str | PathLike[str] | None = None,
        init_unknown_vec: Callable[..., NDArray] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ):
        self._check_pretrained_file_names(pretrained_file_name)
        super().__init__(**kwargs)
        root = _default_root() if embedding_root is None else embedding_root
        self._load_embedding(self._get_pretrained_file(root, pretrained_file_name), " ", init_unknown_vec)
        self._build_embedding_for_vocabulary(vocabulary)


@register
class FastText(_TokenEmbedding):
    """Vectors of fastText (Bojanowski and others, 2016), as `<embedding_root>/fasttext/<pretrained_file_name>`.

    pretrained_file_name : any `.vec` file; the remaining arguments are GloVe's
    """

    def __init__(
        self,
        pretrained_file_name: str = "wiki.simple.vec",
        embedding_root: str | PathLike[str] | None = None,
        init_unknown_vec: Callable[..., NDArray] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ):
        if not pretrained_file_name.endswith(".vec"):
            raise KeyError(f"FastText reads .vec files, not {pretrained_file_name!r}")
        super().__init__(**kwargs)
        root = _default_root() if embedding_root is None else embedding_root
        self._load_embedding(self._get_pretrained_file(root, pretrained_file_name), " ", init_unknown_vec)
        self._build_embedding_for_vocabulary(vocabulary)


class CustomEmbedding(_TokenEmbedding):
    """Vectors of any text file: a line for each token, with its numbers behind it.

    elem_delim : the text between token and numbers; the remaining arguments are GloVe's
    """

    def __init__(
        self,
        pretrained_file_path: str | PathLike[str],
        elem_delim: str = " ",
        encoding: str = "utf8",
        init_unknown_vec: Callable[..., NDArray] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._load_embedding(pretrained_file_path, elem_delim, init_unknown_vec, encoding)
        self._build_embedding_for_vocabulary(vocabulary)


class CompositeEmbedding(_TokenEmbedding):
    """The tokens of a vocabulary, each with its vectors from one or several embeddings side by side."""

    def __init__(self, vocabulary: Vocabulary, token_embeddings: _TokenEmbedding | list[_TokenEmbedding]):
        _check_vocabulary(vocabulary)
        embeddings = token_embeddings if isinstance(token_embeddings, list) else [token_embeddings]
        for embedding in embeddings:
            if not isinstance(embedding, _TokenEmbedding):
                raise TextError(f"token_embeddings holds {type(embedding).__name__}, which is no embedding")
        super().__init__()
        self._take(vocabulary, embeddings)


_suggest_names(__name__)
