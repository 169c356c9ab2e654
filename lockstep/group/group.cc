#include "lockstep/group/group.h"

#include <algorithm>

#include "lockstep/group/group_impl.h"

namespace lockstep {

namespace {

// Several operations as one.
class All final : public internal::Completion {
 public:
  explicit All(std::vector<Work> works) : works_(std::move(works)) {}
  void wait() override {
    for (const Work& work : works_) work.wait();
  }
  bool done() override {
    return std::all_of(works_.begin(), works_.end(), [](const Work& work) { return work.done(); });
  }
  std::optional<Error> error() override {
    for (const Work& work : works_) {
      if (const auto error = work.error()) return error;
    }
    return std::nullopt;
  }

 protected:
  void dispose() override { delete this; }

 private:
  const std::vector<Work> works_;
};

}  // namespace

Group::Group(const Settings& settings) : impl_(std::make_shared<Impl>(settings)) {}
Group::Group(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Group::~Group() = default;
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;

int Group::rank() const {
  return impl_->rank();
}
int Group::size() const {
  return impl_->size();
}
int Group::local_rank() const {
  return impl_->local_rank();
}
int Group::local_size() const {
  return impl_->local_size();
}

void Group::all_reduce(TensorView tensor, Reduce reduce) {
  impl_->run(impl_->requests().all_reduce(tensor, tensor, reduce));
}
void Group::all_reduce(TensorView tensor, MeanOf mean_of) {
  impl_->run(impl_->requests().all_reduce(tensor, mean_of));
}
void Group::all_reduce(TensorView output, TensorView input, Reduce reduce) {
  impl_->run(impl_->requests().all_reduce(output, input, reduce));
}
void Group::all_reduce(std::span<const TensorView> tensors, Reduce reduce) {
  async().all_reduce(tensors, reduce).wait();
}
void Group::reduce(TensorView tensor, int root, Reduce reduce) {
  impl_->run(impl_->requests().reduce(tensor, root, reduce));
}
void Group::broadcast(TensorView tensor, int root) {
  impl_->run(impl_->requests().broadcast(tensor, root));
}
void Group::broadcast(std::span<const TensorView> tensors, int root) {
  async().broadcast(tensors, root).wait();
}
void Group::all_gather(TensorView output, TensorView input, Counts counts) {
  impl_->run(impl_->requests().all_gather(output, input, counts));
}
void Group::reduce_scatter(TensorView output, TensorView input, Reduce reduce, Counts counts) {
  impl_->run(impl_->requests().reduce_scatter(output, input, counts, reduce));
}
void Group::gather(TensorView output, TensorView input, int root, Counts counts) {
  impl_->run(impl_->requests().gather(output, input, counts, root));
}
void Group::scatter(TensorView output, TensorView input, int root, Counts counts) {
  impl_->run(impl_->requests().scatter(output, input, counts, root));
}
void Group::all_to_all(TensorView output, TensorView input, Counts receive_counts,
                       Counts send_counts) {
  impl_->run(impl_->requests().all_to_all(output, input, receive_counts, send_counts));
}
void Group::send(TensorView tensor, int to) {
  impl_->run(impl_->requests().send(tensor, to));
}
void Group::receive(TensorView tensor, int from) {
  impl_->run(impl_->requests().receive(tensor, from));
}
void Group::barrier() {
  impl_->run(impl_->requests().barrier());
}

void Group::set_runner(Runner runner) {
  impl_->set_runner(runner);
}
Runner Group::runner() const {
  return impl_->runner();
}

std::optional<Group> Group::split(int colour, int key) {
  return Impl::split(impl_, colour, key);
}
std::optional<Group> Group::subgroup(const std::vector<int>& ranks) {
  return Impl::subgroup(impl_, ranks);
}

AsyncGroup Group::async() {
  return AsyncGroup(impl_.get());
}
Work AsyncGroup::all_reduce(TensorView tensor, Reduce reduce) {
  return impl_->submit(impl_->requests().all_reduce(tensor, tensor, reduce));
}
Work AsyncGroup::all_reduce(TensorView tensor, MeanOf mean_of, NotFinite* not_finite) {
  Request request = impl_->requests().all_reduce(tensor, mean_of);
  request.watch = not_finite;
  return impl_->submit(request);
}
Work AsyncGroup::all_reduce(TensorView output, TensorView input, Reduce reduce) {
  return impl_->submit(impl_->requests().all_reduce(output, input, reduce));
}
Work AsyncGroup::all_reduce(std::span<const TensorView> tensors, Reduce reduce) {
  std::vector<Work> works;
  for (const TensorView& tensor : tensors) works.push_back(all_reduce(tensor, reduce));
  return Work(new All(std::move(works)));
}
Work AsyncGroup::reduce(TensorView tensor, int root, Reduce reduce) {
  return impl_->submit(impl_->requests().reduce(tensor, root, reduce));
}
Work AsyncGroup::broadcast(TensorView tensor, int root) {
  return impl_->submit(impl_->requests().broadcast(tensor, root));
}
Work AsyncGroup::broadcast(std::span<const TensorView> tensors, int root) {
  std::vector<Work> works;
  for (const TensorView& tensor : tensors) works.push_back(broadcast(tensor, root));
  return Work(new All(std::move(works)));
}
Work AsyncGroup::all_gather(TensorView output, TensorView input, Counts counts) {
  return impl_->submit(impl_->requests().all_gather(output, input, counts));
}
Work AsyncGroup::reduce_scatter(TensorView output, TensorView input, Reduce reduce, Counts counts) {
  return impl_->submit(impl_->requests().reduce_scatter(output, input, counts, reduce));
}
Work AsyncGroup::gather(TensorView output, TensorView input, int root, Counts counts) {
  return impl_->submit(impl_->requests().gather(output, input, counts, root));
}
Work AsyncGroup::scatter(TensorView output, TensorView input, int root, Counts counts) {
  return impl_->submit(impl_->requests().scatter(output, input, counts, root));
}
Work AsyncGroup::all_to_all(TensorView output, TensorView input, Counts receive_counts,
                            Counts send_counts) {
  return impl_->submit(impl_->requests().all_to_all(output, input, receive_counts, send_counts));
}
Work AsyncGroup::send(TensorView tensor, int to) {
  return impl_->submit(impl_->requests().send(tensor, to));
}
Work AsyncGroup::receive(TensorView tensor, int from) {
  return impl_->submit(impl_->requests().receive(tensor, from));
}
Work AsyncGroup::barrier() {
  return impl_->submit(impl_->requests().barrier());
}

bool Group::poll() {
  return impl_->engine() == nullptr || impl_->engine()->poll();
}
std::shared_ptr<SharedBlock> Group::allocate(std::size_t bytes) {
  return impl_->allocate(bytes);
}
void Group::abort(const std::string& why) {
  if (impl_->engine() != nullptr) impl_->abort(why);
}
std::vector<std::string> Group::exchange(const std::string& text) {
  return impl_->exchange(text);
}
std::string Group::transport_name() const {
  return impl_->transport();
}
std::int64_t Group::bytes_reduced() const {
  return impl_->engine() == nullptr ? 0 : impl_->engine()->bytes_reduced();
}

Group init() {
  return Group(Settings::from_environment());
}

}  // namespace lockstep
