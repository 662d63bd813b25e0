"""The tables of a one-process run: rows of a batch into the model's inputs, their gradients back."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from elasticctr.data.batch import Batch
from elasticctr.models.inputs import Inputs
from elasticctr.table import Lookup, Mark, Table
from elasticctr.train.checkpoint import Checkpoint
from elasticctr.train.input_plan import InputPlan, require_gradients
from elasticctr.train.reading import PreparedBatch

_SECONDS_PER_DAY = 86400
_MARKS = "marks.json"


class SparseInputs:
    """All tables of a model. `look_up` may run on another thread than the rest."""

    def __init__(self, plan: InputPlan, *, is_deterministic: bool = False) -> None:
        """`is_deterministic`: what is saved depends on the samples alone, not on the day or on chance."""
        self._is_deterministic = is_deterministic
        self.plan = plan
        self.spec = plan.spec
        self.marks: dict[str, Mark] = {}  # of each table, when it was last marked, saved or loaded
        self.tables = [Table(table.settings) for table in plan.tables]

    def look_up(self, batch: Batch) -> tuple[Lookup, ...]:
        return self.plan.look_up(batch)

    def pull(self, item: PreparedBatch, *, train: bool) -> Inputs:
        """The model's inputs for a batch. With `train`, new feasigns get rows and the tensors collect gradients."""
        if not train and any(oov is not None for oov in self.plan.oov):
            item = self._know_only_rows(item)
        inputs, arrays = self.plan.make_inputs(item)
        for table, plan, lookup, targets in zip(self.tables, self.plan.tables, item.lookups, arrays, strict=True):
            table.find(lookup, insert=train)
            table.pull(lookup, plan.layout, targets)
        if train:
            require_gradients(inputs)
        return inputs

    def _know_only_rows(self, item: PreparedBatch) -> PreparedBatch:
        """As the server reads: the vocabulary is the rows there are, whatever file it came from."""
        lookups = []
        for number, (table, lookup) in enumerate(zip(self.tables, item.lookups, strict=True)):
            found = table.get(lookup.feasigns).found
            lookups.append(lookup if found.all() else self.plan.look_up_known(item.batch, number, lookup, found))
        return replace(item, lookups=tuple(lookups))

    def push(self, item: PreparedBatch, inputs: Inputs, rate_scale: float) -> None:
        """Steps the rows of a batch by the gradients its inputs collected."""
        batch = item.batch
        now = 0 if self._is_deterministic else today()
        gradients = self.plan.gradients(inputs)
        for table, plan, lookup, arrays in zip(self.tables, self.plan.tables, item.lookups, gradients, strict=True):
            table.push(lookup, plan.layout, arrays, batch.labels[:, 0], batch.shows, now=now, rate_scale=rate_scale)

    def mark(self) -> dict[str, Mark]:
        """Marks this moment in every table: later changes can be listed."""
        self.marks = {table.settings.name: table.mark(by_content=self._is_deterministic) for table in self.tables}
        return self.marks

    def save(self, directory: Path) -> None:
        """Marks the tables and writes them: a version published from these files can be a delta's parent."""
        marks = self.mark()
        for table in self.tables:
            table.save(directory / f"{table.settings.name}.table")
        text = json.dumps({name: str(mark) for name, mark in marks.items()})
        (directory / _MARKS).write_text(text, encoding="utf-8")

    def load(self, checkpoint: Checkpoint) -> None:
        for table in self.tables:
            parts = checkpoint.table_parts(table.settings.name)
            if len(parts) == 1:
                table.load(parts[0])
                continue
            table.reset()
            for part in parts:
                table.load_part(part)
        # Checkpoints of older versions have none.
        path = checkpoint.path / _MARKS
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.marks = {name: Mark.parse(text) for name, text in found.items()}


def today() -> int:
    """The day rows are last seen on."""
    return int(time.time()) // _SECONDS_PER_DAY
