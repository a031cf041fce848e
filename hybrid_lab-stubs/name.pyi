from hybrid_lab.symbol.name import *
