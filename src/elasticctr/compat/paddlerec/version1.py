"""PaddleRec 1.8: named runners, datasets and phases; `mode` says which runners run, in which order."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from elasticctr.compat.paddlerec.models import find_model, finish_parameters, model_settings, optimizer_settings
from elasticctr.compat.paddlerec.sections import Section
from elasticctr.compat.paddlerec.translation import PlannedRun, read_strategy, slot_schema

_WORKSPACE = "{workspace}"
_LABELS = ("click", "label")
_PLUGIN = "the stages of a run cannot be replaced here; models and readers can"
_PUBLISHING = "`elasticctr publish` writes the graph and the rows of any run"
_STEPS = "set train.checkpoint_every of a job file for checkpoints within an epoch"
_IGNORED = {
    "save_inference_interval": _PUBLISHING,
    "save_inference_path": _PUBLISHING,
    "save_inference_feed_varnames": _PUBLISHING,
    "save_inference_fetch_varnames": _PUBLISHING,
    "save_step_interval": _STEPS,
    "save_step_path": _STEPS,
    "instance_class_path": _PLUGIN,
    "network_class_path": _PLUGIN,
    "startup_class_path": _PLUGIN,
    "runner_class_path": _PLUGIN,
    "terminal_class_path": _PLUGIN,
    "trainer_class": _PLUGIN,
    "runner_result_dump_path": "metrics.json of the run has the results",
}


def translate_version1(file: Section, path: Path, model: str) -> list[PlannedRun]:
    workspace = file.text("workspace", "./")
    runners, datasets, phases = file.sections("runner"), file.sections("dataset"), file.sections("phase")
    modes = file.names("mode")
    file.ignore({"debug": "events.jsonl and report.html of the run show where the time goes"})
    if not modes:
        raise file.error("mode", f"is required: which of the runners to run: {', '.join(runners)}")
    parameters = file.section("hyper_parameters")
    sections, inner_strategy = optimizer_settings(parameters)
    steps = []
    for mode in modes:
        if mode not in runners:
            raise file.error("mode", f"there is no runner {mode!r}; there are {', '.join(runners) or 'none'}")
        runner = runners[mode]
        phase = _one_phase(runner, phases)
        dataset_name = phase.text("dataset_name")
        if dataset_name not in datasets:
            raise phase.error("dataset_name", f"there is no dataset {dataset_name!r}; there are {', '.join(datasets)}")
        name = find_model(model, [phase.text("model"), workspace, str(path.resolve().parent)], str(path))
        data, schema, batch_size = _read_dataset(datasets[dataset_name], workspace)
        job = {"schema": schema, "model": model_settings(name, parameters), **sections}
        steps.append(_read_runner(runner, phase, job, data, batch_size, inner_strategy))
    finish_parameters(parameters)
    return steps


def _read_runner(
    runner: Section, phase: Section, job: dict[str, Any], data: dict[str, Any], batch_size: int, inner_strategy: str
) -> PlannedRun:
    kinds = ("train", "infer", "local_cluster_train", "cluster_train")
    kind = runner.choice("class", kinds, "train")
    runner.ignore(_IGNORED)
    epochs = max(runner.integer("epochs", 1), 1)
    saved = runner.text("save_checkpoint_path", "checkpoints")
    start = runner.text("init_model_path") or runner.text("init_pretraining_model_path")
    device = runner.choice("device", ("cpu", "gpu"), "cpu")
    interval = max(runner.integer("save_checkpoint_interval", 1), 1)
    log_every = max(runner.integer("print_interval", 100), 1)
    gpus = [gpu for gpu in runner.text("selected_gpus", "0").replace(",", " ").split() if gpu]
    fleet = runner.choice("fleet_mode", ("ps", "pslib", "collective"), "ps")
    strategy = runner.text("distribute_strategy") or inner_strategy
    workers, servers = runner.integer("worker_num", 1), runner.integer("server_num", 1)
    threads = phase.integer("thread_num", 0)
    runner.finish()
    phase.finish()
    if kind == "infer":
        return PlannedRun(runner.text("name"), "evaluate", {**job, "run_dir": start or saved, "data": {"train": data}})
    if start:
        raise runner.error("init_model_path", "a model saved by Paddle cannot be loaded here; leave it empty")
    train: dict[str, Any] = {"batch_size": batch_size, "epochs": epochs, "log_every": log_every}
    train["keep_checkpoints"] = max(epochs // interval, 1)
    if threads:
        train["threads"] = threads
    job = {"run_dir": saved, **job, "data": {"train": data}, "train": train}
    if kind == "train" and len(gpus) < 2:
        if device == "gpu":
            train["device"] = "cuda"
    elif fleet == "collective" or (kind == "train" and device == "gpu"):
        job["cluster"] = {"strategy": "collective", "trainers": max(len(gpus), workers)}
    else:
        job["cluster"] = {
            "strategy": read_strategy(runner, "distribute_strategy", strategy),
            "trainers": max(workers, 1),
            "pservers": max(servers, 1),
        }
    return PlannedRun(runner.text("name"), "train", job)


def _one_phase(runner: Section, phases: dict[str, Section]) -> Section:
    names = runner.names("phases") or list(phases)
    if len(names) != 1:
        raise runner.error("phases", f"a runner here has one phase, not {len(names)}; give each a runner of its own")
    if names[0] not in phases:
        raise runner.error("phases", f"there is no phase {names[0]!r}; there are {', '.join(phases) or 'none'}")
    return phases[names[0]]


def _read_dataset(dataset: Section, workspace: str) -> tuple[dict[str, Any], dict[str, Any], int]:
    dataset.choice("type", ("DataLoader", "QueueDataset"), "DataLoader")
    given = dataset.text("data_path")
    if not given:
        raise dataset.error("data_path", "is required: the directory with the data")
    sparse = dataset.text("sparse_slots").split()
    if not sparse:
        what = "data_converter is a Python reader of yours" if dataset.has("data_converter") else "it is empty"
        raise dataset.error(
            "sparse_slots",
            f"{what}. Only slot text, described by sparse_slots and dense_slots, is translated: convert the data once "
            "(`elasticctr data convert`), or write a schema for it and use `elasticctr train`",
        )
    dataset.ignore({"data_converter": "slot text is parsed natively, as sparse_slots and dense_slots describe it"})
    label = next((name for name in _LABELS if name in sparse), sparse[0])
    dense = [_read_dense(dataset, one) for one in dataset.text("dense_slots").split()]
    schema = slot_schema(label, [name for name in sparse if name != label], dense)
    batch_size = dataset.integer("batch_size", 512)
    dataset.finish()
    return {"path": _in_workspace(dataset, given, workspace)}, schema, max(batch_size, 1)


def _read_dense(dataset: Section, text: str) -> tuple[str, int]:
    name, _, dims = text.partition(":")
    size = 1
    try:
        for dim in (dims or "1").split(","):
            size *= int(dim)
    except ValueError:
        size = 0
    if not name or not 0 < size <= 65536:
        raise dataset.error("dense_slots", f"{text!r} is not name:dimension, for example dense_var:13")
    return name, size


def _in_workspace(dataset: Section, given: str, workspace: str) -> str:
    if _WORKSPACE not in given:
        return given
    if not workspace.startswith("paddlerec."):
        return str(Path(given.replace(_WORKSPACE, workspace)))
    try:
        found = importlib.util.find_spec(workspace)
    except (ImportError, ValueError):
        found = None
    places = list(found.submodule_search_locations or []) if found else []
    if not places:
        raise dataset.error(
            "data_path",
            f"{given} is inside the package {workspace}, which is not installed here; set `workspace` to the "
            "directory that has the data",
        )
    return given.replace(_WORKSPACE, places[0])
