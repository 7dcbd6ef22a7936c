#include "elements.hpp"

#include <optional>

namespace unisono_torch {
namespace {

using Op = c10d::ReduceOp::RedOpType;
using un::untyped::Number;
using un::untyped::Operator;

std::optional<Number> number_of(at::ScalarType type) {
    switch (type) {
    case at::kFloat: return Number::float32;
    case at::kDouble: return Number::float64;
    case at::kBFloat16: return Number::bfloat16;
    case at::kHalf: return Number::float16;
    case at::kChar: return Number::int8;
    case at::kShort: return Number::int16;
    case at::kInt: return Number::int32;
    case at::kLong: return Number::int64;
    case at::kByte: return Number::uint8;
    case at::kUInt16: return Number::uint16;
    case at::kUInt32: return Number::uint32;
    case at::kUInt64: return Number::uint64;
    case at::kBool: return Number::boolean;
    default: return std::nullopt;
    }
}

std::optional<Operator> operator_of(Op op) {
    switch (op) {
    case Op::SUM:
    case Op::AVG: return Operator::sum;
    case Op::PRODUCT: return Operator::product;
    case Op::MIN: return Operator::min;
    case Op::MAX: return Operator::max;
    case Op::BAND: return Operator::bit_and;
    case Op::BOR: return Operator::bit_or;
    case Op::BXOR: return Operator::bit_xor;
    default: return std::nullopt;
    }
}

const char* name_of(Op op) {
    constexpr const char* names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
    return op < std::size(names) ? names[op] : "unknown";
}

} // namespace

un::Elements elements_of(at::ScalarType type) {
    if (const auto number = number_of(type)) return un::untyped::elements_of(*number);
    return {un::ElementType::opaque, static_cast<std::uint32_t>(c10::elementSize(type))};
}

Combination combination_of(const c10d::ReduceOp& operation, at::ScalarType type) {
    const Op op = operation;
    const bool mean = op == Op::AVG;
    const bool floating = at::isFloatingType(type);
    TORCH_CHECK(!mean || floating, "unisono: ReduceOp.AVG is for floating types, found ", type);
    const auto number = number_of(type);
    const auto how = operator_of(op);
    TORCH_CHECK(number && how && !(floating && *how >= Operator::bit_and), "unisono: no ReduceOp.", name_of(op),
                " for ", type);
    return {un::untyped::combination(*how, *number), mean};
}

std::optional<un::detail::StreamReduction> stream_reduction_of(const c10d::ReduceOp& operation, at::ScalarType type) {
    using enum un::detail::StreamReduction;
    const bool is_floating = at::isFloatingType(type);
    const bool is_complex = type == at::kComplexFloat || type == at::kComplexDouble;
    const auto number = number_of(type);
    if (!is_complex && (!number || elements_of(type).type == un::ElementType::opaque)) return std::nullopt;
    if (!is_floating && at::elementSize(type) < 4) return std::nullopt; // bool, and several types of 8 bits in one
    switch (static_cast<Op>(operation)) {
    case Op::SUM: return sum;
    case Op::AVG: return is_floating || is_complex ? std::optional(sum) : std::nullopt;
    case Op::PRODUCT: return is_complex ? std::nullopt : std::optional(product);
    case Op::MIN: return is_complex ? std::nullopt : std::optional(min);
    case Op::MAX: return is_complex ? std::nullopt : std::optional(max);
    default: return std::nullopt;
    }
}

} // namespace unisono_torch
