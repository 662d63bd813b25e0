#include "cube/client/answer.h"

#include <algorithm>
#include <string>

namespace elasticctr::cube {

namespace wire = net::wire;

namespace {

constexpr uint32_t kMaxErrorBytes = 64u << 10;
constexpr uint32_t kMaxTextBytes = 16u << 20;
constexpr size_t kTextStep = 64u << 10;  // memory for a body grows only as its bytes arrive, whatever its length claims

[[noreturn]] void Corrupt(const std::string& what) { throw Error(Code::kCorruption, what); }

}  // namespace

void AnswerReader::Start(const Wanted& wanted) {
  wanted_ = wanted;
  part_ = Part::kHead;
  header_checked_ = false;
  received_ = 0;
  text_.clear();
  head_.resize(is_lookup() ? wire::kHeaderBytes + wire::kLookupHeadBytes + wire::FoundBytes(wanted.keys)
                           : wire::kHeaderBytes);
  rows_bytes_ = is_lookup() ? wanted.keys * wanted.row_bytes : 0;
  if (wanted.rows == nullptr && own_rows_.size() < rows_bytes_) own_rows_.resize(rows_bytes_);
  rows_ = wanted.rows != nullptr ? wanted.rows : own_rows_.data();
}

int AnswerReader::Buffers(iovec buffers[2]) {
  if (part_ == Part::kText) {
    text_.resize(std::min<size_t>(header_.body_bytes, received_ + kTextStep));
    buffers[0] = {text_.data() + received_, text_.size() - received_};
    return 1;
  }
  int n = 0;
  if (received_ < head_.size()) buffers[n++] = {head_.data() + received_, head_.size() - received_};
  const size_t rows_done = received_ > head_.size() ? received_ - head_.size() : 0;
  if (rows_done < rows_bytes_) buffers[n++] = {rows_ + rows_done, rows_bytes_ - rows_done};
  return n;
}

bool AnswerReader::Consume(size_t bytes) {
  received_ += bytes;
  if (part_ == Part::kText) return received_ == header_.body_bytes;
  if (!header_checked_) {
    if (received_ < wire::kHeaderBytes) return false;
    CheckHeader();
    if (part_ == Part::kText) return received_ == header_.body_bytes;
  }
  constexpr size_t kThrough = wire::kHeaderBytes + wire::kLookupHeadBytes;
  if (received_ >= kThrough && received_ - bytes < kThrough) CheckLookupHead();
  return received_ == head_.size() + rows_bytes_;
}

void AnswerReader::CheckHeader() {
  if (!wire::HasMagic(head_.data())) Corrupt("sent something that is not a frame");
  header_ = wire::DecodeHeader(head_.data());
  header_checked_ = true;
  if (header_.id != wanted_.id) {
    Corrupt("answered request " + std::to_string(header_.id) + ", which was not asked (" + std::to_string(wanted_.id) +
            " was)");
  }
  if (header_.opcode != static_cast<uint8_t>(wanted_.opcode) || header_.table != wanted_.table) {
    Corrupt("answered another question than was asked");
  }
  if (header_.status != 0) {
    if (header_.body_bytes > kMaxErrorBytes)
      Corrupt("sent an error message of " + std::to_string(header_.body_bytes) + " bytes");
    return TurnToText();
  }
  if (!is_lookup()) {
    if (header_.body_bytes > kMaxTextBytes) Corrupt("sent a body of " + std::to_string(header_.body_bytes) + " bytes");
    return TurnToText();
  }
  if (header_.version == 0 || (wanted_.version != 0 && header_.version != wanted_.version)) {
    Corrupt("answered from version " + std::to_string(header_.version) + " where " + std::to_string(wanted_.version) +
            " was asked");
  }
  if (header_.body_bytes < wire::kLookupHeadBytes + wire::FoundBytes(wanted_.keys)) {
    Corrupt("sent a lookup's answer of " + std::to_string(header_.body_bytes) + " bytes for " +
            std::to_string(wanted_.keys) + " feasigns");
  }
}

void AnswerReader::CheckLookupHead() {
  const uint32_t count = DecodeFixed32(head_.data() + wire::kHeaderBytes);
  const uint32_t row_bytes = DecodeFixed32(head_.data() + wire::kHeaderBytes + 4);
  if (count != wanted_.keys || header_.body_bytes != wire::LookupBodyBytes(count, row_bytes)) {
    Corrupt("sent an answer whose lengths contradict each other: " + std::to_string(header_.body_bytes) + " bytes, " +
            std::to_string(count) + " rows of " + std::to_string(row_bytes) + " where " + std::to_string(wanted_.keys) +
            " feasigns were asked");
  }
  if (row_bytes != wanted_.row_bytes && count > 0) {
    throw Error(Code::kFailedPrecondition, "has rows of " + std::to_string(row_bytes) +
                                               " bytes where the others have " + std::to_string(wanted_.row_bytes));
  }
}

// An error, or a body other than rows: the bytes already received after the header are in the buffers for rows.
void AnswerReader::TurnToText() {
  const size_t extra = received_ - wire::kHeaderBytes;
  if (extra > header_.body_bytes) Corrupt("sent more than it said it would");
  const size_t in_head = std::min(extra, head_.size() - wire::kHeaderBytes);
  text_.assign(head_.begin() + wire::kHeaderBytes, head_.begin() + wire::kHeaderBytes + in_head);
  text_.insert(text_.end(), rows_, rows_ + (extra - in_head));
  part_ = Part::kText;
  received_ = extra;
}

}  // namespace elasticctr::cube
