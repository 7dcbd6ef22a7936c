#pragma once

/// \file
/// A reference to a callable, for the argument of a virtual function.

#include "unisono/core/config.hpp"

#include <memory>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The callable must live as long as this: pass it as an argument, do not keep it.
template <class Signature>
class FunctionRef;

template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
public:
    template <class Callable>
        requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>)
    FunctionRef(Callable&& callable) // NOLINT(google-explicit-constructor,bugprone-forwarding-reference-overload)
        : callable_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
          call_([](void* of, Arguments... arguments) -> Result {
              return (*static_cast<std::remove_reference_t<Callable>*>(of))(std::forward<Arguments>(arguments)...);
          }) {}

    Result operator()(Arguments... arguments) const { return call_(callable_, std::forward<Arguments>(arguments)...); }

private:
    void* callable_;
    Result (*call_)(void*, Arguments...);
};

} // namespace detail
UNISONO_NAMESPACE_END
