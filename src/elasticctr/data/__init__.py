"""Click logs in, columnar batches out."""

from elasticctr.data.batch import Batch
from elasticctr.data.dataset import BatchIterator, Dataset
from elasticctr.data.schema import BucketSlot, CrossSlot, DenseSlot, Format, Pooling, Schema, SparseSlot
from elasticctr.data.settings import DataSettings, ReadOptions

__all__ = [
    "Batch",
    "BatchIterator",
    "BucketSlot",
    "CrossSlot",
    "DataSettings",
    "Dataset",
    "DenseSlot",
    "Format",
    "Pooling",
    "ReadOptions",
    "Schema",
    "SparseSlot",
]
