"""The drawings of docs/images: boxes, arrows and notes on a grid. Colours are readable on light and on dark pages."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape

FONT = "-apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
FILL = {"data": "#6b7280", "train": "#4f46e5", "store": "#b45309", "serve": "#0f766e", "client": "#be185d"}
LINE = "#7d8696"


@dataclass
class Drawing:
    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, w: int, h: int, kind: str, name: str, note: str = "") -> None:
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="8" fill="{FILL[kind]}"/>')
        lines = note.split("\n") if note else []
        top = y + h / 2 - 8.5 * len(lines) + 5
        self.parts.append(self._text(x + w / 2, top, name, "#ffffff", 15, bold=True))
        for i, line in enumerate(lines):
            self.parts.append(self._text(x + w / 2, top + 17 * (i + 1) + 1, line, "#f1f5f9", 12.5))

    def frame(self, x: int, y: int, w: int, h: int, name: str) -> None:
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="10" fill="none" stroke="{LINE}" '
            'stroke-dasharray="5 4"/>'
        )
        self.parts.append(self._text(x + 12, y + 19, name, LINE, 12.5, anchor="start"))

    def arrow(self, *points: tuple[float, float], label: str = "", at: tuple[float, float] | None = None) -> None:
        (x1, y1), (x2, y2) = points[-2:]
        angle = math.atan2(y2 - y1, x2 - x1)
        tips = [(x2 - 10 * math.cos(angle + side), y2 - 10 * math.sin(angle + side)) for side in (0.45, -0.45)]
        end = (x2 - 8 * math.cos(angle), y2 - 8 * math.sin(angle))
        path = " ".join(f"{x:.0f},{y:.0f}" for x, y in [*points[:-1], end])
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{LINE}" stroke-width="2"/>')
        head = " ".join(f"{x:.1f},{y:.1f}" for x, y in [(x2, y2), *tips])
        self.parts.append(f'<polygon points="{head}" fill="{LINE}"/>')
        if label:
            x, y = at or ((x1 + x2) / 2, (y1 + y2) / 2 - 7)
            self.note(x, y, label)

    def note(self, x: float, y: float, text: str, anchor: str = "middle") -> None:
        for i, line in enumerate(text.split("\n")):
            self.parts.append(self._text(x, y + 16 * i, line, LINE, 12.5, anchor=anchor))

    def cell(self, x: int, y: int, w: int, name: str, kind: str | None) -> None:
        """A small square of a row: filled, or only its outline."""
        fill, colour = (FILL[kind], "#ffffff") if kind else ("none", LINE)
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="30" rx="4" fill="{fill}" stroke="{LINE}"/>')
        self.parts.append(self._text(x + w / 2, y + 20, name, colour, 12.5))

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'role="img" aria-label="{escape(self.title)}"><title>{escape(self.title)}</title>'
        )
        return "\n".join([head, *self.parts, "</svg>\n"])

    @staticmethod
    def _text(
        x: float, y: float, text: str, colour: str, size: float, *, bold: bool = False, anchor: str = "middle"
    ) -> str:
        weight = ' font-weight="600"' if bold else ""
        return (
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-family="{FONT}" font-size="{size}"{weight} '
            f'fill="{colour}">{escape(text)}</text>'
        )


def overview() -> str:
    d = Drawing(960, 300, "From click logs to predictions, and back through joined feedback")
    d.box(10, 90, 130, 80, "data", "click logs", "files, S3, HDFS")
    d.box(190, 60, 190, 140, "train", "train", "27 models in torch\nnative sparse tables\none process or many")
    d.box(430, 90, 160, 80, "store", "repository", "immutable versions\nbases and deltas")
    d.box(640, 20, 150, 90, "serve", "Cube", "sparse rows\nshards × replicas")
    d.box(640, 150, 150, 90, "serve", "serve", "dense graph\nmicro-batches")
    d.box(840, 150, 110, 90, "client", "clients", "HTTP\ngRPC, bRPC")
    d.arrow((140, 130), (190, 130))
    d.arrow((380, 130), (430, 130), label="publish", at=(405, 118))
    d.arrow((590, 115), (640, 65), label="roll out", at=(602, 78))
    d.arrow((590, 145), (640, 195), label="activate", at=(600, 187))
    d.arrow((715, 110), (715, 150), label="rows", at=(735, 134))
    d.arrow((840, 180), (790, 180))
    d.arrow((790, 210), (840, 210))
    d.note(815, 171, "asks")
    d.note(815, 229, "scores")
    d.arrow((715, 240), (715, 275), (75, 275), (75, 170), label="request log + clicks → new samples", at=(395, 266))
    return d.svg()


def step() -> str:
    d = Drawing(900, 250, "One training step")
    d.box(10, 80, 120, 70, "data", "batch", "samples in\ncolumns")
    d.box(180, 80, 130, 70, "train", "lookup", "distinct\nfeasigns")
    d.box(360, 20, 170, 190, "store", "sparse table", "find: feasign → row\npull: rows → input\npush: gradients → rows")
    d.box(600, 30, 130, 60, "train", "model", "forward")
    d.box(600, 140, 130, 60, "train", "loss", "backward")
    d.box(780, 85, 110, 60, "train", "dense", "optimizer")
    d.arrow((130, 115), (180, 115))
    d.arrow((310, 115), (360, 115))
    d.arrow((530, 60), (600, 60), label="pull", at=(565, 52))
    d.arrow((665, 90), (665, 140))
    d.arrow((600, 170), (530, 170), label="push", at=(565, 162))
    d.arrow((730, 170), (835, 170), (835, 145))
    d.arrow((835, 85), (835, 60), (730, 60))
    d.note(245, 170, "built ahead of time,\nin another thread")
    return d.svg()


def distributed() -> str:
    d = Drawing(900, 330, "Processes of a distributed job")
    d.box(320, 15, 220, 70, "store", "coordinator", "leases chunks, keeps the ledger")
    d.box(20, 15, 170, 70, "data", "click log", "cut into chunks")
    for i, x in enumerate((150, 370, 590)):
        d.box(x, 140, 140, 60, "train", f"trainer {i}", "pull, compute, push")
        d.arrow((430 if i == 1 else 400 if i == 0 else 465, 85), (x + 70, 140))
    for i, x in enumerate((200, 520)):
        d.box(x, 260, 150, 55, "serve", f"pserver {i}", "rows, dense part")
        for t in (150, 370, 590):
            d.arrow((t + 70, 200), (x + 75 + (t - 370) // 8, 260))
    d.box(740, 260, 140, 55, "data", "standby 1", "mirrors pserver 1")
    d.arrow((670, 287), (740, 287))
    d.arrow((105, 85), (105, 170), (150, 170), label="reads its\nchunk", at=(68, 120))
    d.note(640, 115, "a lease per chunk", "start")
    d.note(22, 235, "each feasign once\nper batch and pserver", "start")
    return d.svg()


def cursor() -> str:
    d = Drawing(900, 300, "A cursor per chunk makes every batch count once")
    d.note(20, 30, "chunk 7 of the log, batches 0 to 5; the pserver's cursor for it is 3", "start")
    for i in range(6):
        d.cell(20 + 120 * i, 45, 110, f"batch {i}", "serve" if i < 3 else None)
    d.arrow((380, 110), (380, 80), label="cursor = 3: batches 0, 1, 2 are applied", at=(380, 127))
    rows = (
        ("push of batch 3", "at the cursor: applied, cursor becomes 4", "train"),
        ("push of batch 2 again", "behind the cursor: answered as applied, not applied twice", "data"),
        ("push of batch 5", "leaves a gap: refused", "client"),
        ("push begun in an earlier era", "before a rollback: refused", "client"),
    )
    for i, (name, result, kind) in enumerate(rows):
        d.cell(20, 150 + 36 * i, 220, name, kind)
        d.note(260, 170 + 36 * i, "→ " + result, "start")
    return d.svg()


def versions() -> str:
    d = Drawing(900, 230, "Bases and deltas of a model")
    d.box(20, 70, 130, 70, "store", "version 1", "base: all rows")
    d.box(200, 70, 130, 70, "train", "version 2", "delta: changed\nand dropped rows")
    d.box(380, 70, 130, 70, "train", "version 3", "delta")
    d.box(560, 70, 130, 70, "store", "version 4", "base")
    d.box(740, 70, 130, 70, "train", "version 5", "delta")
    for x in (200, 380, 740):
        d.arrow((x, 105), (x - 50, 105), label="parent", at=(x - 24, 97))
    d.frame(5, 40, 520, 115, "chain of version 3")
    d.note(20, 190, "donefile:", "start")
    for i, text in enumerate(("publish 1", "publish 2", "publish 3", "rollback 2", "publish 4", "publish 5")):
        d.cell(95 + 130 * i, 172, 122, text, "client" if "roll" in text else None)
    return d.svg()


def rollout() -> str:
    d = Drawing(900, 330, "Rollout of a version to two shards with two replicas each")
    d.box(10, 130, 140, 70, "store", "repository", "donefile announces\nversion 8")
    d.box(220, 120, 160, 90, "train", "transfer", "builds index files,\nkeeps a journal")
    for shard, y in ((0, 15), (1, 175)):
        d.frame(440, y, 450, 145, f"shard {shard}")
        for replica in (0, 1):
            row = y + 28 + 56 * replica
            d.box(460, row, 150, 46, "data", "agent", "fetches, verifies")
            d.box(710, row, 160, 46, "serve", f"server, replica {replica}", "holds 7 and 8")
            d.arrow((610, row + 23), (710, row + 23), label="load", at=(658, row + 16))
            d.arrow((380, 165), (460, row + 23))
    d.arrow((150, 165), (220, 165))
    d.note(300, 240, "1  prepare everywhere\n2  enough are ready: decide\n3  activate everywhere\n4  verify")
    return d.svg()


def request() -> str:
    d = Drawing(920, 250, "From a request to a score")
    d.box(10, 85, 110, 70, "client", "request", "HTTP, gRPC,\nbRPC")
    d.box(165, 85, 120, 70, "serve", "session", "bytes → samples")
    d.box(330, 85, 120, 70, "serve", "queue", "accepts or\nrefuses at once")
    d.box(495, 85, 130, 70, "serve", "worker", "micro-batch of\none version")
    d.box(680, 15, 220, 60, "store", "rows", "index files in memory, or a Cube")
    d.box(680, 95, 220, 60, "train", "dense graph", "ONNX Runtime")
    d.arrow((120, 120), (165, 120))
    d.arrow((285, 120), (330, 120))
    d.arrow((450, 120), (495, 120))
    d.arrow((625, 105), (680, 55))
    d.arrow((790, 75), (790, 95))
    d.arrow((680, 135), (625, 135), label="scores", at=(652, 152))
    d.arrow((560, 155), (560, 200), (65, 200), (65, 155), label="scores, version, coverage", at=(310, 192))
    d.note(225, 65, "everything else is queued for Python")
    return d.svg()


def activation() -> str:
    d = Drawing(900, 190, "How a version becomes live")
    steps = (
        ("announced", "donefile", "store"),
        ("files", "SHA-256", "serve"),
        ("rows", "index, or Cube", "serve"),
        ("parity", "stored scores", "serve"),
        ("warm-up", "finite scores", "serve"),
        ("live", "one pointer", "train"),
    )
    for i, (name, note, kind) in enumerate(steps):
        d.box(10 + 150 * i, 30, 115, 60, kind, name, note)
        if i:
            d.arrow((150 * i - 25, 60), (150 * i + 10, 60))
    d.box(385, 130, 190, 45, "client", "refused", "the live version stays")
    for i in (1, 2, 3, 4):
        d.arrow((67 + 150 * i, 90), (440 + 27 * i, 130))
    return d.svg()


def logo() -> str:
    bars = "".join(
        f'<rect x="{4 + 9 * i}" y="{34 - h}" width="6" height="{h}" rx="2" fill="#fff"/>'
        for i, h in enumerate((9, 16, 28))
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 40"><title>ElasticCTR</title>{bars}</svg>\n'


def draw_all() -> dict[str, str]:
    """File name → SVG."""
    drawings = (overview, step, distributed, cursor, versions, rollout, request, activation, logo)
    return {f"{draw.__name__}.svg": draw() for draw in drawings}
