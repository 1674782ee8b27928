// "queued": a type of accelerator for torch that every machine has. Two devices, each with a default stream and others.
//
// Kernels of a known length, events and waits are enqueued on a stream and done in order, later, as on a GPU; while a
// stream is captured, asking for anything else is an error, as in CUDA. A kernel takes just as long as it was told, so a
// stream is no more than the time at which it will be done. What torch itself computes is done on the host, at once.

#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;
using Duration = Clock::duration;

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 2;

std::atomic<bool> capturing{false};

void refuse_while_capturing() {
  TORCH_CHECK(!capturing, "operation not permitted when stream is capturing");
}

// When a stream will have done all that is enqueued on it. As kernels take what they were told, that is known at once.
class Queue {
 public:
  Clock::time_point enqueue(Duration duration, Clock::time_point earliest = Clock::time_point::min()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_ = std::max({free_, Clock::now(), earliest}) + duration;
    return free_;
  }

  Clock::time_point free() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return free_;
  }

 private:
  std::mutex mutex_;  // autograd enqueues from a thread of its own
  Clock::time_point free_;
};

// The streams of each device, the default one first.
std::mutex streams_mutex;
std::array<std::deque<Queue>, kDevices> streams;
thread_local std::array<c10::StreamId, kDevices> current_stream{};
thread_local c10::DeviceIndex current_device = 0;

Queue& queue(c10::DeviceIndex device, c10::StreamId stream) {
  const std::lock_guard<std::mutex> lock(streams_mutex);
  auto& own = streams[device];
  while (own.size() <= static_cast<size_t>(stream)) {
    own.emplace_back();
  }
  return own[stream];
}

Queue& queue(const c10::Stream& stream) {
  return queue(stream.device_index(), stream.id());
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  using Event = Clock::time_point;  // when the device gets there

  Guard() = default;
  explicit Guard(c10::DeviceType) {}

  c10::DeviceType type() const override {
    return kType;
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return kDevices;
  }
  c10::Device getDevice() const override {
    return c10::Device(kType, current_device);
  }
  void setDevice(c10::Device device) const override {
    if (device.has_index()) {
      current_device = device.index();
    }
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    setDevice(device);
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }

  c10::Stream getStream(c10::Device device) const override {
    const auto index = device.has_index() ? device.index() : current_device;
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), current_stream[index]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    static std::atomic<c10::StreamId> last{0};
    return c10::Stream(c10::Stream::UNSAFE, device, ++last);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    current_stream[stream.device_index()] = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    refuse_while_capturing();
    return queue(stream).free() <= Clock::now();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    refuse_while_capturing();
    std::this_thread::sleep_until(queue(stream).free());
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    refuse_while_capturing();
    for (size_t stream = 0; stream < streams[device].size(); ++stream) {
      std::this_thread::sleep_until(queue(device, static_cast<c10::StreamId>(stream)).free());
    }
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag) const override {
    refuse_while_capturing();
    TORCH_CHECK(device == -1 || device == stream.device_index(), "the event is of another device than the stream");
    if (*event == nullptr) {
      *event = new Event();
    }
    *static_cast<Event*>(*event) = queue(stream).enqueue(Duration::zero());
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      queue(stream).enqueue(Duration::zero(), *static_cast<Event*>(event));
    }
  }
  bool queryEvent(void* event) const override {
    refuse_while_capturing();
    return event == nullptr || *static_cast<Event*>(event) <= Clock::now();
  }
  void synchronizeEvent(void* event) const override {
    refuse_while_capturing();
    if (event != nullptr) {
      std::this_thread::sleep_until(*static_cast<Event*>(event));
    }
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    refuse_while_capturing();
    TORCH_CHECK(queryEvent(start) && queryEvent(end), "device not ready");
    const Duration elapsed = *static_cast<Event*>(end) - *static_cast<Event*>(start);
    return std::chrono::duration<double, std::milli>(elapsed).count();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return kDevices;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device;
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    current_device = device;
  }
};

// ---- memory, which is the host's, and what torch cannot do without ----

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = std::malloc(std::max<size_t>(bytes, 1));
    return {data, data, &std::free, c10::Device(kType, current_device)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &std::free;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

Allocator allocator;
const c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(size, stride, &allocator, keys, c10::dtype_or_default(type));
}

const at::Tensor& resize(const at::Tensor& tensor, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  const at::Tensor other = at::empty(size, tensor.options());
  tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(other.storage());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return tensor;
}

// The same memory, as a tensor of the host's.
at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.is_cpu() ? tensor
                         : at::from_blob(tensor.mutable_data_ptr(), tensor.sizes(), tensor.strides(),
                                         tensor.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  on_host(to).copy_(on_host(from));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from, to.sizes() == from.sizes() ? to : resize(to, from.sizes(), std::nullopt), false);
}

// As on any accelerator the host waits for a value that it reads.
at::Scalar local_scalar_dense(const at::Tensor& tensor) {
  const Guard guard;
  guard.synchronizeStream(guard.getStream(tensor.device()));
  return on_host(tensor).item();
}

void on_the_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

// ---- what the tests ask for ----

void kernel(int64_t device, double milliseconds) {
  const auto duration = std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(milliseconds));
  queue(static_cast<c10::DeviceIndex>(device), current_stream[device]).enqueue(duration);
}

void set_capturing(bool value) {
  capturing = value;
}

bool is_capturing() {
  return capturing;
}

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);
REGISTER_ALLOCATOR(kType, &allocator);

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("resize_", resize);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_copy_from", copy_from);
  library.impl("_copy_from_and_resize", copy_from_and_resize);
  library.impl("_local_scalar_dense", local_scalar_dense);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_host>());
}

TORCH_LIBRARY(queued, library) {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  library.def("kernel(int device, float milliseconds) -> ()", kernel);
  library.def("set_capturing(bool value) -> ()", set_capturing);
  library.def("is_capturing() -> bool", is_capturing);
}
