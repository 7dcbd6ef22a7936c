// Lists of transports from which a program cannot choose are refused.
#include "unisono/transports.hpp"
#include "unisono/any.hpp"
#include "unisono/elsewhere.hpp"

#include <string>

namespace un = unisono;

inline constexpr auto body = [](auto&) {};

/// Made from what its ranks already have, as Mpi is.
struct Adopted : un::InProcess {
    static constexpr std::string_view name = "adopted";
    struct World {};
};
struct Renamed : un::InProcess {};

#ifdef CASE_cannot_start
// expect: unisono::run: found a transport in the list that cannot start ranks by itself. Required: InProcess, SharedMemory, Tcp
void cannot_start() { un::run<un::Transports<un::InProcess, Adopted>>("in_process", 2, body); }
#endif

#ifdef CASE_cannot_be_joined
// expect: unisono::run_joined: found a transport in the list that a launcher's processes cannot join.
void cannot_be_joined() { un::run_joined<un::Transports<un::SharedMemory, Adopted>>("", body); }
#endif

#ifdef CASE_two_of_one_name
// expect: unisono::Transports: found two transports with the same name
std::string two_of_one_name() { return un::Transports<un::InProcess, un::SharedMemory, Renamed>::words(); }
#endif

#ifdef CASE_not_defined
// expect: unisono::Transports: found a transport that is declared and not defined. Required: its header
void not_defined() { un::run<un::Transports<un::InProcess, un::Tcp>>("in_process", 2, body); }
#endif

#ifdef CASE_none
// expect: unisono::Transports: found no transport. Required: one or more
std::string none() { return un::Transports<>::words(); }
#endif

#ifdef CASE_a_choice_itself
// expect: unisono::Transports: found AnyTransport. Required: the transports that it stands for, InProcess and SharedMemory.
void a_choice_itself() { un::run<un::Transports<un::AnyTransport, un::InProcess>>("any", 2, body); }
#endif

#ifdef CASE_no_group_for_any
// expect: unisono::run: found a body that cannot be called with the group. Required: a callable that takes the group
void no_group_for_any() {
    un::run<un::AnyTransport>(2, [](int) {});
}
#endif

#ifdef CASE_no_word
// expect-gcc: use of deleted function
// expect-clang: call to deleted function 'run'
void no_word() { un::run<un::Transports<un::InProcess, un::SharedMemory>>(2, body); }
#endif

#ifdef CASE_right
// expect-success
void right() { un::run<un::Transports<un::InProcess, un::SharedMemory>>("in_process", 2, body); }
#endif
