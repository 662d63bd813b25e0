from itertools import pairwise

import pytest

from elasticctr.table.buckets import bucket_range


@pytest.mark.parametrize("ranks", [1, 3, 7, 4096])
def test_buckets_are_dealt_whole(ranks: int) -> None:
    shares = [bucket_range(rank, ranks) for rank in range(ranks)]
    assert shares[0][0] == 0 and shares[-1][1] == 4096
    assert all(a[1] == b[0] for a, b in pairwise(shares))
    for rank, (first, last) in enumerate(shares):
        assert all(bucket * ranks >> 12 == rank for bucket in (first, last - 1))
