"""Converts a Paddle Serving server's configuration directory into settings of `elasticctr serve`.

gflags.conf names the others; service.prototxt has the port, model_toolkit.prototxt the models, resource.prototxt the
Cube's location. An engine's `model_data_path` (or `model_dir`) must be REPO/MODEL of a repository here, or a repository
with a model of the engine's name: Paddle's own model files cannot be served. Settings without a meaning are reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from elasticctr.compat.paddle_serving import notes as why
from elasticctr.compat.paddle_serving.binding import T, bind
from elasticctr.compat.paddle_serving.gflags import Flag, read_gflags
from elasticctr.compat.paddle_serving.messages import (
    EngineDesc,
    GeneralModel,
    ModelToolkit,
    Resource,
    Services,
    Workflows,
)
from elasticctr.compat.paddle_serving.text_format import read_text_format
from elasticctr.cube.settings import load_conf
from elasticctr.errors import ConfigError, NotFound
from elasticctr.serve.activation.reload_stamp import ReloadType

GFLAGS = "gflags.conf"
DEFAULT_PORT = 8010
CTR_ENGINE = "ctr_prediction"  # the engine name that Paddle's CTR service uses
OUR_SERVICES = ("CTRPredictionService", "GeneralModelService")
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ServingConversion:
    """`settings` is the content of a serve.yaml; `notes` are messages about what could not be converted."""

    settings: dict[str, Any]
    notes: tuple[str, ...]


def read_serving(directory: Path, repo: str | None = None) -> ServingConversion:
    """`repo`, if given, has the engines' models under the engines' names; their paths are then ignored."""
    if not directory.is_dir():
        raise NotFound(f"{directory}: no such directory; give the one with model_toolkit.prototxt")
    return _ServingReader(directory, repo).read()


class _ServingReader:
    def __init__(self, directory: Path, repo: str | None) -> None:
        has_conf = (directory / "conf").is_dir() and not (directory / "model_toolkit.prototxt").exists()
        self._conf = directory / "conf" if has_conf else directory
        # Paths in the files are relative to the server's working directory, beside conf/ or workdir_PORT/.
        self._work = self._conf.resolve().parent
        self._repo = repo
        self._notes: list[str] = []

    def read(self) -> ServingConversion:
        flags = read_gflags(self._conf / GFLAGS) if (self._conf / GFLAGS).exists() else {}
        services = self._optional(
            Services, self._named(flags, "inferservice", "service.prototxt", "infer_service.prototxt")
        )
        workflows = self._optional(Workflows, self._named(flags, "workflow", "workflow.prototxt"))
        resource = self._optional(Resource, self._named(flags, "resource", "resource.prototxt"))
        if resource is None:
            resource = Resource(source=str(self._conf / "resource.prototxt"))
        engines = self._engines(resource)
        settings = self._server(flags, services, engines)
        settings["models"] = self._models(engines, self._cube(resource, flags, engines), flags)
        self._tell_services(services, workflows)
        self._tell_general(resource)
        self._notes += why.ignored(resource, why.RESOURCE)
        return ServingConversion(settings, tuple(self._notes))

    def _find(self, path: str, file: str = "") -> Path:
        """A path named in the files: absolute, beside conf/, or in it."""
        places = [self._work / path / file, self._conf / path / file, self._conf / (file or Path(path).name)]
        return next((place for place in places if place.exists()), places[0])

    def _named(self, flags: Mapping[str, Flag], what: str, *defaults: str) -> Path | None:
        path, file = flags.get(f"{what}_path"), flags.get(f"{what}_file")
        if path is not None or file is not None:
            return self._find(path.value if path else "conf", file.value if file else defaults[0])
        return next((self._conf / name for name in defaults if (self._conf / name).exists()), None)

    def _optional(self, cls: type[T], path: Path | None) -> T | None:
        return None if path is None else bind(cls, read_text_format(path))

    def _engines(self, resource: Resource) -> list[EngineDesc]:
        files = resource.model_toolkit_file or ("model_toolkit.prototxt",)
        paths = resource.model_toolkit_path or ("conf",) * len(files)
        if len(paths) != len(files):
            raise ConfigError(
                f"{resource.where()}: {len(files)} model_toolkit_file and {len(paths)} model_toolkit_path"
            )
        engines: list[EngineDesc] = []
        for path, file in zip(paths, files, strict=True):
            engines += bind(ModelToolkit, read_text_format(self._find(path, file))).engines
        names = [engine.name for engine in engines]
        for engine in engines:
            if names.count(engine.name) > 1:
                raise ConfigError(f"{engine.where('name')}: two engines are named {engine.name!r}")
        if not engines:
            raise ConfigError(f"{self._conf}: model_toolkit.prototxt has no engines; there is nothing to serve")
        return engines

    def _server(
        self, flags: Mapping[str, Flag], services: Services | None, engines: list[EngineDesc]
    ) -> dict[str, Any]:
        settings: dict[str, Any] = {"port": DEFAULT_PORT}
        limits: dict[str, Any] = {}
        if "port" in flags:
            settings["port"] = flags["port"].whole()
        if services is not None and services.port:
            settings["port"] = services.port
        if "num_threads" in flags and flags["num_threads"].whole():
            settings["threads"] = flags["num_threads"].whole()
        threads = max(engine.runtime_thread_num for engine in engines)
        if threads > 0:
            settings["threads"] = threads
            sizes = [engine.batch_infer_size for engine in engines if engine.runtime_thread_num > 0]
            if max(sizes) > 0:
                limits["batch_samples"] = max(sizes)
        if "max_concurrency" in flags and flags["max_concurrency"].whole():
            limits["queue_requests"] = flags["max_concurrency"].whole()
        if "max_body_size" in flags:
            limits["body_mib"] = min(1024, max(1, -(-flags["max_body_size"].whole() // MIB)))
        if limits:
            settings["limits"] = limits
        self._tell_flags(flags)
        self._notes.append(
            "Paddle Serving listens on all addresses without authentication; this server listens on 127.0.0.1: "
            "give --host 0.0.0.0, and --token-file, for others to reach it"
        )
        return settings

    def _cube(self, resource: Resource, flags: Mapping[str, Flag], engines: list[EngineDesc]) -> Path | None:
        remote = [engine for engine in engines if engine.sparse_param_service_type == "REMOTE"]
        if not remote:
            if "enable_cube" in flags and flags["enable_cube"].truth():
                self._notes.append(f"{flags['enable_cube'].where}: enable_cube is ignored: no engine is REMOTE")
            return None
        path = self._find(resource.cube_config_path or "conf", resource.cube_config_file or "cube.conf")
        if not path.is_file():
            raise ConfigError(
                f"{remote[0].where('sparse_param_service_type')}: engine {remote[0].name!r} has its rows in a Cube, "
                f"but {path} does not exist; write it, or use LOCAL for rows in this process"
            )
        tables = {table.rpartition("/")[2] for cluster in load_conf(path) for table in cluster.tables}
        for engine in remote:
            table = engine.sparse_param_service_table_name
            if table is not None and tables and table.rpartition("/")[2] not in tables:
                raise ConfigError(
                    f"{engine.where('sparse_param_service_table_name')}: no table {table!r} in {path}, which has "
                    f"{', '.join(sorted(tables))}"
                )
        if "enable_cube" not in flags or not flags["enable_cube"].truth():
            self._notes.append(f"{remote[0].where()}: enable_cube is not set in {GFLAGS}, but the Cube is used anyway")
        return path

    def _models(self, engines: list[EngineDesc], cube: Path | None, flags: Mapping[str, Flag]) -> list[dict[str, Any]]:
        models: list[dict[str, Any]] = []
        absent: list[str] = []
        poll_s = flags["reload_interval_s"].whole(1) if "reload_interval_s" in flags else None
        for engine in engines:
            place = self._place(engine)
            if isinstance(place, str):
                absent.append(place)
                continue
            repo, published = place
            model: dict[str, Any] = {"name": engine.name, "repo": repo}
            if published != engine.name:
                model["published_as"] = published
            if engine.sparse_param_service_type == "REMOTE":
                model["cube"] = str(cube)
            if poll_s is not None:
                model["poll_s"] = float(poll_s)
            model |= self._reload(engine)
            models.append(model)
            self._notes += why.ignored(engine, why.ENGINE)
            if "GPU" in engine.type.upper():
                self._notes.append(f"{engine.where('type')}: type {engine.type} is ignored: predictions run on the CPU")
        if not models:
            raise ConfigError("\n".join([*absent, "no engine is left to serve"]))
        self._notes += [f"{text}; this engine is skipped" for text in absent]
        default = next((m for m in models if m["name"] == CTR_ENGINE), models[0])
        if len(models) > 1:
            default["paddle_default"] = True
            self._notes.append(f"calls that name no model are answered by {default['name']!r}")
        return models

    def _place(self, engine: EngineDesc) -> tuple[str, str] | str:
        """(repository, model), or what is wrong."""
        key = "model_dir" if engine.model_dir is not None else "model_data_path"
        given = engine.model_dir or engine.model_data_path
        if self._repo is not None:
            return self._repo, engine.name
        if given is None:
            raise ConfigError(f"{engine.where()}: engine {engine.name!r} needs model_data_path or model_dir")
        if "://" in given:
            repo, _, name = given.rstrip("/").rpartition("/")
            return repo, name
        path = self._find(given)
        if (path / "donefile").exists():
            return str(path.resolve().parent), path.resolve().name
        if (path / engine.name / "donefile").exists():
            return str(path), engine.name
        if not path.is_dir():
            found = "does not exist"
        elif any(path.glob("__model__*")) or any(path.glob("*.pdmodel")):
            found = "holds a Paddle model, which cannot be served here"
        else:
            found = "is not a model in a repository"
        return (
            f"{engine.where(key)}: engine {engine.name!r}: {path} {found}; publish the model with `elasticctr publish` "
            f'and write {key}: "REPO/MODEL", or give --repo REPO with a model named {engine.name!r}'
        )

    def _reload(self, engine: EngineDesc) -> dict[str, Any]:
        if engine.reloadable_meta is None or engine.reloadable_type == "none":
            return {}
        kinds = get_args(ReloadType)
        if engine.reloadable_type is not None and engine.reloadable_type not in kinds:
            raise ConfigError(
                f"{engine.where('reloadable_type')}: reloadable_type {engine.reloadable_type!r} is none of "
                f"{', '.join(kinds)}"
            )
        path = self._find(engine.reloadable_meta)
        if not path.exists():
            self._notes.append(
                f"{engine.where('reloadable_meta')}: {path} does not exist; new versions of {engine.name!r} are served "
                "once it exists and is touched"
            )
        return {"reload_meta": str(path), "reload_type": engine.reloadable_type or "timestamp_ne"}

    def _tell_flags(self, flags: Mapping[str, Flag]) -> None:
        used = {"port", "num_threads", "max_concurrency", "max_body_size", "reload_interval_s"}
        used |= {f"{what}_{end}" for what in ("workflow", "inferservice", "resource") for end in ("path", "file")}
        for flag in flags.values():
            if flag.name in used:
                continue
            reason = why.GFLAGS.get(flag.name, "it is unknown here")
            if reason:
                self._notes.append(f"{flag.where}: {flag.name} is ignored: {reason}")

    def _tell_services(self, services: Services | None, workflows: Workflows | None) -> None:
        for service in services.services if services is not None else ():
            if service.name not in OUR_SERVICES:
                self._notes.append(
                    f"{service.where('name')}: service {service.name} is ignored: the services here are "
                    f"{' and '.join(OUR_SERVICES)}"
                )
            if service.enable_map_request_to_workflow:
                self._notes.append(
                    f"{service.where('enable_map_request_to_workflow')}: requests are not mapped to workflows; a model "
                    "is named by the request (/MODEL/prediction) or chosen by weight (variants)"
                )
        if workflows is not None and workflows.workflows:
            self._notes.append(f"{workflows.where()}: workflows are ignored: a prediction is a single step")

    def _tell_general(self, resource: Resource) -> None:
        """General models' variables need no settings; reports those that may not find their slot."""
        files = resource.general_model_file or ("general_model.prototxt",)
        paths = resource.general_model_path or ("conf",) * len(files)
        for path, file in zip(paths, files, strict=False):
            found = self._find(path, file)
            if not found.is_file():
                continue
            general = bind(GeneralModel, read_text_format(found))
            names = [variable.name for variable in general.feed_var]
            self._notes.append(
                f"{found}: feeds ({_shown(names)}) find their slots by name or by the number in it; see "
                "docs/migration/paddle-serving.md"
            )


def _shown(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def is_our_service(name: str) -> bool:
    return name.rpartition(".")[2] in OUR_SERVICES
