"""`elasticctr demo`: the whole system on this machine, run with the commands a user would type."""
