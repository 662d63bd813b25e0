"""`elasticctr data` as users call it, in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from elasticctr.cli.app import app
from elasticctr.data.schema import Schema


def run(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    status, out, _ = run(
        "data", "synth", folder / "log", "--rows", 2000, "--slots", 3, "--dense", 2, "--cardinality", 50, "--json"
    )
    assert status == 0 and json.loads(out)["rows"] == 2000
    return folder / "log"


def test_synth_inspect_convert(made: Path, tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    status, out, _ = run("data", "inspect", made / "part-00000.txt", "--out", schema, "--json")
    found = json.loads(out)
    truth = json.loads((made / "truth.json").read_text())
    assert status == 0 and found["rows"] == 2000 and found["format"] == "slot"
    assert found["labels"][0]["mean"] == pytest.approx(truth["ctr"])
    assert Schema.model_validate(yaml.safe_load(schema.read_text())) == Schema.model_validate(
        yaml.safe_load((made / "schema.yaml").read_text())
    )
    assert all(isinstance(v["value"], str) for slot in found["sparse"] for v in slot["top"])
    status, out, _ = run(
        "data", "convert", made / "part-00000.txt", tmp_path / "x.parquet", "--schema", schema, "--json"
    )
    assert status == 0 and json.loads(out)["rows"] == 2000
    status, out, _ = run("data", "inspect", tmp_path / "x.parquet", "--schema", tmp_path / "x.schema.yaml", "--json")
    again = json.loads(out)
    for key in ("rows", "labels", "sparse", "dense"):
        assert again[key] == found[key], key


def test_a_folder_that_synth_made_can_be_read_whole(made: Path) -> None:
    status, out, _ = run("data", "inspect", made, "--json")
    found = json.loads(out)
    assert (status, found["rows"], found["bad"]) == (0, 2000, 0)
    assert [Path(f).name for f in found["files"]] == ["part-00000.txt"]


def test_plain_output_is_for_people(made: Path) -> None:
    status, out, _ = run("data", "inspect", made / "part-00000.txt", "--rows", 100)
    assert status == 0
    assert "samples" in out and "# Sparse slots" in out and "kind: dense" in out
    status, out, _ = run("data", "convert", made / "part-00000.txt", made.parent / "y.csv")
    assert status == 0 and "2,000 samples" in out


def test_a_cache_is_a_location(made: Path, tmp_path: Path) -> None:
    command = ("data", "cache", made / "part-00000.txt", tmp_path / "c", "--schema", made / "schema.yaml", "--json")
    status, out, _ = run(*command)
    assert (status, json.loads(out)["samples"]) == (0, 2000)
    status, out, _ = run(*command)
    assert (status, json.loads(out)["error"]["code"]) == (13, "AlreadyExists")
    assert run(*command, "--overwrite")[0] == 0
    direct = json.loads(run("data", "inspect", made / "part-00000.txt", "--schema", made / "schema.yaml", "--json")[1])
    cached = json.loads(run("data", "inspect", tmp_path / "c", "--json")[1])
    for key in ("rows", "labels", "sparse", "dense"):
        assert cached[key] == direct[key], key
    other = tmp_path / "other.yaml"
    other.write_text("slots: [{kind: sparse, name: '1'}]\n")
    status, out, _ = run("data", "inspect", tmp_path / "c", "--schema", other, "--json")
    assert (status, json.loads(out)["error"]["code"]) == (15, "FailedPrecondition")
    assert run("data", "convert", tmp_path / "c", tmp_path / "x.txt", "--to", "slot")[0] == 0
    assert (tmp_path / "x.txt").read_bytes() == (made / "part-00000.txt").read_bytes()


def test_date_tree(tmp_path: Path) -> None:
    base = ("data", "synth", tmp_path, "--rows", 600, "--slots", 2, "--dense", 0, "--cardinality", 9)
    assert run(*base, "--dates", "20260101..20260102", "--hours")[0] == 0
    status, out, _ = run(
        "data", "inspect", f"{tmp_path}/{{date}}/{{hour}}", "--start", "20260102/00", "--end", "20260102/23", "--json"
    )
    assert (status, json.loads(out)["rows"]) == (0, 300)


@pytest.mark.parametrize(
    ("args", "status", "code"),
    [
        (("data", "inspect", "absent.txt"), 12, "NotFound"),
        (("data", "inspect", "{empty_folder}"), 12, "NotFound"),
        (("data", "inspect", "{empty_file}"), 11, "DataError"),
        (("data", "inspect", "{garbage}"), 11, "DataError"),
        (("data", "inspect", "{label2}", "--schema", "{schema}"), 11, "DataError"),
        (("data", "inspect", "{good}", "--schema", "absent.yaml"), 12, "NotFound"),
        (("data", "inspect", "{good}", "--schema", "{badschema}"), 10, "ConfigError"),
        (("data", "inspect", "{good}", "--start", "20260101"), 10, "ConfigError"),
        (("data", "inspect", "{good}", "--out", "{good}"), 13, "AlreadyExists"),
        (("data", "convert", "{good}", "{good}", "--to", "csv"), 13, "AlreadyExists"),
        (("data", "convert", "{good}", "{new}", "--to", "criteo"), 10, "ConfigError"),
        (("data", "convert", "{label2}", "{new}", "--to", "csv", "--schema", "{schema}"), 11, "DataError"),
        (("data", "synth", "{new}", "--ctr", "2"), 10, "ConfigError"),
        (("data", "synth", "{new}", "--shape", "cirteo"), 10, "ConfigError"),
        (("data", "synth", "{new}", "--hours"), 10, "ConfigError"),
        (("data", "synth", "{new}", "--dates", "2026..2025"), 10, "ConfigError"),
        (("data", "synth", "{new}", "--format", "feasign"), 10, "ConfigError"),
        (("data", "synth", "{good}"), 10, "ConfigError"),
        (("data", "synth", "{new}", "--rowz", "5"), 2, "UsageError"),
        (("data", "synth", "{new}", "--rows", "many"), 2, "UsageError"),
        (("data", "inspect"), 2, "UsageError"),
        (("data", "nothing"), 2, "UsageError"),
        (("dta",), 2, "UsageError"),
    ],
    ids=lambda value: " ".join(value[1:]) if isinstance(value, tuple) else None,
)
def test_wrong_input_is_a_typed_error(tmp_path: Path, args: tuple[str, ...], status: int, code: str) -> None:
    names = {name: str(tmp_path / name) for name in ("empty_folder", "empty_file", "garbage", "label2", "good", "new")}
    names |= {"schema": str(tmp_path / "schema.yaml"), "badschema": str(tmp_path / "bad.yaml")}
    (tmp_path / "empty_folder").mkdir()
    (tmp_path / "empty_file").touch()
    (tmp_path / "garbage").write_bytes(bytes(range(256)) * 100)
    (tmp_path / "label2").write_text("click:2 1:5\n")
    (tmp_path / "good").write_text("click:1 1:5\nclick:0 1:6\n")
    (tmp_path / "schema.yaml").write_text("slots: [{kind: sparse, name: '1'}]\n")
    (tmp_path / "bad.yaml").write_text("slotz: []\n")
    before = sorted(tmp_path.rglob("*"))
    filled = [arg.format(**names) if arg.startswith("{") else arg for arg in args]
    got, out, err = run(*filled)
    assert got == status
    assert "Traceback" not in out + err and (code in err or status == 2)
    got, out, _ = run(*filled, "--json")
    error = json.loads(out)["error"]
    assert (got, error["code"]) == (status, code) and error["message"]
    assert sorted(tmp_path.rglob("*")) == before


def test_every_data_command_shows_an_example() -> None:
    for command in ("inspect", "convert", "synth", "cache"):
        status, out, _ = run("data", command, "--help")
        assert status == 0 and "Example" in out and "--json" in out, command
