from hybrid_lab.data.io import *
