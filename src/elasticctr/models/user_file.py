"""Loads a model class from a user's Python file, and reports the line of an error in it."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

from elasticctr.errors import ConfigError, NotFound
from elasticctr.models.model import Model


def load_class(path: Path, class_name: str | None) -> type[Model]:
    """The model `class_name` of the file, or its only model."""
    module = _load(path)
    if class_name is not None:
        found = getattr(module, class_name, None)
        if found is None:
            raise ConfigError(f"{path}: has no class {class_name!r}{_listing(module)}")
        if not (inspect.isclass(found) and issubclass(found, Model)):
            raise ConfigError(f"{path}: {class_name!r} is not a model: derive it from elasticctr.models.Model")
        return found
    classes = _models_of(module)
    if len(classes) != 1:
        problem = "has no subclass of elasticctr.models.Model" if not classes else "has several models"
        raise ConfigError(f"{path}: {problem}{_listing(module)}; name one as {path.name}:ClassName")
    return classes[0]


def explain(error: BaseException, cls: type[Model]) -> str:
    """`path:line: what happened`, where the line is the last one inside the file that defines `cls`."""
    return _explain(error, Path(inspect.getfile(cls)))


def _explain(error: BaseException, path: Path) -> str:
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}:{error.lineno}: {error.msg}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    where = f"{path}:{lines[-1]}" if lines else str(path)
    return f"{where}: {type(error).__name__}: {' '.join(str(error).split())}"


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise NotFound(f"{path}: no such file; name the model as path/to/model.py:ClassName")
    path = path.resolve()
    # One module name per file: two jobs may each have a model.py, and pydantic looks up modules by name.
    name = f"elasticctr_user_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path}: cannot be loaded as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as e:
        del sys.modules[name]
        raise ConfigError(_explain(e, path)) from e
    except SystemExit as e:
        del sys.modules[name]
        raise ConfigError(f"{_explain(e, path)}: the file exits the program while it is being loaded") from e
    finally:
        sys.path.remove(str(path.parent))
    return module


def _models_of(module: ModuleType) -> list[type[Model]]:
    return [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, Model) and value.__module__ == module.__name__
    ]


def _listing(module: ModuleType) -> str:
    names = ", ".join(cls.__name__ for cls in _models_of(module))
    return f"; its models are {names}" if names else ""
