"""`elasticctr feedback`: one file per command."""
