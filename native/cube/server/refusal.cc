#include "cube/server/refusal.h"

namespace elasticctr::cube {

using net::wire::Detail;

const Refusal& RefusalOf(Miss miss) {
  static constexpr char kDamagedText[] = "ERR a damaged file; see the server's log";
  static constexpr Refusal kNoTable = {Code::kNotFound, Detail::kNoTable,
                                       "no such table here; ask describe for the tables this server has",
                                       "ERR no such table; SELECT another"};
  static constexpr Refusal kNoVersion = {Code::kNotFound, Detail::kNoVersion,
                                         "that version is gone or was never loaded; ask for the active one",
                                         kDamagedText};
  static constexpr Refusal kWrongShard = {
      Code::kFailedPrecondition, Detail::kWrongShard,
      "a feasign of another shard; check the order and number of shards in the client's configuration",
      "WRONGSHARD a feasign of another shard; check the order and number of shards"};
  static constexpr Refusal kOverloaded = {Code::kUnavailable, Detail::kOverloaded,
                                          "too many answers wait to be read; try again",
                                          "OVERLOADED too many answers wait to be read; try again"};
  static constexpr Refusal kNothingActive = {Code::kUnavailable, Detail::kNothingActive,
                                             "no version of this model is active yet",
                                             "LOADING no version is active yet"};
  static constexpr Refusal kDeadline = {Code::kDeadlineExceeded, Detail::kDeadline,
                                        "the deadline passed before the answer was made", kDamagedText};
  static constexpr Refusal kMalformed = {Code::kData, Detail::kMalformed, "malformed body", kDamagedText};
  switch (miss) {
    case Miss::kNoTable: return kNoTable;
    case Miss::kNoVersion: return kNoVersion;
    case Miss::kWrongShard: return kWrongShard;
    case Miss::kOverloaded: return kOverloaded;
    case Miss::kNothingActive: return kNothingActive;
    case Miss::kDeadline: return kDeadline;
    case Miss::kMissing:
    case Miss::kDamaged:
    case Miss::kMalformed: break;
  }
  return kMalformed;
}

}  // namespace elasticctr::cube
