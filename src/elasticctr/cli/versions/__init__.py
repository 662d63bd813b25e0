"""`elasticctr publish` and `versions`: one file per command."""
