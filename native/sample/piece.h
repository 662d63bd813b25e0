// Parses one piece of a block, line by line, in one thread.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sample/columns.h"
#include "sample/format/number.h"
#include "sample/parser.h"
#include "sample/split.h"

namespace elasticctr {

class PieceParser {
 public:
  PieceParser(const ParserSpec& spec, const Split& split) : columns_(spec), split_(split) {}
  virtual ~PieceParser() = default;

  // Discards the previous result, then parses `text`. Bytes up to `readable_end` may be read.
  virtual void Parse(std::string_view text, const char* readable_end) = 0;

  const Columns& columns() const { return columns_; }
  uint64_t lines() const { return lines_; }          // that were not empty
  uint64_t line_ends() const { return line_ends_; }  // all lines, the last one even without a line end
  uint64_t bad_count() const { return bad_count_; }
  const std::vector<BadLine>& bad() const { return bad_; }  // lines counted from 0

 protected:
  void Clear() {
    columns_.Clear();
    lines_ = line_ends_ = bad_count_ = 0;
    bad_.clear();
  }

  void AddBad(const std::string& reason) {
    if (bad_count_++ < Block::kBadLinesKept) bad_.push_back({line_ends_, reason});
  }

  Columns columns_;
  const Split split_;
  uint64_t lines_ = 0, line_ends_ = 0, bad_count_ = 0;
  std::vector<BadLine> bad_;
  std::string tail_;
};

// The parser of the spec's format. Throws kConfig if the format cannot provide what the schema requires.
// REQUIRES: `spec` outlives it.
std::unique_ptr<PieceParser> MakePieceParser(const ParserSpec& spec, const Split& split);

template <typename LineType>
class PieceParserOf final : public PieceParser {
 public:
  PieceParserOf(const ParserSpec& spec, const Split& split) : PieceParser(spec, split), line_(spec, &columns_) {}

  void Parse(std::string_view text, const char* readable_end) override {
    Clear();
    const bool keeps_all = split_.keeps_all();
    const char* p = text.data();
    const char* end = p + text.size();
    while (p < end) {
      const void* found = std::memchr(p, '\n', static_cast<size_t>(end - p));
      const char* line_end = found != nullptr ? static_cast<const char*>(found) : end;
      if (static_cast<size_t>(readable_end - line_end) < kLookahead) {
        // The last lines are parsed from a copy with padding after it, so that readers need no bounds checks.
        tail_.assign(p, static_cast<size_t>(end - p));
        tail_.append(kLookahead, '\0');
        p = tail_.data();
        end = p + tail_.size() - kLookahead;
        readable_end = p + tail_.size();
        continue;
      }
      const char* next = line_end + (found != nullptr);
      if (line_end > p && line_end[-1] == '\r') --line_end;
      ParseLine(p, line_end, keeps_all);
      ++line_ends_;
      p = next;
    }
  }

 private:
  ELASTICCTR_INLINE void ParseLine(const char* p, const char* end, bool keeps_all) {
    if (p == end) return;
    ++lines_;
    if (!keeps_all && !split_.Keeps({p, static_cast<size_t>(end - p)})) return;
    columns_.Begin();
    if (line_.Parse(p, end)) [[likely]] {
      columns_.Commit();
    } else {
      columns_.Discard();
      AddBad(line_.reason());
    }
  }

  LineType line_;
};

}  // namespace elasticctr
