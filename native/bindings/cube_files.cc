#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "bindings/bindings.h"
#include "bindings/cube_arrays.h"
#include "cube/build/builder.h"
#include "cube/index/encoding.h"
#include "util/status.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {
namespace {

using namespace cube;
using Floats = nb::ndarray<const float, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<const uint8_t, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;

nb::ndarray<nb::numpy, uint8_t> EncodeArray(Floats values, const std::string& encoding) {
  const Encoding to = EncodingOf(encoding);
  if (to == Encoding::kRaw) throw Error(Code::kConfig, "raw is no encoding of floats; choose fp32, fp16 or int8");
  const size_t n = values.shape(0);
  const auto dim = static_cast<uint32_t>(values.shape(1));
  auto rows = NewNumpy<uint8_t>({n, RowBytes(to, dim)});
  size_t bad;
  {
    nb::gil_scoped_release release;
    bad = EncodeRows(values.data(), n, dim, to, rows.data());
  }
  if (bad > 0) {
    throw Error(Code::kData, std::to_string(bad) + " of " + std::to_string(n * dim) + " values do not fit into " +
                                 encoding + " (not finite, or too large); publish fp32 or look at the training run");
  }
  return rows;
}

nb::ndarray<nb::numpy, float> DecodeArray(Rows rows, const std::string& encoding, uint32_t dim) {
  const Encoding from = EncodingOf(encoding);
  if (from == Encoding::kRaw) throw Error(Code::kConfig, "raw rows have no floats to decode");
  const size_t n = rows.shape(0);
  if (rows.shape(1) != RowBytes(from, dim)) {
    throw Error(Code::kData, encoding + " rows of " + std::to_string(dim) + " floats have " +
                                 std::to_string(RowBytes(from, dim)) + " bytes, not " + std::to_string(rows.shape(1)));
  }
  auto values = NewNumpy<float>({n, dim});
  nb::gil_scoped_release release;
  DecodeRows(rows.data(), n, dim, from, values.data());
  return values;
}

void BindInfo(nb::module_& m) {
  nb::class_<IndexInfo>(m, "CubeInfo")
      .def_ro("name", &IndexInfo::name)
      .def_prop_ro("kind", [](const IndexInfo& i) { return i.kind == Kind::kBase ? "base" : "delta"; })
      .def_prop_ro("encoding", [](const IndexInfo& i) { return EncodingName(i.encoding); })
      .def_prop_ro("sharding",
                   [](const IndexInfo& i) { return i.sharding == Sharding::kBuckets ? "buckets" : "modulo"; })
      .def_ro("dim", &IndexInfo::dim)
      .def_ro("row_bytes", &IndexInfo::row_bytes)
      .def_ro("shard", &IndexInfo::shard)
      .def_ro("shards", &IndexInfo::shards)
      .def_ro("version", &IndexInfo::version)
      .def_ro("parent", &IndexInfo::parent)
      .def_ro("rows", &IndexInfo::rows)
      .def_ro("tombstones", &IndexInfo::tombstones)
      .def_ro("homes", &IndexInfo::homes)
      .def_ro("buckets", &IndexInfo::buckets)
      .def_ro("file_bytes", &IndexInfo::file_bytes);
}

// The entries of some buckets: (feasigns, whether each has a row, rows of those that have).
nb::tuple Scan(const Index& index, uint64_t first, uint64_t count) {
  const Image& image = index.image();
  const uint64_t last = std::min(image.bucket_count, first + std::min(count, image.bucket_count));
  size_t n = 0, live = 0;
  for (uint64_t b = first; b < last; ++b) {
    const Bucket& bucket = image.buckets[b];
    if (bucket.count > Bucket::kFeasigns) throw Error(Code::kCorruption, index.info().name + ": a damaged bucket");
    n += bucket.count;
    live += bucket.count - static_cast<unsigned>(std::popcount(bucket.dead));
  }
  const uint64_t row = first < last ? image.buckets[first].first_row() : 0;
  if (live > image.row_count || row > image.row_count - live) {
    throw Error(Code::kCorruption, index.info().name + ": a damaged bucket");
  }
  auto feasigns = NewNumpy<uint64_t>({n});
  auto mask = NewNumpy<bool>({n});
  auto rows = NewNumpy<uint8_t>({live, image.row_bytes});
  size_t at = 0;
  for (uint64_t b = first; b < last; ++b) {
    for (unsigned i = 0; i < image.buckets[b].count; ++i, ++at) {
      feasigns.data()[at] = image.buckets[b].feasigns[i];
      mask.data()[at] = !(image.buckets[b].dead >> i & 1);
    }
  }
  std::memcpy(rows.data(), image.rows + row * image.row_bytes, live * image.row_bytes);
  index.CheckWhole();
  return nb::make_tuple(feasigns, mask, rows);
}

void BindIndex(nb::module_& m) {
  nb::class_<Index>(m, "CubeIndex")
      .def_static(
          "open",
          [](const std::string& path, const std::string& residence, bool check_all) {
            nb::gil_scoped_release release;
            return Index::Open(path, ResidenceOf(residence), check_all ? Check::kAll : Check::kHeader);
          },
          "path"_a, "residence"_a = "mapped", "check_all"_a = false)
      .def_prop_ro(
          "info", [](const Index& self) -> const IndexInfo& { return self.info(); }, nb::rv_policy::reference_internal)
      .def_prop_ro("resident_bytes", &Index::resident_bytes)
      .def("scan", &Scan, "bucket"_a, "buckets"_a)
      .def(
          "lookup",
          [](const Index& self, Feasigns feasigns) {
            Layers layers;
            layers.images[layers.count++] = self.image();
            layers.sharding = self.info().sharding;
            layers.shard = self.info().shard;
            layers.shards = self.info().shards;
            return Ask(self.info(), feasigns, [&](uint8_t* rows, uint8_t* bits, size_t* hits) {
              const LookupResult result = LookupRows(layers, feasigns.data(), feasigns.size(), rows, bits, hits);
              self.CheckWhole();
              return result;
            });
          },
          "feasigns"_a);
  m.def(
      "compact_cube_files",
      [](const std::vector<std::string>& paths, uint64_t version, const std::string& out) {
        nb::gil_scoped_release release;
        std::vector<std::shared_ptr<const Index>> layers;
        for (const std::string& path : paths) layers.push_back(Index::Open(path, Residence::kMapped, Check::kAll));
        if (layers.empty()) throw Error(Code::kConfig, out + ": nothing to compact");
        IndexInfo info = layers.front()->info();
        info.version = version;
        return Index::Compact(layers, info, out);
      },
      "paths"_a, "version"_a, "out"_a);
}

IndexInfo InfoOf(std::string name, const std::string& kind, const std::string& encoding, uint32_t dim,
                 uint32_t row_bytes, const std::string& sharding, uint32_t shards, uint64_t version, uint64_t parent) {
  if (kind != "base" && kind != "delta") throw Error(Code::kConfig, "unknown kind '" + kind + "'; base or delta");
  if (sharding != "buckets" && sharding != "modulo") {
    throw Error(Code::kConfig, "unknown sharding '" + sharding + "'; buckets or modulo");
  }
  IndexInfo info;
  info.name = std::move(name);
  info.kind = kind == "base" ? Kind::kBase : Kind::kDelta;
  info.encoding = EncodingOf(encoding);
  info.sharding = sharding == "buckets" ? Sharding::kBuckets : Sharding::kModulo;
  info.dim = dim;
  info.row_bytes = row_bytes;
  info.shards = shards;
  info.version = version;
  info.parent = parent;
  return info;
}

void BindBuilder(nb::module_& m) {
  nb::class_<Builder>(m, "CubeBuilder")
      .def(
          "__init__",
          [](Builder* self, std::string name, const std::string& kind, const std::string& encoding, uint32_t dim,
             uint32_t row_bytes, const std::string& sharding, uint32_t shards, uint64_t version, uint64_t parent,
             std::string run_directory, uint64_t memory_bytes, uint64_t expected_rows, unsigned threads,
             bool is_chain) {
            IndexInfo info = InfoOf(std::move(name), kind, encoding, dim, row_bytes, sharding, shards, version, parent);
            new (self)
                Builder({std::move(info), std::move(run_directory), memory_bytes, expected_rows, threads, is_chain});
          },
          "name"_a, "kind"_a, "encoding"_a, "dim"_a, "row_bytes"_a, "sharding"_a, "shards"_a, "version"_a, "parent"_a,
          "run_directory"_a, "memory_bytes"_a, "expected_rows"_a = 0, "threads"_a = 1, "is_chain"_a = false)
      .def(
          "add",
          [](Builder& self, Feasigns feasigns, Rows rows) {
            const size_t row_bytes = self.row_bytes();
            if (rows.shape(0) != feasigns.size() || rows.shape(1) != row_bytes) {
              throw Error(Code::kData, "rows of " + std::to_string(row_bytes) + " bytes for " +
                                           std::to_string(feasigns.size()) + " feasigns were given as " +
                                           std::to_string(rows.shape(0)) + " of " + std::to_string(rows.shape(1)));
            }
            nb::gil_scoped_release release;
            self.Add(feasigns.data(), rows.data(), feasigns.size());
          },
          "feasigns"_a, "rows"_a)
      .def(
          "add_gone",
          [](Builder& self, Feasigns feasigns) {
            nb::gil_scoped_release release;
            self.AddGone(feasigns.data(), feasigns.size());
          },
          "feasigns"_a)
      .def(
          "finish",
          [](Builder& self, const std::vector<std::string>& paths) {
            BuilderResult result;
            {
              nb::gil_scoped_release release;
              result = self.Finish(paths);
            }
            return nb::make_tuple(result.files, result.duplicates, result.run_bytes);
          },
          "paths"_a)
      .def_prop_ro("progress", &Builder::progress);
}

}  // namespace

void BindCubeFiles(nb::module_& m) {
  m.def("encode_rows", &EncodeArray, "values"_a, "encoding"_a);
  m.def("decode_rows", &DecodeArray, "rows"_a, "encoding"_a, "dim"_a);
  BindInfo(m);
  BindIndex(m);
  BindBuilder(m);
}

}  // namespace elasticctr
