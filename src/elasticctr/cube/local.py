"""Cube without a server: the index files of a directory, opened in this process.

    cube = LocalCube("builds")
    answer = cube.get("ctr/embedding", feasigns)

Threads: any number may call `get` while another loads, activates or retires. An answer is always from one version.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elasticctr import _native
from elasticctr.cube.directory import find_models, find_versions, pick_model, read_chain
from elasticctr.cube.live import read_live
from elasticctr.cube.lookup import Lookup
from elasticctr.errors import DataError, FailedPrecondition, NotFound

Residence = Literal["mapped", "memory"]


@dataclass(slots=True)
class _Model:
    directory: Path
    stores: list[_native.CubeStore]
    """One per shard."""
    active: int = 0
    loaded: list[int] = field(default_factory=list)
    layouts: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """(table, version) → (encoding, dim)"""


class LocalCube:
    """The models of a builder's directory or of a cube server's data directory.

    Loads the live version of each model, or the newest if no LIVE file names one. Opening a file checks every byte,
    both `mapped` and in `memory` (a copy). `check="header"` opens mapped bases at once, for files that were checked
    before; bytes that changed since are not noticed. A mapped file that is truncated while it is open raises
    Corruption.
    """

    def __init__(
        self,
        directory: str | Path,
        model: str | None = None,
        residence: Residence = "mapped",
        check: Literal["all", "header"] = "all",
    ) -> None:
        self._root = Path(directory)
        self._residence = residence
        self._check = check
        self._lock = threading.RLock()
        self._models: dict[str, _Model] = {}
        names = [pick_model(self._root, model)] if model is not None else find_models(self._root)
        if not names:
            raise NotFound(f"{directory}: has no built version; make one with elasticctr cube build")
        for name in names:
            self._models[name] = _Model(self._root / name, [])
            live, _ = read_live(self._root / name)
            self.activate(live or find_versions(self._root / name)[-1], name)

    def models(self) -> list[str]:
        return list(self._models)

    def versions(self, model: str | None = None) -> list[int]:
        """The loaded versions, ascending."""
        return list(self._of(model).loaded)

    def active(self, model: str | None = None) -> int:
        return self._of(model).active

    def available(self, model: str | None = None) -> list[int]:
        """The versions on disk, ascending."""
        return find_versions(self._of(model).directory)

    def tables(self, model: str | None = None) -> dict[str, _native.CubeInfo]:
        """Full names and layouts of the active version's tables; row counts are those of shard 0's newest layer."""
        of = self._of(model)
        for _, _, _, versions in of.stores[0].models():
            for version, _, _, tables in versions:
                if version == of.active:
                    return {info.name: info for info in tables.values()}
        return {}

    def load(self, version: int, model: str | None = None) -> None:
        """Loads a version and its chain beside the others. Does nothing if it is loaded."""
        with self._lock:
            of = self._of(model)
            if version in of.loaded:
                return
            for built in read_chain(of.directory, version):
                if built.version in of.loaded:
                    continue
                while len(of.stores) < len(built.shards):
                    of.stores.append(_native.CubeStore.make(self._residence, self._check == "all"))
                if len(of.stores) != len(built.shards):
                    raise FailedPrecondition(
                        f"{built.directory}: has {len(built.shards)} shards, but versions loaded before have "
                        f"{len(of.stores)}; open it as a LocalCube of its own"
                    )
                for number, (store, (_, listing)) in enumerate(zip(of.stores, built.shards, strict=True)):
                    files = built.files(number)
                    store.load(built.model, built.version, built.parent, files, listing.shard, listing.shards)
                of.loaded = sorted([*of.loaded, built.version])
            self._note_layouts(of, version)

    def activate(self, version: int, model: str | None = None) -> None:
        """Answers from `version` from now on, loading it if needed."""
        with self._lock:
            self.load(version, model)
            of = self._of(model)
            for store in of.stores:
                store.activate(of.directory.name, version)
            of.active = version

    def retire(self, version: int, model: str | None = None) -> None:
        """Releases a version that is not active; its memory is freed once no lookup reads it."""
        with self._lock:
            of = self._of(model)
            if version == of.active:
                raise FailedPrecondition(f"{of.directory.name} version {version} is active; activate another one first")
            if version not in of.loaded:
                raise NotFound(f"{of.directory.name} version {version} is not loaded")
            of.loaded = [number for number in of.loaded if number != version]
            for store in of.stores:
                store.retire(of.directory.name, version)
            of.layouts = {key: value for key, value in of.layouts.items() if key[1] != version}

    def get(self, table: str, feasigns: ArrayLike, version: int | None = None) -> Lookup:
        """The rows of feasigns in `table`: "model/table" or, with a single model, "table"."""
        model, _, name = table.rpartition("/")
        of = self._of(model or None)
        keys = _keys(feasigns)
        full = f"{of.directory.name}/{name}"
        wanted = of.active if version is None else version
        while True:
            try:
                if len(of.stores) == 1:
                    rows, found, _ = of.stores[0].lookup(full, keys, wanted)
                else:
                    rows, found = _native.lookup_cube_shards(of.stores, full, keys, wanted)
                encoding, dim = of.layouts[full, wanted]
                break
            except (NotFound, KeyError):
                # Retired between the two steps, which only happens to a version that is no longer active.
                if version is not None or wanted == of.active:
                    raise NotFound(f"version {wanted} has no table {full}") from None
                wanted = of.active
        return Lookup(_decoded(rows, encoding, dim), found, wanted)

    def _of(self, model: str | None) -> _Model:
        if model is None and len(self._models) == 1:
            return next(iter(self._models.values()))
        if model is None or model not in self._models:
            raise NotFound(f"{self._root}: no model {model!r}; it has {', '.join(self._models)}")
        return self._models[model]

    def _note_layouts(self, of: _Model, version: int) -> None:
        for _, _, _, versions in of.stores[0].models():
            for number, _, _, tables in versions:
                for info in tables.values():
                    of.layouts[info.name, number] = (info.encoding, info.dim)


def _keys(feasigns: ArrayLike) -> NDArray[np.uint64]:
    keys = np.asarray(feasigns)
    if keys.ndim != 1 or (keys.dtype.kind not in "ui" and keys.size):
        raise DataError(f"feasigns must be one list of whole numbers, not {keys.dtype} of {keys.ndim} dimensions")
    return np.ascontiguousarray(keys, dtype=np.uint64)


def _decoded(rows: NDArray[np.uint8], encoding: str, dim: int) -> NDArray[Any]:
    if encoding == "raw":
        return rows
    if encoding == "fp32":
        return rows.view(np.float32)
    return _native.decode_rows(rows, encoding, dim)
