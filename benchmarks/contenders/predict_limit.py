"""ONNX Runtime alone: predictions per second of one thread on prepared inputs. `GRAPH INPUTS.npz SECONDS`"""

from __future__ import annotations

import sys
import time

import numpy as np
import onnxruntime

graph, path, seconds = sys.argv[1:4]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
inputs = dict(np.load(path))
count = len(next(iter(inputs.values())))
for _ in range(5):
    session.run(["scores"], inputs)
runs, started = 0, time.perf_counter()
while (elapsed := time.perf_counter() - started) < float(seconds):
    session.run(["scores"], inputs)
    runs += 1
print(runs * count / elapsed)
