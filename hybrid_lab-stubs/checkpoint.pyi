from hybrid_lab.formats.checkpoint import *
