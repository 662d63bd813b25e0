#include "serve/kserve/columns.h"

#include <cmath>
#include <cstring>
#include <string>

#include "sample/format/line.h"
#include "serve/http/status.h"
#include "util/hash.h"
#include "util/status.h"

namespace elasticctr::serve::kserve {

namespace {

constexpr std::string_view kLengths = ".lengths";

template <typename T>
T Load(const char* data, size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof value, sizeof value);
  return value;
}

// Element i as 64 bits, sign-extended. REQUIRES: the tensor holds integers.
uint64_t WholeAt(const Tensor& tensor, size_t i) {
  auto extend = [](auto value) { return static_cast<uint64_t>(static_cast<int64_t>(value)); };
  switch (tensor.stored) {
    case DataType::kBool:
    case DataType::kUint8: return Load<uint8_t>(tensor.numbers, i);
    case DataType::kUint16: return Load<uint16_t>(tensor.numbers, i);
    case DataType::kUint32: return Load<uint32_t>(tensor.numbers, i);
    case DataType::kInt8: return extend(Load<int8_t>(tensor.numbers, i));
    case DataType::kInt16: return extend(Load<int16_t>(tensor.numbers, i));
    case DataType::kInt32: return extend(Load<int32_t>(tensor.numbers, i));
    default: return Load<uint64_t>(tensor.numbers, i);
  }
}

bool IsLengths(std::string_view name) { return name.size() > kLengths.size() && name.ends_with(kLengths); }

}  // namespace

Columns::Columns(const InferRequest& request, const Plan& plan, const Limits& limits)
    : request_(request),
      plan_(plan),
      sparse_given_(plan.spec.sparse.size(), false),
      dense_given_(plan.spec.dense.size(), false) {
  const std::string* values = request.parameter("values");
  if (values != nullptr && *values != "raw" && *values != "feasigns") {
    throw Error(Code::kData, "parameter 'values' must be 'raw' or 'feasigns'");
  }
  values_are_feasigns_ = values != nullptr && *values == "feasigns";
  dense_is_final_ = values == nullptr || values_are_feasigns_;
  if (request.inputs.empty()) throw Error(Code::kData, "the request has no inputs; send one per slot");

  for (const Tensor& tensor : request.inputs) CheckName(tensor);  // before any value is read
  columns_.reserve(request.inputs.size());
  for (const Tensor& tensor : request.inputs) {
    if (!IsLengths(tensor.name) || plan.names.contains(std::string(tensor.name))) Bind(tensor);
  }
  for (const Tensor& tensor : request.inputs) {
    if (!IsLengths(tensor.name) || plan.names.contains(std::string(tensor.name))) continue;
    std::string_view of = tensor.name.substr(0, tensor.name.size() - kLengths.size());
    Column* column = nullptr;
    for (Column& one : columns_) {
      if (one.tensor->name == of) column = &one;
    }
    if (column == nullptr) tensor.Fail("there is no input " + Quote(of) + " whose lengths these could be");
    SetLengths(column, tensor);
  }
  size_t values_in_all = 0;
  for (Column& column : columns_) {
    TakeRows(&column, limits);
    if (column.kind < Kind::kDense) values_in_all += column.tensor->count;
  }
  if (values_in_all > limits.values) {
    throw TooLarge("the request has " + std::to_string(values_in_all) + " feasigns; at most " +
                   std::to_string(limits.values) + " are taken: split it");
  }
}

void Columns::CheckName(const Tensor& tensor) const {
  const bool is_known = plan_.names.contains(std::string(tensor.name)) || IsLengths(tensor.name) ||
                        tensor.name == "lines" || (tensor.name == "feasigns" && !plan_.spec.sparse.empty()) ||
                        (tensor.name == "dense" && !plan_.spec.dense.empty());
  if (!is_known) tensor.Fail("the model has no such slot; its metadata lists the inputs it takes");
}

void Columns::Bind(const Tensor& tensor) {
  auto found = plan_.names.find(std::string(tensor.name));
  if (found != plan_.names.end()) {
    const auto [is_dense, index] = found->second;
    is_dense ? AddDense(tensor, index, 1) : AddSparse(tensor, index, 1);
  } else if (tensor.name == "feasigns" && !plan_.spec.sparse.empty()) {
    AddSparse(tensor, 0, static_cast<uint32_t>(plan_.spec.sparse.size()));
  } else if (tensor.name == "dense" && !plan_.spec.dense.empty()) {
    AddDense(tensor, 0, static_cast<uint32_t>(plan_.spec.dense.size()));
  } else {
    tensor.Fail("lines are whole samples; send no other input beside them");
  }
}

