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

/// A call of such a function, by the C interface: the objects of node-addon-api cost as much as a short batch.
struct BoundCall {
  napi_env env;
  /// Arguments that were given; the others are `undefined`.
  size_t count = 3;
  napi_value arguments[3];

  napi_value number(uint32_t value) const {
    napi_value result = nullptr;
    napi_create_uint32(env, value, &result);
    return result;
  }
};

template <class Bound>
napi_value callBound(napi_env env, napi_callback_info info) {
  try {
    BoundCall call{env};
    void* bound = nullptr;
    napi_get_cb_info(env, info, &call.count, call.arguments, nullptr, &bound);
    return static_cast<Bound*>(bound)->call(call);
  } catch (const Napi::Error& error) {
    error.ThrowAsJavaScriptException();
    return nullptr;
  }
}

/// The function `Bound::call` of `bound`, which it owns.
template <class Bound>
Napi::Value functionOf(Napi::Env env, std::unique_ptr<Bound> bound, const char* name) {
  napi_value value = nullptr;
  if (napi_create_function(env, name, NAPI_AUTO_LENGTH, callBound<Bound>, bound.get(), &value) != napi_ok)
    throw Napi::Error::New(env);
  Napi::Function function(env, value);
  function.AddFinalizer([](Napi::Env, Bound* owned) { delete owned; }, bound.get());
  bound.release();
  return function;
}

}  // namespace roce
