"""What training data is read from: iterators, image files and their augmentation, RecordIO.

Users have them without the name of this folder, as `mx.io` and `hybrid_lab.io`; see `hybrid_lab.aliases`. Datasets and
loaders of Gluon are in `hybrid_lab.gluon.data`.
"""
