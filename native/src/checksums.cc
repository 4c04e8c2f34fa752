// The exports around checksums: crc32 and its implementations, and what tests want to look at: the
// solver of Identifications and the window.
#include <algorithm>

#include "addon.h"
#include "arguments.h"
#include "icrc.h"
#include "id_window.h"

namespace roce {
namespace {

/// crc32(bytes, seed = 0, start = 0, end = bytes.length): as zlib's, of a part.
Napi::Value crc32(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const uint32_t seed = info[1].IsUndefined() ? 0 : integerArgument(info, 1, "seed", 0xffff'ffff);
  const Bytes bytes = bytesArgument(info, 0, "bytes");
  const auto most = static_cast<uint32_t>(std::min<size_t>(bytes.length, 0xffff'ffff));
  const size_t end = info[3].IsUndefined() ? bytes.length : integerArgument(info, 3, "end", most);
  const size_t start =
      info[2].IsUndefined() ? 0 : integerArgument(info, 2, "start", static_cast<uint32_t>(std::min<size_t>(end, most)));
  return Napi::Number::New(env, ~Addon::of(env).crc->update(~seed, bytes.data + start, end - start));
}

/// crc32Copy(target, source, seed = 0): copies and returns the CRC of what was copied.
Napi::Value crc32Copy(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const uint32_t seed = info[2].IsUndefined() ? 0 : integerArgument(info, 2, "seed", 0xffff'ffff);
  const Bytes target = bytesArgument(info, 0, "target"), source = bytesArgument(info, 1, "source");
  if (source.length > target.length) throw rangeError(env, "target must be as long as source");
  if (source.data < target.data + source.length && target.data < source.data + source.length)
    throw rangeError(env, "target and source must not overlap");
  return Napi::Number::New(
      env, ~Addon::of(env).crc->updateCopy(~seed, target.data, source.data, source.length));
}

/// setCrcImplementation(name): for tests. Ports of this environment use it from the next batch on.
void setCrcImplementation(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!info[0].IsString()) throw typeError(env, "name must be a string");
  const Crc* crc = crcByName(info[0].As<Napi::String>().Utf8Value().c_str());
  if (crc == nullptr) throw rangeError(env, "name must be a CRC implementation that this processor runs");
  Addon::of(env).crc = crc;
}

Napi::Value features(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Addon& addon = Addon::of(env);
  const Features& features = addon.features();
  Napi::Object object = Napi::Object::New(env);
  object.Set("gso", features.gso);
  object.Set("gsoMaxSegments", Napi::Number::New(env, features.gsoMaxSegments));
  object.Set("gro", features.gro);
  object.Set("sendmmsg", features.sendmmsg);
  object.Set("crc", addon.crc->name);
  return object;
}

/// solveId(difference, datagramBytes): the difference of two Identifications, and in bit 16 that of "don't fragment", or -1.
Napi::Value solveId(const Napi::CallbackInfo& info) {
  const uint32_t difference = integerArgument(info, 0, "difference", 0xffff'ffff);
  const uint32_t bytes = integerArgument(info, 1, "datagramBytes", kMaxDatagram);
  if (bytes < kBthBytes + kIcrcBytes) throw rangeError(info.Env(), "datagramBytes must be at least 16");
  return Napi::Number::New(info.Env(), solveIpId(difference, bytes));
}

/// The window of Identifications of one flow, for tests.
class IdWindowObject : public Napi::ObjectWrap<IdWindowObject> {
 public:
  static Napi::Function constructor(Napi::Env env) {
    return DefineClass(env, "IdWindow", {InstanceMethod<&IdWindowObject::admit>("admit")});
  }
  explicit IdWindowObject(const Napi::CallbackInfo& info) : ObjectWrap(info) {}

 private:
  Napi::Value admit(const Napi::CallbackInfo& info) {
    const uint32_t id = integerArgument(info, 0, "id", 2 * kMayFragment - 1);
    const uint32_t nowMs = integerArgument(info, 1, "nowMs", 0xffff'ffff);
    const uint32_t arrivedAfterMs =
        info[2].IsUndefined() ? nowMs : integerArgument(info, 2, "arrivedAfterMs", 0xffff'ffff);
    return Napi::Boolean::New(info.Env(), window_.admit(id, nowMs, arrivedAfterMs));
  }
  IdWindow window_;
};

}  // namespace

void exportChecksums(Napi::Env env, Napi::Object exports) {
  exports.Set("crc32", Napi::Function::New<crc32>(env, "crc32"));
  exports.Set("crc32Copy", Napi::Function::New<crc32Copy>(env, "crc32Copy"));
  exports.Set("setCrcImplementation", Napi::Function::New<setCrcImplementation>(env, "setCrcImplementation"));
  exports.Set("features", Napi::Function::New<features>(env, "features"));
  exports.Set("solveId", Napi::Function::New<solveId>(env, "solveId"));
  exports.Set("IdWindow", IdWindowObject::constructor(env));
}

}  // namespace roce
