#include "elements.hpp"

#include <algorithm>
#include <cstring>

namespace unisono_torch {
namespace {

using Op = c10d::ReduceOp::RedOpType;
using Kernel = void (*)(const std::byte*, std::byte*, std::size_t, void*);

template <class T, class F>
void fold(const std::byte* __restrict in, std::byte* __restrict sum, std::size_t count, F f) {
    for (std::size_t i = 0; i < count; ++i) {
        T a;
        T b;
        std::memcpy(&a, in + i * sizeof(T), sizeof(T));
        std::memcpy(&b, sum + i * sizeof(T), sizeof(T));
        const T c = static_cast<T>(f(a, b));
        std::memcpy(sum + i * sizeof(T), &c, sizeof(T));
    }
}

template <class T, Op op>
void kernel(const std::byte* in, std::byte* sum, std::size_t count, void*) {
    fold<T>(in, sum, count, [](T a, T b) {
        using Wide = un::detail::Wrapping<T>; // unsigned: overflow wraps around
        if constexpr (op == Op::SUM) return static_cast<Wide>(a) + static_cast<Wide>(b);
        else if constexpr (op == Op::PRODUCT) return static_cast<Wide>(a) * static_cast<Wide>(b);
        else if constexpr (op == Op::MIN) return std::min(a, b);
        else if constexpr (op == Op::MAX) return std::max(a, b);
        else if constexpr (op == Op::BAND) return a & b;
        else if constexpr (op == Op::BOR) return a | b;
        else return a ^ b;
    });
}

template <class T>
Kernel integer_kernel(Op op) {
    switch (op) {
    case Op::SUM: return &kernel<T, Op::SUM>;
    case Op::PRODUCT: return &kernel<T, Op::PRODUCT>;
    case Op::MIN: return &kernel<T, Op::MIN>;
    case Op::MAX: return &kernel<T, Op::MAX>;
    case Op::BAND: return &kernel<T, Op::BAND>;
    case Op::BOR: return &kernel<T, Op::BOR>;
    case Op::BXOR: return &kernel<T, Op::BXOR>;
    default: return nullptr;
    }
}

/// Operations that are the library's own on uint8: booleans are 0 or 1, so a sum is "any" and a
/// product is "all". A sum or product of int8 has the bits of that of uint8.
un::ReductionKind kind_on_bytes(Op op, at::ScalarType type) {
    if (type == at::kChar && op == Op::SUM) return un::ReductionKind::sum;
    if (type == at::kChar && op == Op::PRODUCT) return un::ReductionKind::product;
    if (type != at::kBool) return un::ReductionKind::none;
    switch (op) {
    case Op::SUM:
    case Op::MAX:
    case Op::BOR: return un::ReductionKind::max;
    case Op::PRODUCT:
    case Op::MIN:
    case Op::BAND: return un::ReductionKind::min;
    default: return un::ReductionKind::none;
    }
}

un::ReductionKind kind_of(Op op) {
    switch (op) {
    case Op::SUM:
    case Op::AVG: return un::ReductionKind::sum;
    case Op::PRODUCT: return un::ReductionKind::product;
    case Op::MIN: return un::ReductionKind::min;
    case Op::MAX: return un::ReductionKind::max;
    default: return un::ReductionKind::none;
    }
}

const char* name_of(Op op) {
    constexpr const char* names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
    return op < std::size(names) ? names[op] : "unknown";
}

} // namespace

un::Elements elements_of(at::ScalarType type) {
    using un::ElementType;
    switch (type) {
    case at::kFloat: return {ElementType::float32, 4};
    case at::kDouble: return {ElementType::float64, 8};
    case at::kBFloat16: return {ElementType::bfloat16, 2};
    case at::kHalf: return {ElementType::float16, 2};
    case at::kInt: return {ElementType::int32, 4};
    case at::kLong: return {ElementType::int64, 8};
    case at::kByte: return {ElementType::uint8, 1};
    case at::kUInt32: return {ElementType::uint32, 4};
    case at::kUInt64: return {ElementType::uint64, 8};
    default: return {ElementType::opaque, static_cast<std::uint32_t>(c10::elementSize(type))};
    }
}

Combination combination_of(const c10d::ReduceOp& operation, at::ScalarType type) {
    const Op op = operation;
    Combination made{.elements = elements_of(type), .kind = kind_of(op), .bytes = {}, .mean = op == Op::AVG};
    const bool floating = at::isFloatingType(type);
    TORCH_CHECK(!made.mean || floating, "unisono: ReduceOp.AVG is for floating types, found ", type);
    if (made.elements.type != un::ElementType::opaque && made.kind != un::ReductionKind::none) return made;
    made.kind = kind_on_bytes(op, type);
    if (made.kind != un::ReductionKind::none) {
        made.elements.type = un::ElementType::uint8;
        return made;
    }
    Kernel kernel = nullptr;
    switch (type) {
    case at::kBool: kernel = op == Op::BXOR ? &unisono_torch::kernel<std::uint8_t, Op::BXOR> : nullptr; break;
    case at::kByte: kernel = integer_kernel<std::uint8_t>(op); break;
    case at::kChar: kernel = integer_kernel<std::int8_t>(op); break;
    case at::kShort: kernel = integer_kernel<std::int16_t>(op); break;
    case at::kInt: kernel = integer_kernel<std::int32_t>(op); break;
    case at::kLong: kernel = integer_kernel<std::int64_t>(op); break;
    case at::kUInt16: kernel = integer_kernel<std::uint16_t>(op); break;
    case at::kUInt32: kernel = integer_kernel<std::uint32_t>(op); break;
    case at::kUInt64: kernel = integer_kernel<std::uint64_t>(op); break;
    default: break;
    }
    TORCH_CHECK(kernel != nullptr, "unisono: no ReduceOp.", name_of(op), " for ", type);
    made.elements.type = un::ElementType::opaque;
    made.bytes = {kernel, made.elements.bytes, nullptr};
    return made;
}

} // namespace unisono_torch
