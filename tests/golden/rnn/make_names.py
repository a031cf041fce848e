"""Write names.json: the names that MXNet 1.9.1 gives to the nodes of unrolled recurrent cells."""

import json
import warnings
from pathlib import Path

import mxnet as mx
from cell_cases import gluon_cells, names_of, symbol_cells

warnings.simplefilter("ignore")
NAMES = {
    kind: {case: names_of(mx, *cell) for case, cell in cells(mx).items()}
    for kind, cells in (("gluon", gluon_cells), ("symbol", symbol_cells))
}
Path(__file__).with_name("names.json").write_text(json.dumps(NAMES, indent=1) + "\n", encoding="utf-8")
