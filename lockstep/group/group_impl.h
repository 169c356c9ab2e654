// Group::Impl: members of a group, what connects them, and the engine on it.
//
// Thread rule: that of Group.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/engine/engine.h"
#include "lockstep/group/group.h"
#include "lockstep/group/requests.h"
#include "lockstep/group/world.h"
#include "lockstep/transport/arena.h"

namespace lockstep {

using Texts = std::vector<std::string>;
// Gives this rank's text to all ranks of a group and returns theirs.
using Exchange = std::function<Texts(const std::string& text)>;

class Group::Impl {
 public:
  // The group of all ranks of the job.
  explicit Impl(const Settings& settings);
  // A group of some ranks of `parent`: `members` by their numbers in the job. Every rank of the
  // parent makes kExchanges exchanges meanwhile.
  Impl(std::shared_ptr<Impl> parent, std::vector<int> members, int own, std::uint64_t id,
       const Exchange& exchange);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  const std::string& transport() const { return transport_; }
  const Requests& requests() const { return requests_; }
  Engine* engine() const { return engine_.get(); }

  void run(const Request& request);
  Work submit(const Request& request);
  Texts exchange(const std::string& text);
  void set_runner(Runner runner);
  Runner runner() const;
  void abort(const std::string& why);
  std::shared_ptr<SharedBlock> allocate(std::size_t bytes);
  static std::optional<Group> split(const std::shared_ptr<Impl>& parent, int colour, int key);
  static std::optional<Group> subgroup(const std::shared_ptr<Impl>& parent,
                                       const std::vector<int>& ranks);

 private:
  // How many exchanges connect_arena makes; ranks without one make as many.
  static constexpr int kExchanges = 2;

  // `ranks` of the parent that form this rank's part; empty: it is in none.
  static std::optional<Group> form_part(const std::shared_ptr<Impl>& parent,
                                        const std::vector<int>& ranks);
  // exchange() by this group's own collectives.
  Texts gather_texts(const std::string& text);
  std::shared_ptr<SharedBlock> map_all(SharedMemory own, const Texts& addresses, std::size_t bytes);

  // Connects the members. Errors are told to the others.
  void form(const Exchange& exchange);
  void find_hosts();
  void connect_arena(const Exchange& exchange);
  EngineOptions engine_options() const;
  bool cores_suffice() const;
  void start();
  const Neighbour& neighbour(int rank) const;

  const int rank_;
  const int size_;
  const Requests requests_;
  const std::shared_ptr<Impl> parent_;  // whose ranks it is made of; null for the whole job
  std::shared_ptr<World> world_;        // null for a job of one
  World::Member member_;
  std::vector<int> hosts_;  // by rank
  std::vector<int> local_;  // the ranks that share this one's arena
  int local_rank_ = 0;
  int local_size_ = 1;
  bool shares_ = false;  // some ranks of the group share memory
  std::string transport_ = "none needed";
  std::uint64_t regions_ = 0;  // made so far
  std::uint64_t parts_ = 0;    // groups made of this one
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<Link>> links_;
  // Shared only with the blocks, which look whether it is still there.
  std::shared_ptr<Engine> engine_;
};

}  // namespace lockstep
