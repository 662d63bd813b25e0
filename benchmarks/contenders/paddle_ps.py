"""PaddlePaddle's own parameter server: Wide&Deep by Fleet in static graph mode, asynchronous, lazy Adam.

Run as a role, `python paddle_ps.py FOLDER BATCH`, with Fleet's environment variables (TRAINING_ROLE and others). A
trainer prints `ready` after its warm-up, waits for a line with seconds, trains for that long and prints its samples.
This release needs: one MKL thread per process and no OpenMP threads, an MKL that detects the CPU, no Gloo, and servers
that are killed, since they outlive their trainers.
"""

from __future__ import annotations

import json
import math
import sys
import time
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

WARM_UP_STEPS = 8

SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "FLAGS_paddle_num_threads": "1",
    "CPU_NUM": "1",
    "MKL_DEBUG_CPU_TYPE": "5",
    "PADDLE_WITH_GLOO": "0",
    "FLAGS_enable_pir_api": "0",
    "POD_IP": "127.0.0.1",
    "PYTHONPATH": "",
}


def role_environments(server_ports: list[int], trainer_ports: list[int]) -> tuple[list[dict[str, str]], ...]:
    """Environments of the servers and of the trainers."""
    servers = [f"127.0.0.1:{port}" for port in server_ports]
    trainers = [f"127.0.0.1:{port}" for port in trainer_ports]
    shared = SETTINGS | {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(servers),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(trainers),
        "PADDLE_TRAINERS_NUM": str(len(trainers)),
    }
    roles: list[list[dict[str, str]]] = []
    for name, ports in (("PSERVER", server_ports), ("TRAINER", trainer_ports)):
        roles.append(
            [
                shared
                | {
                    "TRAINING_ROLE": name,
                    "PADDLE_TRAINING_ROLE": name,
                    "PADDLE_PORT": str(port),
                    "PADDLE_TRAINER_ID": str(number if name == "TRAINER" else 0),
                }
                for number, port in enumerate(ports)
            ]
        )
    return tuple(roles)


def build_loss() -> Any:
    import paddle
    from clicks import DENSE, DIM, LAYERS, SLOTS, TABLE
    from paddle import nn

    ids = [paddle.static.data(f"slot{s}", [None, 1], "int64") for s in range(SLOTS)]
    dense = paddle.static.data("dense", [None, DENSE], "float32")
    label = paddle.static.data("label", [None, 1], "float32")
    uniform = paddle.ParamAttr(name="rows", initializer=nn.initializer.Uniform(-0.05, 0.05))
    table = nn.Embedding(TABLE, DIM, sparse=True, weight_attr=uniform)
    rows = [paddle.reshape(table(one), [-1, DIM]) for one in ids]
    hidden = paddle.concat([*rows, dense], axis=1)
    widths = [SLOTS * DIM + DENSE, *LAYERS, 1]
    for number, (narrow, wide) in enumerate(pairwise(widths)):
        normal = paddle.ParamAttr(initializer=nn.initializer.Normal(std=1 / math.sqrt(narrow)))
        activation = "relu" if number < len(LAYERS) else None
        hidden = paddle.static.nn.fc(hidden, wide, activation=activation, weight_attr=normal)
    score = nn.functional.sigmoid(hidden + paddle.static.nn.fc(dense, 1))
    return paddle.mean(nn.functional.log_loss(score, label))


def main() -> None:
    import paddle
    from clicks import LEARNING_RATE, SLOTS, load
    from paddle.distributed import fleet

    paddle.enable_static()
    fleet.init(is_collective=False)
    loss = build_loss()
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    optimizer = paddle.optimizer.Adam(LEARNING_RATE, lazy_mode=True)
    fleet.distributed_optimizer(optimizer, strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    size = int(sys.argv[2])
    train, _ = load(Path(sys.argv[1]))
    feeds = [
        {f"slot{s}": part.ids[:, s : s + 1] for s in range(SLOTS)}
        | {"dense": part.dense, "label": part.labels[:, None]}
        for part in train.batches(size)
    ]
    program = paddle.static.default_main_program()
    stream = cycle(feeds)
    for _ in range(WARM_UP_STEPS):
        executor.run(program, feed=next(stream), fetch_list=[loss])
    print("ready", flush=True)
    seconds = float(sys.stdin.readline())
    samples, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        executor.run(program, feed=next(stream), fetch_list=[loss])
        samples += size
    print(json.dumps({"samples": samples, "seconds": time.perf_counter() - began}), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
