from hybrid_lab.symbol.attribute import *
