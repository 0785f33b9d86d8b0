// A callable of fixed size that never allocates. Streams queue such callables, and the tape records
// them. As thread-safe as the callable.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace ebb {

template <class Signature, size_t Capacity>
class InlineFunction;

/// Holds a trivially copyable callable of at most Capacity bytes (lambdas over pointers, sizes and
/// views).
template <class R, class... Args, size_t Capacity>
class InlineFunction<R(Args...), Capacity> {
 public:
  InlineFunction() = default;

  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, InlineFunction>)
      InlineFunction(F&& f) {  // NOLINT: implicit on purpose, like std::function
    using Callable = std::remove_cvref_t<F>;
    static_assert(sizeof(Callable) <= Capacity, "captures do not fit; capture less or by pointer");
    static_assert(alignof(Callable) <= alignof(std::max_align_t));
    static_assert(
        std::is_trivially_copyable_v<Callable> && std::is_trivially_destructible_v<Callable>,
        "capture views and values, not owners");
    ::new (static_cast<void*>(storage_)) Callable(std::forward<F>(f));
    call_ = [](void* storage, Args... args) -> R {
      return (*std::launder(reinterpret_cast<Callable*>(storage)))(std::forward<Args>(args)...);
    };
  }

  R operator()(Args... args) { return call_(storage_, std::forward<Args>(args)...); }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  R (*call_)(void*, Args...) = nullptr;
  alignas(std::max_align_t) std::byte storage_[Capacity] = {};
};

}  // namespace ebb
