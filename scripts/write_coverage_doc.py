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

`python scripts/gluoncv_models.py gluoncv-0.10.5.post0-py2.py3-none-any.whl --mxnet .oracle/bin/python` runs GluonCV's
model zoo unchanged, through `hybrid_lab.compat` with NumPy 2, and beside it in the real MXNet 1.9.1 with the same
weights and inputs. A second run does only what is missing, `--table` prints the results that are there. GluonCV uses
`np.float` and `np.int`, which NumPy removed; the script sets them.

By an earlier count 263 of the 332 models run in the real MXNet without downloads. On 2026-11-28, 29 of them had been
run, most families of classifiers among them:

| models | built, eager | hybrid equals eager, saved, reloaded | equal MXNet within 1e-4 |
|---|---|---|---|
| 29 | 29 | 29 | 29; 26 of them within 2e-6 |

The 29 are AlexNet, DenseNet, GoogLeNet, Inception v3, Xception, VGG (2), ResNet (3), ResNeSt (3), SE-ResNet (3),
ShuffleNet (2), SqueezeNet, MobileNet v2 and v3, the CIFAR networks (3), a pose network, FCN and SSD (3). One of them,
`ssd_300_mobilenet0.25_voc`, amplifies rounding: its random weights give boxes `exp(x)` of up to 1e32, which change by
5.9e-4 when the images change by two roundings. There hybrid differs from eager by 4.4e-4, and MXNet by 5.1e-4; the
features before the boxes differ by at most 7e-7. The script allows ten times what a model amplifies and counts such
models. The other 234 have not been run yet.

Networks in 8 bits: 7 of GluonCV's 22 need no download. Their files are made of `_sg_mkldnn_conv`, which is an
operator here, and `_contrib_quantized_pooling`. On unsigned data without overflows both equal MXNet bit for bit.
MXNet's own results depend on the processor there: without VNNI, oneDNN adds products in 16 bits, which overflow, and
halves the weights for signed data.

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
    "kvstore_server": "there is no distributed training",
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
