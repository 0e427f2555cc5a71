import numpy as np

import tensorc_dsl as td

task = td.load("total.tsched")["any"]
kernel = task.replay(task.sample(0))
try:
    kernel(np.ones(2**20), np.ones(2**20), np.ones(2**19))
except MemoryError as e:
    print(e)
