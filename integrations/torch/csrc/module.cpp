#include "backend.hpp"

#include "callbacks.hpp"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>

#include <cstdlib>
#include <vector>

namespace unisono_torch {
namespace {

/// The end of the process waits for callbacks for so long: they need the interpreter.
constexpr un::nanoseconds longest_callback = 5'000'000'000;

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                         std::chrono::milliseconds timeout, const std::string& name,
                                         const std::string& transport, bool reproducible, bool blocking_wait,
                                         const std::vector<uint64_t>& global_ranks,
                                         const std::vector<std::string>& hosts, bool nccl) {
    return join_group(store, rank, size,
                      Settings{.timeout = timeout,
                               .name = name,
                               .transport = transport,
                               .reproducible = reproducible,
                               .blocking_wait = blocking_wait,
                               .nccl = nccl,
                               .global_ranks = global_ranks,
                               .hosts = hosts});
}

Backend& ours(const c10::intrusive_ptr<c10d::Backend>& backend, const char* what) {
    auto* const found = dynamic_cast<Backend*>(backend.get());
    TORCH_CHECK_TYPE(found != nullptr, what, ": expected a unisono process group, found one of ",
                     backend->getBackendName());
    return *found;
}

#if defined(__GLIBC__)
/// A script that has failed does not wait for the other ranks. Only the process's status tells, in
/// Python's end every script looks alike.
void leave(int status, void*) {
    if (status == 0) await_retired();
}
void leave_by_status() { ::on_exit(&leave, nullptr); }
void leave_python() {}
#else
void leave_by_status() {}
void leave_python() { await_retired(); }
#endif

/// At the end of Python.
void say_goodbye() {
    shut_down_all();
    await_callbacks(un::steady_now() + longest_callback);
    leave_python();
}

} // namespace
} // namespace unisono_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    namespace py = pybind11;
    using namespace unisono_torch;
    leave_by_status();
    module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
               py::arg("name"), py::arg("transport"), py::arg("reproducible"), py::arg("blocking_wait"),
               py::arg("global_ranks"), py::arg("hosts"), py::arg("nccl") = true,
               py::call_guard<py::gil_scoped_release>());
    module.def(
        "sum_exactly",
        [](const c10::intrusive_ptr<c10d::Backend>& backend, const std::vector<at::Tensor>& addends,
           const at::Tensor& out,
           double factor) { return ours(backend, "sum_exactly").sum_exactly(addends, out, factor); },
        py::arg("backend"), py::arg("addends"), py::arg("out"), py::arg("factor") = 1.0,
        py::call_guard<py::gil_scoped_release>());
    module.def("transport",
               [](const c10::intrusive_ptr<c10d::Backend>& backend) { return ours(backend, "transport").transport(); });
    module.def("device_transport", [](const c10::intrusive_ptr<c10d::Backend>& backend) {
        return ours(backend, "device_transport").device_transport();
    });
    module.attr("knows_devices") = device::built;
    module.def("say_goodbye", &say_goodbye, py::call_guard<py::gil_scoped_release>());
}
