// The whole prediction server in this process, over real sockets, with synthetic rows and a synthetic graph: clients
// while versions change, partial and pipelined requests, refusals, streams of mutated bytes, and shutdown with requests
// in flight. Run under the thread and address sanitizers.
#include "serve/service.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "serve/version/version.h"
#include "tests/check.h"
#include "tests/serve/service_fixture.h"

using namespace elasticctr;
using namespace elasticctr::serve;
namespace json = boost::json;

namespace {

constexpr char kToken[] = "a secret";

void TestSwapsUnderLoad(Service* service, uint16_t port) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> answered{0};
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      Peer peer(port);
      while (!stop.load()) {
        // Several at a time; answers come in order.
        std::vector<std::vector<double>> sums(1 + random() % 4);
        std::string sent;
        for (auto& one : sums) sent += Ask(random() % 900, 1 + random() % 60, &one);
        CHECK(peer.Send(sent));
        for (const auto& one : sums) {
          int status;
          std::string body;
          CHECK(peer.Receive(&status, &body) && status == 200);
          CheckScores(body, one);
          answered.fetch_add(1);
        }
      }
    });
  }
  for (uint64_t version = 2; version < 22; ++version) {
    service->SetModels(ModelsOf(version));
    service->SetReady(version % 2 == 0, "odd");
    Peer peer(port);
    int status;
    std::string body;
    CHECK(peer.Send("GET /readyz HTTP/1.1\r\n\r\n" + Get("/metrics")) && peer.Receive(&status, &body));
    CHECK(status == (version % 2 == 0 ? 200 : 503));
    CHECK(peer.Receive(&status, &body) && status == 200);
    CHECK(body.find("variant=\"live\",version=\"" + std::to_string(version) + "\"") != std::string::npos);
  }
  while (answered.load() < 300) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

void TestPieces(uint16_t port) {
  Peer peer(port);
  std::vector<double> sums;
  std::string sent = Ask(5, 3, &sums);
  std::string chunked =
      "POST /v1/models/m/versions/21:predict HTTP/1.1\r\nauthorization: Bearer a secret\r\nTransfer-Encoding: "
      "chunked\r\nX-Request-Id: mine\r\n\r\n";
  const std::string body_in_chunks =
      "{\"user\": {\"user\": 5}, \"candidates\": [{\"item\": 0}, {\"item\": 1}, {\"item\": 2}]}";
  for (size_t at = 0; at < body_in_chunks.size(); at += 10) {
    std::string chunk = body_in_chunks.substr(at, 10);
    chunked += "0123456789a"[chunk.size()] + ("\r\n" + chunk + "\r\n");
  }
  chunked += "0\r\n\r\n";
  sent += chunked;
  for (char c : sent) CHECK(peer.Send({&c, 1}));
  int status;
  std::string body;
  CHECK(peer.Receive(&status, &body) && status == 200);
  CheckScores(body, sums);
  CHECK(peer.Receive(&status, &body) && status == 200);
  CheckScores(body, sums);
  CHECK(json::parse(body).as_object()["id"] == "mine");
}

