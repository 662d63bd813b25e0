"""`elasticctr publish`, `versions`, `verify`, `rollback` and `fsck`."""
