import json

import numpy as np

from elasticctr.obs.plain import plain


def test_plain_values_are_json() -> None:
    value = plain({"a": (1, 2.5, float("inf")), 3: {"b": np.array([[1.0, np.nan]])}, "c": True})
    assert value == {"a": [1, 2.5, None], "3": {"b": [[1.0, None]]}, "c": True}
    json.dumps(value, allow_nan=False)
