"""`elasticctr data`: one file per command."""
