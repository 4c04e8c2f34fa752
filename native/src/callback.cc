#include "callback.h"

namespace roce {

// By hand and not through node-addon-api, which ends the process when the call fails because a worker
// is being terminated.
void callFromLoop(napi_env env, napi_ref selfRef, napi_ref functionRef, uint32_t number) {
  napi_handle_scope scope;
  if (napi_open_handle_scope(env, &scope) != napi_ok) return;
  napi_value self, function, argument, result;
  if (napi_get_reference_value(env, selfRef, &self) == napi_ok && self != nullptr &&
      napi_get_reference_value(env, functionRef, &function) == napi_ok && function != nullptr &&
      napi_create_uint32(env, number, &argument) == napi_ok &&
      napi_make_callback(env, nullptr, self, function, 1, &argument, &result) != napi_ok) {
    bool pending = false;
    napi_value exception;
    if (napi_is_exception_pending(env, &pending) == napi_ok && pending &&
        napi_get_and_clear_last_exception(env, &exception) == napi_ok)
      napi_fatal_exception(env, exception);
  }
  napi_close_handle_scope(env, scope);
}

}  // namespace roce
