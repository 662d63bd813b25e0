#include "sample/format/writer.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "util/hash.h"
#include "util/status.h"

namespace elasticctr {
namespace {

constexpr size_t kNumberBytes = 24;  // the longest u64 or shortest-form float32, with room to spare

inline void WriteHex(uint64_t code, char* p) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 28; shift >= 0; shift -= 4) *p++ = kDigits[(code >> shift) & 15];
}

// Writes to a string through a raw cursor; Reserve makes room once per slot instead of once per byte.
class Cursor {
 public:
  explicit Cursor(std::string* out) : out_(out) {}

  size_t size() const { return at_; }
  void Reserve(size_t bytes) {
    if (at_ + bytes > out_->size()) out_->resize(out_->size() * 2 + bytes + 4096);
  }
  void Put(char c) { (*out_)[at_++] = c; }
  void Put(std::string_view s) {
    std::memcpy(out_->data() + at_, s.data(), s.size());
    at_ += s.size();
  }
  void PutId(uint64_t v) {
    char* p = out_->data() + at_;
    at_ += static_cast<size_t>(std::to_chars(p, p + kNumberBytes, v).ptr - p);
  }
  void PutFloat(float v) {
    char* p = out_->data() + at_;
    // Counts and labels are usually integers, and integers are cheaper to write.
    if (std::fabs(v) < 1e9f && v == static_cast<float>(static_cast<int32_t>(v)) && !(v == 0 && std::signbit(v))) {
      at_ += static_cast<size_t>(std::to_chars(p, p + kNumberBytes, static_cast<int32_t>(v)).ptr - p);
    } else {
      at_ += static_cast<size_t>(std::to_chars(p, p + kNumberBytes, v).ptr - p);
    }
  }
  void PutHex(uint64_t code) {
    WriteHex(code, out_->data() + at_);
    at_ += 8;
  }
  void EndLine() {
    if (at_ > 0 && ((*out_)[at_ - 1] == ' ')) --at_;
    Put('\n');
  }

 private:
  std::string* out_;
  size_t at_ = 0;
};

class Lines {
 public:
  Lines(const LineLayout& layout, const LineColumns& columns, std::string* out)
      : layout_(layout), columns_(columns), out_(out) {
    for (const LineSlot& slot : layout.slots) {
      if (slot.dense) dense_dim_ += slot.dim;
      room_ += slot.name.size();
    }
    for (const std::string& label : layout.labels) room_ += label.size();
  }

  size_t size() const { return out_.size(); }

  void Write(size_t row) {
    // All parts but sparse values have a known bound; sparse values reserve their own room.
    out_.Reserve(room_ + layout_.weight.size() + 8 + (layout_.labels.size() + 3) * (kNumberBytes + 2));
    PutHead(row);
    size_t sparse = 0, first = 0;
    for (const LineSlot& slot : layout_.slots) {
      if (slot.dense) {
        PutDense(row, slot, first);
        first += slot.dim;
      } else {
        PutSparse(row, slot, sparse++);
      }
    }
    out_.EndLine();
  }

 private:
  float Label(size_t row, size_t i) const { return columns_.labels[row * layout_.labels.size() + i]; }

  void PutHead(size_t row) {
    switch (layout_.format) {
      case LineFormat::kSlot:
        for (size_t i = 0; i < layout_.labels.size(); ++i) PutFloatToken(layout_.labels[i], Label(row, i));
        if (!layout_.weight.empty()) PutFloatToken(layout_.weight, columns_.weights[row]);
        break;
      case LineFormat::kFeasign:
        out_.PutFloat(columns_.shows[row]);
        out_.Put(' ');
        out_.PutFloat(Label(row, 0));
        out_.Put(' ');
        break;
      case LineFormat::kCriteo: out_.PutFloat(Label(row, 0)); break;
      case LineFormat::kLibsvm:
      case LineFormat::kLibffm:
        out_.PutFloat(Label(row, 0));
        out_.Put(' ');
        break;
    }
  }

  void PutFloatToken(const std::string& name, float value) {
    out_.Put(name);
    out_.Put(':');
    out_.PutFloat(value);
    out_.Put(' ');
  }

