// Functions over arrays that are looked up once: a run loop has the same ones for ever.
#pragma once
#include <initializer_list>
#include <memory>

#include "arguments.h"

namespace roce {

/// Keeps `this` and the arguments. @throws TypeError where one of the arrays is over memory that could be taken away
inline Napi::ObjectReference keepShared(const Napi::CallbackInfo& info, std::initializer_list<size_t> arrays) {
  const Napi::Env env = info.Env();
  for (const size_t index : arrays)
    if (!isShared(env, info[index])) throw typeError(env, "the arrays must be over SharedArrayBuffers");
  Napi::Array kept = Napi::Array::New(env);
  for (size_t i = 0; i < info.Length(); i++) kept.Set(static_cast<uint32_t>(i), info[i]);
  kept.Set(static_cast<uint32_t>(info.Length()), info.This());
  return Napi::Persistent(kept.As<Napi::Object>());
}

/// The function `Bound::call`, whose data is `bound`, which it owns.
template <class Bound>
Napi::Value functionOf(Napi::Env env, std::unique_ptr<Bound> bound, const char* name) {
  Napi::Function function = Napi::Function::New<&Bound::call>(env, name, bound.get());
  function.AddFinalizer([](Napi::Env, Bound* owned) { delete owned; }, bound.get());
  bound.release();
  return function;
}

}  // namespace roce
