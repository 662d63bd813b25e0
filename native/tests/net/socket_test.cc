// Unix sockets: their mode under any umask, and an unchanged umask.

// PROMISE: other threads create files while a Unix socket is made | the process' umask is never changed

// PROMISE: another user of the machine connects to a Unix socket | its mode is 0660 before it listens
#include "net/socket.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/check.h"
#include "util/status.h"

using namespace elasticctr;

namespace {

mode_t ModeOf(const std::string& path) {
  struct stat found{};
  CHECK(::stat(path.c_str(), &found) == 0);
  return found.st_mode & 07777;
}

void TestModes(const std::string& folder) {
  const std::string path = folder + "/socket";
  for (const mode_t mask : {0, 022, 077, 0177}) {
    const mode_t before = ::umask(mask);
    const net::Fd listener = net::ListenUnix(path);
    ::umask(before);
    CHECK(ModeOf(path) == 0660);
  }
  const net::Fd listener = net::ListenUnix(path);  // nobody listens on the old one
  bool is_refused = false;
  try {
    net::ListenUnix(path);
  } catch (const Error& error) {
    is_refused = error.code() == Code::kUnavailable;
  }
  CHECK(is_refused);
}

void TestUmaskStays(const std::string& folder) {
  const mode_t before = ::umask(0);
  std::atomic<bool> is_over{false};
  std::atomic<int> others{0}, made{0};
  std::thread maker([&] {
    const std::string path = folder + "/file";
    while (!is_over.load()) {
      std::ofstream(path).put('x');
      if (ModeOf(path) != 0666) ++others;
      ++made;
      ::unlink(path.c_str());
    }
  });
  for (int i = 0; i < 3000 || made.load() < 100; ++i) net::ListenUnix(folder + "/busy");
  is_over = true;
  maker.join();
  ::umask(before);
  CHECK(others.load() == 0);
}

}  // namespace

int main() {
  char name[] = "/tmp/socket_test.XXXXXX";
  CHECK(::mkdtemp(name) != nullptr);
  TestModes(name);
  TestUmaskStays(name);
  std::filesystem::remove_all(name);
  return 0;
}
