"""PaddleRec's files become jobs of ours; what cannot be honoured is refused or noted by its key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticctr.compat.paddlerec.translation import Translation, translate
from elasticctr.config import parse_settings
from elasticctr.errors import ConfigError
from elasticctr.train.job import Job

SLOTS = "click " + " ".join(str(i) for i in range(1, 27))


def version1(**runner: Any) -> dict[str, Any]:
    return {
        "workspace": "./",
        "mode": ["ps_cluster"],
        "runner": [
            {
                "name": "ps_cluster",
                "class": "cluster_train",
                "epochs": 4,
                "device": "cpu",
                "fleet_mode": "ps",
                "distribute_strategy": "async",
                "save_checkpoint_interval": 2,
                "save_checkpoint_path": "increment_dnn",
                "init_model_path": "",
                "print_interval": 10,
                "phases": ["phase1"],
            }
            | runner
        ],
        "dataset": [
            {
                "name": "dataloader_train",
                "batch_size": 2,
                "type": "DataLoader",
                "data_path": "{workspace}/train_data",
                "sparse_slots": SLOTS,
                "dense_slots": "dense_var:13",
            }
        ],
        "phase": [
            {"name": "phase1", "model": "{workspace}/model.py", "dataset_name": "dataloader_train", "thread_num": 1}
        ],
    }


def version2(**runner: Any) -> dict[str, Any]:
    return {
        "runner": {
            "train_data_dir": "/mnt/criteo/slot_train_data_full",
            "train_reader_path": "criteo_reader",
            "use_gpu": False,
            "use_auc": True,
            "train_batch_size": 4096,
            "epochs": 4,
            "print_interval": 10,
            "model_save_path": "/mnt/model",
            "test_data_dir": "/mnt/criteo/slot_test_data_full",
            "infer_reader_path": "criteo_reader",
            "infer_batch_size": 4096,
            "infer_load_path": "/mnt/model",
            "infer_start_epoch": 0,
            "infer_end_epoch": 4,
            "use_inference": True,
            "save_inference_feed_varnames": ["C1", "dense_input"],
            "save_inference_fetch_varnames": ["sigmoid_0.tmp_0"],
        }
        | runner,
        "hyper_parameters": {
            "optimizer": {"class": "Adam", "learning_rate": 0.001, "strategy": "async"},
            "sparse_inputs_slots": 27,
            "sparse_feature_number": 1000001,
            "sparse_feature_dim": 9,
            "dense_input_dim": 13,
            "fc_sizes": [512, 256, 128, 32],
            "distributed_embedding": 0,
        },
    }


def translated(
    folder: Path, values: dict[str, Any], *overrides: str, name: str = "wide_deep_config.yaml"
) -> Translation:
    path = folder / name
    path.write_text(yaml.safe_dump(values))
    return translate(path, overrides)


def job_of(translation: Translation, index: int = 0) -> Job:
    return parse_settings(Job, translation.steps[index].job, "job")


def test_a_file_of_2x(tmp_path: Path) -> None:
    found = translated(tmp_path, version2())
    job = job_of(found)
    assert job.run_dir == "/mnt/model" and job.model.name == "wide_deep"
    assert job.model.options == {"dim": 9, "hidden": [512, 256, 128, 32]}
    assert job.data.train.path == "/mnt/criteo/slot_train_data_full"
    assert job.data.valid is not None and job.data.valid.path == "/mnt/criteo/slot_test_data_full"
    assert (job.train.batch_size, job.train.epochs, job.train.log_every) == (4096, 4, 10)
    assert job.train.keep_checkpoints == 4 and job.cluster is None
    assert [slot.name for slot in job.samples.sparse] == [str(i) for i in range(1, 27)]
    assert [(slot.name, slot.dim) for slot in job.samples.dense] == [("dense_feature", 13)]
    assert job.sparse.optimizer.learning_rate == job.dense.learning_rate == 0.001
    assert found.steps[0].epochs == (0, 4)
    noted = {note.key for note in found.notes}
    assert {"runner.use_inference", "runner.save_inference_feed_varnames"} < noted
    assert {"hyper_parameters.sparse_feature_number"} < noted


def test_paths_of_2x_are_relative_to_the_file(tmp_path: Path) -> None:
    job = job_of(translated(tmp_path, version2(train_data_dir="data/train", model_save_path="out")))
    assert job.data.train.path == str(tmp_path / "data/train") and job.run_dir == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("runner", "strategy"),
    [
        ({"use_fleet": True}, "async"),
        ({"use_fleet": True, "sync_mode": "sync"}, "sync"),
        ({"use_fleet": True, "sync_mode": "geo", "geo_step": 300}, "geo"),
        ({"use_fleet": True, "use_gpu": True}, "collective"),
    ],
)
def test_processes_of_2x(tmp_path: Path, runner: dict[str, Any], strategy: str) -> None:
    job = job_of(translated(tmp_path, version2(**runner)))
    assert job.cluster is not None and job.cluster.strategy == strategy
    assert strategy != "geo" or job.cluster.every == 300


def test_a_file_of_1_8(tmp_path: Path) -> None:
    found = translated(tmp_path, version1(worker_num=3, server_num=2), "model=dnn")
    job = job_of(found)
    assert job.run_dir == "increment_dnn" and job.model.name == "dnn"
    assert job.cluster is not None
    assert (job.cluster.strategy, job.cluster.trainers, job.cluster.pservers) == ("async", 3, 2)
    assert (job.train.batch_size, job.train.epochs, job.train.log_every, job.train.threads) == (2, 4, 10, 1)
    assert job.data.train.path == "train_data" and job.samples.label == ("click",)
    assert [slot.name for slot in job.samples.sparse] == [str(i) for i in range(1, 27)]
    assert [(slot.name, slot.dim) for slot in job.samples.dense] == [("dense_var", 13)]


def test_the_workspace_names_the_model(tmp_path: Path) -> None:
    values = version1() | {"workspace": "paddlerec.models.rank.dnn"}
    with pytest.raises(ConfigError, match=r"data_path.*paddlerec\.models\.rank\.dnn, which is not installed"):
        translated(tmp_path, values)
    values["dataset"][0]["data_path"] = "/data/train"
    assert job_of(translated(tmp_path, values)).model.name == "dnn"


def test_modes_run_in_their_order(tmp_path: Path) -> None:
    values = version1() | {"mode": ["train1", "infer1"]}
    first = values["runner"][0]
    values["runner"] = [
        {"name": "infer1", "class": "infer", "init_model_path": "increment_dnn", "phases": ["phase1"]},
        first | {"name": "train1", "class": "train"},
    ]
    steps = translated(tmp_path, values, "model=dnn").steps
    assert [(step.name, step.kind) for step in steps] == [("train1", "train"), ("infer1", "evaluate")]
    assert steps[1].job["run_dir"] == steps[0].job["run_dir"]


def test_collective_of_1_8(tmp_path: Path) -> None:
    values = version1(device="gpu", fleet_mode="collective", selected_gpus="0,1")
    cluster = job_of(translated(tmp_path, values, "model=dnn")).cluster
    assert cluster is not None and (cluster.strategy, cluster.trainers) == ("collective", 2)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (version1(distribute_strategy="asycn"), r"distribute_strategy: 'asycn'.*did you mean 'async'"),
        (version1(clas="train"), r"runner\[0\].clas: is not a key.*did you mean 'class'"),
        (version1(phases=["phase2"]), r"phases: there is no phase 'phase2'; there are phase1"),
        (version1(init_model_path="old"), r"init_model_path: a model saved by Paddle cannot be loaded"),
        (version1(epochs="many"), r"epochs: expected a whole number"),
        (version1() | {"mode": ["train"]}, r"mode: there is no runner 'train'; there are ps_cluster"),
        (version1() | {"mode": []}, r"mode: is required"),
        (version2(train_reader_path="my_reader"), r"train_reader_path: 'my_reader' is a Python reader"),
        (version2(train_batchsize=3), r"runner.train_batchsize: is not a key.*'train_batch_size'"),
        (version2(sync_mode="gpubox", use_fleet=True), r"sync_mode: there is no 'gpubox' here"),
        (version2(train_data_dir=None), r"runner.train_data_dir: is required"),
        ({"train": {}}, r"is no PaddleRec configuration: no runner"),
        ({"runner": {}, "hyper_parameters": {"optimizer": {"class": "Adma"}}}, r"'Adma'.*did you mean 'Adam'"),
    ],
)
def test_mistakes_are_named_by_their_key(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        translated(tmp_path, values, "model=dnn")


def test_a_network_of_paddle_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "my_own_net"
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"A model\.py written for Paddle cannot run here.*-o model=NAME"):
        translated(folder, version1(), name="config.yaml")
    with pytest.raises(ConfigError, match="the nearest is deepfm"):
        translated(folder, version1(), "model=deep_fm2", name="config.yaml")


def test_keys_of_a_users_own_are_noted(tmp_path: Path) -> None:
    values = version2()
    values["hyper_parameters"]["reg_v2"] = 0.1
    assert "hyper_parameters.reg_v2" in {note.key for note in translated(tmp_path, values).notes}
