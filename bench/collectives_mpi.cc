// One rank of bench/collectives on MPI. The same source is compiled for Open MPI and for MPICH.
#include <mpi.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "bench/collectives_loop.h"

namespace {

using lockstep::bench::Buffers;
using lockstep::bench::Collective;

void check(int status, const char* what) {
  if (status != MPI_SUCCESS) throw std::runtime_error(std::string(what) + " failed");
}

class Mpi final : public lockstep::bench::System {
 public:
  Mpi() {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  }

  // "Open MPI v4.1.4, package: …" and "MPICH Version:\t4.0.2\n…" are cut down to the number.
  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int text_length = 0;
    check(MPI_Get_library_version(text, &text_length), "MPI_Get_library_version");
    const std::string all(text);
    const std::size_t first = all.find_first_of("0123456789");
    return all.substr(first, all.find_first_not_of("0123456789.", first) - first);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  float* allocate(std::size_t bytes, lockstep::bench::Memory memory) override {
    if (memory == lockstep::bench::Memory::own) return lockstep::bench::ordinary_memory(bytes);
    void* data = nullptr;
    check(MPI_Alloc_mem(static_cast<MPI_Aint>(bytes), MPI_INFO_NULL, &data), "MPI_Alloc_mem");
    return static_cast<float*>(data);
  }

  void call(Collective collective, const Buffers& buffers) override {
    const int whole_count = static_cast<int>(buffers.whole_count);
    const int part_count = whole_count / size_;
    switch (collective) {
      case Collective::all_reduce:
        return check(MPI_Allreduce(MPI_IN_PLACE, buffers.whole, whole_count, MPI_FLOAT, MPI_SUM,
                                   MPI_COMM_WORLD),
                     "MPI_Allreduce");
      case Collective::broadcast:
        return check(MPI_Bcast(buffers.whole, whole_count, MPI_FLOAT, 0, MPI_COMM_WORLD),
                     "MPI_Bcast");
      case Collective::all_gather:
        return check(MPI_Allgather(buffers.part, part_count, MPI_FLOAT, buffers.whole, part_count,
                                   MPI_FLOAT, MPI_COMM_WORLD),
                     "MPI_Allgather");
      case Collective::reduce_scatter:
        return check(MPI_Reduce_scatter_block(buffers.whole, buffers.part, part_count, MPI_FLOAT,
                                              MPI_SUM, MPI_COMM_WORLD),
                     "MPI_Reduce_scatter_block");
    }
  }

 private:
  int rank_ = 0;
  int size_ = 1;
};

int local_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::bench::pin_to_core(local_rank());
  MPI_Init(&argc, &argv);
  Mpi system;
  const int status = lockstep::bench::measure(system, argc, argv);
  if (status != 0) MPI_Abort(MPI_COMM_WORLD, status);  // the others would wait for this rank
  MPI_Finalize();
  return 0;
}
