// World: the job that this process is a rank of: who else is in it, where, and how to reach them.
// Every group of the process stands on it.
//
// Thread rule: exchange() from one thread at a time; everything else from any.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/engine/engine.h"
#include "lockstep/group/mesh.h"
#include "lockstep/group/settings.h"
#include "lockstep/plan/cost.h"
#include "lockstep/rendezvous/store_client.h"
#include "lockstep/rendezvous/store_server.h"

namespace lockstep {

// What a rank tells about itself once it has joined.
struct Neighbour {
  std::string host;
  std::vector<int> cores;
  Transport transport = Transport::automatic;
  std::uint64_t job = 0;  // drawn by each rank; rank 0's names the job
  Prices prices;          // rank 0's are everybody's, so that all choose alike

  std::string to_wire() const;
  static Neighbour from_wire(const std::string& bytes);
};

class World {
 public:
  // Joins: blocks until all ranks have, or throws within join_timeout with the missing ones named.
  explicit World(const Settings& settings);
  // Says farewell.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  const Settings& settings() const { return settings_; }
  const std::vector<Neighbour>& neighbours() const { return neighbours_; }
  std::string job_name() const;
  Mesh& mesh() { return *mesh_; }

  // Collective over the job: each rank's text.
  std::vector<std::string> exchange(const std::string& text, const Deadline& deadline);
  // Tells the others why an operation failed here.
  void report(const Error& error) { store_->report(error); }

  // A group that must hear of failures. `members`: its ranks' numbers in the job.
  struct Member {
    std::uint64_t group = 0;
    std::vector<int> members;
    Engine* engine = nullptr;
  };
  void enter(const Member* member);
  void leave(const Member* member);
  // From here on `engine`'s progress thread listens to the store. It must live longest.
  void listen(Engine& engine);
  // Says farewell now: nobody shall take this rank's silence for its death.
  void say_farewell();

 private:
  void join(const StoreIdentity& identity);
  void host_store(const StoreIdentity& identity);
  void claim_rank0(const StoreIdentity& identity) const;
  void meet(const Deadline& deadline);
  void check_transports() const;
  void broke(const Error& error);
  void left(int rank, const std::string& how);

  const Settings settings_;
  const int uncaught_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<StoreClient> store_;
  std::vector<Neighbour> neighbours_;
  std::unique_ptr<Mesh> mesh_;

  std::mutex mutex_;
  std::set<const Member*> groups_;  // guarded by mutex_
};

}  // namespace lockstep
