"""`elasticctr cube`: one file per command."""
