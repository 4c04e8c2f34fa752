// The JavaScript class Descriptors: file descriptors that are closed at the latest with the thread that has them.
#pragma once
#include <napi.h>

#include <vector>

namespace roce {

class Descriptors : public Napi::ObjectWrap<Descriptors> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit Descriptors(const Napi::CallbackInfo& info);
  /// Node-API calls it as the environment ends, whether JavaScript still holds the object or not.
  ~Descriptors() override { closeAll(); }

 private:
  Napi::Value list(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);
  void closeAll();

  std::vector<int> descriptors_;
};

}  // namespace roce
