#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include "bindings/bindings.h"
#include "net/tls.h"
#include "ps/wire/frames.h"
#include "util/crc32c.h"
#include "util/hash.h"
#include "util/memory.h"
#include "util/status.h"
#include "util/thread_pool.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace elasticctr {

void BindUtil(nb::module_& m) {
#ifdef NDEBUG
  m.attr("is_debug_build") = false;
#else
  m.attr("is_debug_build") = true;
#endif
  m.def(
      "xxh64", [](nb::bytes data, uint64_t seed) { return Xxh64(data.c_str(), data.size(), seed); }, "data"_a,
      "seed"_a = 0);
  m.def(
      "feature_hash",
      [](std::string_view slot, nb::bytes value, uint64_t seed) {
        return FeatureHash({value.c_str(), value.size()}, SlotSeed(slot, seed));
      },
      "slot"_a, "value"_a, "seed"_a = 0);
  m.def(
      "crc32c", [](nb::bytes data, uint32_t crc) { return Crc32c(crc, data.c_str(), data.size()); }, "data"_a,
      "crc"_a = 0);
  m.def("tls_library", &net::TlsLibrary, "The library that does TLS, such as 'OpenSSL 3.0.15'; empty: built without.");
  m.attr("BUCKETS") = kBuckets;
  m.attr("WIRE_BUILD") = ps::kWireBuild;
  m.def("bucket_of", &BucketOf, "feasign"_a);
  m.def(
      "shard_of",
      [](uint64_t feasign, uint32_t shards) {
        if (shards < 1 || shards > kBuckets) {
          throw Error(Code::kConfig, "shard count must be 1 to 4096, not " + std::to_string(shards));
        }
        return ShardOf(feasign, shards);
      },
      "feasign"_a, "shards"_a);
  m.def(
      "shards_of",
      [](const nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& feasigns, uint32_t shards) {
        if (shards < 1 || shards > kBuckets) {
          throw Error(Code::kConfig, "shard count must be 1 to 4096, not " + std::to_string(shards));
        }
        auto* found = new uint16_t[feasigns.size()];
        nb::capsule owner(found, [](void* p) noexcept { delete[] static_cast<uint16_t*>(p); });
        for (size_t i = 0; i < feasigns.size(); ++i) {
          found[i] = static_cast<uint16_t>(ShardOf(feasigns.data()[i], shards));
        }
        return nb::ndarray<nb::numpy, uint16_t>(found, {feasigns.size()}, owner);
      },
      "feasigns"_a, "shards"_a);
  m.def(
      "raise_error", [](int code, const std::string& message) { throw Error(static_cast<Code>(code), message); },
      "code"_a, "message"_a, "Throws the native error of a code: how tests reach every one.");
  m.def("keep_freed_memory", &KeepFreedMemory);
  m.def(
      "set_threads",
      [](size_t threads) {
        nb::gil_scoped_release release;
        ThreadPool::SetDefaultThreads(threads);
      },
      "threads"_a);
  m.def("threads", [] { return ThreadPool::Default().size(); });
}

}  // namespace elasticctr
