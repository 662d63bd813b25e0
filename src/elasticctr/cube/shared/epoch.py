"""A note of the last epoch and its owner. Both ends of a lease keep one, and its epoch never decreases."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from elasticctr.errors import Corruption, NotFound
from elasticctr.obs import console
from elasticctr.storage.atomic import explain_write, read_json, write_json


def read_epoch(path: Path) -> dict[str, Any]:
    """The note, or an empty one. A damaged note is kept as NAME.damaged and replaced by an epoch that none before can
    have reached: epochs grow by one with each change of owner, this one by a thousand a second."""
    try:
        note = read_json(path)
        if type(note.get("epoch")) is not int or note["epoch"] < 0:
            raise Corruption(f"{path}: does not hold an epoch")
        return note
    except NotFound:
        return {}
    except Corruption as e:
        kept, epoch = path.with_name(f"{path.name}.damaged"), int(time.time() * 1000)
        try:
            path.replace(kept)
        except OSError as failure:
            raise explain_write(failure, kept) from None
        write_json(path, {"epoch": epoch})
        console.warn(f"{e}; it was kept as {kept.name}, and the epoch continues from {epoch}")
        return {"epoch": epoch}
