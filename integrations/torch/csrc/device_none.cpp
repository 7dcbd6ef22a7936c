#include "device.hpp"

#include <c10/util/Exception.h>

#include <utility>

namespace unisono_torch::device {

const bool built = false;
const char* const name = "cpu";
const bool futures_wait = false;

struct Event::State {};
struct Stream::State {};

namespace {

[[noreturn]] void refuse() { TORCH_CHECK(false, "unisono_torch was built without CUDA"); }

} // namespace

int count() { return 0; }
bool has(const at::Device&) { return false; }
at::Device with_index(std::int64_t) { refuse(); }
int number(const at::Device&) { refuse(); }
at::Tensor pinned(at::IntArrayRef, at::ScalarType) { refuse(); }
void refuse_capture(const std::string&, const std::string&) { refuse(); }
c10::intrusive_ptr<c10::ivalue::Future> make_future(c10::TypePtr, const at::Device&) { refuse(); }

void keep_out_of_captures() { refuse(); }

bool Event::has_passed() const { refuse(); }
void Event::hold_current_stream() const { refuse(); }

Stream::Stream(const at::Device&) { refuse(); }
Event mark_current(const at::Device&) { refuse(); }
void Stream::follow(const Event&) { refuse(); }
at::Tensor Stream::empty(const at::Tensor&) { refuse(); }
void Stream::run(std::function<void()>) { refuse(); }
void Stream::wait_for(const Word&) { refuse(); }
void Stream::open(const Word&) { refuse(); }
Event Stream::mark() { refuse(); }
void* Stream::native() const { refuse(); }
void Stream::complete(c10::ivalue::Future&, const c10::IValue&) { refuse(); }

} // namespace unisono_torch::device
