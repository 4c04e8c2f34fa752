// Calling JavaScript from the event loop.
#pragma once
#include <node_api.h>

#include <cstdint>

namespace roce {

/// Calls `function` with `self` as its `this` and a number. An exception in it is uncaught. Does nothing
/// when one of the two is gone, or the environment is going.
void callFromLoop(napi_env env, napi_ref self, napi_ref function, uint32_t argument);

}  // namespace roce
