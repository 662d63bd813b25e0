#include "sample/parser.h"

#include <algorithm>
#include <set>

#include "sample/format/criteo_line.h"
#include "sample/format/feasign_line.h"
#include "sample/format/slot_line.h"
#include "sample/format/svm_line.h"
#include "sample/piece.h"
#include "util/status.h"

namespace elasticctr {
namespace {

// The smallest piece that justifies another thread.
constexpr size_t kMinPiece = 128 << 10;

const char* NameOf(TextFormat format) {
  switch (format) {
    case TextFormat::kFeasign: return "feasign";
    case TextFormat::kSlot: return "slot";
    case TextFormat::kCriteo: return "criteo";
    case TextFormat::kLibsvm: return "libsvm";
    case TextFormat::kLibffm: return "libffm";
  }
  return "?";
}

void CheckNames(const ParserSpec& spec) {
  std::set<std::string_view> seen;
  const bool in_text = spec.format != TextFormat::kCriteo && spec.format != TextFormat::kLibsvm;
  const auto check = [&](const std::string& name) {
    if (name.empty() || (in_text && name.find_first_of(" \t\r\n:") != std::string::npos)) {
      throw Error(Code::kConfig,
                  "a slot of a text log cannot be named '" + name + "': no blanks, no colons, not empty");
    }
    if (!seen.insert(name).second) throw Error(Code::kConfig, "the name '" + name + "' is used twice in the schema");
  };
  for (const auto& name : spec.labels) check(name);
  if (!spec.weight.empty()) check(spec.weight);
  for (const auto& slot : spec.dense) check(slot.name);
  for (const auto& slot : spec.sparse) check(slot.name);
}

void CheckSpec(const ParserSpec& spec) {
  CheckNames(spec);
  const std::string format = NameOf(spec.format);
  if (spec.labels.empty()) throw Error(Code::kConfig, "a schema needs a label");
  if (spec.format != TextFormat::kSlot) {
    if (spec.labels.size() != 1)
      throw Error(Code::kConfig, "format " + format + " has one label, the schema has several");
    if (!spec.weight.empty()) throw Error(Code::kConfig, "format " + format + " has no weights; leave out 'weight'");
  }
  for (const auto& slot : spec.dense) {
    if (!slot.is_whole()) {
      throw Error(Code::kConfig, "slot '" + slot.name + "': its transform needs one min and one diff per dimension");
    }
  }
}

}  // namespace

Parser::Parser(ParserSpec spec, Split split, size_t threads) : spec_(std::move(spec)), split_(split) {
  if (threads > 0) own_pool_ = std::make_unique<ThreadPool>(threads);
  idle_.push_back(MakePieceParser(spec_, split_));  // reports a schema that does not fit the format now
}

Parser::~Parser() = default;

std::unique_ptr<PieceParser> MakePieceParser(const ParserSpec& spec, const Split& split) {
  CheckSpec(spec);
  switch (spec.format) {
    case TextFormat::kSlot: return std::make_unique<PieceParserOf<SlotLine>>(spec, split);
    case TextFormat::kCriteo: return std::make_unique<PieceParserOf<CriteoLine>>(spec, split);
    case TextFormat::kFeasign: return std::make_unique<PieceParserOf<FeasignLine>>(spec, split);
    case TextFormat::kLibsvm: return std::make_unique<PieceParserOf<LibsvmLine>>(spec, split);
    case TextFormat::kLibffm: return std::make_unique<PieceParserOf<LibffmLine>>(spec, split);
  }
  throw Error(Code::kConfig, "unknown text format");
}

Parser::Pieces Parser::TakePieces(size_t count) {
  Pieces pieces;
  {
    std::lock_guard lock(mutex_);
    for (; !idle_.empty() && pieces.size() < count; idle_.pop_back()) pieces.push_back(std::move(idle_.back()));
  }
  while (pieces.size() < count) pieces.push_back(MakePieceParser(spec_, split_));
  return pieces;
}

std::unique_ptr<Block> Parser::Parse(std::string_view text, uint64_t first_line) {
  ThreadPool* pool = own_pool_ ? own_pool_.get() : &ThreadPool::Default();
  const size_t threads = pool->size();
  const size_t count = threads == 1 ? 1 : std::clamp<size_t>(text.size() / kMinPiece, 1, 2 * threads);
  Pieces pieces = TakePieces(count);
  std::vector<std::string_view> texts;
  size_t begin = 0;
  for (size_t i = 1; i <= count; ++i) {
    size_t end = text.size();
    if (i < count) {
      end = text.find('\n', std::max(begin, text.size() / count * i));
      end = end == std::string_view::npos ? text.size() : end + 1;
    }
    texts.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  pool->Run(count, [&](size_t i) { pieces[i]->Parse(texts[i], text.data() + text.size()); });
  std::unique_ptr<Block> block = Join(pieces, first_line, pool);
  std::lock_guard lock(mutex_);
  for (auto& piece : pieces) idle_.push_back(std::move(piece));
  return block;
}

namespace {

// Allocates one block of memory for all arrays, whose sizes are known.
void Allocate(Block* block) {
  const size_t n = block->n;
  const size_t floats = n * (block->label_count + block->dense_dim + 2);
  const size_t bytes =
      block->value_count * sizeof(uint64_t) + floats * sizeof(float) + block->offset_count * sizeof(int32_t);
  block->memory.reset(new std::byte[bytes]);
  block->values = reinterpret_cast<uint64_t*>(block->memory.get());
  block->offsets = reinterpret_cast<int32_t*>(block->values + block->value_count);
  block->labels = reinterpret_cast<float*>(block->offsets + block->offset_count);
  block->dense = block->labels + n * block->label_count;
  block->weights = block->dense + n * block->dense_dim;
  block->shows = block->weights + n;
}

}  // namespace

std::unique_ptr<Block> Parser::Join(const Pieces& pieces, uint64_t first_line, ThreadPool* pool) const {
  auto block = std::make_unique<Block>();
  block->label_count = spec_.labels.size();
  block->dense_dim = spec_.dense_dim();
  block->next_line = first_line;
  const size_t slots = spec_.sparse.size();
  std::vector<size_t> slot_begin(slots + 1);
  for (const auto& piece : pieces) {
    block->n += piece->columns().rows();
    block->lines += piece->lines();
    block->bad_count += piece->bad_count();
    for (const BadLine& bad : piece->bad()) {
      if (block->bad.size() < Block::kBadLinesKept) block->bad.push_back({block->next_line + bad.line, bad.reason});
    }
    block->next_line += piece->line_ends();
    for (size_t s = 0; s < slots; ++s) slot_begin[s + 1] += piece->columns().value_count(s);
  }
  for (size_t s = 0; s < slots; ++s) slot_begin[s + 1] += slot_begin[s];
  const size_t n = block->n;
  block->value_count = slot_begin[slots];
  block->offset_count = slots * n + 1;
  if (block->value_count > INT32_MAX || block->offset_count > INT32_MAX) {
    throw Error(Code::kFailedPrecondition, "a block holds over 2^31 values; read smaller blocks");
  }
  Allocate(block.get());

  // One task per slot, one for the rest.
  pool->Run(slots + 1, [&](size_t s) {
    size_t row = 0;
    if (s == slots) {
      for (const auto& piece : pieces) {
        const Columns& from = piece->columns();
        std::copy_n(from.all_labels(), from.rows() * block->label_count, block->labels + row * block->label_count);
        std::copy_n(from.all_dense(), from.rows() * block->dense_dim, block->dense + row * block->dense_dim);
        std::copy_n(from.all_weights(), from.rows(), block->weights + row);
        std::copy_n(from.all_shows(), from.rows(), block->shows + row);
        row += from.rows();
      }
      block->offsets[0] = 0;
      return;
    }
    size_t value = slot_begin[s];
    int32_t* ends = block->offsets + s * n + 1;
    for (const auto& piece : pieces) {
      const Columns& from = piece->columns();
      const int32_t* piece_ends = from.ends(s);
      const auto base = static_cast<int32_t>(value);
      for (size_t i = 0; i < from.rows(); ++i) ends[row + i] = base + piece_ends[i];
      std::copy_n(from.values(s), from.value_count(s), block->values + value);
      row += from.rows();
      value += from.value_count(s);
    }
  });
  return block;
}

}  // namespace elasticctr
