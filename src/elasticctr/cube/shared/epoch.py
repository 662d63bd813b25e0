"""The note of an epoch: who was last in charge. Both ends of a lease keep one, and neither may ever go back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from elasticctr.errors import Corruption, NotFound
from elasticctr.obs import console
from elasticctr.storage.atomic import explain_write, read_json, write_json


def read_epoch(path: Path) -> dict[str, Any]:
    """The note, or an empty one. One that is damaged is set aside as NAME.damaged, and an epoch noted that none before
    can have reached: they grow by one at each change of who is in charge, this one by a thousand a second."""
    try:
        note = read_json(path)
        if type(note.get("epoch")) is not int or note["epoch"] < 0:
            raise Corruption(f"{path}: holds no epoch")
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
        console.warn(f"{e}; it was set aside as {kept.name}, and the epoch goes on from {epoch}")
        return {"epoch": epoch}
