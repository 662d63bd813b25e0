"""A PaddleRec file and the job file that says the same give the same figures, to the last digit."""

from __future__ import annotations

import random
from pathlib import Path

import yaml

from tests.e2e.conftest import Run, answer, assert_clean_failure


def write_log(path: Path, samples: int, seed: int) -> None:
    made = random.Random(seed)
    path.parent.mkdir()
    lines = []
    for _ in range(samples):
        value = made.randrange(10)
        dense = " ".join(f"dense_feature:{made.random():.3f}" for _ in range(2))
        lines.append(f"click:{int(made.random() < value / 12)} {dense} 1:{value} 2:{made.randrange(50)}\n")
    path.write_text("".join(lines))


def test_a_file_of_2x_trains_as_the_job_it_stands_for(invoke: Run, tmp_path: Path) -> None:
    write_log(tmp_path / "train" / "part-0", 2000, 1)
    write_log(tmp_path / "test" / "part-0", 500, 2)
    config = {
        "runner": {"train_data_dir": "train", "train_reader_path": "criteo_reader", "train_batch_size": 64, "epochs": 3,
                   "model_save_path": "out", "test_data_dir": "test", "infer_reader_path": "criteo_reader",
                   "infer_start_epoch": 1, "infer_end_epoch": 3, "use_auc": True},
        "hyper_parameters": {"optimizer": {"class": "Adam", "learning_rate": 0.01}, "sparse_inputs_slots": 3,
                             "sparse_feature_dim": 4, "dense_input_dim": 2, "fc_sizes": [16, 8]},
    }  # fmt: skip
    file = tmp_path / "dnn_config.yaml"
    file.write_text(yaml.safe_dump(config))
    job = answer(invoke("run", "-m", file, "--explain", "--json"))["steps"][0]["job"]
    result = answer(invoke("run", "-m", file, "--json"))
    step = result["steps"][0]
    assert step["finished"] and set(step["epochs"]) == {"1", "2"}
    assert {note["key"] for note in result["notes"]} == {"runner.use_auc"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job | {"run_dir": str(tmp_path / "own")}))
    own = answer(invoke("train", tmp_path / "job.yaml", "--json"))
    assert own["metrics"] == step["metrics"]
    # The run is there already, as `train` has it.
    assert_clean_failure(invoke("run", "-m", file), 13, "--resume", "model_save_path")
