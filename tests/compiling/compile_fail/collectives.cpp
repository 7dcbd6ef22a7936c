// Calls of collectives that are refused, and why. ../mistakes/compiled has the usual ones.
#include "unisono/unisono.hpp"

#include <list>
#include <span>
#include <vector>

namespace un = unisono;
using Group = un::Group<un::InProcess>;

#ifdef CASE_list
// expect: unisono: found data of a collective that are neither contiguous nor one trivially copyable value.
void f(Group& group, std::list<float>& data) { un::broadcast(group, data, 0); }
#endif

#ifdef CASE_lost
// expect: unisono: found arguments that this collective does not take. Required: the group, data that can be written
void f(Group& group) { un::all_reduce(group, 1.0); }
#endif

#ifdef CASE_family_without_the_collective
// expect: found: a schedule family without this collective; required: a schedule of this collective in the family's list
void f(Group& group, std::vector<float>& data) { un::all_to_all(group, data, data, {}, {}, un::RingSchedule{}); }
#endif

#ifdef CASE_family_without_a_list
// expect: found: a schedule family without this collective; required: a schedule of this collective in the family's list
struct Accessors {
    static constexpr std::string_view name = "accessors";
    friend bool operator==(const Accessors&, const Accessors&) = default;
    un::schedule::RingAllReduce all_reduce(const un::schedule::Shape& shape) const { return {shape}; }
};
void f(Group& group, std::vector<float>& data) { un::all_reduce(group, data, un::Sum{}, Accessors{}); }
#endif

#ifdef CASE_family_that_cannot_make
// expect: found: a schedule family with a member `make`; required: `template <class Schedule> Schedule make(const Shape&) const`
struct Unmade {
    static constexpr std::string_view name = "unmade";
    using schedules = un::schedule::List<un::schedule::RingAllReduce>;
    friend bool operator==(const Unmade&, const Unmade&) = default;
    template <class Schedule>
    Schedule make(const un::schedule::Shape& shape) { // not const
        return {{shape}};
    }
};
void f(Group& group, std::vector<float>& data) { un::all_reduce(group, data, un::Sum{}, Unmade{}); }
#endif

#ifdef CASE_views_and_own_functions
// expect-success
namespace user {
void reduce(Group&, std::size_t) {}
void broadcast(Group&, const char*) {}
struct Part {
    Part(int) {} // NOLINT
};
void gather(Group&, Part) {}
void f(Group& group, std::vector<float>& data) {
    const std::span<float> view(data);
    un::all_reduce(group, view);
    un::broadcast(group, view, 0);
    reduce(group, 2);
    broadcast(group, "text");
    gather(group, 2);
}
} // namespace user
#endif
