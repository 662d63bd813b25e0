"""`elasticctr serve`, `call` and `serving`."""
