// The parsers of untrusted bytes: frames cut anywhere give the same result, and no input does harm.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "net/http/http.h"
#include "net/http/site.h"
#include "net/loop/sniff.h"
#include "net/resp.h"
#include "net/wire.h"
#include "tests/check.h"
#include "util/secret.h"

using namespace elasticctr::net;

namespace {

constexpr RespLimits kLimits{1000, 1 << 16, 1 << 20};

using Command = std::vector<std::string>;

// All commands in `bytes`, which arrive in pieces that end at `cuts`. An invalid one ends the list with {"BAD"}.
std::vector<Command> ReadCommands(const std::string& bytes, std::mt19937_64* random, size_t largest_piece) {
  RespReader reader;
  std::vector<Command> commands;
  std::string seen;
  size_t at = 0, start = 0;
  while (true) {
    auto result = reader.Read(reinterpret_cast<const uint8_t*>(seen.data()) + start, seen.size() - start, kLimits);
    if (result == RespReader::Result::kCommand) {
      CHECK(reader.command_bytes() <= seen.size() - start && reader.command_bytes() > 0);
      Command command;
      for (size_t i = 0; i < reader.count(); ++i) command.emplace_back(reader.argument(i));
      if (!command.empty()) commands.push_back(command);
      start += reader.command_bytes();
      reader.Reset();
      continue;
    }
    if (result == RespReader::Result::kBad) {
      CHECK(reader.bad_reason() != nullptr);
      commands.push_back({"BAD"});
      return commands;
    }
    if (at == bytes.size()) return commands;
    size_t n = std::min(bytes.size() - at, 1 + (*random)() % largest_piece);
    // A fresh block each time catches a reader that kept a pointer.
    std::string next(seen.begin() + static_cast<ptrdiff_t>(start), seen.end());
    next.append(bytes, at, n);
    seen.swap(next);
    start = 0;
    at += n;
  }
}

std::string Encode(const Command& command) {
  std::string bytes = "*" + std::to_string(command.size()) + "\r\n";
  for (const std::string& word : command) bytes += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return bytes;
}

std::string Mutate(std::string bytes, std::mt19937_64* random) {
  size_t changes = 1 + (*random)() % 4;
  for (size_t i = 0; i < changes && !bytes.empty(); ++i) {
    size_t at = (*random)() % bytes.size();
    switch ((*random)() % 4) {
      case 0: bytes[at] = static_cast<char>((*random)()); break;
      case 1: bytes.erase(at, 1 + (*random)() % 8); break;
      case 2: bytes.insert(at, 1 + (*random)() % 8, "*$\r\n-19:"[(*random)() % 8]); break;
      default: bytes.resize(at); break;
    }
  }
  return bytes;
}

void TestRespPieces() {
  std::mt19937_64 random(1);
  std::vector<Command> commands;
  std::string bytes;
  for (int i = 0; i < 200; ++i) {
    Command command;
    for (size_t k = 0, n = 1 + random() % 30; k < n; ++k)
      command.push_back(std::string(random() % 200, static_cast<char>(random())));
    commands.push_back(command);
    bytes += Encode(command);
  }
  for (size_t piece : {1, 2, 7, 100, 10'000, 1'000'000}) CHECK(ReadCommands(bytes, &random, piece) == commands);
  std::vector<Command> inline_ones = {{"GET", "12"}, {"PING"}};
  CHECK(ReadCommands("GET   12\r\n\r\nPING\n", &random, 3) == inline_ones);
  CHECK(ReadCommands("*0\r\n*-1\r\n", &random, 3).empty());
  for (const char* bad : {"*1001\r\n", "*1\r\n$70000\r\n", "*1\r\n:1\r\n", "*1\r\n$1\r\nabc",
                          "*99999999999999999999\r\n", "*\r\n", "PI\x01NG\r\n"}) {
    CHECK(ReadCommands(bad, &random, 3) == std::vector<Command>{{"BAD"}});
  }
}

void TestRespQuotes() {
  std::mt19937_64 random(11);
  const auto read = [&](const std::string& line) { return ReadCommands(line + "\r\n", &random, 5); };
  using Commands = std::vector<Command>;
  CHECK((read(R"(GET "a b" 'c d')") == Commands{{"GET", "a b", "c d"}}));
  CHECK((read(R"(ECHO "\x41\n\"\\" '\x41\'' "")") == Commands{{"ECHO", "A\n\"\\", "\\x41'", ""}}));
  CHECK((read(R"(a"b c"  d)") == Commands{{"ab c", "d"}}));
  for (const char* bad : {R"(GET "a)", R"(GET 'a)", R"(GET "a"b)", R"(GET "a\)", R"(GET "\x4)"}) {
    CHECK((read(bad) == Commands{{"BAD"}}));
  }
}

void TestRespFuzz() {
  std::mt19937_64 random(2);
  std::string good = Encode({"MGET", "1", "22", "333"}) + "PING\r\n" +
                     Encode({"HELLO", "3", "AUTH", "default", std::string(300, 'x')});
  for (int i = 0; i < 20'000; ++i) ReadCommands(Mutate(good, &random), &random, 1 + random() % 64);
}

void TestFeasigns() {
  uint64_t value = 0;
  CHECK(ParseFeasign("18446744073709551615", &value) && value == ~uint64_t{0});
  CHECK(!ParseFeasign("18446744073709551616", &value));
  CHECK(ParseFeasign("00000000000000000000000000000000000012", &value) && value == 12);
  CHECK(ParseFeasign("000000000007", &value) && value == 7);
  std::mt19937_64 random(3);
  for (int i = 0; i < 10'000; ++i) {
    uint64_t wanted = random() >> (random() % 64);
    std::string text = std::to_string(wanted);
    CHECK(ParseFeasign(text, &value) && value == wanted);
    text[random() % text.size()] = "/:a -+"[random() % 6];
    CHECK(!ParseFeasign(text, &value));
  }
  for (const char* bad : {"", "-1", "+1", " 1", "1 ", "0x10", "1234567a", "12345678 1"})
    CHECK(!ParseFeasign(bad, &value));
}

// The results of parsing HTTP bytes: each request's method, path and body, and the status of refusals.
std::vector<std::string> ReadRequests(const std::string& bytes, std::mt19937_64* random, size_t largest_piece) {
  HttpReader reader({4096, 100'000});
  std::vector<std::string> requests;
  std::string kept;
  size_t at = 0;
  while (true) {
    while (true) {
      std::string block = kept;  // exactly as long as its contents
      size_t n = reader.Feed(block.data(), block.size());
      CHECK(n <= block.size());
      kept.erase(0, n);
      if (reader.state() == HttpReader::State::kBad) {
        CHECK(reader.bad_status() >= 400);
        requests.push_back(std::to_string(reader.bad_status()));
        return requests;
      }
      if (reader.state() == HttpReader::State::kDone) {
        const HttpRequest& r = reader.request();
        requests.push_back(r.method + " " + r.path + "?" + r.query + " " + r.body + (r.keep_alive ? "" : " close"));
        reader.Reset();
        continue;
      }
      if (n == 0) break;
    }
    if (at == bytes.size()) return requests;
    size_t n = std::min(bytes.size() - at, 1 + (*random)() % largest_piece);
    kept.append(bytes, at, n);
    at += n;
  }
}

void TestHttpPieces() {
  std::mt19937_64 random(4);
  std::string bytes =
      "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
      "\r\nPOST /a?b=c HTTP/1.1\r\ncontent-LENGTH: 5\r\n\r\nhello"
      "POST /d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nTrailer: "
      "1\r\n\r\n"
      "GET /e HTTP/1.0\r\n\r\n";
  std::vector<std::string> wanted = {"GET /healthz? ", "POST /a?b=c hello", "POST /d? abc0123456789", "GET /e?  close"};
  for (size_t piece : {1, 2, 5, 50, 10'000}) CHECK(ReadRequests(bytes, &random, piece) == wanted);
  const std::pair<const char*, const char*> refused[] = {
      {"GET /\r\n\r\n", "400"},
      {"GET / HTTP/2.0\r\n\r\n", "505"},
      {"GET / HTTP/1.1\r\nbad header\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nContent-Length: 4294967296\r\n\r\n", "413"},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", "501"},
      {"POST / HTTP/1.1\r\nX-Timeout-Ms: 0\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nX-Timeout-Ms: 3600001\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nX-Timeout-Ms: soon\r\n\r\n", "400"},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "400"},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", "413"},
      {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", "400"},
  };
  for (const auto& [text, status] : refused) CHECK(ReadRequests(text, &random, 9) == std::vector<std::string>{status});
  CHECK(ReadRequests("GET / HTTP/1.1\r\nX: " + std::string(5000, 'x'), &random, 100) ==
        std::vector<std::string>{"431"});
}

void TestHttpFuzz() {
  std::mt19937_64 random(5);
  std::string good =
      "POST /v1/load HTTP/1.1\r\nContent-Length: 12\r\nConnection: keep-alive\r\n\r\n{\"model\": 1}"
      "POST /d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
  for (int i = 0; i < 20'000; ++i) ReadRequests(Mutate(good, &random), &random, 1 + random() % 64);
}

Protocol SniffText(const std::string& text) {
  return Sniff(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

void TestSniff() {
  CHECK(SniffText("") == Protocol::kUndecided);
  CHECK(SniffText("\xEC") == Protocol::kWire);
  CHECK(SniffText("*1") == Protocol::kResp);
  CHECK(SniffText("GET ") == Protocol::kUndecided && SniffText("GET /") == Protocol::kHttp &&
        SniffText("GET 1") == Protocol::kResp);
  CHECK(SniffText("P") == Protocol::kUndecided && SniffText("PING") == Protocol::kResp &&
        SniffText("POST /v1") == Protocol::kHttp);
  CHECK(SniffText("PRP") == Protocol::kUndecided && SniffText("PRPC") == Protocol::kBrpc &&
        SniffText("PRI * HTTP/2.0") == Protocol::kHttp && SniffText("PRPX") == Protocol::kResp);
  CHECK(SniffText("\x16\x03\x01") == Protocol::kTls && SniffText(std::string(1, '\0')) == Protocol::kUnknown);
}

void TestWireHeader() {
  uint8_t bytes[wire::kHeaderBytes];
  wire::Header header{1, 2, 3, 4, 5, 6, 7, 8};
  wire::EncodeHeader(bytes, header);
  CHECK(wire::HasMagic(bytes));
  wire::Header back = wire::DecodeHeader(bytes);
  CHECK(std::memcmp(&back, &header, sizeof back) == 0 ||
        (back.body_bytes == 1 && back.id == 2 && back.version == 3 && back.table == 4 && back.time_ms == 5 &&
         back.opcode == 6 && back.status == 7 && back.detail == 8));
  CHECK(wire::FoundBytes(0) == 0 && wire::FoundBytes(1) == 8 && wire::FoundBytes(64) == 8 &&
        wire::FoundBytes(65) == 16);
}

int SiteStatus(const std::string& host, const std::string& origin, const std::string& type,
               const std::string& own_host = "127.0.0.1") {
  HttpRequest request;
  request.method = "POST";
  request.host = host;
  request.origin = origin;
  request.content_type = type;
  auto refusal = CheckSite(request, own_host);
  return refusal ? refusal->status : 200;
}

void TestSites() {
  for (const char* host : {"", "localhost", "LocalHost:8500", "127.0.0.1:1", "127.9.9.9", "[::1]", "[::1]:80"}) {
    CHECK(SiteStatus(host, "", "application/json") == 200);
  }
  for (const char* host : {"evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8500", "[::2]", "[", "]",
                           "localhost@evil.example", ":", "10.0.0.1"}) {
    CHECK(SiteStatus(host, "", "") == (std::string(host) == ":" ? 200 : 403));
    // If other machines may connect, they know the server by names that it cannot know.
    CHECK(SiteStatus(host, "", "", "0.0.0.0") == 200);
  }
  for (const char* origin : {"null", "http://evil.example", "https://127.0.0.1.evil.example", "file://", "://", "x"}) {
    CHECK(SiteStatus("localhost", origin, "") == 403);
    CHECK(SiteStatus("own.example", origin, "", "0.0.0.0") == 403);
  }
  CHECK(SiteStatus("localhost:1", "http://localhost:3000", "") == 200);
  CHECK(SiteStatus("own.example:8500", "https://own.example", "", "0.0.0.0") == 200);
  for (const char* type : {"text/plain", "TEXT/PLAIN ; charset=utf-8", "multipart/form-data; boundary=x",
                           "application/x-www-form-urlencoded"}) {
    CHECK(SiteStatus("localhost", "", type) == 415);
  }
  for (const char* type : {"", "application/json; charset=utf-8", "application/octet-stream"}) {
    CHECK(SiteStatus("localhost", "", type) == 200);
  }
}

void TestScopes() {
  using elasticctr::Secret;
  using elasticctr::TokenScope;
  const Secret none(""), one("admin-token"), both("admin-token", "read-token");
  CHECK(!none.is_set() && none.ScopeOf("anything") == TokenScope::kAdmin);
  CHECK(one.ScopeOf("admin-token") == TokenScope::kAdmin && one.ScopeOf("") == TokenScope::kNone);
  CHECK(one.ScopeOf("read-token") == TokenScope::kNone);
  CHECK(both.ScopeOf("admin-token") == TokenScope::kAdmin && both.ScopeOf("read-token") == TokenScope::kRead);
  for (const char* wrong : {"", "admin-tokeN", "admin-token2", "admin-tokenadmin-token", "read-toke"}) {
    CHECK(both.ScopeOf(wrong) == TokenScope::kNone && !both.Matches(wrong));
  }
}

}  // namespace

int main() {
  TestSites();
  TestScopes();
  TestRespPieces();
  TestRespQuotes();
  TestRespFuzz();
  TestFeasigns();
  TestHttpPieces();
  TestHttpFuzz();
  TestSniff();
  TestWireHeader();
  return 0;
}
