// Blame: which rank of a group diverged or stopped first, told from the flight records of all.
// Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/engine/flight_record.h"

namespace lockstep {

// The form of the answer.
enum class Verdict {
  diverged,  // at one sequence number the ranks called different operations
  stopped,   // the others wait in an operation that `ranks` never came to, or stopped in
  missing,   // `ranks` left no record, and nothing that is there explains the failure
  unclear,   // none of these: the first error says what is known
};
std::string_view to_string(Verdict verdict);

// Where one rank stood.
struct Standing {
  int rank = 0;
  bool recorded = false;
  std::string what;   // its last operation that matters here; empty: it called none
  std::string state;  // of that operation
  std::vector<int> waits_for;
};

struct Blame {
  Verdict verdict = Verdict::unclear;
  std::string job;
  std::string group;
  int ranks_of_group = 0;
  std::vector<int> ranks;           // who is to blame; both sides where there is no majority
  std::uint64_t number = 0;         // of the operation in which it shows
  std::string what;                 // that operation, as the others called it
  std::string summary;              // one sentence
  std::vector<Standing> standings;  // of every rank, in rank order
  std::string error;                // "code: text": the first cause, as the first to write had it
};

// `records` are of one group of one job, at most one a rank, at least one.
Blame blame(const std::vector<FlightRecord>& records);

// Lines for people, and the same as one JSON object.
std::string to_text(const Blame& blame);
std::string to_json(const Blame& blame);

// Parts the records into groups that blame() takes, the job with the most records first. Older
// records of the same rank and those of other jobs are left out, each with a line in `notes`.
// `names` (of the files) go with the records.
std::vector<std::vector<FlightRecord>> sort_records(std::vector<FlightRecord> records,
                                                    const std::vector<std::string>& names,
                                                    std::vector<std::string>& notes);

}  // namespace lockstep
