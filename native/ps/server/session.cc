#include "ps/server/session.h"

#include <algorithm>
#include <cstring>

#include "ps/server/answer_frames.h"
#include "ps/server/refusal.h"
#include "util/coding.h"
#include "util/json_reader.h"
#include "util/json_text.h"

namespace elasticctr::ps {

using net::wire::kHeaderBytes;

namespace {

[[noreturn]] void Malformed(const char* what) { throw Error(Code::kData, what); }

}  // namespace

Session::Session(Service* service, net::ConnectionId id)
    : service_(service),
      answers_(std::make_shared<Answers>(&service->server(), id)),
      is_trusted_(!service->secret().is_set()) {}

Session::~Session() {
  const uint64_t session = replica_session_->load();
  if (session != 0) service_->replica().Leave(session);
}

net::Step Session::Consume(const uint8_t* data, size_t size, uint64_t, net::Buffer* out) {
  net::Step step;
  while (true) {
    if (answers_->is_held() || owed_ >= kMaxOwed) {
      step.next = net::Next::kWait;
      return step;
    }
    if (skip_ != 0) {
      const auto n = static_cast<uint32_t>(std::min<size_t>(skip_, size - step.consumed));
      step.consumed += n;
      skip_ -= n;
      step.in_request = skip_ != 0;
      if (skip_ != 0) return step;
    }
    const size_t left = size - step.consumed;
    const uint8_t* frame = data + step.consumed;
    const bool has_magic = left < sizeof net::wire::kMagic || net::wire::HasMagic(frame);
    if (has_magic && left < kHeaderBytes) {
      step.need = kHeaderBytes;
      return step;
    }
    const Header request = has_magic ? net::wire::DecodeHeader(frame) : Header{};
    const uint32_t most = is_trusted_ ? kMaxBodyBytes : kUntrustedBytes;
    if (!has_magic || request.body_bytes > most) {
      Fail(request, Error(Code::kData, has_magic ? "the body is over the limit" : "not a frame of this protocol"), out);
      step.next = net::Next::kClose;
      return step;
    }
    const size_t total = kHeaderBytes + request.body_bytes;
    if (left < total) {
      if (!account().HasRoomFor(total)) {
        Fail(request, Refusal(Code::kUnavailable, Detail::kOverloaded, "too many requests wait; try again"), out);
        step.consumed += kHeaderBytes;
        skip_ = request.body_bytes;
        continue;
      }
      step.need = total;
      return step;
    }
    step.consumed += total;
    if (!Handle(request, {frame + kHeaderBytes, request.body_bytes}, out)) {
      step.next = net::Next::kClose;
      return step;
    }
    if (out->size() >= net::kFlushBytes) {
      step.next = net::Next::kFlush;
      return step;
    }
  }
}

bool Session::Handle(const Header& request, Body body, net::Buffer* out) {
  const size_t before = out->size();
  try {
    Dispatch(request, body, out);
    return true;
  } catch (const Error& error) {
    out->Truncate(before);
    Fail(request, error, out);
    // A client without a valid token or with another protocol gets no second try.
    const bool is_unknown = request.opcode != static_cast<uint8_t>(Opcode::kHello) && !is_trusted_;
    return error.code() != Code::kUnauthorized && !is_unknown;
  } catch (const std::bad_alloc&) {
    out->Truncate(before);
    Fail(request, Refusal(Code::kUnavailable, Detail::kOverloaded, "out of memory for this request"), out);
    return true;
  }
}

void Session::Dispatch(const Header& request, Body body, net::Buffer* out) {
  const auto opcode = static_cast<Opcode>(request.opcode);
  if (opcode == Opcode::kHello) return Hello(request, body, out);
  if (!is_trusted_) throw Error(Code::kUnauthorized, "this pserver wants a token first: send hello");
  if (opcode == Opcode::kPing) {
    if (body.size() > net::wire::kMaxPingBytes) Malformed("a ping has at most 64 bytes");
    return SendText(request, {reinterpret_cast<const char*>(body.data()), body.size()}, out);
  }
  if (request.table != service_->options().job) {
    throw Refusal(Code::kFailedPrecondition, Detail::kOtherJob,
                  "this pserver is of another job; give every role the same job file");
  }
  switch (opcode) {
    case Opcode::kAttach: return Attach(request, body, out);
    case Opcode::kPull: return Pull(request, body, out);
    case Opcode::kPush: return Push(request, body, out);
    case Opcode::kCursors: return Cursors(request, body, out);
    case Opcode::kGroup: return SetGroup(request, body, out);
    case Opcode::kSetDense: return SetDense(request, body, out);
    case Opcode::kControl: return Order(request, body);
    case Opcode::kReplicate: return Replicate(request, body);
    default: Malformed("unknown opcode");
  }
}

void Session::Hello(const Header& request, Body body, net::Buffer* out) {
  if (!service_->secret().Matches({reinterpret_cast<const char*>(body.data()), body.size()})) {
    throw Error(Code::kUnauthorized, "wrong token");
  }
  is_trusted_ = true;
  SendText(request, "{\"server\": \"pserver\", \"protocol\": 1, \"max_body\": " + std::to_string(kMaxBodyBytes) + "}",
           out);
}

void Session::Attach(const Header& request, Body body, net::Buffer* out) {
  const ServiceOptions& options = service_->options();
  std::string role, build, identity, strategy;
  JsonReader reader({reinterpret_cast<const char*>(body.data()), body.size()}, 8, "attach is JSON");
  std::string_view key;
  for (reader.BeginObject(); reader.NextKey(&key);) {
    if (key == "role") {
      role = reader.String();
    } else if (key == "build") {
      build = reader.String();
    } else if (key == "identity") {
      identity = reader.String();
    } else if (key == "strategy") {
      strategy = reader.String();
    } else {
      reader.Skip();
    }
  }
  reader.End();
  const auto refuse = [](const std::string& what) {
    throw Refusal(Code::kFailedPrecondition, Detail::kOtherJob, what + "; start every role from one build and one job");
  };
  if (build != options.build) refuse("build " + build + " wants to attach to a pserver of build " + options.build);
  if (identity != options.identity && identity != options.digest) refuse("this pserver is of another job");
  if (strategy != options.strategy) refuse("strategy " + strategy + " at a pserver of " + options.strategy);
  if (role == "trainer") service_->RequireServing();
  is_standby_ = role == "standby";
  const Shard& shard = service_->shard();
  std::string text = "{\"shard\": " + std::to_string(shard.settings().shard) +
                     ", \"shards\": " + std::to_string(shard.settings().shards) + ", \"tables\": [";
  for (const TableSettings& table : shard.settings().tables) {
    if (text.back() != '[') text += ", ";
    AppendJsonString(&text, table.name);
  }
  text += "], \"dense_floats\": " + std::to_string(shard.settings().dense_floats) +
          ", \"has_dense\": " + (shard.CopyDense(nullptr) != 0 ? "true" : "false") +
          ", \"step\": " + std::to_string(shard.step()) + "}";
  SendText(request, text, out);
}

void Session::Pull(const Header& request, Body body, net::Buffer* out) {
  service_->RequireServing();
  Shard& shard = service_->shard();
  PullRequest pull = ReadPull(body, shard.shapes());
  pull.era = request.version;
  const size_t most = shard.PullAnswerBytes(pull);
  if (most > kMaxBodyBytes) Malformed("the answer would be over the limit; ask for fewer feasigns at once");
  if (!account().HasRoomFor(most)) {
    throw Refusal(Code::kUnavailable, Detail::kOverloaded, "too many answers wait to be read; try again");
  }
  Header header = request;
  header.time_ms = 0;
  if (owed_ == 0) {
    uint8_t* const frame = out->Reserve(kHeaderBytes + most);
    const PullResult result = shard.Pull(pull, frame + kHeaderBytes, &found_);
    header.version = shard.step();
    header.body_bytes = static_cast<uint32_t>(result.bytes);
    net::wire::EncodeHeader(frame, header);
    if (result.place == 0 || service_->replica().IsHeld(result.place)) return out->Commit(kHeaderBytes + result.bytes);
    return SendHeld(result.place, {reinterpret_cast<const char*>(frame), kHeaderBytes + result.bytes}, out);
  }
  std::string frame(kHeaderBytes + most, '\0');
  auto* const bytes = reinterpret_cast<uint8_t*>(frame.data());
  const PullResult result = shard.Pull(pull, bytes + kHeaderBytes, &found_);
  header.version = shard.step();
  header.body_bytes = static_cast<uint32_t>(result.bytes);
  net::wire::EncodeHeader(bytes, header);
  frame.resize(kHeaderBytes + result.bytes);
  SendHeld(result.place, std::move(frame), out);
}

void Session::Push(const Header& request, Body body, net::Buffer* out) {
  service_->RequireServing();
  Shard* const shard = &service_->shard();
  PushRequest push = ReadPush(body, shard->shapes());
  push.era = request.version;
  const bool with_dense = (push.flags & kPushWantsDense) != 0;
  if (!Shard::Waits(push)) {
    found_.Fill(&push.tables);
    PushResult result;
    shard->Push(push, [&result](const PushResult* ended, const std::exception*) { result = *ended; });
    return SendHeld(result.place, PushFrame(request, result, shard, with_dense), out);
  }
  // It may have to wait: the body is kept with the answer, and later frames of this connection wait as well.
  auto owned = std::make_shared<std::vector<uint8_t>>(body.begin(), body.end());
  push = ReadPush(*owned, shard->shapes());
  push.era = request.version;
  const uint64_t place = answers_->Open();
  answers_->Hold();
  ++owed_;
  const auto done = [answers = answers_, replica = &service_->replica(), owned, request, shard, with_dense, place](
                        const PushResult* result, const std::exception* error) {
    std::string frame = error == nullptr ? PushFrame(request, *result, shard, with_dense) : ErrorFrame(request, *error);
    const uint64_t held = error == nullptr ? result->place : 0;
    replica->WhenHeld(held, [answers, place, frame = std::move(frame)] { answers->Fill(place, frame); });
  };
  try {
    shard->Push(push, done);
  } catch (const std::exception& error) {
    answers_->Fill(place, ErrorFrame(request, error));
  }
}

void Session::Cursors(const Header& request, Body body, net::Buffer* out) {
  service_->RequireServing();
  service_->shard().CheckEra(request.version);
  if (body.size() % sizeof(uint64_t) != 0) Malformed("chunks are u64 each");
  std::vector<uint64_t> chunks(body.size() / sizeof(uint64_t));
  if (!body.empty()) std::memcpy(chunks.data(), body.data(), body.size());
  const std::vector<uint32_t> cursors = service_->shard().Cursors(chunks);
  SendText(request, {reinterpret_cast<const char*>(cursors.data()), cursors.size() * sizeof(uint32_t)}, out);
}

void Session::SetGroup(const Header& request, Body body, net::Buffer* out) {
  service_->CheckIncarnation(request.version);
  service_->RequireServing();
  if (body.size() < 8) Malformed("a group begins with its count");
  const uint32_t count = DecodeFixed32(body.data());
  if (body.size() != 8 + size_t{count} * sizeof(uint64_t) || DecodeFixed32(body.data() + 4) != 0) {
    Malformed("a group's count does not fit its length");
  }
  std::vector<uint64_t> members(count);
  if (count != 0) std::memcpy(members.data(), body.data() + 8, count * sizeof(uint64_t));
  service_->shard().SetGroup(std::move(members));
  SendHeld(service_->replica().last_place(), AnswerFrame(request, service_->shard().step(), ""), out);
}

void Session::SetDense(const Header& request, Body body, net::Buffer* out) {
  service_->RequireServing();
  service_->shard().CheckEra(request.version);
  if (body.size() < 8 || body.size() % sizeof(float) != 0) Malformed("a u64 and whole floats set the dense part");
  std::vector<float> values((body.size() - 8) / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), body.data() + 8, values.size() * sizeof(float));
  const bool is_taken = service_->shard().SetDense(DecodeFixed64(body.data()), values);
  const std::string_view taken(is_taken ? "\1" : "\0", 1);
  SendHeld(service_->replica().last_place(), AnswerFrame(request, service_->shard().step(), taken), out);
}

