"""`elasticctr demo`: the whole way on this machine, by the commands a user would type."""

from elasticctr.cli.demo.command import demo

__all__ = ["demo"]
