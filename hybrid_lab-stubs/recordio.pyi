from hybrid_lab.data.recordio import *
