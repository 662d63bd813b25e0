"""A Paddle installation's files: transfer.conf, donefiles and SequenceFiles on a static file server, and clients
that ask shard `feasign % shard_num` over HTTP."""

from __future__ import annotations

import base64
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import numpy as np
import pytest

from elasticctr.storage import open_store
from elasticctr.versions.interchange import open_writer
from elasticctr.versions.interchange.rows import RowInfo
from tests.cluster.harness import TOKEN, Cluster, wait_until

KEYS = np.arange(1, 2001, dtype=np.uint64)
MISS = 4294967295


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


def write_rows(root: Path, folder: str, keys: np.ndarray, value: float) -> None:
    (root / folder).mkdir(parents=True)
    rows = np.full((len(keys), 2), value, np.float32)
    with open_writer(open_store(str(root / folder)), "feature", "sequence", RowInfo("fp32", 2, 8)) as writer:
        writer.write(keys, rows.view(np.uint8).reshape(len(keys), 8))


def announce(root: Path, name: str, number: int, key: int, folder: str) -> None:
    (root / "donefile").mkdir(exist_ok=True)
    with (root / "donefile" / name).open("a") as file:
        file.write(f'{{"id":"{number}","key":"{key}","input":"/{folder}"}}\n')


def seek(cluster: Cluster, keys: list[int]) -> list[float | None]:
    """As Paddle's client does: each key at its shard."""
    answers: dict[int, float | None] = {}
    for instance in cluster.instances:
        mine = [key for key in keys if key % cluster.shards == instance.shard]
        asked = {"keys": mine}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        found = httpx.post(f"{instance.server_url}/DictService/seek", json=asked, headers=headers, timeout=60).json()[
            "values"
        ]
        for key, one in zip(mine, found, strict=True):
            value = np.frombuffer(base64.b64decode(one["value"]), np.float32)
            answers[key] = None if one["status"] == MISS else float(value[0])
    return [answers[key] for key in keys]


@pytest.mark.timeout(240)
def test_a_paddle_installation_is_served(tmp_path: Path) -> None:
    host = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "www")))
    threading.Thread(target=host.serve_forever, daemon=True).start()
    www = tmp_path / "www"
    write_rows(www, "20200401/base", KEYS, 1.0)
    announce(www, "base.txt", 1562000400, 1562000400, "20200401/base")
    with Cluster(tmp_path, shards=2, replicas=1, model="test_dict") as cluster:
        cluster.start_instances()
        first, second = cluster.instances
        conf = tmp_path / "transfer.conf"
        conf.write_text(
            f"[default]\ndict_name: test_dict\nmode: base_delta\ndownload_mode: http\nwget_port: 8009\n"
            f"buildtool_local: /srv/cube/cube-builder\ndonefile_address: http://127.0.0.1:{host.server_port}/donefile/\n"
            f"output_address: /srv/cube/output\ntmp_address: {cluster.state}\nshard_num: 2\ncopy_num: 1\n"
            f"deploy_path: /srv/cube/test_dict\ntransfer_address: 127.0.0.1\n\n[cube_agent]\n"
            f"agent0_0: 127.0.0.1:{first.agent_port}\ncube0_0: 127.0.0.1:{first.server_port}:/ssd2/cube_open\n"
            f"agent1_0: 127.0.0.1:{second.agent_port}\ncube1_0: 127.0.0.1:{second.server_port}:/ssd2/cube_open\n"
        )
        arguments = ["cube", "transfer", "--config", str(conf), "--port", str(cluster.transfer_port)]
        cluster.transfer = cluster.run(
            "transfer", [*arguments, "--token-file", str(cluster.token_file), "--poll", "0.2"]
        )
        wait_until(lambda: cluster.answers(cluster.transfer, cluster.transfer_url), "transfer", 90)
        cluster.wait_live(1562000400)
        assert seek(cluster, [1, 2, 3, 2000, 2001]) == [1.0, 1.0, 1.0, 1.0, None]
        assert "wget_port" in cluster.transfer.text()

        write_rows(www, "20200401/delta-6", KEYS[:2], 5.0)
        announce(www, "patch.txt", 1562000401, 1562000400, "20200401/delta-6")
        cluster.wait_live(1562000401)
        assert seek(cluster, [1, 2, 3, 2000]) == [5.0, 5.0, 1.0, 1.0]
        info = cluster.ask(cluster.transfer_url, "/dict/info")["data"]
        assert (info["dict_name"], info["shard_num"], info["enable_insts"]) == ("test_dict", 2, 2)
    host.shutdown()