void TestRefusals(uint16_t port) {
  const std::string good = "{\"samples\": [{\"user\": 1}]}";
  auto status_of = [&](const std::string& sent) {
    Peer peer(port);
    int status = 0;
    std::string body;
    peer.Send(sent);
    CHECK(peer.Receive(&status, &body));
    if (status != 200) CHECK(json::parse(body).as_object().contains("error"));
    return status;
  };
  CHECK(status_of(Post("/v1/models/m:predict", good)) == 200);
  CHECK(status_of("POST /v1/models/m:predict HTTP/1.1\r\nContent-Length: 5\r\n\r\n") == 401);
  CHECK(status_of("POST /v1/models/m:predict HTTP/1.1\r\nAuthorization: Bearer a secreu\r\n\r\n") == 401);
  CHECK(status_of("GET /healthz HTTP/1.1\r\n\r\n") == 200 && status_of("GET /metrics HTTP/1.1\r\n\r\n") == 401);
  CHECK(status_of(Post("/v1/models/n:predict", good)) == 404);
  CHECK(status_of(Post("/v1/models/m/versions/9999:predict", good)) == 404);
  CHECK(status_of(Post("/v1/models/m:predict", "{")) == 400);
  CHECK(status_of(Post("/v1/models/%zz:predict", good)) == 400);
  CHECK(status_of(Post("/v1/models/m:predict", good, "Content-Encoding: br\r\n")) == 415);
  CHECK(status_of(Post("/v1/models/m:predict", good, "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n")) == 415);
  CHECK(status_of(Post("/v1/models/m:predict", good, "Content-Encoding: gzip\r\n")) == 400);
  CHECK(status_of(Post("/v1/models/m:predict", good, "X-Timeout-Ms: soon\r\n")) == 400);
  CHECK(status_of(Get("/v1/models/m:predict")) == 405);
  // Refused by the head alone: the body is never sent.
  CHECK(status_of("POST /v1/models/m:predict HTTP/1.1\r\nAuthorization: Bearer a secret\r\nContent-Length: "
                  "2000000\r\n\r\n") == 413);
  CHECK(status_of("POST /v1/status HTTP/1.1\r\nAuthorization: Bearer a secret\r\nContent-Length: 1100000\r\n\r\n") ==
        413);
  CHECK(status_of("GET /" + std::string(20'000, 'a') + " HTTP/1.1\r\n\r\n") == 431);
  std::vector<double> sums;
  CHECK(status_of(Ask(1, 101, &sums)) == 413);
}

// Plays Python's part: answers with the request.
void AnswerControl(Service* service, std::atomic<bool>* stop) {
  ControlRequest request;
  while (!stop->load()) {
    if (!service->control().Next(0.05, &request)) continue;
    if (request.path == "/late") continue;
    service->control().Answer(request.id, 200, "text/plain", request.method + " " + request.path + request.body, "");
  }
}

void TestControl(uint16_t port) {
  Peer peer(port);
  int status;
  std::string body;
  CHECK(peer.Send(Get("/v1/status") + Post("/v1/models/m:activate", "{}") + Get("/late")));
  CHECK(peer.Receive(&status, &body) && status == 200 && body == "GET /v1/status");
  CHECK(peer.Receive(&status, &body) && status == 200 && body == "POST /v1/models/m:activate{}");
  CHECK(peer.Receive(&status, &body) && status == 504 && body.find("DeadlineExceeded") != std::string::npos);
  // Two may wait, the third is refused.
  Peer first(port), second(port), third(port);
  CHECK(first.Send(Get("/late")) && second.Send(Get("/late")));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(third.Send(Get("/late")) && third.Receive(&status, &body) && status == 503);
  CHECK(first.Receive(&status, &body) && status == 504 && second.Receive(&status, &body) && status == 504);
}

void TestMutatedStreams(uint16_t port) {
  std::mt19937_64 random(7);
  std::vector<double> sums;
  const std::string streams[] = {
      Ask(3, 4, &sums) + Get("/metrics"),
      Post("/v1/models/m:predict", "{\"lines\": [\"click:1 user:5 item:6\"], \"format\": \"slot\"}") + Get("/v1/x"),
      "POST /v1/models/m:predict HTTP/1.1\r\nAuthorization: Bearer a secret\r\nExpect: 100-continue\r\n"
      "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"samples\": [\r\n4\r\n{}]}\r\n0\r\n\r\n",
      Post("/v2/models/m/infer",
           "{\"inputs\": [{\"name\": \"user\", \"shape\": [1, 1], \"datatype\": \"UINT64\", \"data\": [1]}]}"),
      Post("/rec/prediction", "{\"key\": [\"user\"], \"value\": [\"1\"]}"),
      std::string("PRPC\0\0\0\x10\0\0\0\x08", 12) + std::string(16, '\x0a'),
      std::string("\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03", 11) + std::string(64, 'x'),
  };
  for (int i = 0; i < 1400; ++i) {
    std::string bytes = streams[i % std::size(streams)];
    for (uint64_t k = random() % 5; k > 0 && !bytes.empty(); --k) {
      size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, random() % 8); break;
        default: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 40)); break;
      }
    }
    Peer peer(port);
    size_t cut = random() % (bytes.size() + 1);
    if (peer.Send(std::string_view(bytes).substr(0, cut))) peer.Send(std::string_view(bytes).substr(cut));
    peer.EndSending();
    peer.ReceiveAll();
  }
  Peer peer(port);
  int status;
  std::string body;
  sums.clear();
  CHECK(peer.Send(Ask(3, 4, &sums)) && peer.Receive(&status, &body) && status == 200);
  CheckScores(body, sums);
}

