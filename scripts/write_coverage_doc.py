"""Writes docs/coverage.md: which of MXNet's public names this package has, and why it lacks the others.

    python scripts/write_coverage_doc.py            write the page
    python scripts/write_coverage_doc.py --check    exit with 1 where the page is not up to date

MXNet's names are those of the real MXNet 1.9.1, in tests/golden/coverage/names.json.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

from hybrid_lab import compat

ROOT = Path(__file__).resolve().parent.parent
NAMES = ROOT / "tests" / "golden" / "coverage" / "names.json"
PAGE = ROOT / "docs" / "coverage.md"

HEAD = """# MXNet's names

Which public names of MXNet 1.9.1 are here, module by module, as `import hybrid_lab.compat` gives them. A name that is
here has MXNet's meaning; [differences.md](differences.md) lists where its behaviour differs on purpose. A name that is
absent raises an error with the nearest names. `python scripts/write_coverage_doc.py` writes this page.

## GluonCV

`python tests/campaigns/gluoncv_models.py gluoncv-0.10.5.post0-py2.py3-none-any.whl --mxnet .oracle/bin/python` runs
GluonCV's model zoo unchanged, through `hybrid_lab.compat` with NumPy 2, and beside it in the real MXNet 1.9.1 with the
same weights and inputs. A second run does only the missing parts, `--table` prints the existing results. GluonCV
uses `np.float` and `np.int`, which NumPy removed; the script sets them.

All 332 models were run by 2026-11-29, one image of 32 to 512 pixels each, with random weights. The real MXNet runs
282 of them without downloads:

| MXNet runs | built, eager | hybrid equals eager, saved, reloaded | equal MXNet within 1e-4 |
|---|---|---|---|
| 282 | 282 | 278 | 276; 202 of them within 2e-6 |

21 of the 276 amplify rounding: `ssd_300_mobilenet0.25_voc` gives boxes `exp(x)` of up to 1e32, which change by 5.9e-4
when the image changes by two roundings. The script allows ten times what a model amplifies. In 13 detectors rounding
exchanges objects with almost equal scores, so each object is compared with its closest.

Seven networks were compared in float64 (`--dtype float64`). In float32, `deeplab_resnest101_ade` differs from MXNet by
1.6e-4. Six R-CNN detectors have up to 80,000 objects, and rounding decides which objects are chosen: 74 to 99.999 % are
the same in MXNet and this package, and in eager and hybridized calls. R-CNN detectors get smaller random weights than
the other networks; with the same ones, all their scores would be exactly 1 and all their boxes empty.

The others:

- `faster_rcnn_resnet101_v1d_coco`: hybridized in float32, it chooses one other object of 80,000. It equals MXNet in
  float64, where only the eager call was run: ONNX Runtime took more than 16 GiB.
- `resnet50_v1b_gn` and `resnet101_v1b_gn` read shapes: hybridized, they raise typed errors; MXNet's fail too.
- `siamrpn_alexnet_v2_otb15` keeps its results on `self`: hybridized, it runs eagerly, with its layers as graphs, and
  equals the eager call. The archive holds the layers' graphs, not one of the whole network.
- Six networks in 8 bits, where MXNet computes otherwise on a processor without VNNI (below).

Networks in 8 bits: 7 of GluonCV's 22 need no download. Their files are made of `_sg_mkldnn_conv`, which is an
operator here, and `_contrib_quantized_pooling`. On unsigned data without overflows both equal MXNet bit for bit.
MXNet's own results depend on the processor there: without VNNI, oneDNN adds products in 16 bits, which overflow, and
halves the weights for signed data. With `--without-vnni` the script computes so here, too: then three of the six equal
MXNet (two of them bit for bit), and three differ from it in at most 0.03 % of the numbers, by one step of 8 bits.

## GluonTS and GluonNLP

`python tests/campaigns/gluon_libraries.py FOLDER --mxnet .oracle/bin/python --mxnet-packages FOLDER2` runs 18 networks
that estimators of GluonTS 0.14.4 train, and 10 of GluonNLP 0.10.0, unchanged, through `hybrid_lab.compat` with NumPy 2,
and beside it in the real MXNet 1.9.1 with the same weights and inputs. The estimators of GluonTS also train, predict,
save and load their predictors here.

| library | MXNet runs | equal MXNet within 3e-6, eager | hybrid | opened from an archive without code |
|---|---|---|---|---|
| GluonTS | 18 | 18 | 18 | 16 |
| GluonNLP | 10 | 10 | 9 | 6 |

The others:

- GluonTS's GPVAR and DeepVAR keep their distribution on `self`, and GluonNLP's AWD language model has parameters that
  drop weights: hybridized, they run eagerly, with their layers as graphs.
- GluonNLP's other language model calls `nd.Dropout` in `hybrid_forward`: an error when it is hybridized, in MXNet too.
- GluonNLP's RoBERTa has a `__call__` of its own, and its Transformer for translation a plain Block at the top, whose
  code the archive does not hold.

## Books and tutorials

Unchanged, through `hybrid_lab.compat`, beside the real MXNet 1.9.1 on one machine, with small made-up data in place of
the downloads:

| code | in all | run with MXNet | run here |
|---|---|---|---|
| MXNet cells of "Dive into Deep Learning", 128 pages, 1 epoch (`tests/campaigns/run_d2l.py`) | 1,179 | 1,145 | 1,144 |
| the notebooks of the Gluon course "The Straight Dope" | 73 | 33 | the same 33 |
| MXNet's own tutorials of Gluon | 46 | 20 | 22, those 20 too |

