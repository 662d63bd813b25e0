"""PaddleRec 2.x: one `runner` section for training and evaluation, and `hyper_parameters`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticctr.compat.paddlerec.models import find_model, finish_parameters, model_settings, optimizer_settings
from elasticctr.compat.paddlerec.sections import Section
from elasticctr.compat.paddlerec.translation import PlannedRun, read_strategy, slot_schema

# Readers of PaddleRec's own CTR models: all read slot text with these names.
_READERS = ("criteo_reader", "queuedataset_reader", "")
_DENSE = "dense_feature"

_PUBLISHING = "`elasticctr publish` writes the graph and the rows of any run; feeds are the slots of the schema"
_IGNORED = {
    "use_auc": "AUC is always computed",
    "auc_num": "every label has its AUC",
    "use_inference": _PUBLISHING,
    "save_inference_feed_varnames": _PUBLISHING,
    "save_inference_fetch_varnames": _PUBLISHING,
    "use_visual": "the run's report.html has the plots",
    "reader_type": "all readers are one here",
    "split_file_list": "processes lease parts of the files",
    "dataset_debug": "`elasticctr data inspect` shows what is in the data",
    "need_train_dump": "`elasticctr predict` writes scores",
    "need_infer_dump": "`elasticctr predict` writes scores",
    "use_xpu": "there is no such device here",
    "use_npu": "there is no such device here",
}


def translate_version2(file: Section, path: Path, model: str) -> list[PlannedRun]:
    runner = file.section("runner")
    parameters = file.section("hyper_parameters")
    name = find_model(model, [path.resolve().parent.name, path.name], str(path))
    sections, inner_strategy = optimizer_settings(parameters)
    job: dict[str, Any] = {
        "run_dir": _place(path, runner.text("model_save_path", "output_model"), runner),
        "schema": _schema(runner, parameters),
        "data": {"train": {"path": _data(path, runner, "train_data_dir")}},
        "model": model_settings(name, parameters),
        **sections,
    }
    finish_parameters(parameters)
    epochs = max(runner.integer("epochs", 1), 1)
    train: dict[str, Any] = {"batch_size": runner.integer("train_batch_size", 512), "epochs": epochs}
    train["log_every"] = max(runner.integer("print_interval", 100), 1)
    train["keep_checkpoints"] = epochs  # a numbered snapshot per epoch
    train["seed"] = runner.integer("seed", 0)
    if (threads := runner.integer("thread_num", 0)) > 0:
        train["threads"] = threads
    if (workers := runner.integer("num_workers", 0)) > 0:
        job["data"]["train"]["workers"] = workers
    job["train"] = train
    evaluated = None
    if runner.has("test_data_dir"):
        job["data"]["valid"] = {"path": _data(path, runner, "test_data_dir")}
        train["eval_batch_size"] = runner.integer("infer_batch_size", 8192)
        evaluated = runner.integer("infer_start_epoch", 0), min(runner.integer("infer_end_epoch", epochs), epochs)
    _check_infer_path(runner)
    _add_processes(job, runner, inner_strategy)
    if runner.has("model_init_path"):
        raise runner.error("model_init_path", "a model saved by Paddle cannot be loaded here; leave it empty")
    runner.ignore(_IGNORED)
    runner.finish()
    return [PlannedRun("train", "train", job, evaluated)]


def _add_processes(job: dict[str, Any], runner: Section, inner_strategy: str) -> None:
    uses_gpu = runner.flag("use_gpu")
    mode = runner.text("sync_mode") or inner_strategy
    if mode in ("heter", "gpubox"):
        raise runner.error("sync_mode", f"there is no {mode!r} here; choose sync, async, half_async or geo")
    if not runner.flag("use_fleet"):
        if uses_gpu:
            job["train"]["device"] = "cuda"
        return
    if uses_gpu:
        job["cluster"] = {"strategy": "collective"}
        runner.note("use_gpu", "with use_fleet: ranks train by `collective`, on the GPU of each where there is one")
    else:
        job["cluster"] = {"strategy": read_strategy(runner, "sync_mode", mode)}
        if job["cluster"]["strategy"] == "geo":
            job["cluster"]["every"] = runner.integer("geo_step", 400)


def _schema(runner: Section, parameters: Section) -> dict[str, Any]:
    for key in ("train_reader_path", "infer_reader_path"):
        reader = runner.text(key)
        if reader.rpartition("/")[2].removesuffix(".py") not in _READERS:
            raise runner.error(
                key,
                f"{reader!r} is a Python reader of yours. Only slot text, as criteo_reader reads it, is translated: "
                "convert it once (`elasticctr data convert`), or write a schema for it and run `elasticctr train`",
            )
    runner.ignore({"pipe_command": "slot text is parsed natively, without a command in between"})
    # The label is counted among them.
    sparse = parameters.integer("sparse_inputs_slots", 27) - 1
    if sparse < 1:
        raise parameters.error("sparse_inputs_slots", "counts the label and the sparse slots, so it is at least 2")
    dim = parameters.integer("dense_input_dim", 0)
    return slot_schema("click", [str(i) for i in range(1, sparse + 1)], [(_DENSE, dim)] if dim else [])


def _check_infer_path(runner: Section) -> None:
    saved, loaded = runner.text("model_save_path", "output_model"), runner.text("infer_load_path")
    if loaded and loaded.rstrip("/") != saved.rstrip("/"):
        runner.note("infer_load_path", f"the checkpoints of this run are evaluated, which are in {saved}")


def _data(path: Path, runner: Section, key: str) -> str:
    given = runner.text(key)
    if not given:
        raise runner.error(key, "is required: the directory with the data")
    return _place(path, given, runner)


def _place(path: Path, given: str, runner: Section) -> str:
    """As PaddleRec has it: relative to the directory of the configuration file."""
    if "://" in given or Path(given).is_absolute():
        return given
    return str(path.resolve().parent / given)
