from hybrid_lab.distributed.kvstore import *
