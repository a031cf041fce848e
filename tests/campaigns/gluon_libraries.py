"""Networks of GluonTS and GluonNLP, unchanged, on Hybrid Lab and on the real MXNet: the same weights, inputs, outputs?

    python tests/campaigns/gluon_libraries.py FOLDER --mxnet .oracle/bin/python --mxnet-packages FOLDER2

The folders hold the libraries and what they need, for the Python that runs this and for that of MXNet. Nothing is
fetched; pandas 2.2 is the first one for NumPy 2:

    pip install --target FOLDER --no-deps gluonts==0.14.4 pandas==2.2.3 pydantic==1.10.19 typing_extensions toolz pytz \
        python-dateutil six tqdm tzdata
    pip download --no-deps gluonnlp==0.10.0      # and its folder src/gluonnlp into FOLDER

MXNet runs each network on made-up data and writes weights, inputs and outputs; then each one runs here: eagerly,
hybridized, and opened from an archive without its code. A network of GluonTS is the one that its estimator trains.

This script sets the names that NumPy 2 removed, and stands in for GluonNLP's compiled tokenizer, which no network uses.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

LENGTH, HORIZON, SERIES, WORDS = 120, 6, 6, 50
REMOVED = {"Inf": np.inf, "NaN": np.nan, "float": float, "int": int, "bool": bool, "object": object}
NETWORKS: dict[str, Callable[[], tuple[Any, list[Any]]]] = {}


class _Captured(Exception):
    """The network that an estimator would train, and its first batch."""


def _prepare(here: bool) -> None:
    """Make `import mxnet` this package, unless the real one is to run, and the libraries importable."""
    for name, value in REMOVED.items():
        if name not in vars(np):
            setattr(np, name, value)
    if here:
        import hybrid_lab.compat  # noqa: F401
    tokenizer = types.ModuleType("gluonnlp.data.fast_bert_tokenizer")
    for name in ("is_control", "is_punctuation", "is_whitespace", "BasicTokenizer", "WordpieceTokenizer"):
        setattr(tokenizer, name, None)
    sys.modules[tokenizer.__name__] = tokenizer
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


# -- GluonTS -----------------------------------------------------------------------------------------------------------


def _series(kind: str) -> Any:
    from gluonts.dataset.common import ListDataset

    random = np.random.RandomState(0)
    items = []
    for number in range(SERIES):
        target = np.abs(10 + 3 * np.sin(np.arange(LENGTH) / 4) + random.randn(LENGTH) * 0.3)
        if kind == "many":
            target = np.stack([target, target * 2, target + 1])
        if kind == "sparse":
            target = (random.rand(LENGTH) < 0.3) * random.randint(1, 5, LENGTH)
        items.append({"start": "2020-01-01", "target": target.astype("float32"), "feat_static_cat": [number % 3]})
    return ListDataset(items, freq="D", one_dim_target=kind != "many")


def _estimator(name: str, make: Callable[[Any, Any], Any], kind: str = "") -> None:
    """A network of GluonTS. make : gets gluonts.mx and a Trainer"""

    def network() -> tuple[Any, list[Any]]:
        import gluonts.mx
        import mxnet as mx
        from gluonts.mx.trainer import Trainer

        def capture(self: Any, net: Any, train_iter: Any, validation_iter: Any = None) -> None:
            net.initialize(mx.init.Xavier())
            raise _Captured(net, [item.asnumpy() for item in next(iter(train_iter)).values()])

        Trainer.__call__ = capture
        try:
            make(gluonts.mx, Trainer(epochs=1, num_batches_per_epoch=1)).train(_series(kind))
        except _Captured as found:
            return found.args
        raise AssertionError(f"{name} trained no network")

    NETWORKS[f"GluonTS {name}"] = network


_TS: dict[str, Any] = {"freq": "D", "prediction_length": HORIZON}
_RNN: dict[str, Any] = {**_TS, "context_length": 12, "num_cells": 8, "num_layers": 1}
_estimator(
    "SimpleFeedForward", lambda g, t: g.SimpleFeedForwardEstimator(HORIZON, num_hidden_dimensions=[8], trainer=t)
)
_estimator("DeepAR", lambda g, t: g.DeepAREstimator(**_RNN, trainer=t))
_estimator(
    "DeepAR, GRU, categories",
    lambda g, t: g.DeepAREstimator(**_RNN, cell_type="gru", use_feat_static_cat=True, cardinality=[3], trainer=t),
)
_estimator(
    "DeepAR, negative binomial",
    lambda g, t: g.DeepAREstimator(**_RNN, distr_output=g.distribution.NegativeBinomialOutput(), trainer=t),
)
_estimator(
    "DeepAR, piecewise linear",
    lambda g, t: g.DeepAREstimator(**_RNN, distr_output=g.distribution.PiecewiseLinearOutput(num_pieces=3), trainer=t),
)
_estimator(
    "Transformer", lambda g, t: g.TransformerEstimator(**_TS, context_length=12, model_dim=8, num_heads=2, trainer=t)
)
_estimator(
    "WaveNet",
    lambda g, t: g.WaveNetEstimator(**_TS, num_bins=32, n_residue=4, n_skip=4, dilation_depth=3, n_stacks=1, trainer=t),
)
_estimator(
    "N-BEATS",
    lambda g, t: g.NBEATSEstimator(
        **_TS, context_length=12, num_stacks=2, num_blocks=[1], widths=[8], num_block_layers=[2], trainer=t
    ),
)
_estimator(
    "LSTNet",
    lambda g, t: g.LSTNetEstimator(
        prediction_length=HORIZON, context_length=24, num_series=3, skip_size=4, ar_window=4, channels=4,
        rnn_num_cells=4, trainer=t,
    ),
    "many",
)  # fmt: skip
_estimator(
    "Temporal Fusion Transformer",
    lambda g, t: g.TemporalFusionTransformerEstimator(**_TS, context_length=12, hidden_dim=8, num_heads=2, trainer=t),
)
_estimator("MQ-CNN", lambda g, t: g.MQCNNEstimator(**_TS, context_length=24, trainer=t))
_estimator("MQ-RNN", lambda g, t: g.MQRNNEstimator(**_TS, context_length=24, trainer=t))
_estimator(
    "DeepState",
    lambda g, t: g.DeepStateEstimator(
        **_TS, past_length=24, cardinality=[3], num_layers=1, num_cells=4, add_trend=True, use_feat_static_cat=True,
        trainer=t,
    ),
)  # fmt: skip
_estimator(
    "GPVAR", lambda g, t: g.GPVAREstimator(**_TS, target_dim=3, num_layers=1, num_cells=4, rank=1, trainer=t), "many"
)
_estimator(
    "DeepVAR",
    lambda g, t: g.DeepVAREstimator(**_TS, target_dim=3, num_layers=1, num_cells=4, rank=1, trainer=t),
    "many",
)
_estimator(
    "DeepFactor",
    lambda g, t: g.DeepFactorEstimator(
        **_TS, context_length=12, num_hidden_global=4, num_factors=2, num_hidden_local=2, cardinality=[3], trainer=t
    ),
)
_estimator(
    "Gaussian process", lambda g, t: g.GaussianProcessEstimator(**_TS, context_length=12, cardinality=3, trainer=t)
)
_estimator(
    "deep renewal process",
    lambda g, t: g.DeepRenewalProcessEstimator(HORIZON, 24, num_cells=4, num_layers=1, trainer=t),
    "sparse",
)


# -- GluonNLP ----------------------------------------------------------------------------------------------------------


def _network(name: str) -> Callable[[Callable[[Any, Any], Any]], None]:
    """A network of GluonNLP, made by a function of gluonnlp and a generator of random numbers."""

    def add(make: Callable[[Any, Any], Any]) -> None:
        def network() -> tuple[Any, list[Any]]:
            import gluonnlp
            import mxnet as mx

            net, inputs = make(gluonnlp, np.random.RandomState(0))
            net.initialize(mx.init.Xavier())
            return net, [np.asarray(item, "float32") for item in inputs]

        NETWORKS[f"GluonNLP {name}"] = network

    return add


def _words(random: Any, *shape: int, words: int = WORDS) -> Any:
    return random.randint(1, words, shape)


def _encoder(nlp: Any) -> Any:
    return nlp.model.bert.BERTEncoder(
        num_layers=2, units=16, hidden_size=32, max_length=20, num_heads=4, dropout=0.1, output_all_encodings=False
    )


@_network("BERT")
def _bert(nlp: Any, random: Any) -> Any:
    net = nlp.model.BERTModel(_encoder(nlp), vocab_size=WORDS, token_type_vocab_size=2, units=16, embed_size=16)
    return net, [_words(random, 2, 9), random.randint(0, 2, (2, 9)), [9, 5], [[1, 2], [0, 3]]]


@_network("BERT, classifier")
def _bert_classifier(nlp: Any, random: Any) -> Any:
    net = nlp.model.BERTModel(
        _encoder(nlp), WORDS, token_type_vocab_size=2, units=16, embed_size=16, use_decoder=False, use_classifier=False
    )
    inputs = [_words(random, 2, 9), random.randint(0, 2, (2, 9)), [9, 5]]
    return nlp.model.BERTClassifier(net, num_classes=3, dropout=0.1), inputs


@_network("RoBERTa")
def _roberta(nlp: Any, random: Any) -> Any:
    net = nlp.model.RoBERTaModel(_encoder(nlp), vocab_size=WORDS, units=16, embed_size=16, use_decoder=True)
    return net, [_words(random, 2, 9), [9, 5], [[1, 2], [0, 3]]]


@_network("Transformer for translation")
def _translation(nlp: Any, random: Any) -> Any:
    encoder, decoder, one = nlp.model.transformer.get_transformer_encoder_decoder(
        num_layers=2, num_heads=4, units=16, hidden_size=32, dropout=0.1, max_src_length=20, max_tgt_length=20
    )
    vocabulary = nlp.Vocab(nlp.data.count_tokens([f"w{number}" for number in range(40)]))
    net = nlp.model.translation.NMTModel(
        vocabulary, vocabulary, encoder, decoder, one_step_ahead_decoder=one, embed_size=16, share_embed=True,
        tie_weights=True, prefix="transformer_",
    )  # fmt: skip
    return net, [_words(random, 2, 6, words=40), _words(random, 2, 5, words=40), [6, 4], [5, 3]]


@_network("AWD language model")
def _awd(nlp: Any, random: Any) -> Any:
    net = nlp.model.language_model.AWDRNN("lstm", WORDS, 16, 16, 3, True, 0.4, 0.5, 0.2, 0.65, 0.1)
    return net, [_words(random, 7, 3)]


@_network("language model")
def _language_model(nlp: Any, random: Any) -> Any:
    return nlp.model.language_model.StandardRNN("lstm", WORDS, 16, 16, 2, 0.2, tie_weights=True), [_words(random, 7, 3)]


@_network("convolutional encoder")
def _convolutional(nlp: Any, random: Any) -> Any:
    net = nlp.model.ConvolutionalEncoder(16, num_filters=(4, 5), ngram_filter_sizes=(1, 2), output_size=8)
    return net, [random.randn(7, 3, 16)]


@_network("multi-head attention")
def _attention(nlp: Any, random: Any) -> Any:
    cell = nlp.model.attention_cell.DotProductAttentionCell(scaled=True, dropout=0.1)
    net = nlp.model.attention_cell.MultiHeadAttentionCell(cell, 8, 8, 8, 2)
    return net, [random.randn(2, 3, 8), random.randn(2, 5, 8), random.randn(2, 5, 8), np.ones((2, 3, 5))]


@_network("additive attention")
def _additive(nlp: Any, random: Any) -> Any:
    inputs = [random.randn(2, 3, 6), random.randn(2, 5, 7), random.randn(2, 5, 4), random.randint(0, 2, (2, 3, 5))]
    return nlp.model.attention_cell.MLPAttentionCell(8, normalized=True), inputs


@_network("highway")
def _highway(nlp: Any, random: Any) -> Any:
    return nlp.model.Highway(8, 2), [random.randn(4, 8)]


# -- running -----------------------------------------------------------------------------------------------------------


def _arrays(result: object) -> Iterator[np.ndarray]:
    if isinstance(result, (list, tuple)):
        for item in result:
            yield from _arrays(item)
    elif result is not None:
        yield result.asnumpy()  # type: ignore[attr-defined]


def _write(folder: Path) -> None:
    """In MXNet's environment: run every network, and write what it got and gave."""
    import mxnet as mx

    for number, (name, make) in enumerate(NETWORKS.items()):
        mx.random.seed(0)
        np.random.seed(0)
        try:
            net, inputs = make()
            outputs = list(_arrays(net(*[mx.nd.array(item, dtype=item.dtype) for item in inputs])))
        except Exception as error:
            print(f"MXNet, {name}: {type(error).__name__}: {str(error).splitlines()[-1]}", file=sys.stderr)
            continue
        net.save_parameters(str(folder / f"{number}.params"))
        np.savez(folder / f"{number}_inputs.npz", *inputs)
        np.savez(folder / f"{number}_outputs.npz", *outputs)


