"""The slot format, and what holds for every text format (docs/formats/text.md)."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xxhash
from tests.unit.data.formats.parsing import BIG, D2, A, B, assert_bad, bags, feature_hash, parse

from elasticctr.data.formats.parser import Parser
from elasticctr.data.schema import DenseSlot, Format, Pooling, Schema, SparseSlot
from elasticctr.errors import ConfigError

LONG = "a_slot_name_of_more_than_sixteen_bytes"


def test_slot_line() -> None:
    parsed = parse(b"click:1 d:0.5 d:-2 a:1 b:18446744073709551615 a:7 x:9\n\nclick:0\n", D2, A, B)
    assert (parsed.lines, parsed.bad, parsed.bad_count, parsed.next_line) == (2, [], 0, 4)
    batch = parsed.batch
    assert batch.labels.tolist() == [[1], [0]]
    assert batch.dense.tolist() == [[0.5, -2], [0, 0]]
    assert batch.values.tolist() == [1, 7, BIG]
    assert batch.offsets.tolist() == [0, 2, 2, 3, 3]
    assert batch.weights.tolist() == batch.shows.tolist() == [1, 1]
    dtypes = [x.dtype for x in (batch.labels, batch.dense, batch.values, batch.offsets, batch.weights, batch.shows)]
    assert dtypes == ["f4", "f4", "u8", "i4", "f4", "f4"]


def test_slots_in_any_order_and_between_others() -> None:
    text = b"a:1 click:0 d:1 b:5 a:2 d:2 a:3\nd:3 d:4 b:6 click:1\n\tb:7  click:0 a:4 \r\n"
    batch = parse(text, D2, A, B).batch
    assert bags(batch, 0) == [[1, 2, 3], [], [4]]
    assert bags(batch, 1) == [[5], [6], [7]]
    assert batch.dense.tolist() == [[1, 2], [3, 4], [0, 0]]
    assert batch.labels.tolist() == [[0], [1], [0]]


def test_names_that_begin_alike_and_long_names() -> None:
    slots = [SparseSlot(name=n) for n in ("1", "11", "111", LONG, LONG + "x", "sixteen_bytes_ab")]
    text = f"click:0 11:2 111:3 1:1 {LONG}x:5 {LONG}:4 sixteen_bytes_ab:6 sixteen_bytes_abc:7 {LONG[:-1]}:8\n" * 3
    batch = parse(text.encode(), *slots).batch
    assert [bags(batch, s) for s in range(6)] == [[[v]] * 3 for v in (1, 2, 3, 4, 5, 6)]


def test_lines_and_tokens_longer_than_what_is_looked_at_together() -> None:
    many = b" ".join(b"2:%d" % value for value in range(5000))
    skipped = b"x" * 5000 + b":1 unknown:" + b"9" * 9000
    line = b"click:1 " + skipped + b"  1:7\t" + many + b" 1:" + b"0" * 8000 + b"8 "
    batch = parse(line + b"\nclick:0 1:9", SparseSlot(name="1"), SparseSlot(name="2", max_values=1 << 20)).batch
    assert bags(batch, 0) == [[7, 8], [9]]
    assert bags(batch, 1) == [list(range(5000)), []]
    assert batch.labels[:, 0].tolist() == [1, 0]


def test_several_labels_and_a_weight() -> None:
    parsed = parse(b"buy:0 click:1 w:2.5 a:1\nclick:0.25 buy:1\n", A, label=["click", "buy"], weight="w")
    assert parsed.batch.labels.tolist() == [[1, 0], [0.25, 1]]
    assert parsed.batch.weights.tolist() == [2.5, 1]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a:1", "no label 'click'"),
        (b"click:2", "label 'click' is '2', not a number from 0 to 1"),
        (b"click:-1", "label 'click' is '-1'"),
        (b"click:nan", "label 'click' is 'nan'"),
        (b"click:", "label 'click' is ''"),
        (b"click:1 click:1", "label 'click' is given twice"),
        (b"click:0 d:1", "dense slot 'd' has 1 values, not 2"),
        (b"click:0 d:1 d:2 d:3", "dense slot 'd' has more than 2 values"),
        (b"click:0 d:1 d:nan", "dense slot 'd' has 'nan', not a finite number"),
        (b"click:0 d:1 d:inf", "not a finite number"),
        (b"click:0 d:1 d:1e39", "not a finite number"),
        (b"click:0 d:1 d:1e999", "not a finite number"),
        (b"click:0 d:1 d:1x", "'d' is followed by 'x'"),
        (b"click:0 a:18446744073709551616", "slot 'a' has '18446744073709551616', not a feasign"),
        (b"click:0 a:99999999999999999999999", "not a feasign"),
        (b"click:0 a:-5", "not a feasign"),
        (b"click:0 a:", "not a feasign"),
        (b"click:0 a:x7", "not a feasign"),
        (b"click:0 a:7.5", "'a' is followed by '.5'"),
        (b"click:0 w:-1", "weight '-1' is not a number of 0 or more"),
        (b"click:0 w:nan", "weight 'nan'"),
        (b"click:0 w:1 w:1", "weight 'w' is given twice"),
        (b"click:0 junk", "'junk' is not of the form slot:value"),
        (b"\x00\xff\x7fELF\x01", "'\\x00\\xff\\x7fELF\\x01' is not of the form slot:value"),
        (b"click:0 s:", "slot 's' has an empty value"),
    ],
)
def test_bad_slot_line(line: bytes, reason: str) -> None:
    slots = (D2, A, SparseSlot(name="s", values="string"))
    assert_bad(parse(line, *slots, weight="w"), reason)
    among_good = parse(b"click:1 a:1\n" + line + b"\nclick:0 a:2 d:1 d:2\n", *slots, weight="w")
    assert [bad.line for bad in among_good.bad] == [2]
    assert bags(among_good.batch) == [[1], [2]]
    assert among_good.batch.dense.tolist() == [[0, 0], [1, 2]]


def test_bad_lines_are_counted_past_those_kept() -> None:
    parsed = parse(b"click:0\nclick:7\n" * 300, A)
    assert (parsed.bad_count, len(parsed.bad), len(parsed.batch), parsed.lines) == (300, 100, 300, 600)
    assert [bad.line for bad in parsed.bad[:3]] == [2, 4, 6]


def test_line_numbers_go_on_from_the_first() -> None:
    parsed = Parser(Schema(slots=(A,)), threads=1).parse(b"click:0\n\nbad\nclick:1", first_line=100)
    assert [bad.line for bad in parsed.bad] == [102]
    assert parsed.next_line == 104


def test_max_values_keeps_first_or_last() -> None:
    slots = (SparseSlot(name="a", max_values=2), SparseSlot(name="b", max_values=2, pooling=Pooling.NONE))
    batch = parse(b"click:0 a:1 b:1 a:2 b:2 a:3 b:3\nclick:0 a:4 b:4\n", *slots).batch
    assert bags(batch, 0) == [[1, 2], [4]]
    assert bags(batch, 1) == [[2, 3], [4]]


def test_string_values_are_hashed_with_the_slot() -> None:
    slots = (SparseSlot(name="a", values="string"), SparseSlot(name="b", values="string"))
    batch = parse("click:0 a:7 b:7 a:Пермь b:x:y b:12345678\n".encode(), *slots, hash_seed=9).batch
    assert bags(batch, 0) == [[feature_hash("a", v, 9) for v in ("7", "Пермь")]]
    assert bags(batch, 1) == [[feature_hash("b", v, 9) for v in ("7", "x:y", "12345678")]]


def test_dense_numbers_are_pythons() -> None:
    rng = np.random.default_rng(1)
    numbers = np.concatenate([rng.normal(size=300), 10.0 ** rng.uniform(-44, 38, 300), rng.integers(-9, 9**9, 300)])
    texts = [f % x for x in numbers.tolist() for f in ("%.6g", "%.17g", "%.3f", "%e", "%d")]
    texts += ["0", "-0", "+1.5", ".5", "5.", "1E5", "1e-400", "00012.50", "123456789.123456789", "0." + "3" * 80]
    parsed = parse("\n".join(f"click:0 d:{t}" for t in texts).encode(), DenseSlot(name="d"))
    assert parsed.bad == []
    with np.errstate(over="ignore"):
        expected = np.array([float(t) for t in texts]).astype(np.float32)
    assert np.array_equal(parsed.batch.dense[:, 0].view(np.uint32), expected.view(np.uint32))


def test_transforms() -> None:
    log = DenseSlot(name="log", dim=3, transform="log1p")
    scale = DenseSlot(name="scale", dim=2, transform="scale", min=(-3.0, 1.0), diff=(603.0, -2.0))
    text = b"click:0 log:0 log:-5 log:12345.5 scale:0 scale:7\nclick:0\nclick:0 log:1 log:4095 log:4096\n"
    dense = parse(text, log, scale).batch.dense
    expected = [
        [0, 0, math.log1p(12345.5), 3 / 603, 6 / -2],
        [0, 0, 0, 0, 0],
        [math.log1p(1), math.log1p(4095), math.log1p(4096), 0, 0],
    ]
    assert dense.tolist() == np.array(expected, np.float32).tolist()
    divided = parse(text, log.model_copy(update={"diff": (2.0, 1.0, -4.0)}), scale).batch.dense
    assert divided[:, :3].tolist() == (dense[:, :3] / np.array([2, 1, -4], np.float32)).tolist()
    assert divided[:, 3:].tolist() == dense[:, 3:].tolist()


def test_split_by_hash_of_the_line() -> None:
    lines = [b"click:0 a:%d" % i for i in range(3000)]
    schema = Schema(slots=(A,))

    def kept(lo: float, hi: float, end: bytes = b"\n") -> list[int]:
        parsed = Parser(schema, keep=(lo, hi), split_seed=5).parse(end.join(lines))
        assert parsed.lines == len(lines)
        return parsed.batch.values.tolist()

    expected = [i for i, line in enumerate(lines) if 0.3 <= xxhash.xxh64_intdigest(line, 5) / 2**64 < 0.8]
    assert kept(0.3, 0.8) == kept(0.3, 0.8, b"\r\n") == expected
    assert sorted(kept(0, 0.3) + expected + kept(0.8, 1)) == list(range(3000))
    assert kept(0.5, 0.5) == []


def test_bad_lines_outside_the_split_do_not_count() -> None:
    text = b"\n".join(b"bad%d" % i for i in range(1000))
    counts = [Parser(Schema(slots=(A,)), keep=k).parse(text).bad_count for k in ((0, 0.5), (0.5, 1))]
    assert sum(counts) == 1000
    assert min(counts) > 400


def test_threads_do_not_change_the_result() -> None:
    rng = np.random.default_rng(8)
    lines = [
        b"click:%d " % rng.integers(2) + b" ".join(b"%c:%d" % (rng.choice([97, 98, 99]), i) for i in range(20))
        for _ in range(8000)
    ]
    lines[4000] = b"click:9"
    text, schema = b"\n".join(lines), Schema(slots=(A, B))
    alone = Parser(schema, threads=1).parse(text, 11)
    shared = Parser(schema, threads=3)
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda _: shared.parse(text, 11), range(6)))
    for parsed in results:
        for name in ("labels", "values", "offsets", "weights"):
            assert np.array_equal(getattr(parsed.batch, name), getattr(alone.batch, name))
        assert (parsed.bad, parsed.lines, parsed.next_line) == (alone.bad, alone.lines, alone.next_line)
    assert [bad.line for bad in alone.bad] == [4011]


@pytest.mark.parametrize("block", [b"", b"\n\n\r\n"])
def test_block_without_lines(block: bytes) -> None:
    parsed = parse(block, A, B)
    assert (len(parsed.batch), parsed.lines, parsed.bad) == (0, 0, [])
    assert parsed.batch.offsets.tolist() == [0]


def test_any_buffer_is_taken() -> None:
    text = b"click:1 a:5\n"
    parser = Parser(Schema(slots=(A,)))
    for block in (text, bytearray(text), memoryview(text), memoryview(b"xx" + text)[2:]):
        assert parser.parse(block).batch.values.tolist() == [5]


def test_a_batch_outlives_its_parser() -> None:
    batch = parse(b"click:1 a:5\n" * 1000, A).batch
    others = [parse(b"click:0 a:7\n" * 1000, A) for _ in range(3)]
    assert len(others) == 3
    assert set(batch.values.tolist()) == {5}


def test_labels_may_be_missing_when_only_scoring() -> None:
    def labels(text: bytes, *slots: SparseSlot | DenseSlot, format: Format) -> list[float]:
        parsed = Parser(Schema(format=format, slots=slots), require_label=False).parse(text)
        assert parsed.bad == []
        return parsed.batch.labels[:, 0].tolist()

    for text, slots, format in [
        (b"a:1\nclick:1 a:1\n", (A,), Format.SLOT),
        (b"\t" * 38 + b"\n1" + b"\t" * 39, (SparseSlot(name="C1"),), Format.CRITEO),
        (b"5:1\n1 5:1", (A,), Format.LIBSVM),
        (b"a:5:1\n1 a:5:1", (A,), Format.LIBFFM),
    ]:
        first, second = labels(text, *slots, format=format)
        assert math.isnan(first)
        assert second == 1


@pytest.mark.parametrize(
    ("format", "slots", "extra", "message"),
    [
        ("csv", (A,), {}, "format csv is not read line by line"),
        ("criteo", (A,), {}, "26 strings"),
        ("criteo", (D2,), {}, "13 numbers"),
        ("feasign", (D2, A), {}, "no dense slots"),
        ("feasign", (A,), {"weight": "w"}, "has no weights"),
        ("libsvm", (A, B), {}, "one sparse slot"),
        ("libffm", (A,), {"label": ["x", "y"]}, "one label"),
        ("slot", (SparseSlot(name="a b"),), {}, "cannot be named 'a b'"),
        ("slot", (SparseSlot(name="a:b"),), {}, "cannot be named"),
    ],
)
def test_schema_that_does_not_fit_the_format(
    format: str, slots: tuple[SparseSlot | DenseSlot, ...], extra: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(b"", *slots, format=format, **extra)


@pytest.mark.parametrize("keep", [(-0.1, 1), (0.5, 0.4), (0, 1.1), (math.nan, 1)])
def test_split_out_of_range(keep: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="within 0 and 1"):
        Parser(Schema(slots=(A,)), keep=keep)


@pytest.mark.parametrize("format", ["slot", "feasign", "criteo", "libsvm", "libffm"])
def test_random_bytes_are_bad_lines(format: str) -> None:
    slots = (SparseSlot(name="C1"),) if format == "criteo" else (A,)
    garbage = np.random.default_rng(2).integers(0, 256, 1 << 18, dtype=np.uint8).tobytes()
    parsed = parse(garbage, *slots, format=format)
    assert parsed.lines > 500
    assert parsed.bad_count == parsed.lines


@pytest.mark.parametrize(
    ("format", "line"),
    [
        ("slot", b"click:1 item:x past:y past:x past:z past:x\n"),
        ("feasign", b"1 1 x:item y:past x:past z:past x:past\n"),
    ],
)
def test_a_sequence_keeps_its_last_values_in_order_hashed_like_its_target(format: str, line: bytes) -> None:
    item = SparseSlot(name="item", values="string")
    past = SparseSlot(name="past", values="string", pooling=Pooling.NONE, max_values=3, target="item")
    batch = parse(line, item, past, format=format).batch
    assert bags(batch, 0) == [[feature_hash("item", "x")]]
    assert bags(batch, 1) == [[feature_hash("item", value) for value in "xzx"]]
