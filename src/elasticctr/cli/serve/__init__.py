"""`elasticctr serve`, `call`, `variants` and `feedback`."""
