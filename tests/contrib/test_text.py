"""contrib.text: vocabularies, and embedding vectors from files that the test writes."""

from collections import Counter

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.contrib import text
from hybrid_lab.mxnet.contrib.text import TextError, embedding, vocab


@pytest.fixture
def file(tmp_path):
    """Five dimensions are too many to read: two tokens with two numbers each, below a header."""
    path = tmp_path / "vectors.txt"
    path.write_text("2 2\na 1 2\nb 3 4\n")
    return path


@pytest.fixture(autouse=True)
def quiet(recwarn):
    """Headers are left out with a warning."""


def test_tokens_are_counted():
    counter = text.utils.count_tokens_from_str("Life is\nlife", to_lower=True)
    assert counter == Counter({"life": 2, "is": 1})
    more = text.utils.count_tokens_from_str("*is*", token_delim=r"\*", counter_to_update=counter)
    assert more is counter and counter["is"] == 2


def test_a_vocabulary_has_reserved_tokens_then_frequent_ones():
    words = vocab.Vocabulary(Counter("bbbaacc d"), most_freq_count=3, min_freq=2, reserved_tokens=["<pad>"])
    assert words.idx_to_token == ["<unk>", "<pad>", "b", "a", "c"] and len(words) == 5
    assert words.to_indices(["a", "never", "<pad>"]) == [3, 0, 1] and words.to_indices("b") == 2
    assert words.to_tokens([2, 0]) == ["b", "<unk>"] and words.to_tokens(4) == "c"
    assert (words.unknown_token, words.reserved_tokens) == ("<unk>", ["<pad>"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"min_freq": 0}, "min_freq=0"),
        ({"reserved_tokens": ["<unk>"]}, "contains the unknown token"),
        ({"reserved_tokens": ["a", "a"]}, "a token twice"),
        ({"counter": {"a": 1}}, "must be a collections.Counter, not dict"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(TextError, match=message):
        vocab.Vocabulary(**settings)


@pytest.mark.parametrize("index", [5, -1, 1.5])
def test_an_index_that_is_not_there_is_refused(index):
    with pytest.raises(ValueError, match="is not there"):
        vocab.Vocabulary().to_tokens(index)


def test_vectors_are_read_from_a_file(file):
    vectors = embedding.CustomEmbedding(file, init_unknown_vec=nd.ones)
    assert (len(vectors), vectors.vec_len, vectors.idx_to_token) == (3, 2, ["<unk>", "a", "b"])
    assert vectors.idx_to_vec.asnumpy().tolist() == [[1, 1], [1, 2], [3, 4]]
    assert vectors.get_vecs_by_tokens("b").asnumpy().tolist() == [3, 4]
    assert vectors.get_vecs_by_tokens(["A", "x"]).asnumpy().tolist() == [[1, 1], [1, 1]]
    assert vectors.get_vecs_by_tokens("A", lower_case_backup=True).asnumpy().tolist() == [1, 2]


def test_a_file_may_have_the_vector_of_unknown_tokens_and_a_token_twice(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("a,1,2\n<unk>,7,8\na,9,9\n")
    with pytest.warns(UserWarning, match="line 3: the token 'a' comes again"):
        vectors = embedding.CustomEmbedding(path, elem_delim=",")
    assert vectors.idx_to_vec.asnumpy().tolist() == [[7, 8], [1, 2]]


def test_vectors_can_be_changed(file):
    vectors = embedding.CustomEmbedding(file)
    vectors.update_token_vectors(["a", "<unk>"], nd.array([[5, 6], [0, 1]]))
    vectors.update_token_vectors("b", nd.array([8, 9]))
    assert vectors.idx_to_vec.asnumpy().tolist() == [[0, 1], [5, 6], [8, 9]]
    with pytest.raises(TextError, match="the token 'x' is unknown"):
        vectors.update_token_vectors("x", nd.array([8, 9]))
    with pytest.raises(TextError, match=r"has shape \(3,\); 1 tokens need \(1, 2\)"):
        vectors.update_token_vectors("a", nd.array([1, 2, 3]))


def test_a_vocabulary_chooses_and_orders_the_tokens(file):
    words = vocab.Vocabulary(Counter({"b": 2, "c": 1}), reserved_tokens=["<pad>"])
    vectors = embedding.CustomEmbedding(file, vocabulary=words)
    assert vectors.idx_to_token == ["<unk>", "<pad>", "b", "c"]
    assert vectors.idx_to_vec.asnumpy().tolist() == [[0, 0], [0, 0], [3, 4], [0, 0]]


def test_embeddings_side_by_side(file):
    one, two = embedding.CustomEmbedding(file), embedding.CustomEmbedding(file, init_unknown_vec=nd.ones)
    both = embedding.CompositeEmbedding(vocab.Vocabulary(Counter("ab")), [one, two])
    np.testing.assert_array_equal(both.idx_to_vec.asnumpy(), [[0, 0, 1, 1], [1, 2, 1, 2], [3, 4, 3, 4]])
    assert both.vec_len == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2\nb 1\nc 1 2 3\n", "line 3: 'c' has 3 numbers"),
        ("a\n", "line 1: a token and numbers"),
        ("", "no embedding"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content, message):
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(TextError, match=message):
        embedding.CustomEmbedding(path)


def test_nothing_is_downloaded(tmp_path):
    with pytest.raises(FileNotFoundError, match="glove.6B.50d.txt is not there"):
        embedding.create("GloVe", pretrained_file_name="glove.6B.50d.txt", embedding_root=tmp_path)
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "glove.6B.50d.txt").write_text("a 1 2\n")
    read = embedding.create("glove", pretrained_file_name="glove.6B.50d.txt", embedding_root=tmp_path)
    assert read.get_vecs_by_tokens("a").asnumpy().tolist() == [1, 2]
    assert len(embedding.get_pretrained_file_names("glove")) == 10
    with pytest.raises(KeyError, match="GloVe has no file 'other.txt'"):
        embedding.GloVe("other.txt")


def test_an_embedding_of_ones_own_is_registered(file):
    @embedding.register
    class Mine(embedding._TokenEmbedding):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self._load_embedding(file, " ", nd.zeros)

    assert embedding.create("mine").vec_len == 2
    with pytest.raises(TextError, match="no embedding is called 'yours'"):
        embedding.create("yours")
