"""Behaviour sequences are paired with their target slots; what does not fit is named."""

from __future__ import annotations

import pytest
import torch
from tests.unit.models.conftest import Kit

from elasticctr.errors import ConfigError
from elasticctr.models import InputSpec, SequenceSpec
from elasticctr.models.layers.behaviours import Behaviours

SPEC = InputSpec(
    slots=("user", "item", "category", "wide"),
    dims=(5, 3, 2, 0),
    dense_dim=2,
    sequences=(
        SequenceSpec("items", 3, 4, "item"),
        SequenceSpec("categories", 2, 4),
        SequenceSpec("words", 5, 6),
    ),
)


def test_targets_of_the_schema_count_unless_something_else_is_wanted() -> None:
    behaviours = Behaviours(SPEC, [], "din")
    assert [[s.name for s in pair.sequences] for pair in behaviours.pairs] == [["items"]]
    assert [s.name for s in behaviours.rest] == ["categories", "words"]
    assert behaviours.width(SPEC) == 10 + 2 + 2 + 5
    behaviours = Behaviours(SPEC, [(("categories",), ("category",))], "din")
    assert [s.name for s in behaviours.rest] == ["items", "words"]


def test_sequences_are_read_side_by_side(kit: Kit) -> None:
    inputs = kit.random_inputs(SPEC, 6)
    inputs.sequences["items"].lengths[1:] = torch.tensor([4, 1, 0, 3, 2])
    inputs.sequences["categories"].lengths[1:] = torch.tensor([4, 1, 0, 3, 1])
    (pair,) = Behaviours(SPEC, [(("items", "categories"), ("item", "category"))], "din").pairs
    read = pair.read(inputs)
    assert torch.equal(read.query, inputs.embeddings[:, 5:10])
    assert read.mask.sum(dim=1).tolist() == [0, 4, 1, 0, 3, 2]
    assert torch.equal(read.keys[1, :, :3], inputs.sequences["items"].values[1])
    assert torch.equal(read.keys[1, :, 3:], inputs.sequences["categories"].values[1])
    assert read.keys[5, 1, 3:].eq(0).all()
    assert read.keys[~read.mask].eq(0).all()


@pytest.mark.parametrize(
    ("sequences", "targets", "message"),
    [
        (["items", "categories"], ["item"], "need as many targets"),
        (["item"], ["item"], "'item' is not a sequence; known: items, categories, words"),
        (["items"], ["shop"], "'shop' is not a pooled slot with an embedding; known: user, item, category"),
        (["items"], ["wide"], "not a pooled slot with an embedding"),
        (["items"], ["user"], "is 3 wide but its target 'user' 5"),
        (["items", "words"], ["item", "user"], "need equal max_values in the schema; got items: 4, words: 6"),
    ],
)
def test_what_does_not_fit_is_said(sequences: list[str], targets: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Behaviours(SPEC, [(sequences, targets)], "din")


def test_a_model_without_a_target_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"'target: SLOT' in the schema, or set model\.attention"):
        Behaviours(InputSpec(slots=("a",), dims=(3,), sequences=(SequenceSpec("h", 3, 4),)), [], "din")
