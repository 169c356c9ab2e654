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
#include "lockstep/plan/plan.h"
#include "lockstep/transport/announcement.h"

namespace lockstep {

// What a caller asks for.
struct Request {
  Operation operation = Operation::barrier;
  Reduce reduce = Reduce::sum;
  int root = 0;
  TensorView data;
  TensorView input;
};

// "all_reduce number 12 (sum of f32[1000])".
std::string describe(const Announcement& operation);

class Execution {
 public:
  // `region` holds request.data when it is shared memory, else it is null. `private_scratch` serves
  // plans over messages: plan->scratch_count elements.
  Execution(const Request& request, std::shared_ptr<const Plan> plan,
            const Announcement& announcement, const Fabric& fabric, const SharedRegion* region,
            std::byte* private_scratch);

  // Goes as far as it can; true when the operation is complete. Throws Error when the ranks do not
  // agree, a peer is lost, or bytes are corrupt.
  bool advance();

  const Announcement& announcement() const { return announcement_; }
  // The ranks it waits for, for messages to people; empty when complete.
  std::vector<int> blocked_on() const;
  // Changes whenever the operation has moved: a step or a message.
  std::uint64_t moves() const;
  // The ranks have seen that they are in the same operation (in the arena; over messages each one
  // says so).
  bool agreed() const { return agreed_; }
  // Waiting in the arena: for whom and for which barrier. Rank -1: not waiting there.
  int laggard() const { return laggard_; }
  std::uint32_t barrier() const { return barrier_; }

 private:
  bool step(const Step& step);
  bool pass_barrier();
  bool landed(std::int64_t receives);
  bool links_idle();
  void progress_links();
  void check_agreement() const;
  std::byte* resolve(const Location& at) const;
  std::size_t bytes_of(const Location& at) const;

  const Request request_;
  const std::shared_ptr<const Plan> plan_;
  const Announcement announcement_;
  const Fabric& fabric_;
  const SharedRegion* const region_;
  const std::size_t region_offset_bytes_;
  std::byte* const private_scratch_;
  const std::size_t element_bytes_;

  std::size_t next_ = 0;
  std::uint32_t barrier_ = 0;
  bool at_barrier_ = false;
  bool agreed_ = false;
  int laggard_ = -1;
  // Which link the i-th receive of the plan is on, and its number there.
  struct Receive {
    int peer;
    std::int64_t number;
  };
  std::vector<Receive> receives_;
  std::size_t landed_ = 0;
  std::vector<std::int64_t> sends_due_;     // by peer: Link::sent() once all have left
  std::vector<std::int64_t> receives_due_;  // by peer: Link::received() once all have landed
  std::vector<std::byte*> destinations_;
  std::vector<const std::byte*> sources_;
};

}  // namespace lockstep