void TestSlowClients(uint16_t port) {
  Peer half(port), silent(port), idle(port);
  CHECK(half.Send(
      "POST /v1/models/m:predict HTTP/1.1\r\nAuthorization: Bearer a secret\r\nContent-Length: 100\r\n\r\n{"));
  int status;
  std::string body;
  CHECK(idle.Send(Get("/healthz")) && idle.Receive(&status, &body));
  CHECK(half.ReceiveAll().empty());  // closed after a second or two; the idle one is not
  CHECK(idle.Send(Get("/healthz")) && idle.Receive(&status, &body) && status == 200);
}

// Requests that arrived are answered, and every answer announces that the connection will close.
void TestEnd(Service* service, uint16_t port) {
  std::atomic<uint64_t> failed{0}, answered{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (true) {
        Peer peer(port);
        while (true) {
          std::vector<double> sums;
          int status;
          std::string body;
          if (!peer.Send(Ask(1, 20, &sums)) || !peer.Receive(&status, &body) || status != 200) {
            failed.fetch_add(1);
            return;
          }
          answered.fetch_add(1);
          if (peer.head().find("Connection: close") != std::string::npos) return;
        }
      }
    });
  }
  while (answered.load() < 50) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // Pipelined requests are all answered; the last answer closes the connection.
  Peer row(port);
  std::vector<std::vector<double>> sums(300);
  std::string sent;
  for (auto& one : sums) sent += Ask(2, 20, &one);
  CHECK(row.Send(sent));
  threads.emplace_back([&] {
    int status;
    std::string body;
    for (const auto& one : sums) {
      CHECK(row.Receive(&status, &body) && status == 200);
      CheckScores(body, one);
    }
    CHECK(row.head().find("Connection: close") != std::string::npos);
  });
  service->Stop(5);
  for (std::thread& thread : threads) thread.join();
  CHECK(failed.load() == 0);
}

}  // namespace

int main() {
  std::filesystem::path log =
      std::filesystem::temp_directory_path() / ("serve_service_test_" + std::to_string(::getpid()));
  {
    ServiceOptions options;
    options.net.ports = {0};
    options.net.threads = 2;
    options.net.limits.request_timeout_s = 1;
    options.engine.workers = 2;
    options.engine.timeout_ms = 20'000;
    options.engine.queue_ms = 20'000;
    options.engine.limits.body_bytes = 1'500'000;
    options.engine.limits.samples = 100;
    options.control.requests = 2;
    options.control.timeout_s = 0.5;
    options.token = kToken;
    options.access_log.path = log.string();
    options.access_log.max_bytes = 20'000;
    options.access_log.keep = 2;
    Service service(options);
    service.SetModels(ModelsOf(1));
    service.Start();
    uint16_t port = service.ports()[0];
    std::atomic<bool> stop{false};
    std::thread python([&] { AnswerControl(&service, &stop); });
    TestSwapsUnderLoad(&service, port);
    TestPieces(port);
    TestRefusals(port);
    TestControl(port);
    TestMutatedStreams(port);
    TestSlowClients(port);
    TestEnd(&service, port);
    stop = true;
    python.join();
  }
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);) CHECK(json::parse(line).as_object().contains("time"));
  CHECK(std::filesystem::exists(log.string() + ".2") && !std::filesystem::exists(log.string() + ".3"));
  for (const char* suffix : {"", ".1", ".2"}) std::filesystem::remove(log.string() + suffix);
  return 0;
}
