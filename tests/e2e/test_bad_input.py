"""Every user error ends in one clear line and the right exit status, with no partial output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Run, answer, assert_clean_failure

CONFIG, DATA, NOT_FOUND, EXISTS, CORRUPT, PRECONDITION, INTERNAL = 10, 11, 12, 13, 14, 15, 19


def test_unknown_key(invoke: Run, job: Path) -> None:
    done = invoke("train", job, "--set", "train.epoch=3")
    assert_clean_failure(done, CONFIG, "train.epoch", "did you mean 'epochs'")


def test_unknown_model(invoke: Run, job: Path) -> None:
    assert_clean_failure(invoke("train", job, "--set", "model.name=deepfn"), CONFIG, "deepfm")


def test_unknown_model_setting(invoke: Run, job: Path) -> None:
    assert_clean_failure(invoke("train", job, "--set", "model.hiden=[1]"), CONFIG, "did you mean 'hidden'")


def test_missing_job_and_data(invoke: Run, job: Path, tmp_path: Path) -> None:
    assert_clean_failure(invoke("train", tmp_path / "absent.yaml"), NOT_FOUND, "absent.yaml")
    done = invoke("train", job, "--set", f"data.train.path={tmp_path}/nothing.txt")
    assert_clean_failure(done, NOT_FOUND, "nothing.txt")


def test_empty_directory(invoke: Run, job: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = invoke("train", job, "--set", f"data.train.path={tmp_path}/empty")
    assert_clean_failure(done, NOT_FOUND, "empty")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x00\xff\x13garbage\x80" * 5000, ()),
        (b"click:2 1:5\n" * 100, (":1:", "label")),
        (b"click:1 dense_feature:nan 1:5\n" * 100, (":1:",)),
        (b"click:1 1:18446744073709551616\n" * 100, (":1:", "18446744073709551616")),
        (b"this is not a slot log\n" * 100, (":1:",)),
        (b"", ()),
    ],
    ids=["binary", "label-2", "nan", "over-64-bits", "wrong-format", "empty"],
)
def test_bad_samples(invoke: Run, job: Path, tmp_path: Path, content: bytes, words: tuple[str, ...]) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(content)
    done = invoke("train", job, "--set", f"data.train.path={bad}", "--set", "data.train.fraction=[0.0,1.0]")
    assert_clean_failure(done, DATA, "bad.txt", *words)


def test_a_huge_line_is_a_bad_line(invoke: Run, job: Path, log: Path, tmp_path: Path) -> None:
    huge = tmp_path / "huge.txt"
    good = next(log.glob("part-*")).read_bytes()
    with huge.open("wb") as f:
        f.write(good)
        for _ in range(64):
            f.write(b"1:5 " * (1 << 18))
        f.write(b"\n" + good)
    settings = ("--set", f"data.train.path={huge}", "--set", "data.train.fraction=[0.0,1.0]", "--set", "train.epochs=1")
    assert answer(invoke("train", job, *settings, "--json"))["samples"] == 10000
    assert_clean_failure(
        invoke("train", job, *settings, "--set", "data.train.on_bad=fail", "--run-dir", tmp_path / "strict"),
        DATA,
        "huge.txt:5001",
    )


def test_a_used_run_directory_is_not_overwritten(invoke: Run, job: Path) -> None:
    answer(invoke("train", job, "--set", "train.steps=3", "--json"))
    assert_clean_failure(invoke("train", job), EXISTS, "--resume")


def test_resume_without_a_checkpoint(invoke: Run, job: Path) -> None:
    assert_clean_failure(invoke("train", job, "--resume"), NOT_FOUND, "checkpoint")


def test_another_width_than_the_checkpoints(invoke: Run, job: Path) -> None:
    answer(invoke("train", job, "--set", "train.steps=3", "--json"))
    done = invoke("train", job, "--resume", "--set", "model.dim=8")
    assert_clean_failure(done, PRECONDITION, "dim")


@pytest.mark.parametrize("file", ["dense.pt", "main.table", "trainer.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate"])
def test_damaged_checkpoint(invoke: Run, trained: Path, file: str, damage: str) -> None:
    victim = next(trained.glob("checkpoints/step-*")) / file
    original = victim.read_bytes()
    if damage == "flip":
        damaged = bytearray(original)
        damaged[len(damaged) // 2] ^= 0x10
    else:
        damaged = bytearray(original[: len(original) // 2])
    victim.write_bytes(damaged)
    try:
        done = invoke("eval", trained)
        assert done.returncode in (CORRUPT, PRECONDITION), done.stderr
        assert "Traceback" not in done.stderr and str(victim.parent) in done.stderr
    finally:
        victim.write_bytes(original)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, invoke: Run, log: Path) -> Path:
    import yaml

    folder = tmp_path_factory.mktemp("trained")
    settings = {
        "run_dir": str(folder / "run"),
        "schema": str(log / "schema.yaml"),
        "data": {"train": str(log / "part-*"), "valid": str(log / "part-*")},
        "model": {"name": "lr"},
        "train": {"steps": 3, "threads": 1},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(settings))
    answer(invoke("train", folder / "job.yaml", "--json"))
    return folder / "run"


def test_predict_into_a_directory_or_without_data(invoke: Run, trained: Path, tmp_path: Path) -> None:
    assert_clean_failure(invoke("predict", trained, "--out", tmp_path), CONFIG, "directory")
    done = invoke("predict", trained, "--out", tmp_path / "x.txt", "--data", tmp_path / "absent")
    assert_clean_failure(done, NOT_FOUND, "absent")
    assert not (tmp_path / "x.txt").exists()


def test_errors_as_json(invoke: Run, tmp_path: Path) -> None:
    import json

    done = invoke("train", tmp_path / "absent.yaml", "--json")
    assert done.returncode == NOT_FOUND
    assert json.loads(done.stdout)["error"]["code"] == "NotFound"


def test_a_demo_or_a_run_where_a_file_is(invoke: Run, job: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert_clean_failure(invoke("demo", "--out", file), CONFIG, "is a file")
    assert_clean_failure(invoke("demo", "--out", file / "below"), CONFIG, "cannot be made")
    assert_clean_failure(invoke("train", job, "--run-dir", file), CONFIG, "a file is where a directory belongs")
    assert file.read_text() == "mine"
