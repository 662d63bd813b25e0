// Text → samples. A Parser takes a block of whole lines and returns its samples as columns (data/batch.py has the
// layout), together with the lines that could not be read. Empty lines are skipped. The result depends on the bytes
// alone, not on threads or on earlier calls.
//
// Threads: Parse may be called from several threads at once. With threads = 1 the caller does all work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "sample/spec.h"
#include "sample/split.h"
#include "util/thread_pool.h"

namespace elasticctr {

struct BadLine {
  uint64_t line;  // counted from the first_line given to Parse
  std::string reason;
};

// The samples of a block. n samples, L labels, D dense dimensions, S sparse slots.
struct Block {
  size_t n = 0, label_count = 0, dense_dim = 0, value_count = 0, offset_count = 0;
  float* labels;     // [n, L]
  float* dense;      // [n, D]
  float* weights;    // [n]
  float* shows;      // [n]
  uint64_t* values;  // [value_count], slot after slot, sample after sample
  int32_t* offsets;  // [S * n + 1]

  uint64_t lines = 0;      // lines seen that were not empty
  uint64_t next_line = 0;  // number of the first line after the block
  uint64_t bad_count = 0;
  std::vector<BadLine> bad;  // the first kBadLinesKept of them

  static constexpr size_t kBadLinesKept = 100;

  std::unique_ptr<std::byte[]> memory;  // all arrays above
};

class PieceParser;

class Parser {
 public:
  // Throws kConfig if the format cannot provide what the schema requires.
  // `threads`: 0 for the process-wide pool.
  Parser(ParserSpec spec, Split split, size_t threads);
  ~Parser();
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  // The last line may lack a line end.
  std::unique_ptr<Block> Parse(std::string_view text, uint64_t first_line);

 private:
  using Pieces = std::vector<std::unique_ptr<PieceParser>>;

  Pieces TakePieces(size_t count);
  std::unique_ptr<Block> Join(const Pieces& pieces, uint64_t first_line, ThreadPool* pool) const;

  const ParserSpec spec_;
  const Split split_;
  std::unique_ptr<ThreadPool> own_pool_;
  std::mutex mutex_;
  Pieces idle_;  // kept for their memory
};

}  // namespace elasticctr
