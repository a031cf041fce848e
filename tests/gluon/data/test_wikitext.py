"""gluon.contrib.data.text: samples of words from files as they lie on this machine. The values are MXNet 1.9.1's."""

import zipfile

import numpy as np
import pytest

from hybrid_lab.diagnostics import SettingError
from hybrid_lab.gluon import contrib
from hybrid_lab.gluon.data.vision.datasets import DatasetFileError

TRAIN = "\n = Title = \n\n a b a <unk> c .\n b a \u00e9 , a b\n\n c c\n"
VALIDATION = " b z a a\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "wiki.train.tokens").write_text(TRAIN, encoding="utf8")
    (tmp_path / "wiki.valid.tokens").write_text(VALIDATION, encoding="utf8")
    return tmp_path


def samples(data_set):
    return [[each.asnumpy().tolist() for each in data_set[index]] for index in range(len(data_set))]


def test_samples_and_vocabulary_equal_mxnet(folder):
    train = contrib.data.text.WikiText2(str(folder), seq_len=4)
    assert train.vocabulary.idx_to_token == ["<unk>", "<eos>", "a", "b", "c", "=", ",", ".", "Title", "\u00e9"]
    assert train.frequencies["a"] == 4
    assert "<eos>" not in train.frequencies
    assert samples(train) == [
        [[5, 8, 5, 1], [8, 5, 1, 2]],
        [[2, 3, 2, 0], [3, 2, 0, 4]],
        [[4, 7, 1, 3], [7, 1, 3, 2]],
        [[2, 9, 6, 2], [9, 6, 2, 3]],
        [[3, 1, 4, 4], [1, 4, 4, 1]],
    ]
    assert train[0][0].dtype == np.int32


def test_a_given_vocabulary_numbers_the_words(folder):
    train = contrib.data.text.WikiText2(folder, seq_len=4)
    validation = contrib.data.text.WikiText103(folder, "validation", train.vocabulary, seq_len=2)
    assert validation.vocabulary is train.vocabulary
    assert samples(validation) == [[[3, 0], [0, 2]], [[2, 2], [2, 1]]]


def test_the_archive_in_the_folder_is_read(tmp_path, folder):
    (tmp_path / "archive").mkdir()
    with zipfile.ZipFile(tmp_path / "archive" / "wikitext-2-v1.zip", "w") as archive:
        archive.write(folder / "wiki.train.tokens", "wikitext-2/wiki.train.tokens")
    read = contrib.data.text.WikiText2(tmp_path / "archive", seq_len=4)
    assert samples(read) == samples(contrib.data.text.WikiText2(folder, seq_len=4))


def test_errors_name_the_file(folder):
    with pytest.raises(DatasetFileError, match="WikiText2 .*wiki.test.tokens or wikitext-2-v1.zip"):
        contrib.data.text.WikiText2(folder, "test")
    with pytest.raises(DatasetFileError, match="too few for a sample"):
        contrib.data.text.WikiText2(folder, "validation", seq_len=35)
    with pytest.raises(ValueError, match="segment must be 'train', 'validation' or 'test', not 'valid'"):
        contrib.data.text.WikiText2(folder, "valid")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        *(({"seq_len": size}, f"seq_len must be a whole number of 1 or more, not {size}") for size in (0, -1, 1.5)),
        ({"vocab": {"a": 1}}, "vocab must be a contrib.text.vocab.Vocabulary or None, not dict"),
    ],
)
def test_arguments_of_another_kind_are_refused(folder, setting, message):
    with pytest.raises(SettingError, match=message):
        contrib.data.text.WikiText2(str(folder), **setting)


def test_damaged_files_are_named(tmp_path):
    text = tmp_path / "wiki.train.tokens"
    text.write_bytes(b"a b \xff c")
    with pytest.raises(DatasetFileError, match="wiki.train.tokens is not text in UTF-8: byte 4"):
        contrib.data.text.WikiText2(str(tmp_path))
    text.unlink()
    archive = tmp_path / "wikitext-2-v1.zip"
    archive.write_bytes(b"no archive")
    with pytest.raises(DatasetFileError, match="wikitext-2-v1.zip is damaged .* get the archive again"):
        contrib.data.text.WikiText2(str(tmp_path))
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("wikitext-2/wiki.train.tokens", b"a b c \xff")
    with pytest.raises(DatasetFileError, match="wiki.train.tokens .*wikitext-2-v1.zip .*UTF-8: byte 6"):
        contrib.data.text.WikiText2(str(tmp_path))
