// Any of the pipelines' schedules, chosen at run time, so that there is little to compile.
#pragma once

#include <unisono/extensions/parallel/pipeline_schedules.hpp>

namespace unisono_test {

struct AnySchedule {
    static constexpr std::string_view name = "any";
    enum Kind { gpipe, one_forward_one_backward, interleaved } kind = one_forward_one_backward;
    std::uint32_t chunks = 1;

    template <class Visit>
    void work(const unisono::PipelineShape& shape, Visit&& visit) const {
        switch (kind) {
        case gpipe: return unisono::GPipe::work(shape, visit);
        case one_forward_one_backward: return unisono::OneForwardOneBackward::work(shape, visit);
        case interleaved: return unisono::Interleaved{chunks}.work(shape, visit);
        }
    }
    [[nodiscard]] std::size_t in_flight(const unisono::PipelineShape& shape) const {
        return kind == gpipe                      ? unisono::GPipe::in_flight(shape)
               : kind == one_forward_one_backward ? unisono::OneForwardOneBackward::in_flight(shape)
                                                  : unisono::Interleaved::in_flight(shape);
    }
};

} // namespace unisono_test
