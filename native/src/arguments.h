// Reading JavaScript arguments: every wrong one becomes a TypeError or a RangeError with Node's codes.
#pragma once
#include <napi.h>

#include <cstdint>
#include <string>

#include "span.h"

namespace roce {

Napi::Error typeError(Napi::Env env, const std::string& message);
Napi::Error rangeError(Napi::Env env, const std::string& message);
/// An Error with `code` ('EADDRINUSE', …), `errno` and `syscall`, as Node's own system errors have them.
Napi::Error systemError(Napi::Env env, int errnum, const char* syscall, const std::string& about = {});

/// True, and the span filled, when `value` is a Uint8Array (a Buffer is one). Runs no JavaScript.
bool readBytes(napi_env env, napi_value value, Bytes& out);
/// The same for a Uint32Array.
bool readWords(napi_env env, napi_value value, Words& out);
/// The same for a Float64Array.
bool readDoubles(napi_env env, napi_value value, Doubles& out);

/// Whether a typed array is over a SharedArrayBuffer: its memory stays where it is as long as the array lives.
bool isShared(napi_env env, napi_value typedArray);

/// The argument at `index`, or a TypeError that names it.
Bytes bytesArgument(const Napi::CallbackInfo& info, size_t index, const char* name);
Words wordsArgument(const Napi::CallbackInfo& info, size_t index, const char* name);
/// A number that is an integer from 0 to `max`; else a TypeError or a RangeError.
uint32_t integerArgument(const Napi::CallbackInfo& info, size_t index, const char* name, uint32_t max);
uint32_t integerArgument(napi_env env, napi_value value, const char* name, uint32_t max);

/// A plain options object: absent properties take the default, wrong ones throw.
class Options {
 public:
  /// Takes `undefined` for an empty object.
  Options(Napi::Env env, Napi::Value value, const char* name);
  uint32_t integer(const char* name, uint32_t min, uint32_t max, uint32_t otherwise) const;
  /// As above; throws a TypeError when absent.
  uint32_t integer(const char* name, uint32_t min, uint32_t max) const;
  bool boolean(const char* name, bool otherwise) const;
  std::string string(const char* name, const char* otherwise) const;
  Napi::Value get(const char* name) const;

 private:
  uint32_t checkedInteger(const char* name, Napi::Value value, uint32_t min, uint32_t max) const;
  Napi::Env env_;
  Napi::Object object_;
};

}  // namespace roce