void Session::Order(const Header& request, Body body) {
  service_->CheckIncarnation(request.version);
  const std::string order(reinterpret_cast<const char*>(body.data()), body.size());
  SendLater(request, [service = service_, order] { return service->Obey(order); });
}

void Session::Replicate(const Header& request, Body body) {
  if (!is_standby_) throw Error(Code::kFailedPrecondition, "attach as a standby first");
  service_->RequireServing();
  const auto verb = body.empty() ? uint8_t{UINT8_MAX} : body[0];
  if (verb == static_cast<uint8_t>(ReplicaVerb::kBegin) && body.size() == 1) {
    return SendLater(
        request, [service = service_, session = replica_session_] { return service->BeginTransfer(session.get()); });
  }
  if (verb == static_cast<uint8_t>(ReplicaVerb::kRead) && body.size() == 21) {
    const uint64_t session = DecodeFixed64(body.data() + 1), offset = DecodeFixed64(body.data() + 13);
    const uint32_t file = DecodeFixed32(body.data() + 9);
    return SendLater(request, [=, service = service_] { return service->ReadTransfer(session, file, offset); });
  }
  if (verb != static_cast<uint8_t>(ReplicaVerb::kLog) || body.size() != 17) Malformed("a malformed word of a standby");
  const uint64_t session = DecodeFixed64(body.data() + 1), acked = DecodeFixed64(body.data() + 9);
  const uint64_t place = answers_->Open();
  answers_->Hold();
  ++owed_;
  try {
    service_->replica().Fetch(session, acked, [answers = answers_, request, place](std::string changes) {
      answers->Fill(place, AnswerFrame(request, 0, changes));
    });
  } catch (const std::exception& error) {
    answers_->Fill(place, ErrorFrame(request, error));
  }
}

