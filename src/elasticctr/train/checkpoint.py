"""Checkpoints on disk: whole or absent, verified before they are believed, rotated.

`checkpoints/step-000001000/` holds `manifest.json` (written last), `trainer.json`, `dense.pt` and one file per table.
A checkpoint is written under a temporary name and renamed, so a killed process leaves nothing that looks like one.
docs/formats/checkpoint.md is the specification.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticctr.errors import Corruption, FailedPrecondition, InternalError, NotFound
from elasticctr.obs import console
from elasticctr.storage.atomic import write_atomic

FORMAT = 1
MANIFEST = "manifest.json"
BEST = "best.json"
LEDGER = "ledger.json"  # which chunks of an epoch are learned, in checkpoints of several processes
METRICS = "metrics.bin"
PART = "pserver.{shard}.json"
_PREFIX = "step-"
_TEMPORARY = ".writing-"
_TABLE_SUFFIX = ".table"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A verified checkpoint."""

    path: Path
    step: int
    trainer: dict[str, Any]

    @property
    def dense(self) -> Path:
        return self.path / "dense.pt"

    def table_parts(self, name: str) -> list[Path]:
        """The files that together hold a table: one, or one per pserver or rank that trained it."""
        whole = self.path / f"{name}{_TABLE_SUFFIX}"
        if whole.exists():
            return [whole]
        parts: list[Path] = []
        while (part := self.path / part_name(name, len(parts))).exists():
            parts.append(part)
        if not parts:
            raise FailedPrecondition(
                f"{self.path}: holds no table {name!r}; it was made with other slots or another model than this job's"
            )
        return parts


def part_name(table: str, shard: int) -> str:
    """The file of one shard's rows of a table."""
    return f"{table}.{shard}{_TABLE_SUFFIX}"


def write_checkpoint(directory: Path, step: int, trainer: dict[str, Any], write_files: Callable[[Path], None]) -> Path:
    """Makes the checkpoint of `step`; `write_files` writes dense.pt and the tables into the directory it is given."""
    final = directory / f"{_PREFIX}{step:012d}"
    with _replacing(directory, final) as temporary:
        write_files(temporary)
        (temporary / "trainer.json").write_text(json.dumps(trainer, indent=1), encoding="utf-8")
        files = {path.name: _describe(path) for path in sorted(temporary.iterdir())}
        manifest = {"format": FORMAT, "step": step, "files": files}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    return final


def open_checkpoint(path: str | Path) -> Checkpoint:
    """The checkpoint at `path`, or the newest one if `path` is a run or a checkpoints directory."""
    given = Path(path)
    if not given.exists():
        raise NotFound(f"{given}: no such checkpoint or run directory")
    if (given / MANIFEST).exists() or given.name.startswith(_PREFIX):
        return _verify(given)
    for directory in (given / "checkpoints", given):
        found = list_checkpoints(directory)
        if found:
            return _verify(found[-1])
    raise NotFound(f"{given}: holds no finished checkpoint")


def best_checkpoint(run: Path) -> Checkpoint | None:
    """The checkpoint with the best validation result, if the run noted one."""
    name = _read_best(run / "checkpoints")
    return None if name is None else open_checkpoint(run / "checkpoints" / name)


def _read_best(directory: Path) -> str | None:
    note = directory / BEST
    try:
        return str(json.loads(note.read_text(encoding="utf-8"))["checkpoint"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise Corruption(f"{note}: unreadable ({e}); delete it to fall back on the newest checkpoint") from None


def list_checkpoints(directory: Path) -> list[Path]:
    """Finished checkpoints, oldest first."""
    if not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if p.name.startswith(_PREFIX) and (p / MANIFEST).exists())


def note_best(directory: Path, checkpoint: Path) -> None:
    write_atomic(directory / BEST, json.dumps({"checkpoint": checkpoint.name}).encode())


def rotate(directory: Path, keep: int, spared: Collection[Path] = ()) -> None:
    """Removes all but the newest `keep` checkpoints, the best one and those that are spared."""
    try:
        best = _read_best(directory)
    except Corruption as e:
        console.warn(f"{e}. Until then, or until another is the best, no checkpoint is removed: any may be it")
        return
    for path in list_checkpoints(directory)[:-keep]:
        if path.name != best and path not in spared:
            # The manifest goes first: a half-removed directory must not be taken for a checkpoint.
            (path / MANIFEST).unlink()
            shutil.rmtree(path, ignore_errors=True)
    for leftover in directory.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _verify(path: Path) -> Checkpoint:
    advice = "take an older checkpoint of the run, or train again"
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise FailedPrecondition(
                f"{path}: checkpoint format {manifest['format']}, this version reads {FORMAT}; read it with its own"
            )
        for name, expected in manifest["files"].items():
            file = path / name
            if not file.exists():
                raise Corruption(f"{file}: is in the manifest but not on disk; {advice}")
            if file.stat().st_size != expected["bytes"]:
                raise Corruption(
                    f"{file}: {file.stat().st_size} bytes, the manifest says {expected['bytes']}; {advice}"
                )
            if "sha256" in expected and _sha256(file) != expected["sha256"]:
                raise Corruption(f"{file}: its contents do not match the checksum in the manifest; {advice}")
        trainer = json.loads((path / "trainer.json").read_text(encoding="utf-8"))
        return Checkpoint(path, int(manifest["step"]), trainer)
    except FileNotFoundError as e:
        raise Corruption(f"{e.filename}: missing, so this checkpoint is not finished; {advice}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise Corruption(f"{path / MANIFEST}: unreadable ({type(e).__name__}: {e}); {advice}") from None


def _describe(path: Path) -> dict[str, Any]:
    # Tables carry their own block checksums, which loading verifies; hashing them twice would double the time.
    described: dict[str, Any] = {"bytes": path.stat().st_size}
    if path.suffix != _TABLE_SUFFIX:
        described["sha256"] = _sha256(path)
    return described


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


@contextmanager
def _replacing(directory: Path, final: Path) -> Iterator[Path]:
    """A temporary directory that becomes `final` if the block ends well and vanishes if it does not."""
    temporary = directory / f"{_TEMPORARY}{final.name}"
    with _explaining(final):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            yield temporary
            for path in temporary.iterdir():
                _sync(path)
            _sync(temporary)
            shutil.rmtree(final, ignore_errors=True)
            temporary.replace(final)
            _sync(directory)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


@contextmanager
def _explaining(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        if e.errno == errno.ENOSPC:
            raise InternalError(
                f"{path}: the disk is full; nothing half-written was left. Free some space and resume"
            ) from e
        raise InternalError(f"{path}: cannot be written: {e.strerror or e}") from e


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
