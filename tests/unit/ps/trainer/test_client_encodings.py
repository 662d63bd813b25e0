"""Rows and gradients sent in smaller encodings stay close to float32."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.unit.ps.pservers import LocalPservers
from tests.unit.ps.trainer.remote_steps import Model, head, push, step_local

from elasticctr.errors import ConfigError
from elasticctr.table import Table


def test_dense_gradients_do_not_go_as_int8(pservers: LocalPservers) -> None:
    with pytest.raises(ConfigError, match="not int8"):
        pservers.client(dense_gradients_as="int8")


def test_dense_gradients_step_as_they_are_rounded(pservers: LocalPservers, model: Model) -> None:
    client = pservers.client(dense_gradients_as="bf16")
    client.set_dense(np.zeros(50, dtype=np.float32))
    gradient = np.random.default_rng(5).normal(scale=1e-9, size=50).astype(np.float32)  # fp16 would make zeros of them
    batch = model.batch(0)
    client.push(head(0), batch.lookups, model.layouts, batch.gradients, gradient)
    client.wait_pushes()
    got = np.empty(50, dtype=np.float32)
    client.pull_dense(got)
    np.testing.assert_array_equal(got, -0.5 * torch.from_numpy(gradient).bfloat16().float().numpy())


@pytest.mark.parametrize(("encoding", "tolerance"), [("fp16", 1e-3), ("int8", 1e-2)])
def test_smaller_encodings_are_close(
    pservers: LocalPservers, tables: list[Table], model: Model, encoding: str, tolerance: float
) -> None:
    client = pservers.client(rows_as=encoding, gradients_as=encoding)
    batch = model.batch(0)
    rows = client.start_pull(batch.lookups, insert=True).rows(0)
    step_local(tables, model, batch, 0)
    push(client, model, batch, head(0))
    client.wait_pushes()
    again = client.start_pull(batch.lookups, insert=False).rows(0)
    assert not np.array_equal(rows, again)
    np.testing.assert_allclose(again, tables[0].get(batch.lookups[0].feasigns).weights, atol=tolerance)
