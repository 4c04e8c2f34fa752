#include "descriptors.h"

#include <unistd.h>

#include <climits>
#include <utility>

#include "arguments.h"

namespace roce {

void Descriptors::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Descriptors", DefineClass(env, "Descriptors",
                                         {
                                             InstanceMethod<&Descriptors::list>("list"),
                                             InstanceMethod<&Descriptors::close>("close"),
                                         }));
}

Descriptors::Descriptors(const Napi::CallbackInfo& info) : ObjectWrap(info) {
  const Napi::Env env = info.Env();
  if (!info[0].IsArray()) throw typeError(env, "descriptors must be an array");
  const auto list = info[0].As<Napi::Array>();
  std::vector<int> descriptors;
  for (uint32_t i = 0; i < list.Length(); i++) {
    const Napi::Value each = list[i];
    if (!each.IsNumber()) throw typeError(env, "descriptors must be numbers");
    const double number = each.As<Napi::Number>().DoubleValue();
    if (!(number >= 0 && number <= INT_MAX) || number != static_cast<int>(number))
      throw rangeError(env, "descriptors must be integers, 0 or more");
    descriptors.push_back(static_cast<int>(number));
  }
  descriptors_ = std::move(descriptors);
}

/// list(): the numbers; none once closed.
Napi::Value Descriptors::list(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Array result = Napi::Array::New(env, descriptors_.size());
  for (size_t i = 0; i < descriptors_.size(); i++)
    result.Set(static_cast<uint32_t>(i), Napi::Number::New(env, descriptors_[i]));
  return result;
}

/// close(): all of them, once.
void Descriptors::close(const Napi::CallbackInfo&) { closeAll(); }

void Descriptors::closeAll() {
  for (const int descriptor : descriptors_) ::close(descriptor);
  descriptors_.clear();
}

}  // namespace roce
