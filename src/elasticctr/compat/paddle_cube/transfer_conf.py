"""transfer.conf of Paddle's Cube: `[default]` and `[cube_agent]`, `key: value` lines.

Keys that have a meaning here become settings; the others are reported as ignored.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from elasticctr.config import parse_settings, read_settings_file
from elasticctr.cube.transfer.settings import TransferSettings
from elasticctr.errors import ConfigError

_DEFAULT = {
    "dict_name",
    "mode",
    "download_mode",
    "wget_port",
    "buildtool_local",
    "donefile_address",
    "output_address",
    "tmp_address",
    "shard_num",
    "copy_num",
    "deploy_path",
    "transfer_address",
}
_IGNORED = {
    "download_mode": "agents always fetch over HTTP, or from a shared directory",
    "wget_port": "transfer serves its builds itself, on its own port",
    "buildtool_local": "transfer has its own builder",
    "deploy_path": "agents know their own data directory",
    "output_address": "builds are kept under tmp_address",
}
_AGENT = re.compile(r"(agent|cube)(\d+)_(\d+)")


def read_transfer_conf(path: Path) -> tuple[TransferSettings, bool, list[str]]:
    """The settings, whether patches are wanted (mode base_delta), and messages about what was ignored."""
    sections = _read_sections(path)
    default, agents = sections.get("default", {}), sections.get("cube_agent", {})
    for key in ("dict_name", "donefile_address", "tmp_address", "shard_num", "copy_num"):
        if not default.get(key):
            raise ConfigError(f"{path}: [default] {key} is missing")
    unknown = sorted(set(default) - _DEFAULT)
    if unknown:
        raise ConfigError(f"{path}: [default] has unknown keys: {', '.join(unknown)}")
    mode = default.get("mode", "base_only")
    if mode not in ("base_only", "base_delta"):
        raise ConfigError(f"{path}: mode must be base_only or base_delta, not {mode!r}")
    shards, copies = _whole(path, default, "shard_num"), _whole(path, default, "copy_num")
    settings: dict[str, Any] = {
        "repository": default["donefile_address"],
        "format": "sequencefile",
        "models": [default["dict_name"]],
        "state": default["tmp_address"],
        "shards": [[_instance(path, agents, s, r) for r in range(copies)] for s in range(shards)],
        # Clients of Paddle's Cube ask shard feasign % shard_num.
        "build": {"sharding": "modulo"},
    }
    ignored = [f"{key}: {_IGNORED[key]}" for key in sorted(_IGNORED) if key in default]
    if "transfer_address" in default:
        ignored.append(
            "transfer_address: used as the host agents reach this transfer at; give --advertise to change it"
        )
    listed = {f"{kind}{s}_{r}" for kind in ("agent", "cube") for s in range(shards) for r in range(copies)}
    ignored += [f"{key}: beyond shard_num and copy_num" for key in sorted(set(agents) - listed)]
    return parse_settings(TransferSettings, settings, str(path)), mode == "base_delta", ignored


def transfer_host(path: Path) -> str | None:
    """`transfer_address`, the host at which agents reach this transfer."""
    return _read_sections(path).get("default", {}).get("transfer_address") or None


def _instance(path: Path, agents: dict[str, str], shard: int, replica: int) -> dict[str, str]:
    name = f"agent{shard}_{replica}"
    if name not in agents:
        raise ConfigError(f"{path}: [cube_agent] {name} is missing; shard_num and copy_num require it")
    # cube lines are host:port:deploy_path; only the agent needs the path.
    server = ":".join(agents.get(f"cube{shard}_{replica}", "").split(":")[:2])
    return {"agent": f"http://{agents[name]}", "server": f"http://{server}" if server else ""}


def _whole(path: Path, section: dict[str, str], key: str) -> int:
    text = section[key]
    if not text.isdigit() or not 1 <= int(text) <= 4096:
        raise ConfigError(f"{path}: {key} must be a number from 1, not {text!r}")
    return int(text)


def _read_sections(path: Path) -> dict[str, dict[str, str]]:
    text = read_settings_file(path)
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith(("#", "//", ";")):
            continue
        if line.startswith("[") and line.endswith("]"):
            name = line[1:-1].strip()
            if name not in ("default", "cube_agent"):
                raise ConfigError(f"{path}:{number}: unknown section [{name}]; known: [default] and [cube_agent]")
            current = sections.setdefault(name, {})
            continue
        match = re.match(r"([A-Za-z0-9_]+)\s*[:=]\s*(.*)", line)
        if match is None or current is None:
            raise ConfigError(f"{path}:{number}: expected 'key: value' below [default] or [cube_agent]")
        if current is sections.get("cube_agent") and not _AGENT.fullmatch(match[1]):
            raise ConfigError(
                f"{path}:{number}: expected agent<shard>_<replica> or cube<shard>_<replica>, not {match[1]!r}"
            )
        current[match[1]] = match[2].strip()
    return sections
