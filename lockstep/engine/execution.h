// Execution: one operation being carried out, step by step, without ever blocking.
//
//            advance()                  advance()
//   ready ─────────────▶ under way ──────────────▶ complete
//                          │  ▲ blocked_on() says for whom it waits
//                          └──┘
// Thread rule: the engine's driver alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/types.h"
#include "lockstep/engine/fabric.h"
#include "lockstep/engine/staging.h"
#include "lockstep/engine/work.h"
#include "lockstep/kernels/reduce.h"
#include "lockstep/plan/plan.h"
#include "lockstep/transport/announcement.h"

namespace lockstep {

// What a caller asks for. The spans are read while it is submitted only.
struct Request {
  Operation operation = Operation::barrier;
  Reduce reduce = Reduce::sum;
  std::int64_t mean_of = 0;  // what a mean divides by; 0: the number of ranks
  int root = 0;
  int peer = 0;            // send: the other rank
  std::int64_t count = 0;  // Shape::count
  DType dtype = DType::u8;
  std::byte* data = nullptr;
  const std::byte* input = nullptr;  // all_reduce and reduce: copied into data first unless null
  std::span<const std::int64_t> counts = {};
  std::span<const std::int64_t> receive_counts = {};
  NotFinite* watch = nullptr;  // all_reduce: looks for what is not finite
  // Row-major copies that data and input point to where the tensors are not row-major themselves.
  std::shared_ptr<const Staging> staged_data = {};
  std::shared_ptr<const Staging> staged_input = {};

  // Every rank has counts of its own, so that no two can compare them.
  bool has_own_counts() const { return operation == Operation::all_to_all && !counts.empty(); }
  // The same but for counts per rank and staging.
  bool is_like(const Request& other) const {
    return data == other.data && input == other.input && count == other.count &&
           operation == other.operation && reduce == other.reduce && root == other.root &&
           peer == other.peer && dtype == other.dtype && mean_of == other.mean_of &&
           watch == other.watch;
  }
};

// What an operation is when there is nobody else.
void run_by_oneself(const Request& request);

// "all_reduce number 12 (sum of f32[1000])".
std::string describe(const Announcement& operation);

// Memory of one rank for the time of an operation.
struct Workspace {
  std::byte* scratch = nullptr;   // for plans whose scratch is not shared
  std::byte* partials = nullptr;  // 64-byte aligned
};

// Where data or input lies, if it is shared memory: the region and the offset in it.
struct Placement {
  const SharedRegion* region = nullptr;
  std::size_t offset_bytes = 0;
};

// Used again and again: start() begins the next operation.
class Execution {
 public:
  explicit Execution(const Fabric& fabric);

  // `request`, `plan` and `workspace` must outlive the operation.
  void start(const Request& request, const Plan& plan, const Announcement& announcement,
             const Placement& data, const Placement& input, const Workspace& workspace);

  // Goes as far as it can; true when the operation is complete. Throws Error when the ranks do not
  // agree, a peer is lost, or bytes are corrupt.
  bool advance();

  const Announcement& announcement() const { return announcement_; }
  // The ranks it waits for, for messages to people; empty when complete.
  std::vector<int> blocked_on() const;
  // Changes whenever the operation has moved: a step or a message.
  std::uint64_t moves() const;
  // The ranks of this host have seen that they are in the same operation (over messages each
  // message says so).
  bool agreed() const { return agreed_; }
  // Waiting at a barrier: for which rank (of the arena) and which barrier. Rank -1: not at one.
  int laggard() const { return at_barrier_ ? laggard_ : -1; }
  std::uint32_t barrier() const { return barrier_; }
  // Throws Error(invalid_argument) if a rank of this host has announced something else under the
  // same number: for operations that wait long, and may have no barrier where it would show.
  void check_neighbours() const;
  // The same for those it waits for over links: asks them, who find out (Link::ask).
  void ask_peers() const;

 private:
  void choose_scratch();
  bool step(const Step& step);
  void reduce_step(const Step& step);
  void note_not_finite(std::size_t source);
  bool pass_barrier();
  bool landed(std::int64_t receives);
  bool left(std::int64_t sends);
  void progress_links();
  void check_agreement() const;
  [[noreturn]] void disagree(int rank, const Announcement& theirs) const;
  std::byte* resolve(const Location& at) const;
  std::size_t bytes_of(const Location& at) const;
  Stores stores_to(const Location& to, std::size_t bytes, StepKind kind) const;
  int local_index(int rank) const { return local_index_[static_cast<std::size_t>(rank)]; }

  const Fabric& fabric_;
  std::vector<int> local_index_;  // by rank; -1: on another host

  const Request* request_ = nullptr;
  const Plan* plan_ = nullptr;
  Announcement announcement_;
  Placement data_;
  Placement input_;
  Workspace workspace_;
  std::size_t element_bytes_ = 1;
  std::size_t partial_bytes_ = 1;
  bool uses_links_ = false;
  bool in_mail_ = false;    // scratch goes along with the barrier
  std::uint32_t mail_ = 0;  // which
  unsigned turn_ = 0;

  std::size_t next_ = 0;
  std::uint32_t barrier_ = 0;
  bool announced_ = false;
  bool at_barrier_ = false;
  bool agreed_ = false;
  int laggard_ = -1;
  // Which link the i-th receive (send) of the plan is on, and its number there.
  struct Transfer {
    int peer;
    std::int64_t number;
  };
  std::vector<Transfer> receives_;
  std::vector<Transfer> sends_;
  std::size_t landed_ = 0;
  std::size_t left_ = 0;
  std::vector<std::byte*> destinations_;
  std::vector<Source> sources_;
};

}  // namespace lockstep
