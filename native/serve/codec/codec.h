// The engine's interface to a protocol: converts a request's bytes to samples and scores to bytes. One file per
// protocol; codecs know neither sockets nor each other, and keep no state. They run on the engine's workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/loop/budget.h"
#include "serve/codec/samples.h"
#include "util/status.h"

namespace elasticctr::serve {

class Codec;

struct Limits {
  size_t body_bytes = 8u << 20;  // as sent, and again after decompression
  size_t samples = 10'000;       // candidates of one request
  size_t values = 1'000'000;     // feasigns of one request
  uint32_t json_depth = 16;
  size_t names = 10'000;  // tensors of one request; the engine lowers it to what its models' slots can need
};

// One request from a session. `answer` is called exactly once, from any thread, with all bytes for the client.
struct Request {
  const Codec* codec = nullptr;
  std::string body;      // without the framing
  bool is_gzip = false;  // the body is still compressed
  std::string model;     // from the path; empty: the body names it, or there is only one
  std::string version;   // from the path; if set, only that version may answer
  std::string id;        // the client's (X-Request-Id, "id", log_id), else generated; empty until Read if in the body
  std::string content_type;
  uint64_t binary_header = 0;  // Inference-Header-Content-Length; 0: none
  uint64_t call_id = 0;        // brpc's correlation id
  uint64_t received_ns = 0;    // CLOCK_MONOTONIC
  uint64_t deadline_ns = 0;    // 0: the engine's default
  bool keep_alive = true;
  bool is_shadow = false;  // scored, counted, never answered
  std::string peer;        // for logs
  net::Charge charge;      // the body's bytes, until the request is finished
  std::function<void(std::string bytes, bool close)> answer;
};

// Rows found and rows requested, counting every value of every sample of the request, shared ones once.
struct Coverage {
  uint64_t asked = 0;
  uint64_t found = 0;
  std::vector<uint32_t> dead_shards;  // did not answer, and the policy allows degraded answers
  bool late = false;                  // the Cube did not answer in time, and the policy allows degraded answers
  bool is_degraded() const { return late || !dead_shards.empty() || is_below; }
  bool is_below = false;  // no row found, or fewer than the model's min_coverage, and the policy allows that
};

struct Reply {
  const std::string* model;
  uint64_t version;
  const std::string* variant;
  const std::vector<std::string>* labels;
  size_t count;         // samples
  const float* scores;  // [count, labels]
  const Coverage* coverage;
};

// A parsed request body, before the model is known.
class Parsed {
 public:
  virtual ~Parsed() = default;
  std::string model;        // from the body; empty: none
  std::string version;      // from the body: only that version may answer; empty: none
  std::string id;           // from the body; empty: none
  uint32_t timeout_ms = 0;  // from the body; 0: none
  // The text of a field of the body, for sticky variants; false: there is none. A number gives its decimal text.
  virtual bool Field(std::string_view name, std::string* value) const = 0;
  // Adds the request to `samples` (BeginRequest … EndRequest), which uses the model's plan. Throws DataError; the
  // caller then drops the request.
  virtual void Fill(Samples* samples, const Limits& limits) const = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;
  virtual const char* name() const = 0;  // json, kserve, kserve_grpc, paddle, brpc: the name in metrics and logs
  // Throws DataError.
  virtual std::unique_ptr<Parsed> Read(const Request& request, const Limits& limits) const = 0;
  // All bytes of the answer, including head and framing. `parsed` is null if Read failed.
  virtual std::string Format(const Request& request, const Parsed* parsed, const Reply& reply) const = 0;
  virtual std::string FormatError(const Request& request, const Parsed* parsed, const Error& error) const = 0;
};

}  // namespace elasticctr::serve
