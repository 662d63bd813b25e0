// The limit of a lookup service: the same rows in a hash map of this process, no network, no protocol.
//
// kv_hashmap KEYS ROW_BYTES BATCH uniform|zipf SECONDS      prints keys per second of one thread as JSON
//
// Feasign → row number in boost::unordered_flat_map, rows in one block; a batch is found first and copied then, with
// the rows asked for ahead, as a careful user of such a map would write it.
#include <time.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

double Now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

uint64_t Mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  size_t keys = std::strtoull(argv[1], nullptr, 10), row_bytes = std::strtoull(argv[2], nullptr, 10);
  size_t batch = std::strtoull(argv[3], nullptr, 10);
  bool zipf = std::strcmp(argv[4], "zipf") == 0;
  double seconds = std::atof(argv[5]);

  std::vector<uint64_t> rows(keys * row_bytes / 8);
  boost::unordered_flat_map<uint64_t, uint32_t> map;
  map.reserve(keys);
  for (size_t i = 0; i < keys; ++i) {
    uint64_t feasign = Mix(i + 1);
    map[feasign] = static_cast<uint32_t>(i);
    for (size_t w = 0; w < row_bytes / 8; ++w) rows[i * row_bytes / 8 + w] = Mix(feasign + w);
  }
  uint64_t state = 0x9E3779B97F4A7C15ULL;
  std::vector<uint64_t> asked(std::max<size_t>(2'000'000 / batch, 64) * batch);
  for (uint64_t& feasign : asked) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    double u = static_cast<double>(state >> 11) * 0x1p-53, n = static_cast<double>(keys);
    auto i = static_cast<uint64_t>(zipf ? std::pow(n, u) - 1 : n * u);
    feasign = Mix(std::min<uint64_t>(i, keys - 1) + 1);
  }
  std::vector<uint64_t> out(batch * row_bytes / 8);
  std::vector<const uint64_t*> found(batch);
  auto look_up = [&](const uint64_t* feasigns) {
    for (size_t k = 0; k < batch; ++k) {
      auto it = map.find(feasigns[k]);
      found[k] = it == map.end() ? nullptr : rows.data() + it->second * row_bytes / 8;
      if (found[k] != nullptr) __builtin_prefetch(found[k]);
    }
    for (size_t k = 0; k < batch; ++k) {
      if (found[k] != nullptr) std::memcpy(out.data() + k * row_bytes / 8, found[k], row_bytes);
    }
    return out[0];
  };
  uint64_t sum = 0, done = 0;
  size_t at = 0;
  double begin = Now(), now = begin;
  while ((now = Now()) < begin + seconds) {
    for (int i = 0; i<64; ++i, at = at + 2 * batch> asked.size() ? 0 : at + batch) sum += look_up(&asked[at]);
    done += 64 * batch;
  }
  std::printf("{\"keys_s\": %.1f, \"sum\": %llu}\n", static_cast<double>(done) / (now - begin),
              static_cast<unsigned long long>(sum));
  return 0;
}
