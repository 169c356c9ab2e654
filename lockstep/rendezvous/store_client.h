// A rank's connection to the store of its job.
//
// Thread rule: on_readable() from one thread (the engine's progress thread); everything else from
// any.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/transport/tcp/socket.h"
#include "lockstep/transport/tcp/stream.h"

namespace lockstep {

struct StoreIdentity {
  int rank = 0;
  int world_size = 1;
  std::string who;  // for messages: "process 123 on host a"
  JobKey key;
};

class StoreClient {
 public:
  struct Events {
    std::function<void(const Error&)> broken;                    // the group cannot go on
    std::function<void(int rank, const std::string& how)> left;  // orderly
  };

  // Connects, authenticates and asks to join. Throws Error: timeout naming the address, and what
  // lockstep/transport/handshake.h says. Whether the store admits this rank shows in exchange().
  StoreClient(const std::string& host, std::uint16_t port, const StoreIdentity& identity,
              const Deadline& deadline);

  // From here on on_readable() must be called whenever fd() is readable; before, exchange() reads.
  void listen(Events events);
  int fd() const { return stream_.fd(); }
  // Reads what has come and throws if the group is broken. For waits of the forming group that
  // listen to something else as well; before listen().
  void throw_if_broken();
  // False once the store is gone and there is nothing more to read.
  bool on_readable();

  // Collective: each rank's text, by rank. Throws the group's error if it breaks meanwhile; at the
  // deadline it breaks the group with Error(timeout), since a late answer would be taken for the
  // next.
  std::vector<std::string> exchange(const std::string& text, const Deadline& deadline);

  // Tells the others why an operation failed here.
  void report(const Error& error);
  // Says farewell, once; what the store says afterwards is ignored.
  void leave(const std::string& how);

  SocketAddress local() const { return local_address(stream_.socket()); }

 private:
  void send(std::string_view bytes, const Deadline& deadline);
  void shut();
  bool closed();
  void read_all();
  void handle(const std::string& payload, int type);
  void broke(const Error& error);

  const std::string store_;  // its address, for messages
  const StoreIdentity identity_;
  Stream stream_;  // read and written under stream_mutex_
  std::string in_;
  Events events_;
  bool listening_ = false;  // set once, before a second thread knows this object

  std::mutex send_mutex_;  // held for a whole frame
  std::mutex stream_mutex_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<std::string>> gathered_;  // guarded by mutex_
  std::optional<Error> broken_;                    // guarded by mutex_
  bool leaving_ = false;                           // guarded by mutex_
  std::map<int, std::string> left_;                // guarded by mutex_
  bool closed_ = false;                            // guarded by mutex_
};

}  // namespace lockstep