  void PutDense(size_t row, const LineSlot& slot, size_t first) {
    out_.Reserve(slot.dim * (slot.name.size() + 2 * kNumberBytes + 4) + 8);
    for (size_t d = 0; d < slot.dim; ++d) {
      float v = columns_.dense[row * dense_dim_ + first + d];
      if (layout_.format == LineFormat::kCriteo) {
        out_.Put('\t');
        if (std::isnan(v)) continue;
        if (v != std::floor(v)) {
          throw Error(Code::kData, "the criteo format holds whole numbers, slot '" + slot.name + "' has " +
                                       std::to_string(v) + "; write another format");
        }
        out_.PutFloat(v);
        continue;
      }
      if (!std::isfinite(v)) {
        throw Error(Code::kData,
                    "a value of dense slot '" + slot.name + "' is not finite, which this format cannot hold");
      }
      if (layout_.format == LineFormat::kSlot) {
        PutFloatToken(slot.name, v);
      } else if (layout_.format == LineFormat::kLibsvm) {
        out_.PutId(first + d + 1);
        out_.Put(':');
        out_.PutFloat(v);
        out_.Put(' ');
      } else if (layout_.format == LineFormat::kLibffm) {
        out_.Put(slot.name);
        out_.Put(':');
        out_.PutId(d);
        out_.Put(':');
        out_.PutFloat(v);
        out_.Put(' ');
      } else {
        throw Error(Code::kData, "the feasign format has no place for dense slot '" + slot.name + "'");
      }
    }
  }

  void PutSparse(size_t row, const LineSlot& slot, size_t index) {
    size_t begin = static_cast<size_t>(columns_.offsets[index * columns_.samples + row]);
    size_t end = static_cast<size_t>(columns_.offsets[index * columns_.samples + row + 1]);
    out_.Reserve((end - begin) * (slot.name.size() + kNumberBytes + 6) + 8);
    if (layout_.format == LineFormat::kCriteo) {
      if (end - begin > 1) {
        throw Error(Code::kData, "the criteo format holds one value per slot, slot '" + slot.name + "' has " +
                                     std::to_string(end - begin) + "; write another format");
      }
      out_.Put('\t');
      if (begin < end) out_.PutHex(columns_.values[begin]);
      return;
    }
    for (size_t i = begin; i < end; ++i) {
      uint64_t v = columns_.values[i];
      switch (layout_.format) {
        case LineFormat::kSlot:
          out_.Put(slot.name);
          out_.Put(':');
          PutValue(slot, v);
          break;
        case LineFormat::kFeasign:
          PutValue(slot, v);
          out_.Put(':');
          out_.Put(slot.name);
          break;
        case LineFormat::kLibsvm:
          if (dense_dim_ > 0 && v <= dense_dim_) {
            throw Error(Code::kData, "feasign " + std::to_string(v) +
                                         " would read as a dense value: the libsvm format numbers those 1 to " +
                                         std::to_string(dense_dim_) + "; write another format");
          }
          PutValue(slot, v);
          out_.Put(":1");
          break;
        default:
          out_.Put(slot.name);
          out_.Put(':');
          PutValue(slot, v);
          out_.Put(":1");
          break;
      }
      out_.Put(' ');
    }
  }

  void PutValue(const LineSlot& slot, uint64_t v) {
    if (slot.hex) {
      out_.PutHex(v);
    } else {
      out_.PutId(v);
    }
  }

  const LineLayout& layout_;
  const LineColumns& columns_;
  Cursor out_;
  size_t dense_dim_ = 0;
  size_t room_ = 0;
};

}  // namespace

LineFormat LineFormatOf(std::string_view name) {
  if (name == "slot") return LineFormat::kSlot;
  if (name == "feasign") return LineFormat::kFeasign;
  if (name == "criteo") return LineFormat::kCriteo;
  if (name == "libsvm") return LineFormat::kLibsvm;
  if (name == "libffm") return LineFormat::kLibffm;
  throw Error(Code::kConfig,
              "'" + std::string(name) + "' is not a text format; use slot, feasign, criteo, libsvm or libffm");
}

size_t WriteLines(const LineLayout& layout, const LineColumns& columns, std::string* out) {
  size_t dense_dim = 0, sparse = 0;
  for (const LineSlot& slot : layout.slots) slot.dense ? dense_dim += slot.dim : ++sparse;
  size_t n = columns.samples;
  if (layout.labels.empty() || columns.labels.size() != n * layout.labels.size() ||
      columns.dense.size() != n * dense_dim || columns.offsets.size() != sparse * n + 1 ||
      columns.weights.size() != n || columns.shows.size() != n || columns.offsets.back() < 0 ||
      static_cast<size_t>(columns.offsets.back()) > columns.values.size()) {
    throw Error(Code::kInternal, "columns to write do not fit their layout");
  }
  Lines lines(layout, columns, out);
  for (size_t row = 0; row < n; ++row) lines.Write(row);
  return lines.size();
}

void HashHexCodes(std::span<const uint64_t> codes, uint64_t slot_seed, uint64_t* feasigns) {
  char digits[8];
  for (size_t i = 0; i < codes.size(); ++i) {
    WriteHex(codes[i], digits);
    feasigns[i] = FeatureHash({digits, sizeof digits}, slot_seed);
  }
}

}  // namespace elasticctr