def _read(path: Path) -> list[np.ndarray]:
    with np.load(path) as file:
        return [file[name] for name in file.files]


def _distance(result: object, wanted: list[np.ndarray]) -> str:
    """The largest difference, relative to the largest number of its array."""
    found = list(_arrays(result))
    if [item.shape for item in found] != [item.shape for item in wanted]:
        return "other shapes"
    pairs = zip(found, wanted, strict=True)
    return f"{max(float(np.abs(a - b).max() / (np.abs(b).max() + 1e-12)) for a, b in pairs):.0e}"


def _compare(folder: Path) -> None:
    """Run every network that MXNet ran, and print a table: how far its outputs are from MXNet's."""
    import mxnet as mx

    from hybrid_lab import gluon

    print("| network | eager | hybrid | from the archive |\n|---|---|---|---|")
    for number, (name, make) in enumerate(NETWORKS.items()):
        if not (folder / f"{number}.params").exists():
            continue
        wanted = _read(folder / f"{number}_outputs.npz")
        inputs = [mx.nd.array(item, dtype=item.dtype) for item in _read(folder / f"{number}_inputs.npz")]
        found: list[str] = []
        try:
            np.random.seed(0)
            net, _ = make()
            net.load_parameters(str(folder / f"{number}.params"))
            found.append(_distance(net(*inputs), wanted))
            net.hybridize()
            found.append(_distance(net(*inputs), wanted))
            net.save(folder / "net.hlab")
            found.append(_distance(gluon.load(folder / "net.hlab")(*inputs), wanted))
        except Exception as error:
            found.append(type(error).__name__)
        print(f"| {name} | {' | '.join([*found, '', ''][:3])} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, help="the folder with the libraries for this Python")
    parser.add_argument("--mxnet", type=Path, required=True, help="the Python of an environment with MXNet 1.9.1")
    parser.add_argument("--mxnet-packages", type=Path, required=True, help="the folder with the libraries for it")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)  # in MXNet's environment
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.packages.absolute()))
    _prepare(here=arguments.write is None)
    if arguments.write is not None:
        return _write(arguments.write)
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.mxnet, __file__, arguments.mxnet_packages, *("--mxnet", "-", "--mxnet-packages", "-")]
        subprocess.run([*map(str, command), "--write", folder], check=True, env={**os.environ, "PYTHONPATH": ""})
        _compare(Path(folder))
    return None


if __name__ == "__main__":
    main()
