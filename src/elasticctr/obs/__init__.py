"""How running work shows itself to people and machines: console, progress, signals, machine checks."""
