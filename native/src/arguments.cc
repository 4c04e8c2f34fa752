#include "arguments.h"

#include <uv.h>

#include <cmath>

namespace roce {
namespace {

Napi::Error withCode(Napi::Error error, const char* code) {
  error.Value().Set("code", code);
  return error;
}

template <class Element>
bool readSpan(napi_env env, napi_value value, napi_typedarray_type wanted, Span<Element>& out) {
  napi_typedarray_type type;
  void* data = nullptr;
  size_t length = 0;
  // It fails for what is no typed array. Only this call is right for views over a SharedArrayBuffer: their buffer is no ArrayBuffer.
  if (napi_get_typedarray_info(env, value, &type, &length, &data, nullptr, nullptr) != napi_ok) return false;
  if (type != wanted) return false;
  out.data = static_cast<Element*>(data);
  out.length = data == nullptr ? 0 : length;
  return true;
}

/// True when `value` is a number with an integer in min … max.
bool isIntegerWithin(double value, uint32_t min, uint32_t max) {
  return value >= min && value <= max && std::floor(value) == value;
}

}  // namespace

Napi::Error typeError(Napi::Env env, const std::string& message) {
  return withCode(Napi::TypeError::New(env, message), "ERR_INVALID_ARG_TYPE");
}

Napi::Error rangeError(Napi::Env env, const std::string& message) {
  return withCode(Napi::RangeError::New(env, message), "ERR_OUT_OF_RANGE");
}

Napi::Error systemError(Napi::Env env, int errnum, const char* syscall, const std::string& about) {
  const std::string code = uv_err_name(-errnum);
  std::string message = std::string(syscall) + " " + code;
  if (!about.empty()) message += " " + about;
  Napi::Error error = withCode(Napi::Error::New(env, message), code.c_str());
  error.Value().Set("errno", Napi::Number::New(env, -errnum));
  error.Value().Set("syscall", syscall);
  return error;
}

bool readBytes(napi_env env, napi_value value, Bytes& out) {
  return readSpan(env, value, napi_uint8_array, out);
}

bool readWords(napi_env env, napi_value value, Words& out) {
  return readSpan(env, value, napi_uint32_array, out);
}

bool readDoubles(napi_env env, napi_value value, Doubles& out) {
  return readSpan(env, value, napi_float64_array, out);
}

bool isShared(napi_env env, napi_value typedArray) {
  napi_value buffer;
  bool isArrayBuffer = false;
  return napi_get_typedarray_info(env, typedArray, nullptr, nullptr, nullptr, &buffer, nullptr) == napi_ok &&
         napi_is_arraybuffer(env, buffer, &isArrayBuffer) == napi_ok && !isArrayBuffer;
}

Bytes bytesArgument(const Napi::CallbackInfo& info, size_t index, const char* name) {
  Bytes bytes;
  if (!readBytes(info.Env(), info[index], bytes))
    throw typeError(info.Env(), std::string(name) + " must be a Uint8Array");
  return bytes;
}

Words wordsArgument(const Napi::CallbackInfo& info, size_t index, const char* name) {
  Words words;
  if (!readWords(info.Env(), info[index], words))
    throw typeError(info.Env(), std::string(name) + " must be a Uint32Array");
  return words;
}

uint32_t integerArgument(const Napi::CallbackInfo& info, size_t index, const char* name, uint32_t max) {
  return integerArgument(info.Env(), info[index], name, max);
}

uint32_t integerArgument(napi_env env, napi_value value, const char* name, uint32_t max) {
  double number = 0;
  // It fails for what is no number.
  if (napi_get_value_double(env, value, &number) != napi_ok) throw typeError(env, std::string(name) + " must be a number");
  if (!isIntegerWithin(number, 0, max))
    throw rangeError(env, std::string(name) + " must be an integer from 0 to " + std::to_string(max));
  return static_cast<uint32_t>(number);
}

Options::Options(Napi::Env env, Napi::Value value, const char* name) : env_(env) {
  if (value.IsUndefined()) {
    object_ = Napi::Object::New(env);
  } else {
    if (!value.IsObject()) throw typeError(env, std::string(name) + " must be an object");
    object_ = value.As<Napi::Object>();
  }
}

Napi::Value Options::get(const char* name) const { return object_.Get(name); }

uint32_t Options::checkedInteger(const char* name, Napi::Value value, uint32_t min, uint32_t max) const {
  if (!value.IsNumber()) throw typeError(env_, std::string(name) + " must be a number");
  const double number = value.As<Napi::Number>().DoubleValue();
  if (!isIntegerWithin(number, min, max))
    throw rangeError(env_, std::string(name) + " must be an integer from " + std::to_string(min) + " to " +
                               std::to_string(max));
  return static_cast<uint32_t>(number);
}

uint32_t Options::integer(const char* name, uint32_t min, uint32_t max, uint32_t otherwise) const {
  const Napi::Value value = get(name);
  return value.IsUndefined() ? otherwise : checkedInteger(name, value, min, max);
}

uint32_t Options::integer(const char* name, uint32_t min, uint32_t max) const {
  return checkedInteger(name, get(name), min, max);
}

bool Options::boolean(const char* name, bool otherwise) const {
  const Napi::Value value = get(name);
  if (value.IsUndefined()) return otherwise;
  if (!value.IsBoolean()) throw typeError(env_, std::string(name) + " must be a boolean");
  return value.As<Napi::Boolean>().Value();
}

std::string Options::string(const char* name, const char* otherwise) const {
  const Napi::Value value = get(name);
  if (value.IsUndefined() && otherwise != nullptr) return otherwise;
  if (!value.IsString()) throw typeError(env_, std::string(name) + " must be a string");
  return value.As<Napi::String>().Utf8Value();
}

}  // namespace roce
