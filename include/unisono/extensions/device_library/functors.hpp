#pragma once

/// \file
/// The element functors whose kernels the library unisono::devices has: those of the library's
/// optimizers, alone and between the clipping of a gradient and the 16-bit copy of a parameter,
/// and those of its other policies.

#include "unisono/arithmetic/accumulate.hpp"
#include "unisono/extensions/device/fused_update.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/optimizer/adagrad.hpp"
#include "unisono/optimizer/adam.hpp"
#include "unisono/optimizer/rmsprop.hpp"
#include "unisono/optimizer/sgd.hpp"

#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

// Functors that are defined where they are used.
template <class T>
struct Difference; // update/averaging.hpp
template <class T>
struct Subtract;
template <class Integer>
struct AddImage; // trainer/step/grid_sums.hpp
template <class Low>
struct TakeElement; // extensions/device/master_weights.hpp
template <class T>
struct RescaleLeft; // extensions/compression/left_over.hpp
template <class Half, class T>
struct EncodeHalf; // extensions/compression/cast.hpp
template <class Half, class T>
struct EncodeHalfAndForget;
template <class Half, class T>
struct DecodeHalf;

/// A functor and the elements of its arrays.
template <class Functor, class... T>
struct OnElements;

template <class... One>
struct Listed {
    template <class Other>
    static constexpr bool has = (__is_same(One, Other) || ...);
};
template <class... Lists>
struct Joined;
template <class... One>
struct Joined<Listed<One...>> {
    using type = Listed<One...>;
};
template <class... A, class... B, class... Rest>
struct Joined<Listed<A...>, Listed<B...>, Rest...> : Joined<Listed<A..., B...>, Rest...> {};

/// An optimizer's functor with `State`, the elements of its state, as `update_on` completes it.
template <class Functor, class T, class... State>
struct UpdatesOf {
    template <class Clip, class Low>
    using Writing = OnElements<FusedElement<Functor, Clip, Low>, Low, T, const T, State...>;
    template <class Clip>
    using Plain = OnElements<FusedElement<Functor, Clip, void>, T, const T, State...>;
    using Clamp = ClipByValue::Clamp<T>;
    using Clipped = Listed<Plain<UnclippedElement>, Plain<Clamp>>;
    template <class Low>
    using Lower = Listed<Writing<UnclippedElement, Low>, Writing<Clamp, Low>>;
};
template <class Functor, class T, class... State>
struct Updates : Joined<typename UpdatesOf<Functor, T, State...>::Clipped> {};
/// Parameters in float may have a copy in 16 bits (MasterWeights).
template <class Functor, class... State>
struct Updates<Functor, float, State...>
    : Joined<typename UpdatesOf<Functor, float, State...>::Clipped,
             typename UpdatesOf<Functor, float, State...>::template Lower<bfloat16>,
             typename UpdatesOf<Functor, float, State...>::template Lower<float16>> {};

template <class T>
using SgdFunctors =
    typename Joined<typename Updates<Sgd::Plain<T>, T>::type, typename Updates<Sgd::Heavy<T>, T, T>::type,
                    typename Updates<Sgd::Velocity<T>, T, T>::type>::type;
template <class T>
using AdamFunctors = typename Joined<typename Updates<AdamElement<T>, T, T, T>::type,
                                     typename Updates<AdamElement<T>, T, T, T, T>::type>::type;
template <class T>
using AdagradFunctors = typename Updates<Adagrad::Element<T>, T, T>::type;
template <class T>
using RmsPropFunctors =
    typename Joined<typename Updates<RmsProp::Plain<T>, T, T>::type, typename Updates<RmsProp::Heavy<T>, T, T, T>::type,
                    typename Updates<RmsProp::Centered<T>, T, T, T>::type,
                    typename Updates<RmsProp::CenteredHeavy<T>, T, T, T, T>::type>::type;

template <class Half, class T>
using WireFunctors =
    Listed<OnElements<EncodeHalf<Half, T>, Half, const T, T>, OnElements<EncodeHalfAndForget<Half, T>, Half, const T>,
           OnElements<DecodeHalf<Half, T>, T, const Half>>;
/// Those of updates (LocalSteps, Diloco, StreamingDiloco), and of compressions.
template <class T>
using OtherFunctors =
    typename Joined<Listed<OnElements<Difference<T>, T, const T, const T>, OnElements<Subtract<T>, T, const T>,
                           OnElements<Mix<T>, T, const T>, OnElements<RescaleLeft<T>, T>>,
                    WireFunctors<bfloat16, T>, WireFunctors<float16, T>>::type;
using FunctorsOfOneType =
    Listed<OnElements<AddImage<std::int32_t>, std::int32_t, const std::int32_t>,
           OnElements<AddImage<std::int64_t>, std::int64_t, const std::int64_t>,
           OnElements<TakeElement<bfloat16>, float, bfloat16>, OnElements<TakeElement<float16>, float, float16>>;

using OptimizersOfDevices =
    Joined<SgdFunctors<float>, SgdFunctors<double>, AdamFunctors<float>, AdamFunctors<double>, AdagradFunctors<float>,
           AdagradFunctors<double>, RmsPropFunctors<float>, RmsPropFunctors<double>>::type;
using OthersOfDevices = Joined<OtherFunctors<float>, OtherFunctors<double>, FunctorsOfOneType>::type;

/// True if the library has the functor's kernel.
template <class Functor, class... T>
inline constexpr bool devices_have =
    OptimizersOfDevices::has<OnElements<Functor, T...>> || OthersOfDevices::has<OnElements<Functor, T...>>;

} // namespace detail
UNISONO_NAMESPACE_END
