"""Writes files of records and their index with the real MXNet, beside this script."""

import numpy as np
from cases import records
from mxnet import recordio

plain = recordio.MXRecordIO("plain.rec", "w")
indexed = recordio.MXIndexedRecordIO("indexed.idx", "indexed.rec", "w")
for key, record in enumerate(records()):
    plain.write(record)
    indexed.write_idx(3 * key, record)
labelled = recordio.MXRecordIO("labelled.rec", "w")
for header in ((0, 4.5, 7, 0), (0, np.array([1.0, 2.5, -3.0]), 2**40, 1), (9, [0.5], 1, 2)):
    labelled.write(recordio.pack(recordio.IRHeader(*header), b"the image"))
for file in (plain, indexed, labelled):
    file.close()