void Columns::AddSparse(const Tensor& tensor, uint32_t slot, uint32_t slots) {
  if (IsFloat(tensor.type)) tensor.Fail("a sparse slot takes UINT64, INT64 or BYTES");
  if (slots > 1 && tensor.type == DataType::kBytes) tensor.Fail("feasigns are UINT64 or INT64");
  for (uint32_t i = slot; i < slot + slots; ++i) {
    if (sparse_given_[i]) tensor.Fail("slot " + Quote(plan_.spec.sparse[i].name) + " is given twice");
    sparse_given_[i] = true;
  }
  Column column{};
  const bool is_packed = tensor.name == "feasigns" && plan_.spec.sparse[slot].name != "feasigns";
  const bool as_feasigns = is_packed || values_are_feasigns_ || !plan_.spec.sparse[slot].hashed;
  column.kind = tensor.type == DataType::kBytes ? Kind::kTexts : as_feasigns ? Kind::kFeasigns : Kind::kNumbers;
  if (column.kind == Kind::kTexts && values_are_feasigns_ && plan_.spec.sparse[slot].hashed) {
    tensor.Fail("with values = feasigns a slot takes UINT64 or INT64");
  }
  column.slot = slot;
  column.slots = slots;
  column.tensor = &tensor;
  if (column.kind != Kind::kTexts) {
    Widen(&column, as_feasigns);
  } else if (plan_.spec.sparse[slot].hashed) {
    Hash(&column);
  }
  columns_.push_back(std::move(column));
}

// Widens integers to 64 bits. A negative one is not a feasign unless all 64 bits were sent.
void Columns::Widen(Column* column, bool as_feasigns) {
  const Tensor& tensor = *column->tensor;
  column->is_signed = IsSigned(tensor.stored);
  column->data = tensor.numbers;
  if (SizeOf(tensor.type) == 8) return;
  column->wide.resize(tensor.count);
  for (size_t i = 0; i < tensor.count; ++i) {
    column->wide[i] = WholeAt(tensor, i);
    if (as_feasigns && static_cast<int64_t>(column->wide[i]) < 0) tensor.Fail("a feasign is not below 0");
  }
  column->data = reinterpret_cast<const char*>(column->wide.data());
}

// Hashes all strings of a slot at once, unless one is empty: an empty string is not a value.
void Columns::Hash(Column* column) const {
  const uint64_t seed = plan_.hash_seeds[column->slot];
  const std::vector<std::string_view>& texts = column->tensor->texts;
  column->wide.resize(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) return;
    column->wide[i] =
        texts[i].size() == 8 ? FeatureHash8(DecodeFixed64(texts[i].data()), seed) : FeatureHash(texts[i], seed);
  }
  column->kind = Kind::kFeasigns;
  column->data = reinterpret_cast<const char*>(column->wide.data());
}

void Columns::AddDense(const Tensor& tensor, uint32_t slot, uint32_t slots) {
  if (tensor.type == DataType::kBytes) tensor.Fail("a dense slot takes numbers: FP32, FP64 or INT*");
  for (uint32_t i = slot; i < slot + slots; ++i) {
    if (dense_given_[i]) tensor.Fail("slot " + Quote(plan_.spec.dense[i].name) + " is given twice");
    dense_given_[i] = true;
  }
  Column column{};
  const bool is_packed = tensor.name == "dense" && plan_.spec.dense[slot].name != "dense";
  column.kind = (is_packed ? dense_is_final_ : values_are_feasigns_) ? Kind::kDense : Kind::kRawDense;
  column.slot = slot;
  column.slots = slots;
  column.tensor = &tensor;
  column.data = tensor.numbers;
  column.is_double = tensor.stored != DataType::kFp32;
  if (!IsFloat(tensor.stored)) {
    column.wide.resize(tensor.count);
    for (size_t i = 0; i < tensor.count; ++i) {
      uint64_t bits = WholeAt(tensor, i);
      double value =
          IsSigned(tensor.stored) ? static_cast<double>(static_cast<int64_t>(bits)) : static_cast<double>(bits);
      std::memcpy(&column.wide[i], &value, sizeof value);
    }
    column.data = reinterpret_cast<const char*>(column.wide.data());
  }
  columns_.push_back(std::move(column));
}

void Columns::SetLengths(Column* column, const Tensor& lengths) {
  if (column->kind >= Kind::kDense) lengths.Fail("a dense slot has no lengths");
  if (!column->lengths.empty() || column->rows != 0) lengths.Fail("is given twice");
  if (IsFloat(lengths.type) || lengths.type == DataType::kBytes) lengths.Fail("lengths are INT32 or INT64");
  if (column->tensor->shape.size() != 1) column->tensor->Fail("with lengths, values must have one dimension");
  const auto width = lengths.shape.size() == 1 ? 1 : static_cast<size_t>(lengths.shape[1]);
  if (width != column->slots) lengths.Fail("must have " + std::to_string(column->slots) + " lengths per sample");
  const size_t total = column->tensor->count;
  size_t sum = 0;
  column->lengths.resize(lengths.count);
  for (size_t i = 0; i < lengths.count; ++i) {
    uint64_t length = WholeAt(lengths, i);
    if (length > total - sum)
      lengths.Fail("lengths add up to more than the " + std::to_string(total) + " values given");
    sum += length;
    column->lengths[i] = static_cast<uint32_t>(length);
  }
  if (sum != total)
    lengths.Fail("lengths add up to " + std::to_string(sum) + " of " + std::to_string(total) + " values");
  column->rows = static_cast<size_t>(lengths.shape[0]);
  if (column->rows == 0) lengths.Fail("has no samples");
}