In the book 29 cells fail in both, because the made-up data are too small, a second GPU is missing or a page takes over
120 s. Six run with MXNet only: they use calls that the current NumPy or pandas no longer allow, and the real MXNet
needs older ones. Five run here only: there a page takes over 120 s, and a function cannot be sent to another process.

## MXNet's examples

The scripts of `example/gluon` of MXNet 1.9.1, unchanged, through `hybrid_lab.compat`, beside the real MXNet on a CPU,
with small made-up data in place of the downloads. Names that NumPy, Pillow, pandas and Python have removed since were
put back for both.

| script | MXNet | here |
|---|---|---|
| `actor_critic` (gym 0.25) | trains | trains |
| `audio/urban_sounds`: train, predict | run | run |
| `dc_gan`, also with the inception score | run | run |
| `embedding_learning` | trains | trains |
| `house_prices` | runs | runs |
| `image_classification` with `--mode hybrid` and `imperative` | run | run |
| `image_classification --mode symbolic` | trains, then calls a method that Module lacks | the same |
| `lipnet`: main and its test | run | run |
| `lstm_crf` | runs | runs |
| `mnist` | runs | runs |
| `sn_gan` | runs | AutogradError |
| `style_transfer`: train, optim, eval | run | run |
| `super_resolution`: train, resolve | run | run |
| `tree_lstm` | runs | runs |
| `word_language_model`, also hybridized and exported | run | run |

`sn_gan` overwrites a parameter that its recorded loss has read, before `backward()`. MXNet computes the gradient with
the new value; here such a write is an error.

Of the other folders these run in both: `image-classification/train_cifar10.py`, `module/mnist_mlp.py`, `multi-task`,
`numpy-ops/custom_softmax.py` and `weighted_logistic_regression.py`, `profiler/profiler_ndarray.py`,
`rnn/bucketing/lstm_bucketing.py`, `sparse/factorization_machine`, `linear_classification` and `matrix_factorization`,
`stochastic-depth/sd_mnist.py` and `svrg_module/api_usage_example/example_inference.py`. In both,
`module/python_loss.py`, `module/sequential_module.py`, `rnn/word_lm` and `profiler/profiler_matmul.py` ask for a GPU,
and `profiler/profiler_executor.py` needs the package `memonger`. `restricted-boltzmann-machine/binary_rbm_gluon.py`
raises the error of `sn_gan` here. `dsd/mlp.py` raises an error here, because its optimizer takes the names of
parameters for numbers; in MXNet its two contexts never call that optimizer, and nothing is trained.
`numpy-ops/custom_sparse_sqr.py` runs here and raises an error of its own operator in MXNet. Other examples need data,
packages or a GPU, or were not run.

## Names

"""
#: Module, or start of a module's name -> why names are absent in it.
REASONS = {
    "contrib.onnx": "other names of the functions without the underscore",
    "numpy_extension.image": "use `gluon.data.vision.transforms` and `mx.image`",
    "contrib.quantization": "there are no int8 networks",
    "gluon.loss": "a class of `gluon` that the module only imports",
}
#: A name in any module -> why it is absent.
REASONS_OF_NAMES = {
    "check_call": "a call of MXNet's C library",
    "TVM": "not usable on a CPU build of MXNet",
    "rtc": "compiles CUDA source; use `autograd.Function`",
    "tvmop": "operators of TVM",
    "kvstore_server": "workers sum gradients without servers",
    "contrib": "",
    "load_lib": "libraries with MXNet's C interface",
    "library": "libraries with MXNet's C interface",
}
NOT_YET = "not done"


def module_of(name: str) -> ModuleType | None:
    """The module for one of MXNet's, or None."""
    try:
        return importlib.import_module("mxnet" if name == "mx" else f"mxnet.{name}")
    except ImportError:
        parent = importlib.import_module("mxnet")
        for part in name.split("."):
            parent = getattr(parent, part, None)
        return parent


def reason(module: str, name: str) -> str:
    """Why a name is absent."""
    given = REASONS_OF_NAMES.get(name)
    if given is None:
        given = next((text for start, text in REASONS.items() if module.startswith(start)), None)
    return given or NOT_YET


def page() -> str:
    """The text of the page."""
    compat.install()
    names: dict[str, list[str]] = json.loads(NAMES.read_text(encoding="utf-8"))
    rows, sections, here_in_all, all_names = [], [], 0, 0
    for module, known in names.items():
        place = module_of(module)
        absent = [name for name in known if place is None or not hasattr(place, name)]
        here_in_all, all_names = here_in_all + len(known) - len(absent), all_names + len(known)
        title = module if module == "mx" else f"mx.{module}"
        rows.append(f"| `{title}` | {len(known) - len(absent)} | {len(known)} |")
        by_reason: dict[str, list[str]] = {}
        for name in absent:
            by_reason.setdefault(reason(module, name), []).append(name)
        if absent:
            sections.append(f"**`{title}`**\n")
            sections += [f"- {why}: " + ", ".join(f"`{each}`" for each in absent) for why, absent in by_reason.items()]
            sections.append("")
    total = f"{here_in_all} of {all_names} names are here.\n"
    table = "| module | here | MXNet |\n|---|---|---|\n" + "\n".join(rows)
    return HEAD + total + "\n" + table + "\n\n## Absent names\n\n" + "\n".join(sections).rstrip() + "\n"


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv:
        up_to_date = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        sys.exit(None if up_to_date else "docs/coverage.md is not up to date: run scripts/write_coverage_doc.py")
    PAGE.write_text(text, encoding="utf-8")