void Session::SendLater(const Header& request, std::function<std::string()> make) {
  const uint64_t place = answers_->Open();
  answers_->Hold();
  ++owed_;
  const auto job = [answers = answers_, service = service_, request, place, make = std::move(make)] {
    try {
      answers->Fill(place, AnswerFrame(request, service->shard().step(), make()));
    } catch (const std::exception& error) {
      answers->Fill(place, ErrorFrame(request, error));
    }
  };
  if (service_->control().Post(job)) return;
  answers_->Fill(place, ErrorFrame(request, Refusal(Code::kUnavailable, Detail::kOverloaded, "too many orders wait")));
}

void Session::Send(std::string answer, net::Buffer* out) {
  if (owed_ == 0) return out->Append(answer);
  ++owed_;
  answers_->Append(std::move(answer));
}

void Session::SendHeld(uint64_t held, std::string answer, net::Buffer* out) {
  if (held == 0 || service_->replica().IsHeld(held)) return Send(std::move(answer), out);
  const uint64_t place = answers_->Open();
  ++owed_;
  service_->replica().WhenHeld(
      held, [answers = answers_, place, answer = std::move(answer)] { answers->Fill(place, answer); });
}

void Session::SendText(const Header& request, std::string_view text, net::Buffer* out) {
  Send(AnswerFrame(request, service_->shard().step(), text), out);
}

void Session::Fail(const Header& request, const std::exception& error, net::Buffer* out) {
  Send(ErrorFrame(request, error), out);
}

}  // namespace elasticctr::ps