// Sets the tensor's number of samples and checks it against the other tensors.
void Columns::TakeRows(Column* column, const Limits& limits) {
  const Tensor& tensor = *column->tensor;
  if (column->rows == 0) {
    column->rows = static_cast<size_t>(tensor.shape[0]);
    const size_t width = tensor.shape.size() == 1 ? 1 : static_cast<size_t>(tensor.shape[1]);
    if (column->rows == 0) tensor.Fail("has no samples");
    size_t wanted = 0;
    if (column->kind >= Kind::kDense) {
      for (uint32_t i = 0; i < column->slots; ++i) wanted += plan_.spec.dense[column->slot + i].dim;
    } else if (column->slots > 1) {
      wanted = column->slots;
    }
    if (wanted != 0 && width != wanted) tensor.Fail("must have " + std::to_string(wanted) + " values per sample");
    if (wanted == 0) column->width = width;
  }
  if (column->rows > limits.samples) {
    throw TooLarge("the request has " + std::to_string(column->rows) + " samples; at most " +
                   std::to_string(limits.samples) + " are taken: split it");
  }
  if (column->rows == 1 || column->rows == count_) return;
  if (count_ != 1) {
    tensor.Fail("is for " + std::to_string(column->rows) + " samples where another input is for " +
                std::to_string(count_) + "; each must be for as many, or for 1 to be shared by all");
  }
  count_ = column->rows;
}

void Columns::Fill(Samples* samples) {
  samples->BeginRequest();
  if (FillRows(samples)) return samples->EndRequest();
  struct Single {
    uint32_t slot;
    const char* data;
  };
  std::vector<Single> singles;  // most columns: a slot, a feasign per sample
  std::vector<Column*> others;
  for (Column& column : columns_) {
    if (column.rows != count_) {
      FillSample(&column, samples);
    } else if (column.kind == Kind::kFeasigns && column.slots == 1 && column.width == 1 && column.lengths.empty()) {
      singles.push_back({column.slot, column.data});
    } else {
      others.push_back(&column);
    }
  }
  for (size_t i = 0; i < count_; ++i) {
    samples->BeginSample();
    for (const Single& single : singles) samples->AddFeasign(single.slot, Load<uint64_t>(single.data, i));
    for (Column* column : others) FillSample(column, samples);
  }
  samples->EndRequest();
}

// Copies the packed inputs directly if each sample has one feasign per slot. False: it has not.
bool Columns::FillRows(Samples* samples) const {
  const void *feasigns = nullptr, *dense = nullptr;
  for (const Column& column : columns_) {
    if (column.rows != count_ || !column.lengths.empty()) return false;
    if (column.kind == Kind::kFeasigns && column.slots == plan_.spec.sparse.size() && column.width == 1) {
      feasigns = column.data;
    } else if (column.kind == Kind::kDense && column.slots == plan_.spec.dense.size() && !column.is_double) {
      dense = column.data;
    } else {
      return false;
    }
  }
  if (feasigns == nullptr) return false;
  samples->AddRows(count_, feasigns, dense);
  return true;
}

void Columns::FillSample(Column* column, Samples* samples) const {
  if (column->kind >= Kind::kDense) return FillDense(column, samples);
  // Local copies: for the compiler, stores to samples could alias these fields.
  const uint32_t end_slot = column->slot + column->slots;
  const char* const data = column->data;
  size_t at = column->at;
  for (uint32_t slot = column->slot; slot < end_slot; ++slot) {
    const size_t end = at + (column->lengths.empty() ? column->width : column->lengths[column->bag++]);
    switch (column->kind) {
      case Kind::kFeasigns:
        for (; at < end; ++at) samples->AddFeasign(slot, Load<uint64_t>(data, at));
        break;
      case Kind::kTexts:
        for (; at < end; ++at) samples->AddText(slot, column->tensor->texts[at]);
        break;
      default:
        for (; at < end; ++at) {
          auto value = Load<int64_t>(data, at);
          if (column->is_signed && value < 0) {
            samples->AddText(slot, std::to_string(value));
          } else {
            samples->AddNumber(slot, static_cast<uint64_t>(value));
          }
        }
    }
  }
  column->at = at;
}

void Columns::FillDense(Column* column, Samples* samples) const {
  const char* const data = column->data;
  const bool is_double = column->is_double, is_final = column->kind == Kind::kDense;
  const uint32_t end_slot = column->slot + column->slots;
  size_t at = column->at;
  for (uint32_t slot = column->slot; slot < end_slot; ++slot) {
    const uint32_t dim = plan_.spec.dense[slot].dim;
    for (uint32_t i = 0; i < dim; ++i, ++at) {
      const double value = is_double ? Load<double>(data, at) : Load<float>(data, at);
      if (is_final) {
        samples->SetDense(slot, i, static_cast<float>(value));
      } else if (!std::isnan(value)) {  // NaN: the sample has no value there
        samples->SetRawDense(slot, i, value);
      }
    }
  }
  column->at = at;
}

}  // namespace elasticctr::serve::kserve
