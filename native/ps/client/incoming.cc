#include "ps/client/incoming.h"

#include <algorithm>

#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr size_t kMaxPieces = 32;  // places filled by one system call

}  // namespace

void Incoming::Reset() {
  received_ = next_place_ = 0;
  is_begun_ = false;
  places_.clear();
}

void Incoming::Begin() {
  std::erase_if(places_, [](const iovec& place) { return place.iov_len == 0; });
  next_place_ = 0;
  is_begun_ = true;
}

void Incoming::BeginText() {
  text_.resize(header_.body_bytes);
  places_.assign(1, {text_.data(), text_.size()});
  Begin();
}

size_t Incoming::Receive(net::Connection* connection, bool* is_drained) {
  const bool in_header = received_ < net::wire::kHeaderBytes;
  iovec header{head_ + received_, net::wire::kHeaderBytes - received_};
  iovec* const first = in_header ? &header : places_.data() + next_place_;
  const size_t count = in_header ? 1 : std::min(places_.size() - next_place_, kMaxPieces);
  size_t wanted = 0;
  for (size_t i = 0; i < count; ++i) wanted += first[i].iov_len;
  const size_t bytes = connection->Receive(first, static_cast<int>(count));
  *is_drained = bytes < wanted;
  if (!in_header) {
    Advance(bytes);
    return bytes;
  }
  received_ += bytes;
  if (received_ == net::wire::kHeaderBytes) {
    if (!net::wire::HasMagic(head_)) throw Error(Code::kCorruption, "sent bytes that are not a frame");
    header_ = net::wire::DecodeHeader(head_);
  }
  return bytes;
}

void Incoming::Advance(size_t bytes) {
  while (bytes > 0) {
    iovec& place = places_[next_place_];
    const size_t taken = std::min(bytes, place.iov_len);
    place.iov_base = static_cast<uint8_t*>(place.iov_base) + taken;
    place.iov_len -= taken;
    bytes -= taken;
    if (place.iov_len == 0) ++next_place_;
  }
}

}  // namespace elasticctr::ps
