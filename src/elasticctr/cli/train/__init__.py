"""`elasticctr train`, `eval`, `predict`, `explain`, `tune` and `report`."""
