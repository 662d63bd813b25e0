// The thread that handles a client's sockets: one epoll set over the links to all pservers, and an inbox for other
// threads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "net/socket.h"
#include "ps/client/client.h"
#include "ps/client/link.h"

namespace elasticctr::ps {

class Io {
 public:
  // `on_ready(shard)` is called on the IO thread after every attach. `options` must outlive it. Throws ConfigError for
  // an invalid address, and as MakeTlsClient.
  Io(const ClientOptions& options, std::function<void(uint32_t)> on_ready);
  // Fails all remaining requests with Unavailable.
  ~Io();

  // Any thread.
  void Submit(uint32_t shard, std::shared_ptr<Request> request);
  // Submits several requests with one wake-up of the IO thread.
  void Submit(std::vector<std::pair<uint32_t, std::shared_ptr<Request>>> requests);
  void Post(std::function<void(std::vector<std::unique_ptr<Link>>&, uint64_t now)> work);
  LinkState state(uint32_t shard) const { return links_[shard]->state(); }
  const LinkCounters& counters() const { return counters_; }

 private:
  using Work = std::function<void(std::vector<std::unique_ptr<Link>>&, uint64_t now)>;
  struct Entry {
    uint32_t shard;
    std::shared_ptr<Request> request;  // null: work
    Work work;
  };

  void Run();
  void Put(std::vector<Entry> entries);
  void TakeInbox(uint64_t now);

  net::Fd epoll_, wake_;
  LinkCounters counters_;
  std::vector<std::unique_ptr<Link>> links_;
  std::mutex mutex_;  // guards inbox_
  std::vector<Entry> inbox_;
  std::vector<Entry> taken_;
  std::atomic<bool> is_stopping_{false};
  std::thread thread_;
};

}  // namespace elasticctr::ps
