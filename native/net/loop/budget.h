// Accounts for bytes held in memory for clients: partial requests, queued requests, unread answers. Every byte is
// charged to the server's budget and to the share of the client's address, so that one client's unread answers leave
// room for the others. Everything here may be used from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace elasticctr::net {

class Budget {
 public:
  explicit Budget(uint64_t limit) : limit_(limit) {}
  bool HasRoomFor(uint64_t bytes) const { return used() + bytes <= limit_; }
  void Move(size_t from, size_t to) {
    if (from != to) used_.fetch_add(static_cast<int64_t>(to) - static_cast<int64_t>(from), std::memory_order_relaxed);
  }
  uint64_t used() const { return static_cast<uint64_t>(used_.load(std::memory_order_relaxed)); }
  uint64_t limit() const { return limit_; }

 private:
  std::atomic<int64_t> used_{0};
  uint64_t limit_;
};

// The bytes and connections of all clients of one address.
struct Share {
  explicit Share(uint64_t limit) : buffered(limit) {}
  Budget buffered;
  std::atomic<size_t> connections{0};
};

// The account that a connection's bytes are charged to. Without a budget nothing is charged and there is always room.
struct Account {
  Budget* all = nullptr;
  std::shared_ptr<Share> share;  // null: the address has no share of its own (Unix sockets)

  // Sessions answer "overloaded" rather than go over a limit.
  bool HasRoomFor(uint64_t bytes) const {
    return (all == nullptr || all->HasRoomFor(bytes)) && (share == nullptr || share->buffered.HasRoomFor(bytes));
  }
  void Move(size_t from, size_t to) const {
    if (from == to) return;
    if (all != nullptr) all->Move(from, to);
    if (share != nullptr) share->buffered.Move(from, to);
  }
};

// Charges bytes during its lifetime. A copy charges them once more.
class Charge {
 public:
  Charge() = default;
  explicit Charge(Account account) : account_(std::move(account)) {}
  Charge(const Charge& other) : account_(other.account_) { Set(other.bytes_); }
  Charge(Charge&& other) noexcept : account_(other.account_), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Charge() { Set(0); }

  void Set(size_t bytes) {
    account_.Move(bytes_, bytes);
    bytes_ = bytes;
  }
  size_t bytes() const { return bytes_; }
  const Account& account() const { return account_; }

 private:
  Account account_;
  size_t bytes_ = 0;
};

}  // namespace elasticctr::net
