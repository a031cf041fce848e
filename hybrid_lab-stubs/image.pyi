from hybrid_lab.data.image import *
