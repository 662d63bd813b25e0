#include "serve/codec/samples.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "sample/format/line.h"
#include "sample/piece.h"
#include "sample/transform.h"
#include "util/hash.h"
#include "util/number.h"
#include "util/status.h"

namespace elasticctr::serve {
namespace {

constexpr uint32_t kExponent = 0x7f800000;
constexpr size_t kMinRoom = 64;
constexpr size_t kMaxRoom = size_t{1} << 31;
constexpr size_t kParsers = 8;  // cached: a worker serves few versions and formats at a time

[[noreturn]] void RefuseDense(const std::string& name, const char* why) {
  throw Error(Code::kData, "dense slot '" + name + "' " + why);
}

}  // namespace

Samples::Samples() = default;
Samples::~Samples() = default;

void Samples::Reset(const Plan* plan) {
  plan_ = plan;
  const std::vector<SparseSpec>& slots = plan->spec.sparse;
  if (plan->sparse.size() != columns_.size()) {
    columns_.resize(plan->sparse.size());
    given_.resize(plan->sparse.size());
    capacity_ = 0;
  }
  given_slots_ = slots.size();
  for (size_t i = given_slots_; i < columns_.size(); ++i) {  // derived slots are cut when they are made
    Column& column = columns_[i];
    column.max_values = ~0u;
    column.keep_last = true;
    column.next = column.begin;
    StartBag(&column);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    Column& column = columns_[i];
    column.max_values = slots[i].max_values;
    column.keep_last = slots[i].keep_last;
    column.hash_seed = plan->hash_seeds[i];
    column.hashes_text = slots[i].hashed || plan->sparse[i].is_typed;
    column.next = column.begin;
    StartBag(&column);
  }
  ForgetGiven();
  dense_offsets_.clear();
  uint32_t offset = 0;
  for (const DenseSpec& slot : plan->spec.dense) {
    dense_offsets_.push_back(offset);
    offset += slot.dim;
  }
  if (offset != dense_dim_) {
    dense_dim_ = offset;
    capacity_ = 0;
  }
  size_ = first_sample_ = 0;
  open_ = Open::kNothing;
  requests_.clear();
  NoteFirstValues(0);
}

void Samples::BeginRequest() {
  first_sample_ = size_;
  has_shared_ = false;
  shared_bags_.assign(columns_.size(), Bag{});
  shared_dense_ = plan_->missing_dense;
  open_ = Open::kShared;
}

void Samples::BeginSample() {
  CloseBags();
  GrowSamples(1);
  std::copy_n(shared_dense_.data(), dense_dim_, dense_.data() + size_ * dense_dim_);
  open_ = Open::kSample;
}

void Samples::EndRequest() {
  CloseBags();
  if (columns_.size() > given_slots_) DeriveSlots();
  NoteFirstValues(requests_.size() + 1);
  uint32_t* count = shared_counts_.data() + requests_.size() * columns_.size();
  for (const Bag& bag : shared_bags_) *count++ = bag.count;
  requests_.push_back({first_sample_, size_ - first_sample_});
}

void Samples::DropRequest() {
  const uint32_t* first = first_values(requests_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    columns_[i].next = columns_[i].begin + first[i];
    StartBag(&columns_[i]);
  }
  ForgetGiven();
  size_ = first_sample_;
  open_ = Open::kNothing;
}

size_t Samples::request_values() const {
  const uint32_t* first = first_values(requests_.size());
  size_t sum = 0;
  for (size_t i = 0; i < columns_.size(); ++i) {
    sum += static_cast<size_t>(columns_[i].next - columns_[i].begin) - first[i];
  }
  return sum;
}

void Samples::AddText(uint32_t slot, std::string_view value) {
  GiveSlot(slot);
  if (value.empty()) return;
  const Column& column = columns_[slot];
  if (column.hashes_text && value.size() == 8) {  // true of most hashed values in logs
    return AddFeasign(slot, FeatureHash8(DecodeFixed64(value.data()), column.hash_seed));
  }
  if (column.hashes_text) return AddFeasign(slot, FeatureHash(value, plan_->hash_seeds[slot]));
  const auto feasign = ParseNumber<uint64_t>(value);
  if (!feasign) {
    throw Error(Code::kData, "slot '" + plan_->spec.sparse[slot].name + "' has " + Quote(value) +
                                 ", not a feasign (an integer from 0 to 2^64 - 1)");
  }
  AddFeasign(slot, *feasign);
}

void Samples::AddNumber(uint32_t slot, uint64_t value) {
  if (!plan_->spec.sparse[slot].hashed) return AddFeasign(slot, value);
  char text[20];
  const auto [after, error] = std::to_chars(text, text + sizeof(text), value);
  AddFeasign(slot, FeatureHash({text, static_cast<size_t>(after - text)}, plan_->hash_seeds[slot]));
}

void Samples::SetDense(uint32_t slot, uint32_t i, float value) {
  if (!std::isfinite(value)) RefuseDense(plan_->spec.dense[slot].name, "has a value that is not a finite number");
  *DenseOf(slot, i) = value;
}

void Samples::MissDense(uint32_t slot, uint32_t i) {
  float* to = DenseOf(slot, i);
  *to = plan_->missing_dense[dense_offsets_[slot] + i];
}

void Samples::SetRawDense(uint32_t slot, uint32_t i, double value) {
  const DenseSpec& spec = plan_->spec.dense[slot];
  float* to = DenseOf(slot, i);
  if (!std::isfinite(value)) RefuseDense(spec.name, "has a value that is not a finite number");
  const float result = TransformDense(spec, i, value);
  if (!std::isfinite(result)) RefuseDense(spec.name, "has a number too large for it");
  *to = result;
}

void Samples::AddLines(TextFormat format, std::string_view text) {
  PieceParser* parser = ParserOf(format);
  parser->Parse(text, text.data() + text.size());
  if (!parser->bad().empty()) {
    const BadLine& bad = parser->bad().front();
    throw Error(Code::kData, "line " + std::to_string(bad.line + 1) + ": " + bad.reason);
  }
  CloseBags();
  const auto& lines = parser->columns();
  const size_t rows = lines.rows(), slots = columns_.size();
  GrowSamples(rows);
  std::copy_n(lines.all_dense(), rows * dense_dim_, dense_.data() + size_ * dense_dim_);
  for (uint32_t slot = 0; slot < given_slots_; ++slot) {
    Column& column = columns_[slot];
    const size_t count = lines.value_count(slot);
    if (count > 0) {
      Reserve(&column, static_cast<size_t>(column.start - column.begin) + count);
      std::copy_n(lines.values(slot), count, column.start);
    }
    const auto base = static_cast<uint32_t>(column.start - column.begin);
    const int32_t* ends = lines.ends(slot);
    Bag* bag = bags_.data() + size_ * slots + slot;
    uint32_t first = 0;
    for (size_t row = 0; row < rows; ++row, bag += slots) {
      const auto end = static_cast<uint32_t>(ends[row]);
      *bag = has_shared_ && end == first ? shared_bags_[slot] : Bag{base + first, end - first};
      first = end;
    }
    column.next = column.start + count;
    StartBag(&column);
  }
  size_ += rows;
}

void Samples::AddRows(size_t count, const void* feasigns, const void* dense) {
  CloseBags();
  GrowSamples(count);
  const size_t slots = columns_.size();
  std::vector<std::pair<uint64_t*, uint32_t>> places(
      given_slots_);  // of each slot: where the next value goes, its number
  for (size_t slot = 0; slot < given_slots_; ++slot) {
    Column& column = columns_[slot];
    Reserve(&column, static_cast<size_t>(column.start - column.begin) + count);
    places[slot] = {column.start, static_cast<uint32_t>(column.start - column.begin)};
    column.next = column.start + count;
    StartBag(&column);
  }
  const auto* row = static_cast<const char*>(feasigns);
  Bag* bag = bags_.data() + size_ * slots;
  for (uint32_t i = 0; i < count; ++i) {
    for (const auto& [values, first] : places) {
      std::memcpy(values + i, row, sizeof(uint64_t));
      row += sizeof(uint64_t);
      *bag++ = {first + i, 1};
    }
    bag += slots - given_slots_;
  }
  float* floats = dense_.data() + size_ * dense_dim_;
  size_ += count;
  if (dense == nullptr) {
    for (size_t i = 0; i < count; ++i) std::copy_n(plan_->missing_dense.data(), dense_dim_, floats + i * dense_dim_);
    return;
  }
  std::memcpy(floats, dense, count * dense_dim_ * sizeof(float));
  uint32_t has_others = 0;  // all bits of the exponent set: infinite or NaN
  for (size_t i = 0; i < count * dense_dim_; ++i) {
    has_others |= (std::bit_cast<uint32_t>(floats[i]) & kExponent) == kExponent;
  }
  if (has_others == 0) return;
  for (size_t i = 0;; ++i) {
    if (std::isfinite(floats[i])) continue;
    const auto column = static_cast<uint32_t>(i % dense_dim_);
    const auto slot = std::upper_bound(dense_offsets_.begin(), dense_offsets_.end(), column) - dense_offsets_.begin();
    RefuseDense(plan_->spec.dense[static_cast<size_t>(slot) - 1].name, "has a value that is not a finite number");
  }
}

// False: the bag has its max_values already.
bool Samples::MakeRoom(Column* column) {
  const auto in_bag = static_cast<size_t>(column->next - column->start);
  if (!column->keep_last && in_bag >= column->max_values) return false;
  Reserve(column, static_cast<size_t>(column->next - column->begin) + 1);
  return true;
}

void Samples::Reserve(Column* column, size_t count) {
  if (count > column->capacity) {
    if (count > kMaxRoom) throw Error(Code::kData, "over 2^31 values of one slot at a time; send smaller requests");
    const size_t capacity = std::max({kMinRoom, count, 2 * column->capacity});
    auto memory = std::make_unique_for_overwrite<uint64_t[]>(capacity);
    const auto used = static_cast<size_t>(column->next - column->begin);
    std::copy_n(column->begin, used, memory.get());
    column->start = memory.get() + (column->start - column->begin);
    column->next = memory.get() + used;
    column->begin = memory.get();
    column->memory = std::move(memory);
    column->capacity = capacity;
  }
  uint64_t* end = column->begin + column->capacity;
  const auto room = static_cast<size_t>(end - column->start);
  column->stop = column->keep_last || room <= column->max_values ? end : column->start + column->max_values;
}

void Samples::StartBag(Column* column) {
  column->start = column->next;
  const auto room = column->capacity - static_cast<size_t>(column->start - column->begin);
  column->stop = column->start + (column->keep_last || room <= column->max_values ? room : column->max_values);
}

void Samples::ForgetGiven() {
  for (Column& column : columns_) column.is_given = false;
  given_count_ = 0;
}

// Ends the current sample or shared part.
void Samples::CloseBags() {
  if (open_ == Open::kNothing) return;
  const bool is_shared = open_ == Open::kShared;
  Bag* bags = shared_bags_.data();
  if (!is_shared) {
    bags = bags_.data() + size_ * columns_.size();
    std::copy_n(shared_bags_.data(), columns_.size(), bags);
  }
  for (size_t i = 0; i < given_count_; ++i) {
    Column& column = columns_[given_[i]];
    auto count = static_cast<uint32_t>(column.next - column.start);
    if (count > column.max_values) [[unlikely]] {  // keep the last ones
      std::memmove(column.start, column.next - column.max_values, column.max_values * sizeof(uint64_t));
      count = column.max_values;
      column.next = column.start + count;
    }
    bags[given_[i]] = {static_cast<uint32_t>(column.start - column.begin), count};
    has_shared_ |= is_shared && count > 0;
    column.is_given = false;
    StartBag(&column);
  }
  given_count_ = 0;
  size_ += !is_shared;
  open_ = Open::kNothing;
}

void Samples::GrowSamples(size_t more) {
  if (size_ + more <= capacity_) return;
  const size_t capacity = std::max({kMinRoom, size_ + more, 2 * capacity_});
  bags_.resize(capacity * columns_.size());
  dense_.resize(capacity * dense_dim_);
  capacity_ = capacity;
}

void Samples::NoteFirstValues(size_t request) {
  const size_t slots = columns_.size();
  if (first_values_.size() < (request + 1) * slots) {
    first_values_.resize((2 * request + 1) * slots);
    shared_counts_.resize(first_values_.size());
  }
  uint32_t* first = first_values_.data() + request * slots;
  for (const Column& column : columns_) *first++ = static_cast<uint32_t>(column.start - column.begin);
}

float* Samples::DenseOf(uint32_t slot, uint32_t i) {
  if (i >= plan_->spec.dense[slot].dim) {
    RefuseDense(plan_->spec.dense[slot].name, "has more values than the schema gives it");
  }
  float* row = open_ == Open::kShared ? shared_dense_.data() : dense_.data() + size_ * dense_dim_;
  return row + dense_offsets_[slot] + i;
}

PieceParser* Samples::ParserOf(TextFormat format) {
  const auto found = std::find_if(parsers_.begin(), parsers_.end(), [&](const auto& one) {
    return one->plan == plan_->number && one->spec.format == format;
  });
  if (found != parsers_.end()) {
    std::rotate(parsers_.begin(), found, found + 1);
    return parsers_.front()->parser.get();
  }
  auto made = std::make_unique<LineParser>(LineParser{plan_->number, plan_->spec, nullptr});
  made->spec.format = format;
  try {
    made->parser = MakePieceParser(made->spec, Split(0, 1, 0));
  } catch (const Error& e) {
    throw Error(Code::kData, std::string("lines of this format do not fit the model: ") + e.what());
  }
  if (parsers_.size() == kParsers) parsers_.pop_back();
  parsers_.insert(parsers_.begin(), std::move(made));
  return parsers_.front()->parser.get();
}

}  // namespace elasticctr::serve
