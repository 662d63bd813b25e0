#include "ps/client/io.h"

#include <sys/epoll.h>

#include <algorithm>
#include <iterator>

#include "util/status.h"

namespace elasticctr::ps {
namespace {

constexpr uint32_t kWake = ~uint32_t{0};
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kLongestSleepMs = 1000;

}  // namespace

Io::Io(const ClientOptions& options, std::function<void(uint32_t)> on_ready)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(net::MakeEventFd()) {
  if (!epoll_) throw Error(Code::kInternal, "cannot make an epoll set; raise the limit of open files");
  epoll_event event{EPOLLIN, {}};
  event.data.u32 = kWake;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    throw Error(Code::kInternal, "cannot watch an eventfd; raise the limit of open files");
  }
  const std::shared_ptr<net::TlsClient> tls = net::MakeTlsClient(options.tls);
  for (uint32_t s = 0; s < options.addresses.size(); ++s) {
    links_.push_back(std::make_unique<Link>(options, s, epoll_.get(), &counters_, [on_ready, s] { on_ready(s); }, tls));
  }
  thread_ = std::thread([this] { Run(); });
}

Io::~Io() {
  is_stopping_ = true;
  net::SignalEventFd(wake_);
  thread_.join();
}

void Io::Submit(uint32_t shard, std::shared_ptr<Request> request) { Put({{shard, std::move(request), {}}}); }

void Io::Submit(std::vector<std::pair<uint32_t, std::shared_ptr<Request>>> requests) {
  std::vector<Entry> entries;
  for (auto& [shard, request] : requests) entries.push_back({shard, std::move(request), {}});
  Put(std::move(entries));
}

void Io::Post(Work work) { Put({{0, nullptr, std::move(work)}}); }

void Io::Put(std::vector<Entry> entries) {
  bool is_first;
  {
    std::lock_guard lock(mutex_);
    is_first = inbox_.empty() && !entries.empty();
    std::move(entries.begin(), entries.end(), std::back_inserter(inbox_));
  }
  if (is_first) net::SignalEventFd(wake_);
}

void Io::TakeInbox(uint64_t now) {
  {
    std::lock_guard lock(mutex_);
    taken_.swap(inbox_);
  }
  for (Entry& entry : taken_) {
    if (entry.request) {
      links_[entry.shard]->Submit(std::move(entry.request), now);
    } else {
      entry.work(links_, now);
    }
  }
  taken_.clear();
}

void Io::Run() {
  epoll_event events[64];
  while (!is_stopping_) {
    uint64_t now = net::NowNs();
    uint64_t next = now + kLongestSleepMs * kMs;
    for (const auto& link : links_) next = std::min(next, link->OnTime(now));
    const uint64_t sleep_ms = next > now ? (next - now + kMs - 1) / kMs : 0;
    const int count = epoll_wait(epoll_.get(), events, 64, static_cast<int>(sleep_ms));
    now = net::NowNs();
    bool is_woken = false;
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u32 == kWake) {
        net::DrainEventFd(wake_);
        is_woken = true;
      } else {
        links_[events[i].data.u32]->OnEvents(events[i].events, now);
      }
    }
    if (is_woken) TakeInbox(now);
  }
  TakeInbox(net::NowNs());
  for (const auto& link : links_) link->Close();
}

}  // namespace elasticctr::ps
